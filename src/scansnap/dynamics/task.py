"""A task: a system with options that were checked against it.

`train`, `flow` and `sweep` know tasks only.  `yz_tasks.py` makes those of (Y, Z), for classes; `system_tasks.py` makes
those of any `System`, on tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.data.named_classes import NAMED_CLASSES, as_source
from scansnap.data.source import DataSource
from scansnap.dynamics.options import FlowingOptions, FlowOptions, Runs, TrainingOptions, TrainOptions
from scansnap.runtime.machine import needs_torch
from scansnap.systems.catalog import SYSTEMS
from scansnap.systems.quantity import Quantity
from scansnap.systems.system import System
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.options import Options

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
    def begin(self, runs: Runs) -> Engine:
        """The runs before their first update."""


class FlowTask(Task):
    """Runs to integrate."""

    @abstractmethod
    def begin(self, runs: Runs) -> FlowRuns:
        """The runs at time 0."""


Observation = Callable[[FloatArray, FloatArray], object]
"""Gives what quantities are computed from, once the loss and accuracy (R,) of the record are known."""


class Engine(Protocol):
    """Runs in progress.  Update number s uses batch number s; `step` updates have been made."""

    @property
    def step(self) -> int:
        """Updates made so far."""

    def advance(self, stop: int) -> tuple[FloatArray, FloatArray]:
        """Advance to `stop` updates; returns loss and accuracy (R, n) of each batch before its update."""

    def evaluate(self) -> tuple[FloatArray, FloatArray]:
        """Loss and accuracy (R,) of the batch that the next update would use, without an update."""

    def observe(self, needs: Collection[str]) -> Observation:
        """Copy the parts of the state that these needs are computed from: it moves on before its loss is known."""

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


# --- the task of a system ----------


@dataclass(frozen=True)
class SystemType(ArgumentType):
    """A system, or classes, or the name of either, or a file of classes."""

    def check(self, name: str, value: Any) -> System | DataSource:
        return as_system(value)


Trained = Annotated[System | DataSource | str, SystemType()]
"""What `train`, `flow` and `sweep` take first."""


def as_system(value: object) -> System | DataSource:
    """The system or the data that an argument means."""
    if isinstance(value, System):
        return value
    if isinstance(value, str) and value not in NAMED_CLASSES and value in SYSTEMS:
        return SYSTEMS.member(value)
    return as_source(value)


def train_options(system: object) -> type[Options]:
    """The options of `train` for this system."""
    return _options(system, TrainOptions, TrainingOptions)


def flow_options(system: object) -> type[Options]:
    """The options of `flow` for this system."""
    return _options(system, FlowOptions, FlowingOptions)


def _options(system: object, of_yz: type[Options], of_systems: type[Options]) -> type[Options]:
    if not isinstance(system, System):
        return of_yz
    with needs_torch(f"the system {system.label}"):
        from scansnap.dynamics.system_tasks import system_options
    return system_options(system, of_systems)


def train_task(system: System | DataSource, options: Any) -> TrainTask:
    """The training of a system, or an `InputError` that says why it cannot be done."""
    if not isinstance(system, System):
        from scansnap.dynamics.yz_tasks import YZTraining

        return YZTraining.checked(system, options)
    from scansnap.dynamics.system_tasks import SystemTraining

    return SystemTraining.checked(system, options)


def flow_task(system: System | DataSource, options: Any) -> FlowTask:
    """The flow of a system, or an `InputError` that says why it cannot be integrated."""
    if not isinstance(system, System):
        from scansnap.dynamics.yz_tasks import YZFlow

        return YZFlow.checked(system, options)
    from scansnap.dynamics.system_tasks import SystemFlow

    return SystemFlow.checked(system, options)
