"""Which options and which task a system has: those of (Y, Z) for classes, and those of any `System`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from scansnap.data.named_classes import as_source
from scansnap.data.source import DataSource
from scansnap.dynamics.options import FlowingOptions, FlowOptions, TrainingOptions, TrainOptions
from scansnap.dynamics.task import FlowTask, TrainTask
from scansnap.dynamics.yz_tasks import YZFlow, YZTraining
from scansnap.runtime.machine import needs_torch
from scansnap.systems.catalog import SYSTEMS
from scansnap.systems.system import System
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.options import Options


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
    if isinstance(value, str) and value in SYSTEMS:
        return SYSTEMS.member(value)
    return as_source(value)


def train_options(system: object) -> type[Options]:
    """The options of `train` for this system."""
    checked = as_system(system)
    if not isinstance(checked, System):
        return TrainOptions
    with needs_torch(f"the system {checked.label}"):
        from scansnap.dynamics.system_tasks import system_options
    return system_options(checked, TrainingOptions)


def flow_options(system: object) -> type[Options]:
    """The options of `flow` for this system."""
    checked = as_system(system)
    if not isinstance(checked, System):
        return FlowOptions
    with needs_torch(f"the system {checked.label}"):
        from scansnap.dynamics.system_tasks import system_options
    return system_options(checked, FlowingOptions)


def train_task(system: System | DataSource, options: Any) -> TrainTask:
    """The training of a system, or an `InputError` that says why it cannot be done."""
    if not isinstance(system, System):
        return YZTraining.checked(system, options)
    from scansnap.dynamics.system_tasks import SystemTraining

    return SystemTraining.checked(system, options)


def flow_task(system: System | DataSource, options: Any) -> FlowTask:
    """The flow of a system, or an `InputError` that says why it cannot be integrated."""
    if not isinstance(system, System):
        return YZFlow.checked(system, options)
    from scansnap.dynamics.system_tasks import SystemFlow

    return SystemFlow.checked(system, options)
