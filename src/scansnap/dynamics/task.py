"""A task: a system with options that were checked against it.

`train`, `flow` and `sweep` know tasks only.  `system_tasks.py` makes them for any `System`, on tensors;
`yz_tasks.py` makes those of (Y, Z), with compiled code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.options import Runs
from scansnap.systems.quantity import Quantity

Array = NDArray[np.generic]
FloatArray = NDArray[np.float64]


class Task(ABC):
    """What is common to training and the flow."""

    title: str

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Equal for equal systems."""

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The system as plain data."""

    @property
    @abstractmethod
    def attributes(self) -> dict[str, str]:
        """What a result of this system alone says about it."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The precision of what is recorded."""

    @property
    @abstractmethod
    def recorded(self) -> tuple[Quantity, ...]:
        """The quantities to record."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The size of every dimension that a quantity may have."""

    @abstractmethod
    def coordinates(self) -> dict[str, Any]:
        """The coordinates of every dimension that the recorded quantities have."""

    @property
    @abstractmethod
    def bytes_per_run(self) -> float:
        """Memory of a run while it is computed, without its records."""


class TrainTask(Task):
    """Runs to train."""

    @property
    @abstractmethod
    def checkpoint_bytes(self) -> float:
        """The size of a checkpoint of all runs."""

    @abstractmethod
    def threads(self) -> AbstractContextManager[None]:
        """How many threads the work should use."""

    @abstractmethod
    def begin(self, runs: Runs) -> Training:
        """The runs before their first update."""


class FlowTask(Task):
    """Runs to integrate."""

    @abstractmethod
    def begin(self, runs: Runs) -> FlowRuns:
        """The runs at time 0."""


class Training(Protocol):
    """Runs in training, and how their records are computed."""

    @property
    def engine(self) -> Engine: ...

    def measure(self, parts: Any) -> dict[str, FloatArray]:
        """Measures of a record besides loss and accuracy."""

    def snapshot(self, parts: Any, measures: Mapping[str, FloatArray]) -> object:
        """What quantities are computed from."""


class Engine(Protocol):
    """Runs in progress.  Update number s uses batch number s; `step` updates have been made."""

    @property
    def step(self) -> int:
        """Updates made so far."""

    def advance(self, stop: int) -> tuple[FloatArray, FloatArray]:
        """Advance to `stop` updates; returns loss and accuracy (R, n) of each batch before its update."""

    def evaluate(self) -> tuple[FloatArray, FloatArray]:
        """Loss and accuracy (R,) of the batch that the next update would use, without an update."""

    def show(self, needs: Collection[str]) -> Any:
        """Copies of the parts of the state that these needs are computed from."""

    def diverged(self) -> NDArray[np.int64]:
        """The step at which each run's loss was first not finite; -1 if it always was finite (R,)."""

    def state(self) -> dict[str, Array]:
        """Everything needed to continue to identical numbers."""

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        """Continue from the result of `state` after `step` updates."""


class FlowRuns(Protocol):
    """Runs to integrate, the state of each as one vector of `size` numbers."""

    @property
    def size(self) -> int: ...

    def integrate(self, run: int, times: FloatArray, rtol: float, atol: float, states: FloatArray) -> float:
        """Fill `states` (n, N) with a run at increasing times (n,) as far as possible; return the time reached."""

    def measures(self, run: int, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss and accuracy (n,) of a run in states (n, N)."""

    def snapshot(self, states: FloatArray, measures: Mapping[str, FloatArray]) -> object:
        """What quantities are computed from, for states (R, n, N) of all runs, one after another."""


def needed_by(record: Sequence[Quantity]) -> frozenset[str]:
    """What these quantities are computed from."""
    return frozenset(need for quantity in record for need in quantity.needs)
