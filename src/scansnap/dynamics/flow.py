"""The population dynamics in continuous time, integrated in log time.

    dY/dt = eta_Y E[dY],      dZ/dt = eta_Z E[dz]

with the expectation over classes at T -> infinity: `train(batch_size=None, seq_len=math.inf)` is its Euler scheme with
unit steps, so one unit of time is one expected batch-1 step.  Once the loss is small the residual falls like 1/t and
change is steady in log t: with t = s (e^u - 1) the equation dY/du = (t + s) dY/dt has bounded rates, and 10^12 steps
cost about as much as 10^3.  s = 1 / max(eta_Y, eta_Z) is the time in which anything first moves.

`integrator.py` integrates it with any rates: where the attention logits are fast they follow Y stiffly, which
`flow_engine.py` derives.  The tolerance sets the error of a step, and so its length.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.named_classes import Data, as_source
from scansnap.dynamics.flow_engine import FlowWork, Solution, solve
from scansnap.dynamics.options import FlowOptions, Runs
from scansnap.dynamics.start import Start
from scansnap.results.dataset import (
    coordinates,
    run_dataset,
    run_variables,
    shape_of,
    sizes,
    source_attributes,
)
from scansnap.results.recorder import Recorder
from scansnap.results.snapshot import Parts, Snapshot
from scansnap.runtime.progress import progress_bar
from scansnap.validation.calls import Call, options_or_kwargs

TITLE = "population dynamics of a 1-layer (Y, Z) transformer"

MOST_EVALUATIONS = 300_000
"""A run fails after this many evaluations of the gradient: about a hundred times what most runs need."""

PIECE = 2**25
"""Runs are integrated so many at a time that their states have about this many numbers."""


@dataclass(frozen=True, kw_only=True)
class FlowCall(FlowOptions, Call):
    """A call of `flow` in its flat form."""


@options_or_kwargs(FlowOptions, FlowCall)
def flow(classes: Data, options: FlowOptions, store: str | Path | None, progress: bool | None) -> xr.Dataset:
    """Integrate the population dynamics and return the state at each of `times`.

    One unit of time is one expected update with batch size 1 at T -> infinity.  Arithmetic is float64.

    Parameters
    ----------
    classes : SequenceClasses, or any DataSource, or a name
        What to learn from; only its P(l|n) matter.
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
    work = FlowWork.checked(as_source(classes), options)
    return flow_runs(work, options.runs, store, progress)


def flow_runs(work: FlowWork, runs: Runs, store: str | Path | None = None, progress: bool | None = None) -> xr.Dataset:
    """`flow`, for options that were already checked."""
    options = work.options
    times, record = np.array(options.times), options.quantities
    start = work.start(runs)
    template = run_dataset(
        {**runs.coordinates(), "status": np.full(len(runs), "running", "U8")},
        "time",
        times,
        coordinates(start.layout, record),
        source_attributes("flow", TITLE, options.to_dict(), work.source),
    )
    dimension_sizes = sizes(start.layout)
    variables = run_variables(record, dimension_sizes, "time", len(runs), len(times), "float64")
    recorder = Recorder(template, variables, store, defaults=FlowOptions.default_dict())
    if (finished := recorder.finished()) is not None:
        return finished
    words = f"integrating {len(runs)} run{'s' * (len(runs) > 1)}"
    reached = np.zeros(len(runs))
    piece = max(1, int(PIECE // work.numbers_per_run))
    with recorder, progress_bar(words, len(runs), progress) as show:
        for first in range(0, len(runs), piece):
            part = slice(first, first + piece)
            own = start[part]
            solution = solve(
                work,
                own,
                runs[part],
                MOST_EVALUATIONS,
                lambda done, first=first: show(first + done),  # type: ignore[misc]
            )
            reached[part] = solution.reached
            shapes = {quantity.name: shape_of(quantity, dimension_sizes) for quantity in record}
            recorder.write(_values(own, solution, options, shapes), (part, slice(None)))
        failed = reached < times[-1] * (1 - 1e-9)
        if failed.any():
            warnings.warn(_why(runs, reached, failed, times[-1]), RuntimeWarning, stacklevel=3)
            return recorder.finish({"status": np.where(failed, "failed", "ok").astype("U8")})
        return recorder.finish({"status": np.full(len(runs), "ok", "U8")})


def _values(
    start: Start, solution: Solution, options: FlowOptions, shapes: dict[str, tuple[int, ...]]
) -> dict[str, NDArray[np.generic]]:
    """Every quantity (R, n, ...), computed for all runs and times at once; NaN where a run did not reach."""
    count = solution.loss.shape
    lost = np.isnan(solution.loss)
    parts = Parts(
        attention_logits=_flat(solution.attention_logits),
        decoder=_flat(solution.decoder),
        position_bias=_flat(solution.position_bias),
    )
    measures = {"loss": solution.loss.ravel(), "accuracy": solution.accuracy.ravel()}
    snapshot = Snapshot(start.layout, parts, measures, start.prior)
    values = {}
    for quantity in options.quantities:
        shape = shapes[quantity.name]
        computed = quantity.values(snapshot, (lost.size, *shape)).reshape(*count, *shape)
        values[quantity.name] = np.where(lost.reshape(*count, *[1] * len(shape)), np.nan, computed)
    return values


def _flat(array: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Runs and times as one axis."""
    return None if array is None else array.reshape(-1, *array.shape[2:])


def _why(runs: Runs, reached: NDArray[np.float64], failed: NDArray[np.bool_], end: float) -> str:
    """What happened to the runs that failed."""
    worst = int(np.flatnonzero(failed)[0])
    return (
        f"{int(failed.sum())} of {len(runs)} runs failed; the first, with lr_y = {runs.lr_y[worst]:g} and lr_z = "
        f"{runs.lr_z[worst]:g}, came to t = {reached[worst]:.3g} of {end:.3g} in at most {MOST_EVALUATIONS:,} "
        "evaluations of the gradient, as happens where classes differ in nothing but their next token, so that Y "
        "settles at once, or where rtol and atol are tiny: ask for earlier times or allow larger errors."
    )
