"""Training: steps of an optimizer on sampled or expected batches, many runs at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.named_classes import Data, as_source
from scansnap.dynamics.engine import Engine, Work, engine_for
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.start import Start
from scansnap.results.dataset import (
    coordinates,
    run_dataset,
    run_variables,
    shape_of,
    sizes,
    source_attributes,
)
from scansnap.results.quantities import Quantity
from scansnap.results.recorder import Recorder, Records
from scansnap.results.snapshot import Parts, Snapshot
from scansnap.runtime.machine import one_tensor_thread
from scansnap.runtime.progress import progress_bar
from scansnap.validation.calls import Call, options_or_kwargs

PIECE_SECONDS = 0.5
"""The engine gets work in pieces of about this duration, to allow for progress reports and interruption."""

FIRST_PIECE = 16
"""Steps in the first piece; it doubles until a piece takes long enough."""

CHECKPOINT_SECONDS = 20.0
"""Time between checkpoints of a run that is written to disk."""

SMALL = 5_000_000
"""An engine that holds at most this many numbers for all runs uses one thread for its tensor operations."""

TITLE = "training dynamics of a 1-layer (Y, Z) transformer"


@dataclass(frozen=True, kw_only=True)
class TrainCall(TrainOptions, Call):
    """A call of `train` in its flat form."""


@options_or_kwargs(TrainOptions, TrainCall)
def train(classes: Data, options: TrainOptions, store: str | Path | None, progress: bool | None) -> xr.Dataset:
    """Train the (Y, Z) transformer and return what was recorded.

    Sequences of rates and seeds make one run per entry, and all runs advance together; a run's numbers do not depend
    on the runs beside it.

    Parameters
    ----------
    classes : SequenceClasses, or any DataSource, or a name
        What to learn from.
    {options}

    Returns
    -------
    xarray.Dataset
        The loss and accuracy of a record are those of the batch that the next update uses (or would use).  A run whose
        loss stops being finite has the status "diverged" and NaN from that step on; the others go on.

    Examples
    --------
    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(run["loss"].isel(step=[0, -1]).values.round(1))
    [[3.5 0. ]]
    """
    return train_runs(Work.checked(as_source(classes), options), options.runs, store, progress)


def train_runs(work: Work, runs: Runs, store: str | Path | None = None, progress: bool | None = None) -> xr.Dataset:
    """`train`, for options that were already checked."""
    options = work.options
    start = work.start(runs)
    steps, record = options.record_steps, options.recorded
    unfinished = {"status": np.full(len(runs), "running", "U8"), "diverged_step": np.full(len(runs), -1)}
    described = {**options.to_dict(), "record": [quantity.name for quantity in record]}
    template = run_dataset(
        {**runs.coordinates(), **unfinished},
        "step",
        steps,
        coordinates(start.layout, record, layers=options.layers),
        source_attributes("train", TITLE, described, work.source),
    )
    dimension_sizes = sizes(start.layout, options.layers)
    variables = run_variables(record, dimension_sizes, "step", len(runs), len(steps), options.dtype)
    recorder = Recorder(
        template, variables, store, more_bytes=2 * work.checkpoint_bytes, defaults=TrainOptions.default_dict()
    )
    if (finished := recorder.finished()) is not None:
        return finished
    words = f"training {len(runs)} run{'s' * (len(runs) > 1)}"
    with recorder, _threads(work, runs), progress_bar(words, options.steps, progress) as show:
        engine = engine_for(work)(work, start, runs)
        view = View(work, start, runs, record, dimension_sizes)
        records = Records(recorder, variables, len(steps))
        _Training(engine, recorder, records, view, steps, show).run()
        diverged = engine.diverged()
        status = np.where(diverged >= 0, "diverged", "ok").astype("U8")
        return records.finish({"status": status, "diverged_step": diverged})


def _threads(work: Work, runs: Runs) -> AbstractContextManager[None]:
    """One thread for small tensors: beside other programs, threads that wait for each other cost ten times the work."""
    engine = engine_for(work)
    is_small = engine.numbers_per_run(work) * len(runs) <= SMALL
    return one_tensor_thread() if engine.spins and work.options.device == "cpu" and is_small else nullcontext()


class View:
    """Computes the quantities of a record from what an engine shows."""

    def __init__(
        self, work: Work, start: Start, runs: Runs, record: tuple[Quantity, ...], dimension_sizes: dict[str, int]
    ) -> None:
        self._start = start
        self._record = record
        self._shapes = {quantity.name: (len(runs), *shape_of(quantity, dimension_sizes)) for quantity in record}
        self.needs = frozenset(need for quantity in record for need in quantity.needs)
        self._fresh = None
        if self.needs & {"fresh_loss", "fresh_accuracy"}:
            from scansnap.dynamics.fresh_data import FreshData

            self._fresh = FreshData(work, start, runs)

    def measure(self, parts: Parts) -> dict[str, NDArray[np.float64]]:
        """The measures on fresh sequences, if requested."""
        return {} if self._fresh is None else self._fresh.measure(parts)

    def values(self, parts: Parts, measures: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.generic]]:
        """Every quantity (R, ...)."""
        snapshot = Snapshot(self._start.layout, parts, measures, self._start.prior)
        return {quantity.name: quantity.values(snapshot, self._shapes[quantity.name]) for quantity in self._record}


class _Training:
    """Advances the engine from record to record."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        records: Records,
        view: View,
        steps: NDArray[np.int64],
        show: Callable[[float], None],
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._records = records
        self._view = view
        self._steps = steps
        self._show = show
        self._piece = FIRST_PIECE
        self._saved = time.monotonic()

    def run(self) -> None:
        record = self._resume()
        while record < len(self._steps) - 1:
            if self._engine.step == self._steps[record]:
                self._observe()
            while self._engine.step < self._steps[record + 1]:
                self._advance(record)
            record += 1
        self._observe()
        self._keep(record, *self._engine.evaluate())

    def _resume(self) -> int:
        """The record to continue with: 0, or where an interrupted run stopped."""
        checkpoint = self._recorder.checkpoint()
        if checkpoint is None:
            return 0
        step, state = checkpoint
        self._engine.restore(step, state)
        record = int(np.searchsorted(self._steps, step, side="right")) - 1
        # Between two records, the earlier one is complete and written.
        self._records.skip_to(record if step == self._steps[record] else record + 1)
        return record

    def _advance(self, record: int) -> None:
        """One piece of work toward the next record; the first piece after a record also gives that record's loss."""
        engine = self._engine
        at_record = engine.step == self._steps[record]
        began = time.monotonic()
        losses, accuracies = engine.advance(min(engine.step + self._piece, int(self._steps[record + 1])))
        spent = time.monotonic() - began
        if spent < PIECE_SECONDS:
            self._piece *= 2
        elif spent > 2 * PIECE_SECONDS:
            self._piece = max(self._piece // 2, 1)
        if at_record:
            self._keep(record, losses[:, 0], accuracies[:, 0])
        self._show(engine.step)
        if self._recorder.store is not None and time.monotonic() - self._saved > CHECKPOINT_SECONDS:
            self._records.flush(record + 1)
            self._recorder.store.write_checkpoint(engine.step, engine.state())
            self._saved = time.monotonic()

    def _observe(self) -> None:
        """Hold what the engine shows: its state moves on before the loss of this record is known."""
        self._parts = self._engine.show(self._view.needs)
        self._measures = self._view.measure(self._parts)

    def _keep(self, record: int, loss: NDArray[np.float64], accuracy: NDArray[np.float64]) -> None:
        """Record the last observation with its loss, and NaN for runs that have diverged by then."""
        values = self._view.values(self._parts, {**self._measures, "loss": loss, "accuracy": accuracy})
        diverged = self._engine.diverged()
        self._records.put(record, values, lost=(diverged >= 0) & (diverged <= self._steps[record]))
