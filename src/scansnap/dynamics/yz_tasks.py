"""Training and the flow of (Y, Z): the tasks of the paper's own system.

Two engines train it.  They draw the same sequences for the same seed and do the same arithmetic in different orders, so
they agree to rounding.  `engine_for` picks compiled code for built-in parts on a CPU and tensors for everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scansnap.data.named_classes import classes_to_mapping
from scansnap.data.source import FRESH_STREAM, NUM_FRESH, Batches, DataSource
from scansnap.dynamics.options import FlowOptions, Runs, TrainOptions, unknown_options
from scansnap.dynamics.start import Start, make_start, start_layout
from scansnap.dynamics.task import Engine, FloatArray, FlowRuns, FlowTask, Observation, Task, TrainTask
from scansnap.dynamics.update_rules import UpdateRule, memory_of
from scansnap.results.dataset import classes_attributes, classes_coordinates, classes_sizes
from scansnap.results.quantities import Parts, Snapshot
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, needs_torch
from scansnap.systems.quantity import Quantity
from scansnap.systems.yz.architecture import Layer
from scansnap.systems.yz.compact import CompactLayout

if TYPE_CHECKING:
    from scansnap.dynamics.kernel_engine import KernelEngine
    from scansnap.dynamics.yz_tensors import YZTensorEngine

SINGULAR = (
    "two classes have the same attention direction, so F^T F cannot be inverted: "
    "the modified decoder gradient needs linearly independent classes (Assumption 2)."
)
"""Why no run can go on under Lemma 3's gradient."""

MOST_SEQUENCES = 10**7 * 365 * 86400
"""Sequences that a core draws and learns from in a year, at the speed of the smallest settings."""

FLOW_OPTIONS = {"normalization", "residual", "attention_map", "heads", "decoder_gradient"}
"""Options of the layer that the flow implements."""

FRESH = {"fresh_loss", "fresh_accuracy"}
"""Needs of quantities that are measured on fresh sequences."""

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
        """Refuse unsupported options, and runs that need too much memory or time, before anything is made."""

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

    @cached_property
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
        return Layer.of(self.options)

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

    @cached_property
    def rule(self) -> UpdateRule:
        """The update rule, with its settings."""
        return self.options.rule

    @cached_property
    def state_size(self) -> int:
        """The number of entries of all matrices of a run, and of the rule's memory of them."""
        layout, memory = self.start_layout, memory_of(self.rule)
        entries = matrix_entries(layout) if self.layers == 1 else layers_entries(layout, self.layers)
        return (1 + len(memory)) * entries

    @cached_property
    def engine(self) -> type[KernelEngine | YZTensorEngine]:
        """Compiled code or tensors."""
        return engine_for(self)

    @property
    def bytes_per_run(self) -> float:
        return np.dtype(self.dtype).itemsize * self.engine.numbers_per_run(self)

    @property
    def checkpoint_bytes(self) -> float:
        return float(np.dtype(self.dtype).itemsize * self.state_size * len(self.options.runs))

    def check_size(self) -> None:
        runs, engine = len(self.options.runs), self.engine
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

    def begin(self, runs: Runs) -> Engine:
        return self.engine(self, self.start(runs), runs)


def observe(
    start: Start, parts: Parts, needs: Collection[str], measure_fresh: Callable[[Parts], Iterable[FloatArray]]
) -> Observation:
    """The observation of runs in a state, with loss and accuracy (R,) on fresh sequences if they are needed."""
    fresh = {}
    if FRESH & set(needs):
        fresh = dict(zip(("fresh_loss", "fresh_accuracy"), measure_fresh(parts), strict=True))

    def snapshot(loss: FloatArray, accuracy: FloatArray) -> Snapshot:
        return Snapshot(start.layout, parts, {**fresh, "loss": loss, "accuracy": accuracy}, start.prior)

    return snapshot


def fresh_batches(task: YZTraining) -> Batches:
    """Sequences to test on: they have a random stream of their own, and are the same at every record."""
    return Batches(task.source, None, task.options.length, NUM_FRESH, FRESH_STREAM)


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
        if unknown := unknown_options(self.options, FLOW_OPTIONS):
            raise InputError(f"{unknown[0]} is given, which the flow does not implement: leave it out.")
        count = len(self.options.times)
        check_memory(f"a run at {count:,} times needs", self.bytes_per_run, "ask for fewer times")

    def begin(self, runs: Runs) -> FlowRuns:
        from scansnap.dynamics.yz_flow import YZFlowRuns

        return YZFlowRuns(self, self.start(runs), runs)


def engine_for(task: YZTraining) -> type[KernelEngine | YZTensorEngine]:
    """Compiled code if it implements all that the task asks for, otherwise tensors."""
    from scansnap.dynamics.kernel_engine import KernelEngine

    if KernelEngine.serves(task):
        return KernelEngine
    with needs_torch("training of several layers, on a GPU, or with parts of your own"):
        from scansnap.dynamics.yz_tensors import YZTensorEngine

    YZTensorEngine.check_options(task.options)
    return YZTensorEngine


def matrix_entries(layout: CompactLayout) -> int:
    """The number of entries of Y and Z in a run."""
    heads = layout.layer.heads
    return heads * (layout.num_decoder_rows * len(layout.multiplicity) + layout.num_queries * layout.num_rows)


def feature_tokens(layout: CompactLayout) -> NDArray[np.int64]:
    """(N,) the token of each coordinate of the features of layers: contextual tokens, then the other queries."""
    return np.concatenate([layout.rows, np.setdiff1d(layout.classes.queries, layout.rows)])


def layers_entries(layout: CompactLayout, layers: int) -> int:
    """The number of entries of the matrices of several layers in a run."""
    size = len(feature_tokens(layout))
    return (2 * layers - 1) * size**2 + size * layout.num_columns


def needs_decoder(needs: Collection[str]) -> bool:
    """Whether these needs are computed from Y."""
    return bool({"decoder", "query_decoder", *FRESH} & set(needs))
