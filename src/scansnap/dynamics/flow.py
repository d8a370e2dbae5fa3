"""The population dynamics in continuous time, integrated in log time.

    dY/dt = eta_Y E[dY],      dZ/dt = eta_Z E[dz]

with the expectation over classes at T -> infinity: `train(batch_size=None, seq_len=math.inf)` is its Euler scheme with
unit steps, so one unit of time is one expected batch-1 step.  Other systems follow their gradient in the same way.
Once the loss is small the residual falls like 1/t and change is steady in log t: with t = s (e^u - 1) the equation
dY/du = (t + s) dY/dt has bounded rates, and 10^12 steps cost about as much as 10^3.  s, one over the largest rate, is
the time in which anything first moves.

Where a part of the state is fast it follows the rest stiffly, which `yz_flow.py` derives for (Y, Z).  The tolerance
sets the error of a step, and so its length.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.dynamics.options import FlowingOptions, FlowOptions, Runs
from scansnap.dynamics.task import FlowTask, Trained, flow_options, flow_task
from scansnap.results.dataset import Recorder, run_dataset, run_variables
from scansnap.runtime.machine import one_thread
from scansnap.runtime.progress import progress_bar
from scansnap.storage.provenance import attributes
from scansnap.systems.quantity import Quantity
from scansnap.validation.options import RunArguments, from_names, options_as_kwargs
from scansnap.validation.validate import validated

FloatArray = NDArray[np.float64]

PIECE_BYTES = 2**28
"""Runs are integrated in groups whose states take about this much memory."""

SMALL_STATE = 200_000
"""A run with at most this many entries is integrated by tensor operations on one thread."""


@dataclass(frozen=True, kw_only=True)
class FlowArguments(FlowOptions, RunArguments):
    """The keyword arguments of `flow`, for type checkers."""


@options_as_kwargs(FlowArguments, FlowOptions, RunArguments)
@validated
def flow(
    classes: Trained, *, store: str | Path | None = None, progress: bool | None = None, **kwargs: Any
) -> xr.Dataset:
    """Integrate the population dynamics and return the state at each of `times`.

    One unit of time is one expected update; for (Y, Z) with batch size 1 at T -> infinity.  Arithmetic is float64.

    Parameters
    ----------
    classes : SequenceClasses, any DataSource, a System, or a name
        What to integrate: (Y, Z) on classes, of which only the P(l|n) matter, or another system, which has its own
        learning rates and quantities in place of the options below that are about (Y, Z).
    {options}

    Returns
    -------
    xarray.Dataset
        A run that cannot be integrated to the end has the status "failed" and NaN from there on.

    Examples
    --------
    >>> late = ss.flow("single-common", lr_y=0.5, lr_z=0.05, times=[1, 1e3, 1e6])
    >>> print(late["loss"].values.round(3))
    [[6.858 0.026 0.   ]]
    """
    assert not isinstance(classes, str)  # the decorator has replaced names
    options: Any = from_names(flow_options(classes), kwargs)
    return flow_runs(flow_task(classes, options), options, options.runs, store, progress)


def flow_runs(
    task: FlowTask,
    options: FlowingOptions,
    runs: Runs,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """`flow`, for options that were already checked."""
    times, record = np.array(options.times), task.recorded
    template = run_dataset(
        {**runs.coordinates(), "status": np.full(len(runs), "running", "U8")},
        "time",
        times,
        task.coordinates(),
        attributes("flow", task.title, options.to_dict(), **task.attributes),
    )
    variables = run_variables(record, task.sizes, "time", len(runs), len(times), "float64")
    recorder = Recorder(template, variables, store)
    if (finished := recorder.finished()) is not None:
        return finished
    words = f"integrating {len(runs)} run{'s' * (len(runs) > 1)}"
    reached = np.zeros(len(runs))
    piece = max(1, int(PIECE_BYTES // task.bytes_per_run))
    with recorder, progress_bar(words, len(runs), progress) as show:
        for first in range(0, len(runs), piece):
            part = slice(first, first + piece)
            own = task.begin(runs[part])
            states = np.full((len(runs[part]), len(times), own.size), np.nan)
            loss, accuracy = np.full((2, *states.shape[:2]), np.nan)
            with one_thread() if own.size <= SMALL_STATE else contextlib.nullcontext():
                for r, filled in enumerate(states):
                    reached[first + r] = own.integrate(r, times, options.rtol, options.atol, filled)
                    loss[r], accuracy[r] = own.measures(r, filled)
                    show(first + r + 1)
            snapshot = own.snapshot(states, {"loss": loss.ravel(), "accuracy": accuracy.ravel()})
            lost: NDArray[np.bool_] = np.isnan(states.sum(2))
            values = {q.name: _by_time(q, snapshot, q.shape(task.sizes), lost) for q in record}
            recorder.write(values, (part, slice(None)))
        failed = reached < times[-1] * (1 - 1e-9)
        if failed.any():
            warnings.warn(_why(runs, reached, failed, times[-1]), RuntimeWarning, stacklevel=3)
        return recorder.finish({"status": np.where(failed, "failed", "ok").astype("U8")})


def _by_time(
    quantity: Quantity, snapshot: object, shape: tuple[int, ...], lost: NDArray[np.bool_]
) -> NDArray[np.generic]:
    """A quantity (R, n, ...), computed for all runs and times at once; NaN where a run did not reach."""
    computed = quantity.values(snapshot, (lost.size, *shape)).reshape(*lost.shape, *shape)
    return np.where(lost.reshape(*lost.shape, *[1] * len(shape)), np.nan, computed)


def _why(runs: Runs, reached: FloatArray, failed: NDArray[np.bool_], end: float) -> str:
    """What happened to the runs that failed."""
    worst = int(np.flatnonzero(failed)[0])
    rates = " and ".join(f"{name} = {values[worst]:g}" for name, values in runs.rates.items())
    return (
        f"{int(failed.sum())} of {len(runs)} runs failed; the first, with {rates}, came to t = {reached[worst]:.3g} of "
        f"{end:.3g}, as happens where the solution ends or settles at once, or where rtol and atol are tiny: ask for "
        "earlier times or allow larger errors."
    )
