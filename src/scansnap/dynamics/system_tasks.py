"""Training and the flow of any `System`, on tensors.

The flow
--------
With rates D (diagonal) the flow is dx/dt = D grad J(x).  In w, with x = x_0 + D^(1/2) w, it is the gradient flow
dw/dt = grad_w J.  LSODA integrates it in log time, by Adams' methods or, where it is stiff, by backward differences
with the exact Hessian; a system of more than `MOST_IMPLICIT` entries, whose Hessian would be too large, DOP853.

At a minimum the gradient is rounding errors, which log time multiplies by t: along directions in which J is flat no
method can follow them.  So a run stops when each entry of the gradient is within `RESTING` times its rounding error:
what it changes by if the parameters change in their last digit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, make_dataclass
from functools import cached_property
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import DOP853, LSODA, OdeSolver
from torch import Tensor

from scansnap.dynamics.options import FlowingOptions, Rates, Runs, TrainingOptions, rate_option
from scansnap.dynamics.task import Engine, FlowRuns, FlowTask, Observation, Task, TrainTask
from scansnap.dynamics.tensor_engine import Measured, TensorEngine, TensorModel, check_known
from scansnap.dynamics.update_rules import memory_of
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, find_device
from scansnap.systems.quantity import Quantity, RecordType
from scansnap.systems.system import Arrays, State, System, check_system
from scansnap.validation.checks import FloatArray
from scansnap.validation.options import Options, option, options_of

MOST_IMPLICIT = 1500
"""The most entries of a state that may be integrated implicitly."""

MOST_EVALUATIONS = 300_000
"""A run fails after this many evaluations of the gradient."""

AT_ONCE = 128
"""States whose gradients are computed together."""

RESTING, TRIALS = 8.0, 4
"""The ratio of gradient and rounding below which a run rests, and the changes of last digits that are tried."""

CHECK_EVERY = 2.0
"""The log time between two checks whether a run rests."""


def system_options(system: System, base: type[Options]) -> type[Options]:
    """The options of one system: those of every system, its learning rates and what it can record."""
    if (base, system.fingerprint) not in _OPTIONS:
        _OPTIONS[base, system.fingerprint] = _make_options(system, base)
    return _OPTIONS[base, system.fingerprint]


_OPTIONS: dict[tuple[type[Options], str], type[Options]] = {}


def _make_options(system: System, base: type[Options]) -> type[Options]:
    blocks = {rate: [name for name, block in system.blocks.items() if block.rate == rate] for rate in system.rates}
    stated: list[tuple[str, Any, Any]] = [
        (rate, Rates, rate_option(" and ".join(names))) for rate, names in blocks.items()
    ]
    usual = ("loss", *(quantity.name for quantity in system.quantities))
    meaning = f"Quantities to record, among {', '.join(system.recordable)}, or your own."
    record = option(meaning, RecordType(system.recordable), default=usual, axis=False, separator="")
    stated.append(("record", object, record))
    return make_dataclass(f"{type(system).__name__}Options", stated, bases=(base,), frozen=True, kw_only=True)


def check_gradient(system: System) -> None:
    """Refuse a gradient or a loss whose shape is not that of the blocks or the runs, in one sentence."""
    seeds = np.array([0, 1], np.uint64)
    arrays = system.start(seeds), system.data(seeds, 0 if system.samples else None)
    parameters, data = ({name: _tensor(v, torch.float64) for name, v in part.items()} for part in arrays)
    gradient, loss = system.gradient(parameters, data)
    name = f"{type(system).__name__}.gradient"
    if set(gradient) != set(parameters):
        raise InputError(f"{name} gives {', '.join(gradient) or 'nothing'}: give {', '.join(parameters)}.")
    wanted = {f"'{block}'": (gradient[block], values.shape) for block, values in parameters.items()}
    for part, (given, shape) in {**wanted, "the loss": (loss, (2,))}.items():
        if tuple(given.shape) != tuple(shape):
            raise InputError(
                f"{name} gives {part} of shape {tuple(given.shape)} for two runs: give {tuple(shape)}, the run first."
            )


Checked = TypeVar("Checked", TrainingOptions, FlowingOptions)


@dataclass(frozen=True)
class SystemTask(Task, Generic[Checked]):
    """A system and its options."""

    system: System
    options: Checked

    @classmethod
    def checked(cls, system: System, options: Checked) -> Self:
        """The task, or an `InputError` that says why it cannot be done."""
        check_system(system)
        check_gradient(system)
        if isinstance(options, TrainingOptions):
            options.check_own_rule()
            check_known(options)
        task = cls(system, options)
        count = len(options.runs) if isinstance(options, TrainingOptions) else 1
        check_memory(
            f"{count:,} {'runs' if count > 1 else 'run'} of {system.label} need",
            task.bytes_per_run * count,
            "ask for fewer",
        )
        return task

    @property
    def fingerprint(self) -> str:
        return self.system.fingerprint

    @property
    def description(self) -> dict[str, Any]:
        return {"system": self.system.label, **self.system.to_dict()}

    @property
    def attributes(self) -> dict[str, str]:
        return {"system": self.system.label, "system_fingerprint": self.fingerprint}

    @cached_property
    def recorded(self) -> tuple[Quantity, ...]:
        stated = options_of(type(self.options))["record"].type
        return cast(RecordType, stated).members(self.options.record)  # type: ignore[attr-defined]

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {dim: len(labels) for dim, labels in self.system.coords.items()}

    def coordinates(self) -> dict[str, Any]:
        used = {dim for quantity in self.recorded for dim in quantity.dims}
        own = {dim: labels for quantity in self.recorded for dim, labels in quantity.coords.items()}
        labels = {dim: labels for dim, labels in self.system.coords.items() if dim in used}
        return {dim: np.asarray(list(values)) for dim, values in {**labels, **own}.items()}

    @cached_property
    def entries(self) -> int:
        """The number of parameters."""
        return sum(int(np.prod([self.sizes[dim] for dim in block.dims])) for block in self.system.blocks.values())


@dataclass(frozen=True)
class SystemTraining(SystemTask[TrainingOptions], TrainTask):
    """A system to train."""

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"training dynamics of {self.system.label}"

    @property
    def dtype(self) -> str:
        return self.options.dtype

    @property
    def bytes_per_run(self) -> float:
        return np.dtype(self.dtype).itemsize * self.entries * (4 + len(memory_of(self.options.rule)))

    @property
    def checkpoint_bytes(self) -> float:
        return self.bytes_per_run * len(self.options.runs)

    def begin(self, runs: Runs) -> Engine:
        return TensorEngine(SystemModel(self, runs), self.options, len(runs), self.entries * len(runs))


class SystemModel(TensorModel):
    """The blocks of a system on a device."""

    def __init__(self, task: SystemTraining, runs: Runs) -> None:
        options, self._system, self._seeds = task.options, task.system, runs.seed
        self._dtype, self._device = getattr(torch, options.dtype), find_device(options.device)
        self.parameters = self._tensors(self._system.start(runs.seed))
        self.rates = {
            name: _tensor(runs.rates[block.rate], self._dtype, self._device).reshape(-1, *[1] * len(block.dims))
            for name, block in self._system.blocks.items()
        }
        self.shares, self.centers = {}, {}
        self._step = 0 if self._system.samples else None
        self._data = self._tensors(self._system.data(runs.seed, self._step))
        self._fixed = self._system.data(runs.seed, None)

    def _tensors(self, arrays: Arrays) -> dict[str, Tensor]:
        return {name: _tensor(values, self._dtype, self._device) for name, values in arrays.items()}

    def gradient(self, step: int) -> tuple[dict[str, Tensor], Measured]:
        if self._system.samples and step != self._step:
            self._data, self._step = self._tensors(self._system.data(self._seeds, step)), step
        gradient, loss = self._system.gradient(self.parameters, self._data)
        return dict(gradient), (loss, torch.full_like(loss, torch.nan))

    def measure(self, step: int) -> Measured:
        return self.gradient(step)[1]

    def observe(self, needs: Collection[str]) -> Observation:
        parameters = {name: tensor.cpu().numpy().copy() for name, tensor in self.parameters.items()}
        return lambda loss, accuracy: State(self._system, parameters, self._fixed, loss)


def _tensor(values: NDArray[Any], dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Numbers in the run's precision; indices and flags stay what they are."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return torch.as_tensor(array, dtype=dtype, device=device).clone()
    return torch.as_tensor(array.astype(np.int64) if array.dtype.kind in "iu" else array, device=device)


@dataclass(frozen=True)
class SystemFlow(SystemTask[FlowingOptions], FlowTask):
    """A system to integrate."""

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"gradient flow of {self.system.label}"

    @property
    def dtype(self) -> str:
        return "float64"

    @property
    def bytes_per_run(self) -> float:
        hessian = self.entries**2 if self.entries <= MOST_IMPLICIT else 0
        return 8.0 * (self.entries * (2 * len(self.options.times) + 40) + 6 * hessian)

    def begin(self, runs: Runs) -> FlowRuns:
        return SystemFlowRuns(self, runs)


class SystemFlowRuns:
    """Runs of a system to integrate, as vectors w with x = x_0 + D^(1/2) w."""

    def __init__(self, task: SystemFlow, runs: Runs) -> None:
        self._system, self._size, start = task.system, task.entries, task.system.start(runs.seed)
        self._data = {
            name: _tensor(values, torch.float64) for name, values in task.system.data(runs.seed, None).items()
        }
        self._by_run = [{name: values[[run]] for name, values in self._data.items()} for run in range(len(runs))]
        self._shapes = {name: (-1, *np.shape(values)[1:]) for name, values in start.items()}
        self._sizes = [np.size(values[0]) for values in start.values()]
        self._start = np.concatenate([np.reshape(values, (len(runs), -1)) for values in start.values()], 1, dtype=float)
        rates = np.stack([runs.rates[task.system.blocks[name].rate] for name in start], 1)
        self._roots = np.sqrt(np.repeat(rates, self._sizes, axis=1))  # (R, N)

    @property
    def size(self) -> int:
        return self._size

    def integrate(self, run: int, times: FloatArray, rtol: float, atol: float, states: FloatArray) -> float:
        roots = self._roots[run]
        scale = 1.0 / (float(roots.max()) ** 2 or 1.0)
        u, record = np.log1p(times / scale), int(np.searchsorted(times, 0.0, side="right"))
        states[:record] = 0.0

        def slope(u: float, state: FloatArray) -> FloatArray:
            gradient, _ = self._gradient(run, torch.from_numpy(self._points(run, state[None])))
            return scale * math.exp(u) * (gradient[0].numpy() * roots)

        def hessian(u: float, state: FloatArray) -> FloatArray:
            return scale * math.exp(u) * (roots[:, None] * self._hessian(run, self._points(run, state)) * roots)

        start, errors = np.zeros(self._size), {"rtol": rtol, "atol": atol}
        if self._size <= MOST_IMPLICIT:
            solver: OdeSolver = LSODA(slope, 0.0, start, u[-1], jac=hessian, **errors)
        else:
            solver = DOP853(slope, 0.0, start, u[-1], **errors)
        last_check = 0.0
        while record < len(times) and solver.status == "running" and solver.nfev < MOST_EVALUATIONS:
            with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings(action="ignore"):
                solver.step()  # LSODA warns where it cannot go on
            if solver.status == "failed" or not np.isfinite(solver.y).all():
                break
            reached = len(times) if solver.status == "finished" else int(np.searchsorted(u, solver.t, side="right"))
            if reached > record:
                states[record:reached] = solver.dense_output()(u[record:reached]).T
                record = reached
            if solver.t >= last_check + CHECK_EVERY:
                last_check = solver.t
                if self._rests(run, solver.y):
                    states[record:] = solver.y
                    record = len(times)
        return float(times[-1]) if record == len(times) else scale * math.expm1(solver.t)

    def _points(self, run: int, states: FloatArray) -> FloatArray:
        """x of states w (..., N)."""
        return self._start[run] + self._roots[run] * states

    def _blocks(self, points: Tensor) -> dict[str, Tensor]:
        """The blocks (n, ...) of points x (n, N)."""
        parts = zip(self._shapes.items(), points.split(self._sizes, 1), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}

    def _gradient(self, run: int, points: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of J (n, N) by x, and the loss (n,)."""
        data, count = self._by_run[run], len(points)
        if count > 1:
            data = {name: values.expand(count, *values.shape[1:]) for name, values in data.items()}
        gradient, loss = self._system.gradient(self._blocks(points), data)
        return torch.cat([gradient[name].reshape(count, -1) for name in self._shapes], 1), loss

    def _hessian(self, run: int, point: FloatArray) -> FloatArray:
        """The Hessian of J (N, N) by x, by autograd of the closed form.

        Row i comes from run i of N equal runs, which do not depend on each other.  Differences would lose its small
        entries beside large ones: late in training some directions have settled, and others move by 1/t.
        """
        rows: list[Tensor] = []
        for entries in torch.arange(self._size).split(AT_ONCE):
            points = torch.from_numpy(point).repeat(len(entries), 1).requires_grad_()
            own = self._gradient(run, points)[0].gather(1, entries[:, None]).sum()
            rows += torch.autograd.grad(own, points) if own.requires_grad else [torch.zeros_like(points)]
        return torch.cat(rows).numpy()

    def _rests(self, run: int, state: FloatArray) -> bool:
        """Whether the gradient is within rounding of zero."""
        point = self._points(run, state[None])
        ways = np.random.default_rng(0).choice([-np.inf, np.inf], (TRIALS, self._size))
        points = np.concatenate([point, np.nextafter(point, ways)])
        gradient = self._gradient(run, torch.from_numpy(points))[0].numpy()[:, self._roots[run] > 0]
        return bool((np.abs(gradient[0]) <= RESTING * np.ptp(gradient, axis=0)).all())

    def measures(self, run: int, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The loss (n,); there is no accuracy."""
        parts = torch.from_numpy(self._points(run, states)).split(AT_ONCE)
        loss = torch.cat([self._gradient(run, part)[1] for part in parts]).numpy()
        return loss, np.full_like(loss, np.nan)

    def snapshot(self, states: FloatArray, measures: Mapping[str, FloatArray]) -> State:
        points = np.concatenate([self._points(run, own) for run, own in enumerate(states)])
        parameters = {name: block.numpy() for name, block in self._blocks(torch.from_numpy(points)).items()}
        data = {name: values.repeat_interleave(states.shape[1], 0).numpy() for name, values in self._data.items()}
        return State(self._system, parameters, data, measures["loss"])
