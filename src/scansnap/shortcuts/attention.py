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

from collections.abc import Iterator

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
from scansnap.shortcuts.texts import LabeledTexts

PICKED = 2.0
QUERY = "label?"
RECORDS = 40


class FixedTexts(DataSource):
    """A fixed set of real texts for `train`; each has some of the words that the model reads."""

    def __init__(self, classes: SequenceClasses, has_word: NDArray[np.int32], label: IntArray) -> None:
        self._classes, self._has_word, self._label = classes, has_word, label  # (N, S), (N,)

    @property
    def classes(self) -> SequenceClasses:
        """Classes that all have all words, so that any text can be one of any class; their P(l|k) are not read."""
        return self._classes

    def draw(self, *, seeds: NDArray[np.uint64], step: int, num_sequences: int | None, length: int) -> Draw:
        """The texts, the same for every seed."""
        runs = len(seeds)
        return Draw(np.tile(self._label, (runs, 1)), np.tile(self._has_word, (runs, 1, 1)))


def gains_of(has_word: NDArray[np.int32], label: IntArray, logits: FloatArray, speaks_for: IntArray) -> FloatArray:
    """(n, S) how much more than even attention each word gets in texts of its label, from n records of z (n, S).

    Of N texts, `has_word` (N, S) says which words they have, and `label` (N,) their label.  NaN for a word that none of
    these texts has.
    """
    is_own = has_word * (label[:, None] == speaks_for)  # (N, S)
    length = has_word.sum(axis=1)
    attention = (special.softmax(np.where(has_word, record, -np.inf), axis=1) for record in logits)  # (N, S)
    sums = [length @ (is_own * record) for record in attention]
    with np.errstate(invalid="ignore"):  # 0/0
        return np.array(sums) / is_own.sum(axis=0)


def picks(updates: IntArray, gains: FloatArray) -> Iterator[tuple[float | None, int | None]]:
    """The largest gain of each word, and the first record at which it is at least `PICKED`; None if there is none."""
    for of_word in gains.T:
        is_picked = of_word >= PICKED
        gain = None if np.isnan(of_word).any() else float(of_word.max())
        yield gain, int(updates[is_picked.argmax()]) if is_picked.any() else None


def attend(
    texts: LabeledTexts, judged: Judged, options: ShortcutOptions, progress: bool | None
) -> dict[int, tuple[float | None, int | None]]:
    """Train on the words that look distinct and on frequent ones; returns the largest gain of each, and its pick."""
    is_word = np.array([feature.kind == "word" for feature in texts.table.features])
    counts = np.where(is_word, judged.with_feature.sum(axis=1), -1)
    distinct = [feature for feature in judged.feature.tolist() if is_word[feature]][: options.vocabulary // 2]
    frequent = np.argsort(-counts, kind="stable")[: int(is_word.sum())].tolist()
    chosen = np.array(list(dict.fromkeys([*distinct, *frequent]))[: options.vocabulary], np.int64)
    rng = np.random.default_rng([options.seed, 2])
    drawn = rng.permutation(np.flatnonzero(~texts.is_test))[: options.sample]
    has_word = texts.table.has[:, chosen].tocsr()[drawn].toarray().astype(np.int32)
    usable = has_word.any(axis=1)
    has_word, label = has_word[usable], texts.label[drawn][usable]
    if len(np.unique(label)) < 2:
        return {}
    own_labels = dict(zip(judged.feature.tolist(), judged.label.tolist(), strict=True))
    speaks_for = judged.evidence.z[chosen].argmax(axis=1)
    speaks_for = np.array([own_labels.get(f, int(k)) for f, k in zip(chosen.tolist(), speaks_for, strict=True)])
    names = [texts.table.features[feature].name for feature in chosen]
    classes = _classes(names, texts.labels, judged.with_feature[chosen], judged.rows)
    with progress_bar("training attention", None, progress):
        result = train(
            FixedTexts(classes, has_word, label),
            lr_y=options.lr_y,
            lr_z=options.lr_z,
            steps=options.updates,
            batch_size=min(options.batch_size, len(label)),
            num_sequences=len(label),
            seq_len=1 + int(has_word.sum(axis=1).max()),
            seeds=options.seed,
            record=("attention_logits",),
            record_every=max(1, options.updates // RECORDS),
            progress=False,
        )
    logits = result["attention_logits"].values.reshape(result.sizes["step"], -1).astype(np.float64)
    gains = gains_of(has_word, label, logits, speaks_for)
    return dict(zip(chosen.tolist(), picks(result["step"].values, gains), strict=True))


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
