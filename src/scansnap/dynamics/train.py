"""Training: steps of SGD or Adam on sampled or expected batches, many runs at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.progress import progress_bar
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.engine import Engine, SeveralLayers, make_engine
from scansnap.dynamics.fixed_data import FreshData
from scansnap.dynamics.options import FRESH, RECORDED, Runs, TrainOptions, check_bias_recorded, check_classes
from scansnap.dynamics.position_bias import check_positions, described_bias
from scansnap.dynamics.prior import described_prior
from scansnap.dynamics.recorder import Recorder
from scansnap.dynamics.start import Init, make_start
from scansnap.results.dataset import attributes, coordinates

PIECE_SECONDS = 0.5
"""Work is handed to the engine in pieces of about this long, so that it can be shown and interrupted."""

FIRST_PIECE = 16
"""Steps in the first piece; it doubles until a piece takes long enough."""

CHECKPOINT_SECONDS = 20.0
"""Time between checkpoints of a run that is written to disk."""


def train(
    classes: SequenceClasses,
    *,
    lr_y: Any,
    lr_z: Any,
    steps: int,
    batch_size: int | None = 128,
    seq_len: float = 128,
    optimizer: str = "sgd",
    momentum: float | None = None,
    init: Init = "zeros",
    decoder_gradient: str = "true",
    normalization: str = "l2",
    residual: bool = False,
    heads: int = 1,
    layers: int = 1,
    nonlinearity: str = "tanh",
    init_scale_z: float = 1.0,
    attention_prior: Any = None,
    position_bias: Any = None,
    learn_position_bias: bool = False,
    num_sequences: int | None = None,
    seeds: Any = 0,
    record_every: int = 1,
    record: Iterable[str] = RECORDED,
    dtype: str = "float32",
    device: str = "cpu",
    store: str | Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Train the (Y, Z) transformer and return what was recorded.

    Parameters
    ----------
    lr_y, lr_z, seeds : number or sequence
        eta_Y, eta_Z and the seed of each run; sequences of one length give one run per entry, single values are shared.
    steps : int
        Updates.  Record 0 is the start, record s the state after s updates; its loss and accuracy are those of the
        batch that update s + 1 uses (or would use).
    batch_size : int or None
        Sequences per update; None takes every class once, weighted by its probability: the expected update.
    seq_len : int or math.inf
        T: T - 1 contextual tokens and the query.  math.inf replaces token counts by P(l|n) (Lemma 2).
    optimizer, momentum :
        "sgd", with momentum (0 unless given), "adam", "sign_sgd" or "normalised_sgd" (`dynamics/update_rules.py`).
    init, init_scale_z :
        "zeros", "uniform" (entries of Y uniform in +-1/sqrt(M), those of Z `init_scale_z` times as wide), or a pair of
        arrays (Y, Z).
    decoder_gradient :
        "true" is SGD's (Eq. 3); "modified" is Lemma 3's (Eq. 26), which the quantitative theory assumes.
    normalization, residual, heads :
        The layer, the paper's basic one unless told: "l2" or "layer" (standard LayerNorm, mean subtracted); whether the
        query is added to what is attended to (Section 7); how many heads, each with a Y and a Z of its own.
    layers, nonlinearity :
        Several layers on top of each other with "tanh" or "relu" between them, by autograd (`model/layered.py`).
    attention_prior : optional
        Logits added to Z before training: one per token, or a mapping such as {"common": -2.0} or {"the": -1.0}.
    position_bias, learn_position_bias : optional
        For `PositionedClasses`: logits added by relative position, one for each bucket, or {"alibi": slope}; and
        whether they are learned, at the rate of Z.
    num_sequences : int, optional
        Train on a fixed set of so many sequences; with batch_size=None on all of it at every update.
    record, record_every :
        The variables to keep, among loss, accuracy, fresh_loss, fresh_accuracy (on sequences that no update sees),
        attention, attention_logits, entropy, decoder, and how often.
    store : path, optional
        Write the result there as it goes.  If the same run was interrupted there it continues, to identical numbers; if
        it was finished there it is read, not run again.
    progress : bool, optional
        Show a progress bar; unless told, on an interactive terminal only.

    Returns
    -------
    xarray.Dataset
        A run whose loss stops being finite has the status "diverged" and NaN from that step on; the others go on.
    """
    check_classes(classes)
    options = TrainOptions.checked(
        steps=steps, batch_size=batch_size, seq_len=seq_len, optimizer=optimizer, momentum=momentum,
        decoder_gradient=decoder_gradient, dtype=dtype, device=device, record_every=record_every, record=record,
        normalization=normalization, residual=residual, heads=heads, num_sequences=num_sequences, layers=layers,
        nonlinearity=nonlinearity,
    )  # fmt: skip
    runs = Runs.checked(lr_y=lr_y, lr_z=lr_z, seeds=seeds)
    start = make_start(
        classes, init, runs.seed, dtype, options.architecture, init_scale_z=init_scale_z,
        attention_prior=attention_prior, position_bias=position_bias, learn_position_bias=learn_position_bias,
    )  # fmt: skip
    check_positions(start.positions, options.seq_len, options.batch_size, options.num_sequences)
    check_bias_recorded(options.record, classes)
    described = {
        **options.described(),
        "init": start.name, "init_scale_z": float(init_scale_z), "attention_prior": described_prior(attention_prior),
        "position_bias": described_bias(position_bias), "learn_position_bias": bool(learn_position_bias),
        "lr_y": runs.lr_y.tolist(), "lr_z": runs.lr_z.tolist(), "seeds": runs.seed.tolist(),
    }  # fmt: skip
    unfinished = {"status": np.full(len(runs), "running", "U8"), "diverged_step": np.full(len(runs), -1)}
    template = coordinates(
        start.layout, "step", options.record_steps,
        {"lr_y": runs.lr_y, "lr_z": runs.lr_z, "seed": runs.seed.astype(np.int64), **unfinished}, options.record,
    )  # fmt: skip
    template.attrs = attributes(classes, "train", described, "training dynamics of a 1-layer (Y, Z) transformer")
    recorder = Recorder(start.layout, template, "step", options.record, dtype, store, start=start)
    if (done := recorder.finished()) is not None:
        return done
    engine = make_engine(start, options, runs)
    fresh = FreshData(start, options, runs) if set(FRESH) & set(options.record) else None
    with recorder, progress_bar(f"training {len(runs)} run{'s' * (len(runs) > 1)}", options.steps, progress) as show:
        _Training(engine, recorder, fresh, options, show).run()
    diverged = engine.diverged()
    return recorder.finish(
        {"status": np.where(diverged >= 0, "diverged", "ok").astype("U8"), "diverged_step": diverged}
    )


class _Training:
    """Advances the engine from record to record."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        fresh: FreshData | None,
        options: TrainOptions,
        show: Callable[[float], None],
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._fresh = fresh
        self._steps = options.record_steps
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
        store = self._recorder.store
        checkpoint = store.read_checkpoint() if store else None
        if checkpoint is None:
            return 0
        step, state = checkpoint
        self._engine.restore(step, state)
        record = int(np.searchsorted(self._steps, step, side="right")) - 1
        # Mid-way between two records the earlier one is complete and written.
        self._recorder.skip_to(record if step == self._steps[record] else record + 1)
        return record

    def _advance(self, record: int) -> None:
        """One piece of work towards the next record; the first piece after a record also gives that record's loss."""
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
        if self._recorder.store and time.monotonic() - self._saved > CHECKPOINT_SECONDS:
            self._checkpoint(record)

    def _observe(self) -> None:
        if isinstance(self._engine, SeveralLayers):
            self._values = self._recorder.observe_layers(self._engine.layer_attention())
            return
        decoder = self._engine.decoder() if self._recorder.wants_decoder else None
        self._values = self._recorder.observe(self._engine.attention_logits(), decoder, self._engine.position_bias())
        if self._fresh is not None:
            self._values |= self._fresh.measure(self._engine)

    def _keep(self, record: int, loss: NDArray[np.float64], accuracy: NDArray[np.float64]) -> None:
        """Put what was last observed, with its loss, and blank the runs that have diverged by then."""
        self._recorder.put(record, {**self._values, "loss": loss, "accuracy": accuracy})
        diverged = self._engine.diverged()
        self._recorder.blank(record, (diverged >= 0) & (diverged <= self._steps[record]))

    def _checkpoint(self, record: int) -> None:
        self._recorder.flush(record + 1)
        store = self._recorder.store
        assert store is not None
        store.write_checkpoint(self._engine.step, self._engine.state())
        self._saved = time.monotonic()
