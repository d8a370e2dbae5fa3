"""Training a transformer on text while measuring its attention."""

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
"""Time between checkpoints of a stored run."""

PROGRESS_SECONDS = 0.5
"""Time between updates of the progress bar."""

SMALL = 1e9
"""An update of fewer operations is done by one thread."""

LOGITS_AT_ONCE = {"cpu": 30_000_000, "cuda": 500_000_000}
"""Logits in memory at once while the validation loss is measured."""


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
    """Train a causal transformer on next-token prediction and return the records of its attention.

    The defaults are those of the paper's text experiment (Figure 7).

    Parameters
    ----------
    lr_y, lr_z : float
        The counterparts of eta_Y and eta_Z: lr_z is the rate of the attention logits' parameters (W_Q, W_K and a
        learned position bias), lr_y that of all others.  By default lr_z equals lr_y.
    steps : int, optional
        The number of updates; by default one pass over the training text.
    norm, positions :
        "post" or "pre"; "none", "sinusoidal", "alibi" or "t5".
    clip : float or None
        The largest allowed norm of the gradient of all parameters together.
    precision :
        "float32"; "bf16-decoder", which rounds only the decoder's products; "bf16", which rounds all products.
    record_every : int, optional
        Updates between measurements of attention over the validation split.  By default there are 16 to 100 records,
        each over as many evenly spread windows as take at most 3% of the time, but at least 64.
    evaluate_every : int, optional
        Updates between measurements of the validation loss, which cost more; by default only at the end.
    patterns : int
        Windows of the validation split whose attention is stored at every record.
    store : path, optional
        Where to write the result during training, and the trained model next to it.  An interrupted run, started
        again, continues to identical numbers.

    Returns
    -------
    xarray.Dataset
        Record 0 is the start.  A run whose loss stops being finite ends there with the status "diverged".  With
        several processes, the first has the records.
    """
    return text_training(
        corpus, lr_y=lr_y, lr_z=lr_z, steps=steps, layers=layers, heads=heads, width=width, feed_forward=feed_forward,
        norm=norm, dropout=dropout, positions=positions, window=window, batch_size=batch_size, optimizer=optimizer,
        momentum=momentum, weight_decay=weight_decay, clip=clip, precision=precision, compile=compile, device=device,
        seed=seed, record_every=record_every, evaluate_every=evaluate_every, patterns=patterns, store=store,
    ).run(progress)  # fmt: skip


def text_training(corpus: Corpus, *, store: str | Path | None = None, **options: Any) -> TextTraining:
    """The run of `train_text` with the same options and defaults, not yet started."""
    if not isinstance(corpus, Corpus):
        raise InputError(f"corpus is {type(corpus).__name__}: give what read_corpus(...) returns.")
    shape_names = {field.name for field in fields(TextShape)}
    shape = TextShape(vocab_size=corpus.vocab_size, **{k: v for k, v in options.items() if k in shape_names})
    rest = {k: v for k, v in options.items() if k not in shape_names}
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
    """A run of `train_text` and its `model`, as `text_training` makes it."""

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
        self._template = self._make_template(shape)
        self._store = None
        if store is not None and self._ranks.is_first:
            self._store = RunStore.begin(store, self._template, kinds)
        self._values = {name: np.full(kind.shape, np.nan, kind.dtype) for name, kind in kinds.items()}
        self._written = 0  # records in the store
        self._diverged = -1

    def run(self, progress: bool | None = None) -> xr.Dataset:
        """Train to the end; a run that is finished in its store is read from there, with its model."""
        title = f"training {self.options.steps:,} steps"
        show_bar = progress if self._ranks.is_first else False
        try:
            if self._ranks.broadcast(self._store is not None and self._store.finished):
                return self._template if self._store is None else self._read(self._store)
            with (
                _own_random_numbers(self.options.seed),
                _within_memory(self.model.shape, self.options),
                one_thread() if self._is_small() else nullcontext(),
                progress_bar(title, self.options.steps, show_bar) as show,
            ):
                self._train(show)
            return self._finish()
        finally:
            if self._store is not None:
                self._store.unlock()
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
        steps = self.options.record_steps
        step, record, losses = self._resume()
        if not step and self._store is not None:
            shutil.rmtree(model_folder(self._store.path), ignore_errors=True)  # of an earlier run
        note = ""
        shown = saved = time.monotonic()
        while True:
            if step == steps[record]:
                if not self._record(record, step, losses):
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
            if now - shown > PROGRESS_SECONDS:
                shown = now
                show(step, note)
            if self._store is not None and now - saved > CHECKPOINT_SECONDS:
                self._checkpoint(step, record, losses)
                saved = time.monotonic()

    def _record(self, record: int, step: int, losses: list[torch.Tensor]) -> bool:
        """Measure a record; False if the run has diverged by then."""
        if losses:
            values = torch.stack(losses).double().cpu().numpy()
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad):
                self._diverged = step - len(values) + int(bad[0])
                return False
            self._values["loss"][0, record] = values.mean()
        measured = self._watch.measure() if self._ranks.is_first else {}
        if not self._ranks.broadcast(bool(np.isfinite(measured.get("entropy", 0.0)).all())):
            self._diverged = step  # the last update produced NaN or infinity
            return False
        if not self._ranks.is_first:
            return True
        for name, value in measured.items():
            self._values[name][0, record] = value
        if record:
            self._values["moved"][0, record] = self._watch.change()
        if "pattern" in self._values:
            count = self._size["window"]
            self._values["pattern"][0, record] = self._watch.pattern[:, :, :count].cpu().numpy()
        if self.options.evaluates(record):
            rows = LOGITS_AT_ONCE[self._windows.device.type] // self.corpus.vocab_size
            self._values["valid_loss"][0, record] = self._updates.evaluate(self._windows, rows)
        return True

    def _note(self, record: int) -> str:
        loss = self._values["loss"][0, record]
        entropy = self._values["entropy"][0, record].mean()
        if not math.isfinite(loss):
            return f"(entropy {entropy:.3f})"
        return f"(loss {loss:.3f}, perplexity {math.exp(min(loss, 30)):.1f}, entropy {entropy:.3f})"

    def _resume(self) -> tuple[int, int, list[torch.Tensor]]:
        """The step, the next record and the losses since the last record, initially or where a run was interrupted."""
        checkpoint = self._ranks.broadcast(self._store.read_checkpoint() if self._store is not None else None)
        if checkpoint is None:
            return 0, 0, []
        step, state = checkpoint
        record = int(state.pop("record"))
        losses = list(torch.from_numpy(state.pop("losses")).to(self._ranks.device))
        self._watch.pattern = torch.from_numpy(state.pop("watched")).to(self._ranks.device)
        self._updates.restore(state)
        self._written = record
        if self._store is not None:
            stored = load(self._store.path, partial=True)
            for name, values in self._values.items():
                values[:, :record] = stored[name].values[:, :record]
        return step, record, losses

    def _checkpoint(self, step: int, record: int, losses: list[torch.Tensor]) -> None:
        assert self._store is not None
        self._write(record)
        loss_values = torch.stack(losses).float().cpu().numpy() if losses else np.zeros(0, np.float32)
        state = {"record": np.array(record), "losses": loss_values, "watched": self._watch.pattern.cpu().numpy()}
        self._store.write_checkpoint(step, {**state, **self._updates.state()})

    def _write(self, record: int) -> None:
        """Write the records before this one that the store does not have yet."""
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

    def _make_template(self, shape: TextShape) -> xr.Dataset:
        windows = self._watch.sample[: self._size["window"]].cpu().numpy()
        words = np.array([self.corpus.words(row) for row in windows], dtype=np.str_)
        options = {
            **asdict(shape), **asdict(self.options), "corpus": self.corpus.name,
            "corpus_fingerprint": self.corpus.fingerprint, "tokenizer": self.corpus.tokenizer.name,
            "processes": self._ranks.count,
        }  # fmt: skip
        run = {"lr_y": self.options.lr_y, "lr_z": self.options.lr_z, "seed": self.options.seed}
        return text_dataset.template(self.options.record_steps, self._size, words, run, options)


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
