"""The population dynamics in continuous time, integrated in log time.

    dY/dt = eta_Y E[dY],      dZ/dt = eta_Z E[dz]

with the expectation over classes at T -> infinity: `train(batch_size=None, seq_len=math.inf)` is its Euler scheme with
unit steps, so one unit of time is one expected batch-1 step.  Once the loss is small the residual falls like 1/t and
change is steady in log t: with t = s (e^u - 1) the equation dY/du = (t + s) dY/dt has bounded rates, and 10^12 steps
cost about as much as 10^3.  s = 1 / max(eta_Y, eta_Z) is the time in which anything first moves.

The solver is the explicit Runge-Kutta pair of order 8 (DOP853); its error control lets one choose the tolerance instead
of the step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.progress import progress_bar
from scansnap.base.threads import one_thread
from scansnap.data.named_classes import as_source
from scansnap.data.source import DataSource
from scansnap.dynamics.gradients import LayoutTensors, gradients, population_batch
from scansnap.dynamics.options import FlowOptions, Runs
from scansnap.dynamics.start import Start, make_start
from scansnap.dynamics.verb import Call, verb
from scansnap.model.architecture import Layer
from scansnap.results.dataset import (
    coordinates,
    run_dataset,
    run_variables,
    shape_of,
    sizes,
    source_attributes,
)
from scansnap.results.recorder import Recorder, Records
from scansnap.results.snapshot import Parts, Snapshot

TITLE = "population dynamics of a 1-layer (Y, Z) transformer"


@dataclass(frozen=True, kw_only=True)
class FlowCall(FlowOptions, Call):
    """A call of `flow` in its flat form."""


@verb(FlowOptions, FlowCall)
def flow(
    classes: DataSource | str, options: FlowOptions, store: str | Path | None, progress: bool | None
) -> xr.Dataset:
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
    """
    source = as_source(classes)
    options.check_data(source)
    runs, times, record = options.runs, np.array(options.times), options.quantities
    start = make_start(source.classes, options, runs.seed, "float64", options.part(Layer))
    template = run_dataset(
        {**runs.coordinates(), "status": np.full(len(runs), "running", "U8")}, "time", times,
        coordinates(start.layout, record), source_attributes("flow", TITLE, options.described(), source),
    )  # fmt: skip
    dimension_sizes = sizes(start.layout)
    variables = run_variables(record, dimension_sizes, "time", len(runs), len(times), "float64")
    recorder = Recorder(template, variables, store)
    if (finished := recorder.finished()) is not None:
        return finished
    layout = LayoutTensors.of(start.layout, dtype=torch.float64)
    words = f"integrating {len(runs)} run{'s' * (len(runs) > 1)}"
    with recorder, progress_bar(words, len(runs), progress) as show:
        states = [
            _System(layout, start, r, runs, options).solve(
                times,
                options.rtol,
                options.atol,
                lambda share, r=r: show(r + share),  # type: ignore[misc]
            )
            for r in range(len(runs))
        ]
        records = Records(recorder, variables, len(times))
        for i in range(len(times)):
            y, z, *bias = (torch.stack(part) for part in zip(*([array[i] for array in s] for s in states), strict=True))
            gradient = gradients(layout, y, z, population_batch(layout, len(runs)), bias=bias[0] if bias else None)
            parts = Parts(
                attention_logits=z.numpy(), decoder=y.numpy(), position_bias=bias[0][:, 0].numpy() if bias else None
            )
            measures = {"loss": gradient.loss.numpy(), "accuracy": gradient.accuracy.numpy()}
            snapshot = Snapshot(start.layout, parts, measures, start.prior)
            values = {q.name: q.values(snapshot, (len(runs), *shape_of(q, dimension_sizes))) for q in record}
            lost = torch.isnan(z).flatten(1).any(1).numpy()
            records.put(i, values, lost=lost)
        return records.finish({"status": np.where(lost, "failed", "ok").astype("U8")})


SMALL_STATE = 200_000
"""A run with at most this many entries of (y, z) is integrated on one thread."""

MOST_EVALUATIONS = 100_000
"""A run fails after this many evaluations of the gradient: about a hundred times what most runs need."""


class _TooHard(Exception):
    """Raised out of the integrator when it makes no progress."""


class _System:
    """One run's differential equation for the flattened (y, z), and the position bias if there is one."""

    def __init__(self, layout: LayoutTensors, start: Start, run: int, runs: Runs, options: FlowOptions) -> None:
        self._layout = layout
        self._batch = population_batch(layout, 1)
        self._modified = options.decoder_gradient == "modified"
        self._lr_y, self._lr_z = float(runs.lr_y[run]), float(runs.lr_z[run])
        self._entry_rates = self._lr_y * layout.entry_rate
        parts = [start.decoder[run], start.attention_logits[run]]
        if start.position_bias is not None:
            self._lr_bias = self._lr_z if options.learn_position_bias else 0.0
            parts.append(start.position_bias[None])
        ends = np.cumsum([0] + [part.size for part in parts]).tolist()
        self._places = [(a, b, part.shape) for a, b, part in zip(ends[:-1], ends[1:], parts, strict=True)]
        self._start = np.concatenate([part.ravel() for part in parts])

    def solve(
        self, times: NDArray[np.float64], rtol: float, atol: float, show: Callable[[float], None]
    ) -> list[torch.Tensor]:
        """y (n, H D, C), z (n, Q H, S) and any b (n, 1, G) at the times, NaN where the integration did not reach."""
        from scipy.integrate import solve_ivp

        scale = 1.0 / max(self._lr_y, self._lr_z, 1e-300)
        log_times = np.log1p(times / scale)
        end = max(float(log_times[-1]), 1e-12)

        evaluations = 0

        def slope(u: float, state: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal evaluations
            evaluations += 1
            if evaluations > MOST_EVALUATIONS:
                raise _TooHard
            show(u / end)
            return self._velocity(state) * (scale * np.exp(u))  # t + s

        states = np.full((len(times), len(self._start)), np.nan)
        alone = one_thread() if len(self._start) <= SMALL_STATE else contextlib.nullcontext()
        with contextlib.suppress(_TooHard), alone:
            solution = solve_ivp(
                slope, (0.0, end), self._start, method="DOP853", t_eval=log_times, rtol=rtol, atol=atol
            )
            reached = np.reshape(solution.y, (len(self._start), -1))  # an empty list if it did not get anywhere
            states[: reached.shape[1]] = reached.T
        return self._split(states)

    def _split(self, states: NDArray[np.float64]) -> list[torch.Tensor]:
        """(y, z), or (y, z, b), of flattened states (n, ...)."""
        whole = torch.from_numpy(states)
        return [whole[:, a:b].reshape(len(states), *shape) for a, b, shape in self._places]

    def _velocity(self, state: NDArray[np.float64]) -> NDArray[np.float64]:
        y, z, *bias = self._split(state[None])
        gradient = gradients(self._layout, y, z, self._batch, modified=self._modified, bias=bias[0] if bias else None)
        velocities = [self._entry_rates * gradient.decoder, self._lr_z * gradient.attention_logits]
        if gradient.position_bias is not None:
            velocities.append(self._lr_bias * gradient.position_bias)
        return np.concatenate([velocity.numpy().ravel() for velocity in velocities])
