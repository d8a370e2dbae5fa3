"""Which words are distinct for a label: the test of every word, its correction, and the verdict.

**The test.**  N texts, n_k of them with label k; word l is in c of them, a of which have label k.  If the word says
nothing about the label, then the c texts are a random choice out of N, and a is hypergeometric with

    mean  c q,    variance  c q (1 − q) (N − c)/(N − 1),    q = n_k/N,

so that z = (a − c q)/sd.  For rare words z is far from normal, so p is the exact tail P(A ≥ a).

**Many words.**  With m pairs (word, label), call one beyond chance at level α if its p ≤ α/m (Bonferroni).  Then the
chance that *any* pair is called so, where no word says anything, is at most m α/m = α, whatever their dependence.  But
most words are rare, and a rare word cannot be beyond chance however pure it is: the smallest p that c and n_k allow is

    p_min = P(A = min(c, n_k)).

Tarone (1990): take the smallest k such that at most k pairs have p_min ≤ α/k, and call pairs with p ≤ α/k distinct.
The others cannot be called so, whence the chance of any false one is at most k α/k = α as before, and k is below m.
p_min depends on c and n_k alone, which the hypothesis holds fixed, so that the choice of k is no peeking.

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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from scansnap.shortcuts.counting import FOLDS, HELD_OUT, FloatArray, IntArray, LabelCounts
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Control, Reason

LEAST_Z = 1.0
"""Below this no p is small enough to matter, and it is not computed."""

DISTINCT_Z = 2.0
"""The z, in the rows that are not held out, from which a word looks distinct."""

CELLS_AT_ONCE = 2**22
RESAMPLES = 2000
STABLE = 0.975
"""A word whose stability is smaller is unstable: no effect at all is within its 95% interval."""


@dataclass(frozen=True)
class Distinctness:
    """How distinct words are for each label (V, K)."""

    z: FloatArray
    p: FloatArray  # 1 where z is below `LEAST_Z`
    smallest_p: FloatArray  # p_min
    num_tests: int  # k, which replaces Bonferroni's m
    needed_p: float  # the level over k: a pair with at most this p is beyond chance

    @property
    def is_beyond_chance(self) -> NDArray[np.bool_]:
        """(V, K) which pairs are distinct beyond chance."""
        return self.p <= self.needed_p

    @property
    def is_testable(self) -> NDArray[np.bool_]:
        """(V, K) which pairs could be beyond chance, if they were pure."""
        return self.smallest_p <= self.needed_p


def distinctness(with_word: IntArray, rows: IntArray, level: float) -> Distinctness:
    """How distinct words are, from texts of each label with each word (V, K) and texts of each label (K,)."""
    total = int(rows.sum())
    occurrences = np.broadcast_to(with_word.sum(axis=1, keepdims=True), with_word.shape)
    label_rows = np.broadcast_to(rows, with_word.shape)
    z = z_statistic(with_word, rows)
    p = np.ones(z.shape)
    high = z >= LEAST_Z
    p[high] = stats.hypergeom.sf(with_word[high] - 1, total, label_rows[high], occurrences[high])
    smallest = stats.hypergeom.pmf(np.minimum(occurrences, label_rows), total, label_rows, occurrences)
    num_tests = number_of_tests(smallest.ravel(), level)
    return Distinctness(z, p, smallest, num_tests, level / num_tests)


def z_statistic(with_word: IntArray, rows: IntArray) -> FloatArray:
    """(V, K) how many standard deviations a is above its mean; 0 where it cannot vary."""
    total = rows.sum()
    c, q = with_word.sum(axis=-1, keepdims=True), rows / total
    variance = c * q * (1 - q) * (total - c) / max(1, total - 1)
    return np.divide(with_word - c * q, np.sqrt(variance), out=np.zeros(with_word.shape), where=variance > 0)


def number_of_tests(smallest: FloatArray, level: float) -> int:
    """Tarone's k: the smallest number such that at most k pairs can be beyond chance at level/k."""
    k = np.arange(1, max(1, len(smallest)) + 1)
    return int(k[np.searchsorted(np.sort(smallest), level / k, side="right") <= k][0])


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


@dataclass(frozen=True)
class Judged:
    """Words that look distinct, shortcuts first, then by z."""

    evidence: Distinctness  # of all words
    word: IntArray  # (n,)
    label: IntArray  # (n,) the label that each is most distinct for
    reasons: list[tuple[Reason, ...]]
    stability: FloatArray
    with_label: IntArray  # (n, F)
    with_word: IntArray  # (n, F)
    different_texts: IntArray  # (n,) texts with the word, copies counted once

    @property
    def is_shortcut(self) -> NDArray[np.bool_]:
        """(n,) which are shortcuts."""
        return np.array([not reasons for reasons in self.reasons], bool)


def judge(counts: LabelCounts, options: ShortcutOptions) -> Judged:
    """The words that look distinct for a label, or are so beyond chance."""
    rows = counts.rows
    evidence = distinctness(counts.by_label, rows.sum(axis=0), options.level)
    beyond = evidence.is_beyond_chance
    is_beyond = beyond.any(axis=1, keepdims=True)
    others_z = z_statistic(counts.in_folds(range(HELD_OUT, FOLDS)), rows[HELD_OUT:].sum(axis=0))
    distinct = np.where(is_beyond, np.where(beyond, evidence.z, -np.inf), others_z)
    word = np.flatnonzero(is_beyond.ravel() | (distinct.max(axis=1) >= DISTINCT_Z))
    label = distinct[word].argmax(axis=1)
    with_label, with_word = _by_fold(counts, word, label)
    stable = stability(with_label, with_word, rows, label, options.seed)
    once = distinctness(counts.once, rows.sum(axis=0) - counts.copied_rows, options.level)
    different = counts.once[word].sum(axis=1)
    is_rare = ~evidence.is_testable[word, label]
    marks: dict[Reason, NDArray[np.bool_]] = {
        "rare": is_rare,
        "chance": ~beyond[word, label] & ~is_rare,
        "copies": beyond[word, label] & ~once.is_beyond_chance[word, label] & (different < with_word.sum(axis=1)),
        "unstable": stable < STABLE,
        "gone": is_gone(with_label, with_word, rows, label),
    }
    reasons = [tuple(reason for reason, holds in marks.items() if holds[i]) for i in range(len(word))]
    order = sorted(range(len(word)), key=lambda i: (bool(reasons[i]), -evidence.z[word[i], label[i]]))
    return Judged(
        evidence,
        word[order],
        label[order],
        [reasons[i] for i in order],
        stable[order],
        with_label[order],
        with_word[order],
        different[order],
    )


def _by_fold(counts: LabelCounts, words: IntArray, labels: IntArray) -> tuple[IntArray, IntArray]:
    """Texts of each fold with the word and its label, and with the word (words, F)."""
    with_label, with_word = (np.zeros((len(words), FOLDS), np.int64) for _ in range(2))
    at_once = max(1, CELLS_AT_ONCE // counts.counts.shape[1])
    for first in range(0, len(words), at_once):
        part = slice(first, first + at_once)
        table = np.asarray(counts.counts[words[part]].todense()).reshape(-1, FOLDS, len(counts.labels))
        with_label[part] = table[np.arange(len(table)), :, labels[part]]
        with_word[part] = table.sum(axis=2)
    return with_label, with_word


def control(counts: LabelCounts, judged: Judged, options: ShortcutOptions) -> Control:
    """Words with a large z for some label, and those beyond chance, before and after the shuffle."""
    rows = counts.rows.sum(axis=0)
    both = judged.evidence, distinctness(np.asarray(counts.shuffled.todense()), rows, options.level)
    looking = [int((evidence.z >= DISTINCT_Z).any(axis=1).sum()) for evidence in both]
    beyond = [int(evidence.is_beyond_chance.any(axis=1).sum()) for evidence in both]
    return Control(*looking, *beyond)
