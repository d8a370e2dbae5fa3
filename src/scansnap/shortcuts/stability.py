"""Whether a word that looks distinct would look so again: in resampled texts, in held-out rows, in more rows.

**Resampling.**  The F folds hold random texts, and copies of a text are in one fold.  A resample draws F folds with
replacement; the *stability* of a word is the share of resamples in which it is more frequent with its label than usual,
a*/c* > n*_k/N*.  For texts that are independent this is the bootstrap.  A word that owes its frequency to one text that
was copied many times is missing from every third resample.

**Held-out rows** are some of the folds.  A word is *gone* if in these rows it is not more frequent with its label than
usual: a_h/c_h ≤ q_h.  That happens to half of the words that look distinct by chance in the others.

**More rows.**  A word whose share s of texts with label k stays what it is would have z = (s − q) √(c/(q(1 − q))) in c
texts.  It is beyond chance at Tarone's level, z ≥ z*, from

    c = z*² q (1 − q)/(s − q)²

texts on, which takes N c/c_now rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scansnap.shortcuts.counting import FOLDS, HELD_OUT, LabelCounts
from scansnap.shortcuts.distinct import FloatArray, IntArray

CELLS_AT_ONCE = 2**22
RESAMPLES = 2000
STABLE = 0.975
"""A word whose stability is smaller is unstable: no effect at all is within its 95% interval."""


def by_fold(counts: LabelCounts, words: IntArray, labels: IntArray) -> tuple[IntArray, IntArray]:
    """Texts of each fold with the word and its label, and with the word (words, F)."""
    with_label, with_word = (np.zeros((len(words), FOLDS), np.int64) for _ in range(2))
    at_once = max(1, CELLS_AT_ONCE // counts.counts.shape[1])
    for first in range(0, len(words), at_once):
        part = slice(first, first + at_once)
        table = np.asarray(counts.counts[words[part]].todense()).reshape(-1, FOLDS, len(counts.labels))
        with_label[part] = table[np.arange(len(table)), :, labels[part]]
        with_word[part] = table.sum(axis=2)
    return with_label, with_word


def stability(with_label: IntArray, with_word: IntArray, rows: IntArray, labels: IntArray, seed: int) -> FloatArray:
    """The share of resamples in which each word speaks for its label; all arguments are by fold."""
    rng = np.random.default_rng([seed, 1])
    folds = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), RESAMPLES).T.astype(np.float64)  # (F, B)
    label_rows, all_rows = rows.T[labels] @ folds, rows.sum(axis=1) @ folds
    return ((with_label @ folds) * all_rows > (with_word @ folds) * label_rows).mean(axis=1)


def is_gone(with_label: IntArray, with_word: IntArray, rows: IntArray, labels: IntArray) -> NDArray[np.bool_]:
    """Which words do not speak for their label in the held-out rows; all arguments are by fold."""
    held = slice(0, HELD_OUT)
    label_rows, all_rows = rows[held].sum(axis=0)[labels], rows[held].sum()
    return with_label[:, held].sum(axis=1) * all_rows <= with_word[:, held].sum(axis=1) * label_rows


def rows_to_tell(share: FloatArray, usual: FloatArray, texts: IntArray, num_rows: int, needed_p: float) -> FloatArray:
    """Rows in which words with this share of texts would be beyond chance."""
    needed_z = float(-special.ndtri(needed_p))
    with np.errstate(divide="ignore"):  # a word that is not distinct never is
        return num_rows / texts * needed_z**2 * usual * (1 - usual) / (share - usual) ** 2
