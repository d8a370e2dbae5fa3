"""Training: steps of an optimizer on sampled or expected batches, many runs at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.dynamics.options import Runs, TrainingOptions, TrainOptions
from scansnap.dynamics.task import Engine, Trained, TrainTask, needed_by, train_options, train_task
from scansnap.results.dataset import Recorder, Records, run_dataset, run_variables
from scansnap.runtime.progress import progress_bar
from scansnap.storage.provenance import attributes
from scansnap.validation.options import RunArguments, from_names, options_as_kwargs
from scansnap.validation.validate import validated

PIECE_SECONDS = 0.5
"""The engine gets work in pieces of about this duration, to allow for progress reports and interruption."""

FIRST_PIECE = 16
"""Steps in the first piece; it doubles until a piece takes long enough."""

CHECKPOINT_SECONDS = 20.0
"""Time between checkpoints of a run that is written to disk."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments(TrainOptions, RunArguments):
    """The keyword arguments of `train`, for type checkers."""


@options_as_kwargs(TrainArguments, TrainOptions, RunArguments)
@validated
def train(
    classes: Trained, *, store: str | Path | None = None, progress: bool | None = None, **kwargs: Any
) -> xr.Dataset:
    """Train the (Y, Z) transformer on sequence classes, or another system, and return what was recorded.

    Sequences of rates and seeds make one run per entry, and all runs advance together; a run's numbers do not depend
    on the runs beside it.

    Parameters
    ----------
    classes : SequenceClasses, any DataSource, a System, or a name
        What to train: (Y, Z) on classes, or another system, which has its own learning rates and quantities in place
        of the options below that are about (Y, Z).
    {options}

    Returns
    -------
    xarray.Dataset
        The loss and accuracy of a record are those of the batch that the next update uses (or would use).  A run whose
        loss stops being finite has the status "diverged" and NaN from that step on; the others continue.

    Examples
    --------
    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(run["loss"].isel(step=[0, -1]).values.round(1))
    [[3.5 0. ]]
    """
    assert not isinstance(classes, str)  # the decorator has replaced names
    options: Any = from_names(train_options(classes), kwargs)
    return train_runs(train_task(classes, options), options, options.runs, store, progress)


def train_runs(
    task: TrainTask,
    options: TrainingOptions,
    runs: Runs,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """`train`, for options that were already checked."""
    steps, record = options.record_steps, task.recorded
    unfinished = {"status": np.full(len(runs), "running", "U8"), "diverged_step": np.full(len(runs), -1)}
    described = {**options.to_dict(), "record": [quantity.name for quantity in record]}
    template = run_dataset(
        {**runs.coordinates(), **unfinished},
        "step",
        steps,
        task.coordinates(),
        attributes("train", task.title, described, **task.attributes),
    )
    variables = run_variables(record, task.sizes, "step", len(runs), len(steps), options.dtype)
    recorder = Recorder(template, variables, store, more_bytes=2 * task.checkpoint_bytes)
    if (finished := recorder.finished()) is not None:
        return finished
    words = f"training {len(runs)} run{'s' * (len(runs) > 1)}"
    note = "(starting; the first run with such options compiles code)"
    with recorder, progress_bar(words, options.steps, progress, note=note) as show:
        engine = task.begin(runs)
        records = Records(recorder, variables, len(steps))
        _Training(engine, task, recorder, records, steps, show).run()
        diverged = engine.diverged()
        status = np.where(diverged >= 0, "diverged", "ok").astype("U8")
        return records.finish({"status": status, "diverged_step": diverged})


class _Training:
    """Advances the engine from record to record."""

    def __init__(
        self,
        engine: Engine,
        task: TrainTask,
        recorder: Recorder,
        records: Records,
        steps: NDArray[np.int64],
        show: Callable[[float], None],
    ) -> None:
        self._engine = engine
        self._quantities, self._sizes, self._needs = task.recorded, task.sizes, needed_by(task.recorded)
        self._recorder = recorder
        self._records = records
        self._steps = steps
        self._show = show
        self._piece = FIRST_PIECE
        self._saved = time.monotonic()

    def run(self) -> None:
        record = self._resume()
        while record < len(self._steps) - 1:
            if self._engine.step == self._steps[record]:
                self._observed = self._engine.observe(self._needs)
            while self._engine.step < self._steps[record + 1]:
                self._advance(record)
            record += 1
        self._observed = self._engine.observe(self._needs)
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

    def _keep(self, record: int, loss: NDArray[np.float64], accuracy: NDArray[np.float64]) -> None:
        """Record the last observation with its loss, and NaN for runs that have diverged by then."""
        snapshot = self._observed(loss, accuracy)
        values = {q.name: q.values(snapshot, (len(loss), *q.shape(self._sizes))) for q in self._quantities}
        diverged = self._engine.diverged()
        self._records.put(record, values, lost=(diverged >= 0) & (diverged <= self._steps[record]))
