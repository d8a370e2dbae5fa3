"""Training and the flow of (Y, Z): the tasks of the paper's own system.

Two engines train it.  They draw the same sequences for the same seed and do the same arithmetic in different orders, so
they agree to rounding.  An engine says which work it serves and how much memory a run takes; `engine_for` picks the
first that serves the work: compiled code for built-in parts on a CPU, tensors for everything else.  Users never choose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scansnap.data.classes_file import classes_to_mapping
from scansnap.data.source import DataSource
from scansnap.dynamics.options import FlowOptions, Runs, TrainOptions
from scansnap.dynamics.start import Start, make_start, start_layout
from scansnap.dynamics.task import Engine, FlowRuns, FlowTask, Task, Training, TrainTask, needed_by
from scansnap.results.dataset import classes_attributes, classes_coordinates, classes_sizes
from scansnap.results.snapshot import Parts, Snapshot
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, needs_torch, one_tensor_thread
from scansnap.systems.quantity import Quantity
from scansnap.systems.yz.architecture import Layer
from scansnap.systems.yz.compact import CompactLayout

SINGULAR = (
    "two classes have the same attention direction, so F^T F cannot be inverted: "
    "the modified decoder gradient needs linearly independent classes (Assumption 2)."
)
"""Why no run can go on under Lemma 3's gradient."""

MOST_SEQUENCES = 10**7 * 365 * 86400
"""Sequences that a core draws and learns from in a year, at the speed of the smallest settings."""

SMALL = 5_000_000
"""An engine that holds at most this many numbers for all runs uses one thread for its tensor operations."""

Checked = TypeVar("Checked", TrainOptions, FlowOptions)


@dataclass(frozen=True)
class YZTask(Task, Generic[Checked]):
    """Data, and options that were checked against them."""

    source: DataSource
    options: Checked

    @classmethod
    def checked(cls, source: DataSource, options: Checked) -> Self:
        """The task, or an `InputError` that says why it cannot be done."""
        options.check_data(source)
        task = cls(source, options)
        task.check_size()
        return task

    def check_size(self) -> None:
        """Refuse what fits into no memory and no lifetime, before anything is made."""

    @property
    def fingerprint(self) -> str:
        return self.source.classes.fingerprint

    @property
    def description(self) -> dict[str, Any]:
        return classes_to_mapping(self.source.classes)

    @property
    def attributes(self) -> dict[str, str]:
        return classes_attributes(self.source)

    @property
    def dtype(self) -> str:
        return "float64"

    @property
    def recorded(self) -> tuple[Quantity, ...]:
        return self.options.recorded

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return getattr(self.options, "layers", 1)

    @property
    def sizes(self) -> dict[str, int]:
        return classes_sizes(self.layout, self.layers)

    def coordinates(self) -> dict[str, Any]:
        return classes_coordinates(self.layout, self.recorded, layers=self.layers)

    @cached_property
    def layer(self) -> Layer:
        return self.options.part(Layer)

    @cached_property
    def layout(self) -> CompactLayout:
        """The layout of the records, whatever the start."""
        return CompactLayout.of(self.source.classes, layer=self.layer)

    @cached_property
    def start_layout(self) -> CompactLayout:
        """The layout of the matrices that move."""
        return start_layout(self.source.classes, self.options, self.layer)

    def start(self, runs: Runs) -> Start:
        """Y(0) and Z(0) of the runs."""
        return make_start(self.source.classes, self.options, runs.seed, self.dtype, self.layer)


@dataclass(frozen=True)
class YZTraining(YZTask[TrainOptions], TrainTask):
    """(Y, Z) to train."""

    title = "training dynamics of a 1-layer (Y, Z) transformer"

    @property
    def dtype(self) -> str:
        return self.options.dtype

    @property
    def batch(self) -> int:
        """Sequences in an update."""
        return self.options.batch_size or self.options.num_sequences or self.source.classes.num_classes

    @property
    def bytes_per_run(self) -> float:
        return np.dtype(self.dtype).itemsize * engine_for(self).numbers_per_run(self)

    @property
    def checkpoint_bytes(self) -> float:
        return np.dtype(self.dtype).itemsize * engine_for(self).numbers_in_checkpoint(self) * len(self.options.runs)

    def check_size(self) -> None:
        runs, engine = len(self.options.runs), engine_for(self)
        numbers = engine.numbers_per_run(self) * runs + engine.numbers_at_once(self)
        if self.options.device == "cpu":
            check_memory(
                f"{runs:,} {'runs' if runs > 1 else 'run'} with {self.batch:,} sequences in a batch need",
                np.dtype(self.dtype).itemsize * numbers,
                "give a smaller batch_size or fewer runs at a time",
            )
        sequences = float(runs) * self.options.steps * self.batch
        if sequences > MOST_SEQUENCES:
            raise InputError(
                f"{self.options.steps:,} steps of {self.batch:,} sequences in {runs:,} runs are {sequences:.2g} "
                f"sequences, {sequences / MOST_SEQUENCES:,.2g} years at ten million a second: ask for fewer."
            )

    def threads(self) -> AbstractContextManager[None]:
        """One thread for small tensors: beside other programs, threads that wait for each other cost ten times more."""
        engine = engine_for(self)
        is_small = engine.numbers_per_run(self) * len(self.options.runs) <= SMALL
        return one_tensor_thread() if engine.spins and self.options.device == "cpu" and is_small else nullcontext()

    def begin(self, runs: Runs) -> Training:
        return YZRuns(self, self.start(runs), runs)


class YZRuns:
    """Runs of (Y, Z) in training, and the quantities of their records."""

    def __init__(self, task: YZTraining, start: Start, runs: Runs) -> None:
        self.engine: Engine = engine_for(task)(task, start, runs)
        self._start = start
        self._fresh = None
        if needed_by(task.recorded) & {"fresh_loss", "fresh_accuracy"}:
            from scansnap.dynamics.fresh_data import FreshData

            self._fresh = FreshData(task, start, runs)

    def measure(self, parts: Parts) -> dict[str, NDArray[np.float64]]:
        """The measures on fresh sequences, if requested."""
        return {} if self._fresh is None else self._fresh.measure(parts)

    def snapshot(self, parts: Parts, measures: Mapping[str, NDArray[np.float64]]) -> Snapshot:
        return Snapshot(self._start.layout, parts, measures, self._start.prior)


@dataclass(frozen=True)
class YZFlow(YZTask[FlowOptions], FlowTask):
    """(Y, Z) to integrate."""

    title = "population dynamics of a 1-layer (Y, Z) transformer"

    @property
    def numbers_per_run(self) -> float:
        """How many numbers a run holds in memory: its state at every time, and what the integrator needs."""
        return matrix_entries(self.start_layout) * (2.0 * len(self.options.times) + 40)

    @property
    def bytes_per_run(self) -> float:
        return 8 * self.numbers_per_run

    def check_size(self) -> None:
        count = len(self.options.times)
        check_memory(f"a run at {count:,} times needs", self.bytes_per_run, "ask for fewer times")

    def begin(self, runs: Runs) -> FlowRuns:
        from scansnap.dynamics.yz_flow import YZFlowRuns

        return YZFlowRuns(self, self.start(runs), runs)


class YZEngine(Engine, Protocol):
    """An engine for (Y, Z), made from a task."""

    spins: bool
    """Whether its threads keep cores busy while waiting for each other, as those of tensor operations do."""

    def __init__(self, task: YZTraining, start: Start, runs: Runs) -> None: ...

    @staticmethod
    def serves(task: YZTraining) -> bool:
        """Whether the engine can do this work."""

    @staticmethod
    def numbers_per_run(task: YZTraining) -> float:
        """How many numbers a run holds in memory while it trains, besides its records."""

    @staticmethod
    def numbers_at_once(task: YZTraining) -> float:
        """How many numbers are in memory besides those of the runs, whatever their number."""
        return 0.0

    @staticmethod
    def numbers_in_checkpoint(task: YZTraining) -> float:
        """How many numbers of a run are in a checkpoint: the matrices, and what the rule remembers of them."""


ENGINES = {"kernel_engine": "KernelEngine", "yz_tensors": "YZTensorEngine"}
"""Modules and classes in order of preference; each is imported only when asked."""


def engine_for(task: YZTraining) -> type[YZEngine]:
    """The first engine that serves this work."""
    for module, name in ENGINES.items():
        with needs_torch("training of several layers, on a GPU, or with parts of your own"):
            engine: type[YZEngine] = getattr(import_module(f"scansnap.dynamics.{module}"), name)
        if engine.serves(task):
            return engine
    raise AssertionError("the tensor engine serves everything that options allow")


def matrix_entries(layout: CompactLayout) -> int:
    """The number of entries of Y and Z in a run."""
    heads = layout.layer.heads
    return heads * (layout.num_decoder_rows * len(layout.multiplicity) + layout.num_queries * layout.num_rows)


def needs_decoder(needs: Collection[str]) -> bool:
    """Whether these needs are computed from Y."""
    return bool({"decoder", "query_decoder", "fresh_loss", "fresh_accuracy"} & set(needs))
