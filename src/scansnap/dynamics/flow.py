"""The population dynamics in continuous time, integrated in log time.

    dY/dt = eta_Y E[dY],      dZ/dt = eta_Z E[dz]

with the expectation over classes at T -> infinity: `train(batch_size=None, seq_len=math.inf)` is its Euler scheme with
unit steps, so one unit of time is one expected batch-1 step.  Once the loss is small the residual falls like 1/t and
all change happens per factor of t: with t = s (e^u - 1) the equation dY/du = (t + s) dY/dt has bounded rates, and 10^12
steps cost about what 10^3 do.  s = 1 / max(eta_Y, eta_Z) is the time in which anything first moves.

Solved by the explicit Runge-Kutta pair of order 8 (DOP853); its error control makes the tolerance, not the step, the
thing to choose.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.progress import progress_bar
from scansnap.base.threads import one_thread
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.gradients import LayoutTensors, gradients, population_batch
from scansnap.dynamics.options import (
    DECODER_GRADIENTS,
    FRESH,
    RECORDABLE,
    RECORDED,
    Runs,
    check_bias_recorded,
    check_classes,
    check_recorded,
    one_of,
    recorded,
)
from scansnap.dynamics.position_bias import described_bias
from scansnap.dynamics.prior import described_prior
from scansnap.dynamics.recorder import Recorder
from scansnap.dynamics.start import Init, Start, make_start
from scansnap.model.architecture import Architecture
from scansnap.results.dataset import attributes, coordinates


def flow(
    classes: SequenceClasses,
    *,
    lr_y: Any,
    lr_z: Any,
    times: Any,
    init: Init = "zeros",
    decoder_gradient: str = "true",
    normalization: str = "l2",
    residual: bool = False,
    heads: int = 1,
    init_scale_z: float = 1.0,
    attention_prior: Any = None,
    position_bias: Any = None,
    learn_position_bias: bool = False,
    seeds: Any = 0,
    record: Iterable[str] = RECORDED,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Integrate the population dynamics and return the state at each of `times` (in expected batch-1 steps).

    `lr_y`, `lr_z`, `seeds` (which matter only for init="uniform"), the start, the prior and the layer are as in
    `train`; `rtol` and `atol` bound the error of each step of the integration.  Arithmetic is float64.  With `store`
    the result is written there, and read from there if the same flow was finished before.  A run that cannot be
    integrated to the end has the status "failed" and NaN from there on.
    """
    check_classes(classes)
    one_of("decoder_gradient", decoder_gradient, DECODER_GRADIENTS)
    architecture = Architecture.checked(normalization=normalization, residual=residual, heads=heads)
    variables = recorded(record, [name for name in RECORDABLE if name not in FRESH])
    check_recorded(variables, residual)
    when = _times(times)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (isinstance(value, int | float) and 1e-14 <= value <= 1e-1):
            raise InputError(f"{name} is {value!r}: give a tolerance from 1e-14 to 0.1.")
    runs = Runs.checked(lr_y=lr_y, lr_z=lr_z, seeds=seeds)
    start = make_start(
        classes, init, runs.seed, "float64", architecture, init_scale_z=init_scale_z, attention_prior=attention_prior,
        position_bias=position_bias, learn_position_bias=learn_position_bias,
    )  # fmt: skip
    check_bias_recorded(variables, classes)
    layout = LayoutTensors.of(start.layout, dtype=torch.float64, positions=start.positions)
    described = {
        "init": start.name, "init_scale_z": float(init_scale_z), "attention_prior": described_prior(attention_prior),
        "position_bias": described_bias(position_bias), "learn_position_bias": bool(learn_position_bias),
        "decoder_gradient": decoder_gradient, **asdict(architecture),
        "record": variables, "rtol": rtol, "atol": atol, "times": when.tolist(),
        "lr_y": runs.lr_y.tolist(), "lr_z": runs.lr_z.tolist(), "seeds": runs.seed.tolist(),
    }  # fmt: skip
    unfinished = {"status": np.full(len(runs), "running", "U8")}
    template = coordinates(
        start.layout, "time", when,
        {"lr_y": runs.lr_y, "lr_z": runs.lr_z, "seed": runs.seed.astype(np.int64), **unfinished}, variables,
    )  # fmt: skip
    template.attrs = attributes(classes, "flow", described, "population dynamics of a 1-layer (Y, Z) transformer")
    recorder = Recorder(start.layout, template, "time", variables, "float64", store, start=start)
    if (done := recorder.finished()) is not None:
        return done

    states = []
    with recorder, progress_bar(f"integrating {len(runs)} run{'s' * (len(runs) > 1)}", len(runs), progress) as show:
        for r in range(len(runs)):
            system = _System(layout, start, r, runs, decoder_gradient)
            states.append(system.solve(when, rtol, atol, lambda share, r=r: show(r + share)))  # type: ignore[misc]
    for i in range(len(when)):
        y = torch.stack([state[0][i] for state in states])
        z = torch.stack([state[1][i] for state in states])
        b = torch.stack([state[2][i] for state in states]) if start.positions is not None else None
        found = gradients(layout, y, z, population_batch(layout, len(runs)), bias=b)
        values = recorder.observe(
            z.numpy(), y.numpy() if recorder.wants_decoder else None, None if b is None else b[:, 0].numpy()
        )
        recorder.put(i, {**values, "loss": found.loss.numpy(), "accuracy": found.accuracy.numpy()})
        recorder.blank(i, np.array([bool(torch.isnan(state[1][i]).any()) for state in states]))
    failed = np.array([bool(torch.isnan(state[1][-1]).any()) for state in states])
    return recorder.finish({"status": np.where(failed, "failed", "ok").astype("U8")})


SMALL_STATE = 200_000
"""Entries of (y, z) up to which a run is integrated on one thread."""

MOST_EVALUATIONS = 100_000
"""Evaluations of the gradient after which a run is given up as failed: some hundred times what most need."""


class _TooHard(Exception):
    """Raised out of the integrator when it makes no progress."""


class _System:
    """One run's differential equation for the flattened (y, z), and the bias of positions where there is one."""

    def __init__(self, layout: LayoutTensors, start: Start, run: int, runs: Runs, gradient: str) -> None:
        self._layout = layout
        self._batch = population_batch(layout, 1)
        self._modified = gradient == "modified"
        self._lr_y, self._lr_z = float(runs.lr_y[run]), float(runs.lr_z[run])
        self._entry_rates = self._lr_y * layout.entry_rate
        parts = [start.decoder[run], start.attention[run]]
        if start.positions is not None:
            self._lr_bias = self._lr_z if start.positions.learned else 0.0
            parts.append(start.positions.bias[None])
        ends = np.cumsum([0] + [part.size for part in parts]).tolist()
        self._places = [(a, b, part.shape) for a, b, part in zip(ends[:-1], ends[1:], parts, strict=True)]
        self._start = np.concatenate([part.ravel() for part in parts])

    def solve(
        self, times: NDArray[np.float64], rtol: float, atol: float, show: Callable[[float], None]
    ) -> list[torch.Tensor]:
        """y (n, H D, C), z (n, Q H, S) and any b (n, 1, G) at the times, NaN where the integration did not get."""
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

        found = np.full((len(times), len(self._start)), np.nan)
        alone = one_thread() if len(self._start) <= SMALL_STATE else contextlib.nullcontext()
        with contextlib.suppress(_TooHard), alone:
            solution = solve_ivp(
                slope, (0.0, end), self._start, method="DOP853", t_eval=log_times, rtol=rtol, atol=atol
            )
            found[: solution.y.shape[1]] = solution.y.T
        return self._split(found)

    def _split(self, states: NDArray[np.float64]) -> list[torch.Tensor]:
        """(y, z), or (y, z, b), of flattened states (n, ...)."""
        whole = torch.from_numpy(states)
        return [whole[:, a:b].reshape(len(states), *shape) for a, b, shape in self._places]

    def _velocity(self, state: NDArray[np.float64]) -> NDArray[np.float64]:
        y, z, *bias = self._split(state[None])
        found = gradients(self._layout, y, z, self._batch, modified=self._modified, bias=bias[0] if bias else None)
        moved = [self._entry_rates * found.decoder, self._lr_z * found.attention]
        if found.position_bias is not None:
            moved.append(self._lr_bias * found.position_bias)
        return np.concatenate([one.numpy().ravel() for one in moved])


def _times(values: Any) -> NDArray[np.float64]:
    try:
        times = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"times is {values!r}: give increasing numbers of steps, such as [1, 1e3, 1e6].") from None
    if (
        times.ndim != 1
        or not times.size
        or not np.isfinite(times).all()
        or (times < 0).any()
        or (np.diff(times) <= 0).any()
    ):
        raise InputError(f"times is {values!r}: give increasing numbers of steps of at least 0, such as [1, 1e3, 1e6].")
    return times
