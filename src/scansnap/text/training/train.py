"""Training a transformer on text, with its attention followed."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scansnap.base.checks import whole
from scansnap.base.errors import InputError
from scansnap.base.progress import progress_bar
from scansnap.base.threads import one_thread
from scansnap.results.store import RunStore, load
from scansnap.text.corpus.corpus import Corpus
from scansnap.text.model.model_file import load_model, model_folder, save_model
from scansnap.text.model.transformer import TextShape, TextTransformer
from scansnap.text.training import dataset as text_dataset
from scansnap.text.training.options import TextOptions, record_plan
from scansnap.text.training.ranks import Ranks
from scansnap.text.training.updates import Updates
from scansnap.text.training.watch import Watch
from scansnap.text.training.windows import MOST_TOKENS, Columns, consecutive, spread

CHECKPOINT_SECONDS = 60.0
"""Time between checkpoints of a run that is written to disk."""

LOOK_SECONDS = 0.5
"""Time between signs of progress."""

SMALL = 1e9
"""Operations of an update below which one thread does them."""

EVALUATED = {"cpu": 30_000_000, "cuda": 500_000_000}
"""Logits held at a time while the validation loss is measured."""


def train_text(
    corpus: Corpus,
    *,
    lr_y: float = 5.0,
    lr_z: float | None = None,
    steps: int | None = None,
    layers: int = 1,
    heads: int = 1,
    width: int = 200,
    feed_forward: int = 200,
    norm: str = "post",
    dropout: float = 0.2,
    positions: str = "sinusoidal",
    window: int = 35,
    batch_size: int = 20,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    clip: float | None = 0.5,
    precision: str = "float32",
    compile: bool = False,
    device: str = "cpu",
    seed: int = 0,
    record_every: int | None = None,
    evaluate_every: int | None = None,
    patterns: int = 4,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Train a causal transformer on next-token prediction and return what was recorded of its attention.

    The defaults are those of the paper's text experiment (Figure 7).

    Parameters
    ----------
    lr_y, lr_z : float
        The counterparts of eta_Y and eta_Z: lr_z is for what makes the attention logits (W_Q, W_K and a learned bias of
        positions), lr_y for everything else.  Unless given, lr_z is lr_y.
    steps : int, optional
        Updates; one pass over the training text unless given.
    norm, positions :
        "post" or "pre"; "none", "sinusoidal", "alibi" or "t5".
    clip : float or None
        The largest norm of the gradient of all parameters together.
    precision :
        "float32"; "bf16-decoder", which rounds the decoder's products only; "bf16", which rounds all.
    record_every, evaluate_every :
        Updates between measurements of attention over the validation split; unless given there are 16 to 100 records,
        of as many of its windows, evenly spread, as take at most 3% of the time (but 64).  Updates between validation
        losses, which cost more and are measured at the end only unless this is given.
    patterns : int
        Windows of the validation split whose attention is kept at every record.
    store : path, optional
        Write the result there as it goes, and the trained model beside it.  The same run, interrupted there, continues
        to identical numbers.

    Returns
    -------
    xarray.Dataset
        Record 0 is the start.  A run whose loss stops being finite has the status "diverged" and ends there.  Of
        several processes the first has the records.
    """
    return text_training(
        corpus, lr_y=lr_y, lr_z=lr_z, steps=steps, layers=layers, heads=heads, width=width, feed_forward=feed_forward,
        norm=norm, dropout=dropout, positions=positions, window=window, batch_size=batch_size, optimizer=optimizer,
        momentum=momentum, weight_decay=weight_decay, clip=clip, precision=precision, compile=compile, device=device,
        seed=seed, record_every=record_every, evaluate_every=evaluate_every, patterns=patterns, store=store,
    ).run(progress)  # fmt: skip


def text_training(corpus: Corpus, *, store: str | Path | None = None, **options: Any) -> TextTraining:
    """What `train_text` runs, with the same options and defaults, not yet begun."""
    if not isinstance(corpus, Corpus):
        raise InputError(f"corpus is {type(corpus).__name__}: give what read_corpus(...) returns.")
    shaping = {field.name for field in fields(TextShape)}
    shape = TextShape(vocab_size=corpus.vocab_size, **{k: v for k, v in options.items() if k in shaping})
    rest = {k: v for k, v in options.items() if k not in shaping}
    batch_size = whole("batch_size", rest.get("batch_size", TextOptions.batch_size), least=1)
    columns = Columns(corpus.train, batch_size, shape.window)
    if rest.get("steps") is None:
        rest["steps"] = columns.per_pass
    if rest.get("lr_z") is None:
        rest["lr_z"] = rest.get("lr_y", TextOptions.lr_y)
    if rest.get("record_every") is None:
        tokens = min(len(corpus.valid), MOST_TOKENS)
        precision = rest.get("precision", TextOptions.precision)
        steps = whole("steps", rest["steps"])
        rest["record_every"], rest["measured"] = record_plan(shape, tokens, batch_size, steps, precision)
    return TextTraining(corpus, shape, TextOptions(**rest), columns, store=store)


class TextTraining:
    """A run of `train_text` and its `model`.  Make it with `text_training`."""

    def __init__(
        self, corpus: Corpus, shape: TextShape, options: TextOptions, columns: Columns, *, store: str | Path | None
    ) -> None:
        self.corpus, self.options = corpus, options
        self._columns = columns
        windows = consecutive(corpus.valid, shape.window)
        self._ranks = Ranks(options.device)
        self._share = self._ranks.share(options.batch_size)
        with _within_memory(shape, options):
            with _own_random_numbers(options.seed):
                self.model = TextTransformer(shape).to(self._ranks.device)
            self._updates = Updates(self.model, options, self._ranks)
            self._windows = torch.from_numpy(windows).to(self._ranks.device)  # (N, T + 1)
            self._watch = Watch(self.model, spread(self._windows, options.measured)[:, :-1])
        self._size = text_dataset.sizes(
            len(options.record_steps), shape.layers, shape.heads, min(options.patterns, len(self._watch.sample)),
            shape.window,
        )  # fmt: skip
        kinds = text_dataset.variables(self._size)
        self._template = self._described(shape)
        self._store = None
        if store is not None and self._ranks.first:
            self._store = RunStore.begin(store, self._template, kinds)
        self._values = {name: np.full(kind.shape, np.nan, kind.dtype) for name, kind in kinds.items()}
        self._written = 0  # records that the store has
        self._diverged = -1

    def run(self, progress: bool | None = None) -> xr.Dataset:
        """Train to the end; a run that its store holds finished is read, and its model with it."""
        words = f"training {self.options.steps:,} steps"
        show_bar = progress if self._ranks.first else False
        try:
            if self._ranks.told(self._store is not None and self._store.finished):
                return self._template if self._store is None else self._read(self._store)
            with (
                _own_random_numbers(self.options.seed),
                _within_memory(self.model.shape, self.options),
                one_thread() if self._is_small() else nullcontext(),
                progress_bar(words, self.options.steps, show_bar) as show,
            ):
                self._train(show)
            return self._finish()
        finally:
            if self._store is not None:
                self._store.unlock()
            self._ranks.close()

    def _read(self, store: RunStore) -> xr.Dataset:
        folder = model_folder(store.path)
        if folder.exists():  # a run that diverged has left none
            self.model.load_state_dict(load_model(folder, self.corpus.tokenizer)[0].state_dict())
        return load(store.path)

    def _is_small(self) -> bool:
        """Whether threads would wait for each other longer than they work."""
        shape = self.model.shape
        products = shape.vocab_size * shape.width + shape.layers * shape.layer_size
        return 6 * self.options.batch_size * shape.window * products < SMALL

    def _train(self, show: Callable[..., None]) -> None:
        steps = self.options.record_steps
        step, record, losses = self._resume()
        if not step and self._store is not None:
            shutil.rmtree(model_folder(self._store.path), ignore_errors=True)  # of a run that was here before
        note = ""
        looked = saved = time.monotonic()
        while True:
            if step == steps[record]:
                if not self._keep(record, step, losses):
                    return
                note = self._note(record)
                losses = []
                record += 1
                show(step, note)
                if record == len(steps):
                    return
            losses.append(self._updates.update(step, *self._columns.at(step, self._share)))
            step += 1
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                show(step, note)
            if self._store is not None and now - saved > CHECKPOINT_SECONDS:
                self._checkpoint(step, record, losses)
                saved = time.monotonic()

    def _keep(self, record: int, step: int, losses: list[torch.Tensor]) -> bool:
        """Put a record; False if the run has diverged by then."""
        if losses:
            found = torch.stack(losses).double().cpu().numpy()
            bad = np.flatnonzero(~np.isfinite(found))
            if len(bad):
                self._diverged = step - len(found) + int(bad[0])
                return False
            self._values["loss"][0, record] = found.mean()
        measured = self._watch.measure() if self._ranks.first else {}
        if not self._ranks.told(bool(np.isfinite(measured.get("entropy", 0.0)).all())):
            self._diverged = step  # the last update made numbers that are none
            return False
        if not self._ranks.first:
            return True
        for name, value in measured.items():
            self._values[name][0, record] = value
        if record:
            self._values["moved"][0, record] = self._watch.change()
        if "pattern" in self._values:
            kept = self._size["window"]
            self._values["pattern"][0, record] = self._watch.pattern[:, :, :kept].cpu().numpy()
        if self.options.evaluates(record):
            rows = EVALUATED[self._windows.device.type] // self.corpus.vocab_size
            self._values["valid_loss"][0, record] = self._updates.evaluate(self._windows, rows)
        return True

    def _note(self, record: int) -> str:
        loss = self._values["loss"][0, record]
        entropy = self._values["entropy"][0, record].mean()
        if not math.isfinite(loss):
            return f"(entropy {entropy:.3f})"
        return f"(loss {loss:.3f}, perplexity {math.exp(min(loss, 30)):.1f}, entropy {entropy:.3f})"

    def _resume(self) -> tuple[int, int, list[torch.Tensor]]:
        """The step, the next record and the losses since the last one: of the start, or of an interrupted run."""
        checkpoint = self._ranks.told(self._store.read_checkpoint() if self._store is not None else None)
        if checkpoint is None:
            return 0, 0, []
        step, state = checkpoint
        record = int(state.pop("record"))
        losses = list(torch.from_numpy(state.pop("losses")).to(self._ranks.device))
        self._watch.pattern = torch.from_numpy(state.pop("watched")).to(self._ranks.device)
        self._updates.restore(state)
        self._written = record
        if self._store is not None:
            held = load(self._store.path, partial=True)
            for name, values in self._values.items():
                values[:, :record] = held[name].values[:, :record]
        return step, record, losses

    def _checkpoint(self, step: int, record: int, losses: list[torch.Tensor]) -> None:
        assert self._store is not None
        self._write(record)
        held = torch.stack(losses).float().cpu().numpy() if losses else np.zeros(0, np.float32)
        state = {"record": np.array(record), "losses": held, "watched": self._watch.pattern.cpu().numpy()}
        self._store.write_checkpoint(step, {**state, **self._updates.state()})

    def _write(self, record: int) -> None:
        """Put the records before this one that are not there yet into the store."""
        if record > self._written and self._store is not None:
            block = {name: values[:, self._written : record] for name, values in self._values.items()}
            self._store.write(block, record=self._written)
            self._written = record

    def _finish(self) -> xr.Dataset:
        status = {
            "status": np.array(["ok" if self._diverged < 0 else "diverged"], "U8"),
            "diverged_step": np.array([self._diverged]),
        }
        if self._store is not None:
            self._write(self._size["step"])
            if self._diverged < 0:
                save_model(self.model, self.corpus.tokenizer, model_folder(self._store.path))
            self._store.finish(status)
            return load(self._store.path)
        dataset = self._template.assign_coords({name: ("run", value) for name, value in status.items()})
        for name, values in self._values.items():
            dataset[name] = (text_dataset.DIMENSIONS[name], values, text_dataset.ATTRIBUTES[name])
        return dataset.assign_attrs(complete=1)

    def _described(self, shape: TextShape) -> xr.Dataset:
        shown = self._watch.sample[: self._size["window"]].cpu().numpy()
        words = np.array([self.corpus.words(row) for row in shown], dtype=np.str_)
        options = {
            **asdict(shape), **asdict(self.options), "corpus": self.corpus.name,
            "corpus_fingerprint": self.corpus.fingerprint, "tokenizer": self.corpus.tokenizer.name,
            "processes": self._ranks.count,
        }  # fmt: skip
        run = {"lr_y": self.options.lr_y, "lr_z": self.options.lr_z, "seed": self.options.seed}
        return text_dataset.template(self.options.record_steps, self._size, words, run, options)


@contextmanager
def _within_memory(shape: TextShape, options: TextOptions) -> Iterator[None]:
    """One sentence for what does not fit."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise InputError(
            f"{shape.vocab_size:,} token types, width {shape.width:,}, feed-forward {shape.feed_forward:,}, "
            f"{shape.layers:,} layers and {options.batch_size:,} windows of {shape.window:,} at once do not fit in the "
            f"memory of this {options.device}: give less of one of them."
        ) from None


@contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    """Random numbers of a seed within, the caller's own again after."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        torch.manual_seed(seed)
        yield
