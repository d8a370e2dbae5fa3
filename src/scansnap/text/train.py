"""Training a model on text while measuring its attention."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from scansnap.dynamics.update_rules import rate_shares
from scansnap.monitor.dataset import SnapshotError
from scansnap.results.dataset import Recorder, Records
from scansnap.results.store import RunStore, load
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, needs_torch, one_thread
from scansnap.runtime.progress import progress_bar
from scansnap.text import dataset as text_dataset
from scansnap.text.corpus import Corpus
from scansnap.text.measures import AttentionMeasurement, Winners
from scansnap.text.model_file import TextModel, load_model, model_folder, save_model
from scansnap.text.options import (
    AnyTextOptions,
    RecordSchedule,
    RunOptions,
    Shape,
    TextOptions,
    TextShape,
    YZShape,
    YZTextOptions,
    text_options,
)
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer
from scansnap.text.updates import Learner, TransformerUpdates, YZUpdates
from scansnap.text.windows import MEASURED_TOKENS, Columns, consecutive, spread
from scansnap.text.yz import YZText
from scansnap.validation.options import RunArguments, options_as_kwargs
from scansnap.validation.validate import validated

CHECKPOINT_SECONDS = 60.0
"""Time between checkpoints of a stored run, if they are quick."""

QUICK_CHECKPOINT = CHECKPOINT_SECONDS / 10
"""The seconds that a checkpoint may take; after one that takes longer, the time to the next grows in proportion."""

ONE_THREAD_OPERATIONS = 1e9
"""An update of fewer operations runs on one thread."""

LOGITS_AT_ONCE = {"cpu": 30_000_000, "cuda": 500_000_000}
"""Logits in memory at once while the validation loss is measured."""


@dataclass(frozen=True, kw_only=True)
class TextTrainingCall(AnyTextOptions):
    """A call of `text_training`, for its signature."""

    store: str | Path | None = None


@dataclass(frozen=True, kw_only=True)
class TrainTextCall(AnyTextOptions, RunArguments):
    """A call of `train_text`, for its signature."""


@options_as_kwargs(TrainTextCall, AnyTextOptions, RunArguments)
@validated
def train_text(
    corpus: Corpus, *, store: str | Path | None = None, progress: bool | None = None, **kwargs: Any
) -> xr.Dataset:
    """Train a model on next-token prediction and return the records of its attention.

    The model is a causal transformer, or with `model="yz"` Y and Z over the whole vocabulary, from zero, by plain SGD
    along exact gradients; that has options and defaults of its own, `YZTextOptions`.  The trained model is written next
    to the store, as `save_model` says.

    Parameters
    ----------
    corpus : Corpus
        What `read_corpus` returns.
    {options}

    Returns
    -------
    xarray.Dataset
        Record 0 is the start.  A run whose loss stops being finite ends there with the status "diverged".  With
        several processes, the first has the records.

    Examples
    --------
    >>> corpus = ss.read_corpus("example")
    >>> run = ss.train_text(corpus, steps=2, width=8, feed_forward=8, record_every=1)
    >>> print(dict(run["entropy"].sizes))
    {'run': 1, 'step': 3, 'layer': 1, 'head': 1}
    """
    return text_training(corpus, store=store, **kwargs).run(progress)


@options_as_kwargs(TextTrainingCall, AnyTextOptions)
@validated
def text_training(corpus: Corpus, *, store: str | Path | None = None, **kwargs: Any) -> TextTraining:
    """The run of `train_text`, not yet started: read its model before and after training.

    Parameters
    ----------
    corpus : Corpus
        What `read_corpus` returns.
    {options}
    store : path, optional
        Where the run writes its result, as in `train_text`.

    Returns
    -------
    TextTraining
        `run(progress)` trains and returns what `train_text` does.  `model` is a `torch.nn.Module`:
        `model.attention(ids)` gives each layer's weights, `model.logits_between(queries, keys)` the attention logits of
        the first layer between tokens, and with Y and Z `model.step(ids, next_tokens, lr_y=..., lr_z=...)` makes one
        update, for a loop of your own.

    Examples
    --------
    >>> corpus = ss.read_corpus("example")
    >>> training = ss.text_training(corpus, steps=2, width=8, feed_forward=8)
    >>> run = training.run(progress=False)
    >>> print(tuple(training.model.decoder.shape))
    (288, 8)
    """
    if store is not None:
        with needs_torch("a text model that is stored"):
            import safetensors.torch  # noqa: F401
    return TextTraining(corpus, text_options(kwargs), store)


class TextTraining:
    """A run of `train_text` and its `model`, as `text_training` makes it."""

    def __init__(self, corpus: Corpus, options: TextOptions | YZTextOptions, store: str | Path | None = None) -> None:
        self.corpus, self.options = corpus, options
        self._columns = Columns(corpus.train, options.batch_size, options.window)
        windows = consecutive(corpus.valid, options.window)
        self._processes = Processes(options.device)
        try:
            self._prepare(windows, store)
        except BaseException:
            self._processes.close()
            raise

    def _prepare(self, windows: NDArray[np.int64], store: str | Path | None) -> None:
        """Make the model, what is measured on windows of the validation split, and the result that records it."""
        corpus, options = self.corpus, self.options
        shape_of = YZShape.of if isinstance(options, YZTextOptions) else TextShape.of
        shape = shape_of(options, vocab_size=corpus.vocab_size)
        valid_tokens = min(len(corpus.valid), MEASURED_TOKENS)
        schedule = RecordSchedule.of(options, shape, per_pass=self._columns.per_pass, valid_tokens=valid_tokens)
        self.record_schedule = schedule
        self._share = self._processes.share(options.batch_size)
        queries = corpus.frequent_words(options.queries if isinstance(options, YZTextOptions) else 0)
        with _within_memory(shape, options):
            self.model, self._learner = self._make_learner(shape)
            self._winners = Winners(self.model, queries) if isinstance(self.model, YZText) and len(queries) else None
            self._windows = torch.from_numpy(windows).to(self._processes.device)  # (N, T + 1)
            measured = torch.from_numpy(spread(windows, schedule.measured)[:, :-1])
            self._measurement = AttentionMeasurement(self.model, measured.to(self._processes.device))
        self._size = {
            "run": 1,
            "step": len(schedule.record_steps),
            "layer": shape.layers,
            "head": shape.heads,
            "window": min(options.patterns, len(self._measurement.sample)),
            "query_position": shape.window,
            "key_position": shape.window,
            "query": len(queries),
            "token": shape.vocab_size,
            "rank": min(text_dataset.WINNERS, shape.vocab_size),
        }
        variables = text_dataset.variables(self._size)
        sample = self._measurement.sample[: self._size["window"]].cpu().numpy()
        self._template = text_dataset.template(
            corpus, options, schedule, self._size, sample, queries, self._processes.count
        )
        self._model_bytes = sum(tensor.nbytes for tensor in self.model.state_dict().values())
        self._recorder = Recorder(
            self._template,
            variables,
            store if self._processes.is_first else None,
            more_bytes=self._model_bytes * (1 + 2 * (1 + self._learner.moments)),
        )
        over_steps = {name: variable for name, variable in variables.items() if "step" in variable.dimensions}
        self._records = Records(self._recorder, over_steps, self._size["step"])
        self._diverged = -1

    def _make_learner(self, shape: Shape) -> tuple[TextModel, Learner]:
        """The model at its start, and its updates."""
        if isinstance(self.options, YZTextOptions):
            assert isinstance(shape, YZShape)
            if self.options.device == "cpu":
                what = f"Y and Z of {shape.vocab_size:,} token types need"
                check_memory(what, shape.parameter_bytes, "read the text with a larger min_count")
            with self._processes.device:
                yz = YZText(shape)
            return yz, YZUpdates(yz, self.options, self._processes)
        assert isinstance(shape, TextShape)
        with _own_random_numbers():
            torch.manual_seed(self.options.seed)
            transformer = TextTransformer(shape).to(self._processes.device)
        return transformer, TransformerUpdates(transformer, self.options, self._processes)

    def run(self, progress: bool | None = None) -> xr.Dataset:
        """Train to the end; a run that is finished in its store is read from there, with its model."""
        title = f"training {self.record_schedule.steps:,} steps"
        show_bar = progress if self._processes.is_first else False
        store = self._recorder.store
        try:
            with self._recorder:
                if self._processes.broadcast(store is not None and store.finished):
                    return self._template if store is None else self._read(store)
                with (
                    _own_random_numbers(),
                    _within_memory(self.model.shape, self.options),
                    one_thread() if self._is_small() else nullcontext(),
                    progress_bar(title, self.record_schedule.steps, show_bar) as show,
                ):
                    self._train(show)
                return self._finish()
        finally:
            self._processes.close()

    def _read(self, store: RunStore) -> xr.Dataset:
        folder = model_folder(store.path)
        if folder.exists():  # a run that diverged has none
            stored, _ = load_model(folder, self.corpus.tokenizer)
            self.model.load_state_dict(stored.to(self._processes.device).state_dict(), assign=True)
        return load(store.path)

    def _is_small(self) -> bool:
        """Whether synchronizing several threads would take longer than the work."""
        shape = self.model.shape
        return self.options.batch_size * shape.window * shape.training_operations < ONE_THREAD_OPERATIONS

    def _train(self, show: Callable[..., None]) -> None:
        steps, store = self.record_schedule.record_steps, self._recorder.store
        schedule, total = self.options.schedule, self.record_schedule.steps

        def rate_share(step: int) -> float | None:
            """The share of the rates of an update; None where it is always 1."""
            return None if schedule == "constant" else float(rate_shares(schedule, total, np.array([step]))[0])

        step, record, losses = self._resume()
        if not step and store is not None:
            shutil.rmtree(model_folder(store.path), ignore_errors=True)  # left by an earlier run
        note = ""
        saved = time.monotonic()
        interval = CHECKPOINT_SECONDS
        while True:
            if step == steps[record]:
                measured = self._measure(record, step, losses)
                if measured is None:
                    return
                self._records.put(record, measured)
                note = _note(measured)
                losses = []
                record += 1
                show(step, note)
                if record == len(steps):
                    return
            inputs, targets = self._columns.at(step, self._share)
            losses.append(self._learner.update(step, inputs, targets, rate_share(step)))
            step += 1
            show(step, note)
            now = time.monotonic()
            if store is not None and now - saved > interval:
                self._checkpoint(store, step, record, losses)
                saved = time.monotonic()
                interval = CHECKPOINT_SECONDS * max(1.0, (saved - now) / QUICK_CHECKPOINT)

    def _measure(self, record: int, step: int, losses: list[torch.Tensor]) -> dict[str, NDArray[np.floating]] | None:
        """The variables of a record; None if the run has diverged by then."""
        measured: dict[str, NDArray[np.floating]] = {}
        if losses:
            values = torch.stack(losses).double().cpu().numpy()
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad):
                self._diverged = step - len(values) + int(bad[0])
                return None
            measured["loss"] = values.mean()
        is_finite = True
        if self._processes.is_first:
            try:
                measured |= self._measurement.measure()
            except SnapshotError:
                is_finite = False
        if not self._processes.broadcast(is_finite):
            self._diverged = step  # the last update produced NaN or infinity
            return None
        if not self._processes.is_first:
            return measured
        if count := self._size["window"]:
            measured["pattern"] = self._measurement.pattern(count)
        if self._winners is not None:
            measured |= self._winners.measure()
        if self.record_schedule.evaluates(record):
            rows = LOGITS_AT_ONCE[self._windows.device.type] // self.corpus.vocab_size
            measured["valid_loss"] = np.array(self._learner.evaluate(self._windows, rows))
        return measured

    def _resume(self) -> tuple[int, int, list[torch.Tensor]]:
        """The step, the next record and the losses since the last record, initially or where a run was interrupted."""
        checkpoint = self._processes.broadcast(self._recorder.checkpoint())
        if checkpoint is None:
            return 0, 0, []
        step, state = checkpoint
        record = int(state.pop("record"))
        losses = list(torch.from_numpy(state.pop("losses")).to(self._processes.device))
        self._measurement.restore(state.pop("watched"))
        self._learner.restore(state)
        self._records.skip_to(record)
        return step, record, losses

    def _checkpoint(self, store: RunStore, step: int, record: int, losses: list[torch.Tensor]) -> None:
        self._records.flush(record)
        loss_values = torch.stack(losses).cpu().numpy() if losses else np.zeros(0, np.float32)
        state = {"record": np.array(record), "losses": loss_values, "watched": self._measurement.state()}
        store.write_checkpoint(step, {**state, **self._learner.state()})

    def _finish(self) -> xr.Dataset:
        store = self._recorder.store
        if store is not None and self._diverged < 0 and self.options.saves_model(self._model_bytes):
            save_model(self.model, self.corpus.tokenizer, model_folder(store.path))
        if self._winners is not None and self._diverged < 0:
            self._recorder.write({"attention_logits": self._winners.logits()[None]}, (slice(None),))
        status = np.array(["ok" if self._diverged < 0 else "diverged"], "U8")
        return self._records.finish({"status": status, "diverged_step": np.array([self._diverged])})


def _note(measured: dict[str, NDArray[np.floating]]) -> str:
    """The text of the progress bar after a record."""
    entropy = float(measured["entropy"].mean()) if "entropy" in measured else math.nan
    if "loss" not in measured:
        return f"(entropy {entropy:.3f})"
    loss = float(measured["loss"])
    return f"(loss {loss:.3f}, perplexity {math.exp(min(loss, 30)):.1f}, entropy {entropy:.3f})"


@contextmanager
def _within_memory(shape: Shape, options: RunOptions) -> Iterator[None]:
    """Raise an `InputError` when memory runs out."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise InputError(
            f"{shape}, and {options.batch_size:,} windows of {shape.window:,} at once do not fit in the memory of this "
            f"{options.device}: reduce one of them."
        ) from None


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Restore the caller's random numbers afterwards."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        yield
