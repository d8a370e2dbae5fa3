"""The tensor engine: all runs on one tensor axis, on any device.

It serves what compiled code does not: every system but (Y, Z), and of (Y, Z) GPUs, several layers, and parts of the
user's own.  A model has named parameter blocks and gives their gradient; the engine moves them by an update rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.options import RULE_SETTINGS, TrainingOptions, unknown_options
from scansnap.dynamics.task import Array, Observation
from scansnap.dynamics.update_rules import SCHEDULES, Update, memory_of, rate_shares
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import one_tensor_thread

Measured = tuple[Tensor, Tensor]
"""Loss and accuracy (R,)."""

TENSOR_OPTIONS = {"optimizer", *RULE_SETTINGS, "schedule", "weight_decay", "clip", "device"}
"""Options that the engine implements for every system."""

SMALL = 5_000_000
"""Runs that hold at most this many numbers on a CPU use one thread: beside other programs, threads that wait for each
other cost ten times more."""


def check_known(options: TrainingOptions, known: Collection[str] = ()) -> None:
    """Refuse options that neither the engine nor a model that knows these implements."""
    if unknown := unknown_options(options, {*TENSOR_OPTIONS, *known}):
        raise InputError(f"{unknown[0]} is given, which no engine implements for this system: leave it out.")


class TensorModel(ABC):
    """What the engine trains: named parameter blocks with a leading axis of runs, and their gradient."""

    parameters: dict[str, Tensor]
    rates: dict[str, Tensor]  # (R, 1, 1) of each block
    shares: dict[str, Tensor]  # of blocks with merged entries: the part of a group's gradient that each entry receives
    centers: dict[str, Tensor]  # what blocks decay to, where that is not 0

    @abstractmethod
    def gradient(self, step: int) -> tuple[dict[str, Tensor], Measured]:
        """The gradient of J by each block for the batch of update `step`, and the loss and accuracy before it."""

    @abstractmethod
    def measure(self, step: int) -> Measured:
        """Loss and accuracy of the batch of update `step`."""

    @abstractmethod
    def observe(self, needs: Collection[str]) -> Observation:
        """Copy the parts of the state that these needs are computed from."""


class TensorEngine:
    """Advances a model; the whole state lives on the device."""

    def __init__(self, model: TensorModel, options: TrainingOptions, runs: int, numbers: float) -> None:
        self.step = 0
        self._threads = one_tensor_thread if options.device == "cpu" and numbers <= SMALL else nullcontext
        self._options, self._rule, self._model = options, options.rule, model
        self._schedule = SCHEDULES.member(options.schedule)
        names = memory_of(self._rule)
        self._memory = {
            block: {name: torch.zeros_like(matrix) for name in names}
            for block, matrix in self._model.parameters.items()
        }
        self._diverged = np.full(runs, -1, np.int64)

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        results = []
        with self._threads():
            for step in range(self.step, stop):
                gradient, measured = self._model.gradient(step)
                if self._options.clip is not None:
                    gradient = self._clipped(gradient, self._options.clip)
                share = float(rate_shares(self._schedule, self._options.steps, np.array([step]))[0])
                for block, value in gradient.items():
                    self._move(block, value, share)
                results.append(self._checked(measured))
                self.step = step + 1
        return tuple(np.stack(values, 1) for values in zip(*results, strict=True))  # type: ignore[return-value]

    def _clipped(self, gradient: Mapping[str, Tensor], most: float) -> dict[str, Tensor]:
        """The gradient of all blocks, shortened to the largest norm allowed; a group of k entries has G^2/k."""
        shares = self._model.shares
        squares = [
            (g * g * shares[block] if block in shares else g * g).flatten(1).sum(1) for block, g in gradient.items()
        ]
        factor = (most / torch.stack(squares).sum(0).sqrt()).clamp(max=1.0)
        return {block: g * factor.reshape(-1, *[1] * (g.ndim - 1)) for block, g in gradient.items()}

    def _move(self, block: str, gradient: Tensor, share: float) -> None:
        """One step of the rule for a block, from the gradient of its groups of merged entries, and weight decay."""
        model = self._model
        rate, matrix = model.rates[block] * share, model.parameters[block]
        if self._options.weight_decay:
            matrix -= rate * self._options.weight_decay * (matrix - model.centers.get(block, 0.0))
        self._rule.move(
            Update(
                matrix=matrix,
                group_gradient=gradient,
                share=model.shares.get(block),
                rate=rate,
                step=torch.tensor(self.step),
                memory=self._memory[block],
            )
        )

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with self._threads():
            return self._checked(self._model.measure(self.step))

    def _checked(self, measured: Measured) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy on the host; NaN from the step at which a run's loss was first not finite."""
        loss, accuracy = (values.double().cpu().numpy() for values in measured)
        self._diverged = np.where((self._diverged < 0) & ~np.isfinite(loss), self.step, self._diverged)
        failed = self._diverged >= 0
        return np.where(failed, np.nan, loss), np.where(failed, np.nan, accuracy)

    def observe(self, needs: Collection[str]) -> Observation:
        with self._threads():
            return self._model.observe(needs)

    def diverged(self) -> NDArray[np.int64]:
        return self._diverged

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """The blocks, and the rule's memory of them."""
        remembered = {
            f"{block}_{name}": array for block, arrays in self._memory.items() for name, array in arrays.items()
        }
        return {**self._model.parameters, **remembered}

    def state(self) -> dict[str, Array]:
        return {"diverged": self._diverged, **{name: tensor.cpu().numpy() for name, tensor in self._tensors.items()}}

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        self.step = step
        self._diverged = np.asarray(state["diverged"], np.int64)
        for name, tensor in self._tensors.items():
            tensor.copy_(torch.as_tensor(np.asarray(state[name])))
