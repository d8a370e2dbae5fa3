"""What a sweep repeats: training, or the flow.  Whatever a sweep must know of either is stated here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.source import DataSource
from scansnap.dynamics.engine import Work, engine_for
from scansnap.dynamics.flow import flow_runs
from scansnap.dynamics.flow_engine import FlowWork
from scansnap.dynamics.options import FlowOptions, Runs, TimeOptions, TrainOptions
from scansnap.dynamics.train import train_runs
from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.options import Option, options_of

AnyOptions = TrainOptions | FlowOptions
AnyWork = Work | FlowWork


class Subject(Protocol):
    """What is repeated; `work` and `options` below are those that it makes."""

    options: type[AnyOptions]
    length: str  # the option that says how long a run is
    axis: str  # the dimension of its records
    title: str
    defaults: Mapping[str, Any]  # what a sweep records by default: less than a single run
    outcome: Mapping[str, Any]  # coordinates of every run that say how it ended, before it does

    def work(self, source: DataSource, options: Any) -> AnyWork:
        """The work of runs with these options, checked."""

    def records(self, options: Any) -> NDArray[Any]:
        """The coordinate of the records."""

    def layers(self, options: Any) -> int:
        """How many layers there are."""

    def dtype(self, options: Any) -> str:
        """The arithmetic."""

    def uses_gpu(self, options: Any) -> bool:
        """Whether a run takes a GPU."""

    def bytes_per_run(self, work: Any) -> float:
        """The memory of a run, besides its records."""

    def run(self, work: Any, runs: Runs) -> xr.Dataset:
        """The runs' result, with their outcome."""


class Training:
    """`train`."""

    options: type[AnyOptions] = TrainOptions
    length, axis = "steps", "step"
    title = "sweep of training dynamics of a 1-layer (Y, Z) transformer"
    defaults: Mapping[str, Any] = {"record": ("loss", "accuracy", "entropy"), "record_every": None}
    outcome: Mapping[str, Any] = {"status": np.array("missing", "U8"), "diverged_step": np.array(-1)}

    def work(self, source: DataSource, options: TrainOptions) -> Work:
        return Work.checked(source, options)

    def records(self, options: TrainOptions) -> NDArray[np.int64]:
        return options.record_steps

    def layers(self, options: TrainOptions) -> int:
        return options.layers

    def dtype(self, options: TrainOptions) -> str:
        return options.dtype

    def uses_gpu(self, options: TrainOptions) -> bool:
        return options.device == "cuda"

    def bytes_per_run(self, work: Work) -> float:
        return np.dtype(work.options.dtype).itemsize * engine_for(work).numbers_per_run(work)

    def run(self, work: Work, runs: Runs) -> xr.Dataset:
        return train_runs(work, runs, progress=False)


class Flow:
    """`flow`."""

    options: type[AnyOptions] = FlowOptions
    length, axis = "times", "time"
    title = "sweep of population dynamics of a 1-layer (Y, Z) transformer"
    defaults: Mapping[str, Any] = {"record": Training.defaults["record"]}
    outcome: Mapping[str, Any] = {"status": Training.outcome["status"]}

    def work(self, source: DataSource, options: FlowOptions) -> FlowWork:
        return FlowWork.checked(source, options)

    def records(self, options: FlowOptions) -> NDArray[np.float64]:
        return np.array(options.times)

    def layers(self, options: FlowOptions) -> int:
        return 1

    def dtype(self, options: FlowOptions) -> str:
        return "float64"

    def uses_gpu(self, options: FlowOptions) -> bool:
        return options.device == "cuda"

    def bytes_per_run(self, work: FlowWork) -> float:
        return 8 * work.numbers_per_run

    def run(self, work: FlowWork, runs: Runs) -> xr.Dataset:
        return flow_runs(work, runs, progress=False)


TRAINING, FLOW = Training(), Flow()

STATED: dict[str, Option] = {**options_of(TrainOptions), **options_of(TimeOptions)}
"""The options of either."""


def subject_of(words: Mapping[str, object]) -> Subject:
    """The flow if `times` is given, otherwise training; refuses options that it does not have."""
    if "times" in words and "steps" in words:
        raise InputError("steps and times are both given: steps are of training, times of the flow; give one.")
    subject: Subject = FLOW if "times" in words else TRAINING
    for name in words:
        if name not in STATED:
            raise unknown("option", name, [*STATED, "lr_y_over_lr_z"])
        if name not in options_of(subject.options):
            verb, needed = ("the flow", "steps") if subject.axis == "time" else ("training", "times")
            raise InputError(f"{name} is given, which {verb} does not have: leave it out, or give {needed} instead.")
    return subject
