"""Training a transformer on text while measuring its attention."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.progress import progress_bar
from scansnap.base.threads import one_thread
from scansnap.dynamics.verb import Call, verb
from scansnap.monitor.observer import FailedLook
from scansnap.results.recorder import Recorder, Records
from scansnap.results.store import RunStore, load
from scansnap.text.corpus.corpus import Corpus
from scansnap.text.model.model_file import load_model, model_folder, save_model
from scansnap.text.model.shape import TextShape
from scansnap.text.model.transformer import TextTransformer
from scansnap.text.training import dataset as text_dataset
from scansnap.text.training.options import Plan, TextOptions
from scansnap.text.training.ranks import Ranks
from scansnap.text.training.updates import Updates
from scansnap.text.training.watch import Watch
from scansnap.text.training.windows import MOST_TOKENS, Columns, consecutive, spread

CHECKPOINT_SECONDS = 60.0
"""Time between checkpoints of a stored run."""

PROGRESS_SECONDS = 0.5
"""Time between updates of the progress bar."""

SMALL = 1e9
"""An update of fewer operations is done by one thread."""

LOGITS_AT_ONCE = {"cpu": 30_000_000, "cuda": 500_000_000}
"""Logits in memory at once while the validation loss is measured."""


@dataclass(frozen=True, kw_only=True)
class TextCall(TextOptions, Call):
    """A call of `train_text` in its flat form."""


@verb(TextOptions, TextCall)
def train_text(corpus: Corpus, options: TextOptions, store: str | Path | None, progress: bool | None) -> xr.Dataset:
    """Train a causal transformer on next-token prediction and return the records of its attention.

    The trained model is written next to the store.

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
    return text_training(corpus, options, store=store).run(progress)


def text_training(corpus: Corpus, options: TextOptions, *, store: str | Path | None = None) -> TextTraining:
    """The run of `train_text`, not yet started."""
    if not isinstance(corpus, Corpus):
        raise InputError(f"corpus is {type(corpus).__name__}: give what read_corpus(...) returns.")
    shape = TextShape.of(options, vocab_size=corpus.vocab_size)
    columns = Columns(corpus.train, options.batch_size, shape.window)
    valid_tokens = min(len(corpus.valid), MOST_TOKENS)
    plan = Plan.of(options, shape, per_pass=columns.per_pass, valid_tokens=valid_tokens)
    return TextTraining(corpus, shape, options, plan, columns, store=store)


class TextTraining:
    """A run of `train_text` and its `model`, as `text_training` makes it."""

    def __init__(
        self,
        corpus: Corpus,
        shape: TextShape,
        options: TextOptions,
        plan: Plan,
        columns: Columns,
        *,
        store: str | Path | None,
    ) -> None:
        self.corpus, self.options, self.plan = corpus, options, plan
        self._columns = columns
        windows = consecutive(corpus.valid, shape.window)
        self._ranks = Ranks(options.device)
        self._share = self._ranks.share(options.batch_size)
        with _within_memory(shape, options):
            with _own_random_numbers(options.seed):
                self.model = TextTransformer(shape).to(self._ranks.device)
            self._updates = Updates(self.model, options, self._ranks)
            self._windows = torch.from_numpy(windows).to(self._ranks.device)  # (N, T + 1)
            self._watch = Watch(self.model, spread(self._windows, plan.measured)[:, :-1])
        self._size = text_dataset.sizes(
            len(plan.record_steps), shape.layers, shape.heads, min(options.patterns, len(self._watch.sample)),
            shape.window,
        )  # fmt: skip
        variables = text_dataset.variables(self._size)
        self._template = self._make_template(shape)
        self._recorder = Recorder(self._template, variables, store if self._ranks.is_first else None)
        self._records = Records(self._recorder, variables, self._size["step"])
        self._diverged = -1

    def run(self, progress: bool | None = None) -> xr.Dataset:
        """Train to the end; a run that is finished in its store is read from there, with its model."""
        title = f"training {self.plan.steps:,} steps"
        show_bar = progress if self._ranks.is_first else False
        store = self._recorder.store
        try:
            with self._recorder:
                if self._ranks.broadcast(store is not None and store.finished):
                    return self._template if store is None else self._read(store)
                with (
                    _own_random_numbers(self.options.seed),
                    _within_memory(self.model.shape, self.options),
                    one_thread() if self._is_small() else nullcontext(),
                    progress_bar(title, self.plan.steps, show_bar) as show,
                ):
                    self._train(show)
                return self._finish()
        finally:
            self._ranks.close()

    def _read(self, store: RunStore) -> xr.Dataset:
        folder = model_folder(store.path)
        if folder.exists():  # a run that diverged has none
            self.model.load_state_dict(load_model(folder, self.corpus.tokenizer)[0].state_dict())
        return load(store.path)

    def _is_small(self) -> bool:
        """Whether several threads would wait for each other longer than they work."""
        shape = self.model.shape
        products = shape.vocab_size * shape.width + shape.layers * shape.layer_size
        return 6 * self.options.batch_size * shape.window * products < SMALL

    def _train(self, show: Callable[..., None]) -> None:
        steps, store = self.plan.record_steps, self._recorder.store
        step, record, losses = self._resume()
        if not step and store is not None:
            shutil.rmtree(model_folder(store.path), ignore_errors=True)  # of an earlier run
        note = ""
        shown = saved = time.monotonic()
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
            losses.append(self._updates.update(step, *self._columns.at(step, self._share)))
            step += 1
            now = time.monotonic()
            if now - shown > PROGRESS_SECONDS:
                shown = now
                show(step, note)
            if store is not None and now - saved > CHECKPOINT_SECONDS:
                self._checkpoint(store, step, record, losses)
                saved = time.monotonic()

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
        if self._ranks.is_first:
            try:
                measured |= self._watch.measure()
            except FailedLook:
                is_finite = False
        if not self._ranks.broadcast(is_finite):
            self._diverged = step  # the last update produced NaN or infinity
            return None
        if not self._ranks.is_first:
            return measured
        if count := self._size["window"]:
            measured["pattern"] = self._watch.pattern(count)
        if self.plan.evaluates(record):
            rows = LOGITS_AT_ONCE[self._windows.device.type] // self.corpus.vocab_size
            measured["valid_loss"] = np.array(self._updates.evaluate(self._windows, rows))
        return measured

    def _resume(self) -> tuple[int, int, list[torch.Tensor]]:
        """The step, the next record and the losses since the last record, initially or where a run was interrupted."""
        checkpoint = self._ranks.broadcast(self._recorder.checkpoint())
        if checkpoint is None:
            return 0, 0, []
        step, state = checkpoint
        record = int(state.pop("record"))
        losses = list(torch.from_numpy(state.pop("losses")).to(self._ranks.device))
        self._watch.restore(state.pop("watched"))
        self._updates.restore(state)
        self._records.skip_to(record)
        return step, record, losses

    def _checkpoint(self, store: RunStore, step: int, record: int, losses: list[torch.Tensor]) -> None:
        self._records.flush(record)
        loss_values = torch.stack(losses).float().cpu().numpy() if losses else np.zeros(0, np.float32)
        state = {"record": np.array(record), "losses": loss_values, "watched": self._watch.state()}
        store.write_checkpoint(step, {**state, **self._updates.state()})

    def _finish(self) -> xr.Dataset:
        if self._recorder.store is not None and self._diverged < 0:
            save_model(self.model, self.corpus.tokenizer, model_folder(self._recorder.store.path))
        status = np.array(["ok" if self._diverged < 0 else "diverged"], "U8")
        return self._records.finish({"status": status, "diverged_step": np.array([self._diverged])})

    def _make_template(self, shape: TextShape) -> xr.Dataset:
        windows = self._watch.sample[: self._size["window"]].cpu().numpy()
        words = np.array([self.corpus.words(row) for row in windows], dtype=np.str_)
        described = {
            **self.options.described(), **asdict(self.plan), "lr_z": self.options.rate_z,
            "vocab_size": shape.vocab_size, "corpus": self.corpus.name,
            "corpus_fingerprint": self.corpus.fingerprint, "tokenizer": self.corpus.tokenizer.name,
            "processes": self._ranks.count,
        }  # fmt: skip
        run = {"lr_y": self.options.lr_y, "lr_z": self.options.rate_z, "seed": self.options.seed}
        return text_dataset.template(self.plan.record_steps, self._size, words, run, described)


def _note(measured: dict[str, NDArray[np.floating]]) -> str:
    """What the progress bar says of a record."""
    entropy = float(measured["entropy"].mean()) if "entropy" in measured else math.nan
    if "loss" not in measured:
        return f"(entropy {entropy:.3f})"
    loss = float(measured["loss"])
    return f"(loss {loss:.3f}, perplexity {math.exp(min(loss, 30)):.1f}, entropy {entropy:.3f})"


@contextmanager
def _within_memory(shape: TextShape, options: TextOptions) -> Iterator[None]:
    """Turn running out of memory into one sentence."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise InputError(
            f"{shape.vocab_size:,} token types, width {shape.width:,}, feed-forward {shape.feed_forward:,}, "
            f"{shape.layers:,} layers and {options.batch_size:,} windows of {shape.window:,} at once do not fit in the "
            f"memory of this {options.device}: reduce one of them."
        ) from None


@contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    """Use random numbers of a seed inside, and restore the caller's afterwards."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        torch.manual_seed(seed)
        yield
