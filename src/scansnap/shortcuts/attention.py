"""Which words attention picks, and when: the (Y, Z) dynamics with the label as the next token.

A labeled text is a sequence of the paper's: its words are the contextual tokens, one query token asks for the label,
and the label is the next token.  The model reads S of the words; the others are left out of the texts.  It is trained
by SGD on a random sample of the different texts.

**Gain.**  In a text of |x| words, even attention gives each word 1/|x|.  The gain of a word is how much more it gets,

    |x| e^{z_l} / Σ_{l' in x} e^{z_l'},

on average over the texts of its label that have it.  Attention *picks* a word at the first record at which its gain is
at least `PICKED`.  It may let go of it later, when the word's texts are learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource, Draw
from scansnap.dynamics.train import train
from scansnap.runtime.progress import progress_bar
from scansnap.shortcuts.features import IntArray
from scansnap.shortcuts.judging import FloatArray, Judged
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Curves
from scansnap.shortcuts.texts import LabeledTexts

PICKED = 2.0
QUERY = "label?"
RECORDS = 40
SHOWN_CURVES = 12
"""Words of each verdict whose course is kept: the most distinct shortcuts, the most attended unproven words."""


@dataclass(frozen=True)
class ReadTexts:
    """Texts that the model reads; each has some of its words."""

    has_word: NDArray[np.int32]  # (N, S)
    label: IntArray  # (N,)

    def __len__(self) -> int:
        return len(self.label)

    def gains(self, logits: FloatArray, speaks_for: IntArray) -> FloatArray:
        """(n, S) how much more than even attention each word gets in texts of its label, from n records of z (n, S).

        NaN for a word that none of these texts has.
        """
        is_own = self.has_word * (self.label[:, None] == speaks_for)  # (N, S)
        length = self.has_word.sum(axis=1)
        attention = (special.softmax(np.where(self.has_word, record, -np.inf), axis=1) for record in logits)  # (N, S)
        sums = [length @ (is_own * record) for record in attention]
        with np.errstate(invalid="ignore"):  # 0/0
            return np.array(sums) / is_own.sum(axis=0)


class FixedTexts(DataSource):
    """A fixed set of real texts for `train`."""

    def __init__(self, classes: SequenceClasses, texts: ReadTexts) -> None:
        self._classes, self._texts = classes, texts

    @property
    def classes(self) -> SequenceClasses:
        """Classes that all have all words, so that any text can be one of any class; their P(l|k) are not read."""
        return self._classes

    def draw(self, *, seeds: NDArray[np.uint64], step: int, num_sequences: int | None, length: int) -> Draw:
        """The texts, the same for every seed."""
        runs = len(seeds)
        return Draw(np.tile(self._texts.label, (runs, 1)), np.tile(self._texts.has_word, (runs, 1, 1)))


@dataclass(frozen=True)
class Trained:
    """A training on texts."""

    times: FloatArray  # (n,) updates
    gains: FloatArray  # (n, S)

    def largest(self) -> FloatArray:
        """(S,) the largest gain of each word; NaN for words that no text has."""
        return self.gains.max(axis=0)

    def picked_at(self) -> FloatArray:
        """(S,) the first record at which the gain is at least `PICKED`; NaN for words that are not picked."""
        is_picked = self.gains >= PICKED
        return np.where(is_picked.any(axis=0), self.times[is_picked.argmax(axis=0)], np.nan)


def train_on(classes: SequenceClasses, texts: ReadTexts, speaks_for: IntArray, options: ShortcutOptions) -> Trained:
    """Train on texts by SGD, from zero."""
    result = train(
        FixedTexts(classes, texts),
        lr_y=options.lr_y,
        lr_z=options.lr_z,
        steps=options.updates,
        batch_size=min(options.batch_size, len(texts)),
        num_sequences=len(texts),
        seq_len=1 + int(texts.has_word.sum(axis=1).max()),
        seeds=options.seed,
        record=("attention_logits",),
        record_every=max(1, options.updates // RECORDS),
        progress=False,
    )
    logits = result["attention_logits"].values.reshape(result.sizes["step"], -1).astype(np.float64)
    return Trained(result["step"].values.astype(np.float64), texts.gains(logits, speaks_for))


@dataclass(frozen=True)
class Attention:
    """What training says of the words that the model reads."""

    features: IntArray  # (S,) the words, as features
    trained: Trained
    curves: Curves

    def by_feature(self) -> dict[int, tuple[float | None, float | None]]:
        """The largest gain of each word, and when it is picked."""
        columns = zip(self.trained.largest(), self.trained.picked_at(), strict=True)
        pairs = ((_number(gain), _number(picked)) for gain, picked in columns)
        return dict(zip(self.features.tolist(), pairs, strict=True))


def attend(texts: LabeledTexts, judged: Judged, options: ShortcutOptions, progress: bool | None) -> Attention | None:
    """Train on the words that look distinct and on frequent ones."""
    is_word = np.array([feature.kind == "word" for feature in texts.table.features])
    counts = np.where(is_word, judged.with_feature.sum(axis=1), -1)
    distinct = [feature for feature in judged.feature.tolist() if is_word[feature]][: options.vocabulary // 2]
    frequent = np.argsort(-counts, kind="stable")[: int(is_word.sum())].tolist()
    chosen = np.array(list(dict.fromkeys([*distinct, *frequent]))[: options.vocabulary], np.int64)
    rng = np.random.default_rng([options.seed, 2])
    drawn = rng.permutation(np.flatnonzero(~texts.is_test))[: options.sample]
    has_word = texts.columns(chosen).tocsr()[drawn].toarray().astype(np.int32)
    usable = has_word.any(axis=1)
    sample = ReadTexts(has_word[usable], texts.label[drawn][usable])
    if len(np.unique(sample.label)) < 2:
        return None
    own_labels = dict(zip(judged.feature.tolist(), judged.label.tolist(), strict=True))
    speaks_for = judged.evidence.z[chosen].argmax(axis=1)
    speaks_for = np.array([own_labels.get(f, int(k)) for f, k in zip(chosen.tolist(), speaks_for, strict=True)])
    verdicts = dict(zip(judged.feature.tolist(), judged.is_shortcut.tolist(), strict=True))
    is_shortcut = np.array([verdicts.get(feature, False) for feature in chosen.tolist()])
    names = [texts.table.features[feature].name for feature in chosen]
    classes = _classes(names, texts.labels, judged.with_feature[chosen], judged.rows)
    with progress_bar("training attention", None, progress):
        trained = train_on(classes, sample, speaks_for, options)
    looking = [at for at, feature in enumerate(chosen.tolist()) if feature in verdicts]
    shown = [at for at in looking if is_shortcut[at]][:SHOWN_CURVES]
    largest = np.nan_to_num(trained.largest())
    shown += sorted((at for at in looking if not is_shortcut[at]), key=lambda at: -largest[at])[:SHOWN_CURVES]
    curves = Curves(
        len(sample),
        tuple(names[at] for at in shown),
        tuple(trained.times.tolist()),
        tuple(tuple(_number(gain) for gain in trained.gains[:, at]) for at in shown),
    )
    return Attention(chosen, trained, curves)


def _classes(words: list[str], labels: tuple[str, ...], counts: IntArray, rows: IntArray) -> SequenceClasses:
    """The labels as classes, each of which has every word, so that any text can be one of any class."""
    size = len(words)
    probs = np.zeros((len(labels), size + 1 + len(labels)))
    probs[:, :size] = (counts.T + 0.5) / (counts.T + 0.5).sum(axis=1, keepdims=True)
    return SequenceClasses(
        probs=probs,
        query=np.full(len(labels), size),
        next_token=size + 1 + np.arange(len(labels)),
        vocab_size=probs.shape[1],
        weights=np.maximum(rows, 1) / np.maximum(rows, 1).sum(),
        token_names=(*words, QUERY, *labels),
    )


def _number(value: float) -> float | None:
    """The value, or None for NaN."""
    return None if math.isnan(value) else float(value)
