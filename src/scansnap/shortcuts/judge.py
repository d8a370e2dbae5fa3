"""The verdict on every word that looks distinct: beyond chance, stable and still there, or unproven, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scansnap.shortcuts.counting import FOLDS, HELD_OUT, LabelCounts
from scansnap.shortcuts.distinct import Distinctness, FloatArray, IntArray, distinctness, z_statistic
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Control, Reason
from scansnap.shortcuts.stability import STABLE, by_fold, is_gone, stability

LOOKS = 2.0
"""The z, in the rows that are not held out, from which a word looks distinct."""


@dataclass(frozen=True)
class Judged:
    """Words that look distinct, shortcuts first, then by z."""

    evidence: Distinctness  # of all words
    needed_p: float
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
    needed_p = options.level / evidence.num_tests
    beyond = evidence.p <= needed_p
    is_beyond = beyond.any(axis=1, keepdims=True)
    others_z = z_statistic(counts.in_folds(range(HELD_OUT, FOLDS)), rows[HELD_OUT:].sum(axis=0))
    distinct = np.where(is_beyond, np.where(beyond, evidence.z, -np.inf), others_z)
    word = np.flatnonzero(is_beyond.ravel() | (distinct.max(axis=1) >= LOOKS))
    label = distinct[word].argmax(axis=1)
    with_label, with_word = by_fold(counts, word, label)
    stable = stability(with_label, with_word, rows, label, options.seed)
    once = distinctness(counts.once, rows.sum(axis=0) - counts.copied_rows, options.level)
    is_still_beyond = (once.p <= options.level / once.num_tests)[word, label]
    different = counts.once[word].sum(axis=1)
    rare = ~evidence.is_testable(options.level)[word, label]
    marks: dict[Reason, NDArray[np.bool_]] = {
        "rare": rare,
        "chance": ~beyond[word, label] & ~rare,
        "copies": beyond[word, label] & ~is_still_beyond & (different < with_word.sum(axis=1)),
        "unstable": stable < STABLE,
        "gone": is_gone(with_label, with_word, rows, label),
    }
    reasons = [tuple(reason for reason, holds in marks.items() if holds[i]) for i in range(len(word))]
    order = sorted(range(len(word)), key=lambda i: (bool(reasons[i]), -evidence.z[word[i], label[i]]))
    return Judged(
        evidence,
        needed_p,
        word[order],
        label[order],
        [reasons[i] for i in order],
        stable[order],
        with_label[order],
        with_word[order],
        different[order],
    )


def control(counts: LabelCounts, judged: Judged, options: ShortcutOptions) -> Control:
    """Words with z of at least 2 for some label, and those beyond chance, before and after the shuffle."""
    rows = counts.rows.sum(axis=0)
    shuffled = distinctness(np.asarray(counts.shuffled.todense()), rows, options.level)

    def beyond(evidence: Distinctness) -> int:
        return int((evidence.p <= options.level / evidence.num_tests).any(axis=1).sum())

    def looking(evidence: Distinctness) -> int:
        return int((evidence.z >= LOOKS).any(axis=1).sum())

    return Control(looking(judged.evidence), looking(shuffled), beyond(judged.evidence), beyond(shuffled))
