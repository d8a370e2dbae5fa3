"""Engines, which advance runs: one interface that every engine implements.

All engines draw the same sequences for the same seed and do the same arithmetic in different orders, so they agree to
rounding.  An engine says which work it serves and how much memory a run takes; `engine_for` picks the first that serves
the work: compiled code for built-in parts on a CPU, autograd for several layers elsewhere, tensors for everything else.
Users never choose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scansnap.data.source import DataSource
from scansnap.dynamics.options import FlowOptions, Runs, TrainOptions
from scansnap.dynamics.start import Start, make_start, start_layout
from scansnap.results.snapshot import Parts
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, needs_torch
from scansnap.systems.yz.architecture import Layer
from scansnap.systems.yz.compact import CompactLayout

Array = NDArray[np.generic]

SINGULAR = (
    "two classes have the same attention direction, so F^T F cannot be inverted: "
    "the modified decoder gradient needs linearly independent classes (Assumption 2)."
)
"""Why no run can go on under Lemma 3's gradient."""


MOST_SEQUENCES = 10**7 * 365 * 86400
"""Sequences that a core draws and learns from in a year, at the speed of the smallest settings."""

Checked = TypeVar("Checked", TrainOptions, FlowOptions)


@dataclass(frozen=True)
class Task(Generic[Checked]):
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

    @cached_property
    def layer(self) -> Layer:
        return self.options.part(Layer)

    @property
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

    @property
    def dtype(self) -> str:
        """The precision of the matrices."""
        return "float64"


@dataclass(frozen=True)
class Work(Task[TrainOptions]):
    """What an engine trains."""

    @property
    def dtype(self) -> str:
        return self.options.dtype

    @property
    def batch(self) -> int:
        """Sequences in an update."""
        return self.options.batch_size or self.options.num_sequences or self.source.classes.num_classes

    @property
    def checkpoint_bytes(self) -> float:
        """The size of a checkpoint of all runs."""
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


class Engine(Protocol):
    """Runs in progress.  Update number s uses batch number s; `step` updates have been made."""

    spins: bool
    """Whether its threads keep cores busy while waiting for each other, as those of tensor operations do."""

    def __init__(self, work: Work, start: Start, runs: Runs) -> None: ...

    @staticmethod
    def serves(work: Work) -> bool:
        """Whether the engine can do this work."""

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """How many numbers a run holds in memory while it trains, besides its records."""

    @staticmethod
    def numbers_at_once(work: Work) -> float:
        """How many numbers are in memory besides those of the runs, whatever their number."""
        return 0.0

    @staticmethod
    def numbers_in_checkpoint(work: Work) -> float:
        """How many numbers of a run are in a checkpoint: the matrices, and what the rule remembers of them."""

    @property
    def step(self) -> int:
        """Updates made so far."""

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Advance to `stop` updates; returns loss and accuracy (R, n) of each batch before its update."""

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy (R,) of the batch that the next update would use, without an update."""

    def show(self, needs: Collection[str]) -> Parts:
        """Copies of the parts of the state that these needs are computed from."""

    def diverged(self) -> NDArray[np.int64]:
        """The step at which each run's loss was first not finite; -1 if it always was finite (R,)."""

    def state(self) -> dict[str, Array]:
        """Everything needed to continue to identical numbers."""

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        """Continue from the result of `state` after `step` updates."""


ENGINES = {
    "kernel_engine": "KernelEngine",
    "tensor_engine": "TensorEngine",
}
"""Modules and classes in order of preference; each is imported only when asked."""


def engine_for(work: Work) -> type[Engine]:
    """The first engine that serves this work."""
    for module, name in ENGINES.items():
        with needs_torch("training of several layers, on a GPU, or with parts of your own"):
            engine: type[Engine] = getattr(import_module(f"scansnap.dynamics.{module}"), name)
        if engine.serves(work):
            return engine
    raise AssertionError("the tensor engine serves everything that options allow")


def matrix_entries(layout: CompactLayout) -> int:
    """The number of entries of Y and Z in a run."""
    heads = layout.layer.heads
    return heads * (layout.num_decoder_rows * len(layout.multiplicity) + layout.num_queries * layout.num_rows)


def needs_decoder(needs: Collection[str]) -> bool:
    """Whether these needs are computed from Y."""
    return bool({"decoder", "query_decoder", "fresh_loss", "fresh_accuracy"} & set(needs))
