"""The z statistic, its exact tail and the correction, against independent slow ones; stability and held-out rows."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats

from scansnap.shortcuts.counting import FOLDS, HELD_OUT
from scansnap.shortcuts.judging import (
    distinctness,
    is_gone,
    judge,
    number_of_tests,
    rows_to_tell,
    stability,
    z_statistic,
)
from scansnap.shortcuts.options import ShortcutOptions
from tests.shortcuts.labelled_rows import counted, rows


@pytest.mark.parametrize(
    ("a", "c", "n", "total"), [(20, 20, 500, 1000), (700, 1000, 5000, 10**4), (6, 9, 40, 10**7), (9, 12, 9, 30)]
)
def test_tails_are_exact(a: int, c: int, n: int, total: int) -> None:
    """To 7 digits of a sum of exact fractions."""

    def law(i: int) -> mpmath.mpf:
        return mpmath.binomial(n, i) * mpmath.binomial(total - n, c - i) / mpmath.binomial(total, c)

    evidence = distinctness(np.array([[a, c - a]]), np.array([n, total - n]), 0.05)
    exact = mpmath.fsum(law(i) for i in range(a, min(c, n) + 1))
    assert evidence.p[0, 0] == pytest.approx(float(exact), rel=1e-7, abs=0)
    assert evidence.smallest_p[0, 0] == pytest.approx(float(law(min(c, n))), rel=1e-7, abs=0)


def test_z_has_the_moments_of_the_hypergeometric_law() -> None:
    rows, with_word = np.array([30, 50, 20]), np.array([[5, 2, 1], [30, 50, 20]])
    z = z_statistic(with_word, rows)
    for k, n in enumerate(rows):
        law = stats.hypergeom(100, n, 8)
        assert z[0, k] == pytest.approx((with_word[0, k] - law.mean()) / law.std())
    assert z[1].tolist() == [0, 0, 0]  # a word that is in every text cannot vary


def test_the_number_of_tests_is_tarones() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        smallest = 10.0 ** rng.uniform(-8, 0, size=rng.integers(1, 60))
        slow = next(k for k in range(1, 100) if (smallest <= 0.05 / k).sum() <= k)
        assert number_of_tests(smallest, 0.05) == slow


def test_shuffled_labels_give_no_more_false_alarms_than_stated() -> None:
    """400 data sets of 200 texts and 60 words at level 0.2: at most 20% have a false alarm; a sound correction fails
    this once in 1,000 times."""
    rng = np.random.default_rng(0)
    texts = rng.random((200, 60)) < rng.uniform(0.02, 0.3, 60)
    alarms = 0
    for _ in range(400):
        label = rng.permutation(np.arange(200) % 3)
        rows = np.bincount(label)
        with_word = np.stack([texts[label == k].sum(0) for k in range(3)], 1)
        evidence = distinctness(with_word, rows, 0.2)
        alarms += bool(evidence.is_beyond_chance.any())
        assert evidence.num_tests <= with_word.size
    assert 8 < alarms <= stats.binom.ppf(0.999, 400, 0.2)


def test_what_is_beyond_chance_could_be() -> None:
    evidence = distinctness(np.array([[20, 0], [3, 0], [30, 34]]), np.array([500, 500]), 0.05)
    assert evidence.is_testable[:, 0].tolist() == [True, False, True]
    assert evidence.is_beyond_chance[:, 0].tolist() == [True, False, False]


def test_resampling_and_held_out_rows() -> None:
    """A steady word, one of a single fold, one that is not distinct in held-out folds, and one that is nowhere."""
    rows = np.full((16, 2), 50)
    label = np.zeros(4, np.int64)
    with_label = np.array([[3] * 16, [0] * 8 + [48] + [0] * 7, [1] * 4 + [4] * 12, [2] * 16])
    with_word = np.array([[4] * 16, [0] * 8 + [48] + [0] * 7, [3] * 4 + [5] * 12, [4] * 16])
    share = stability(with_label, with_word, rows, label, seed=0)
    assert share[0] == 1
    assert share[1] == pytest.approx(1 - (15 / 16) ** 16, abs=0.04)  # 4 standard errors of 2,000 resamples
    assert share[3] == 0
    assert is_gone(with_label, with_word, rows, label).tolist() == [False, True, True, True]


def test_rows_to_tell() -> None:
    """With that many rows, z is what Tarone's level asks for, but for (N − c)/(N − 1)."""
    needed = 1e-5
    (rows,) = rows_to_tell(np.array([0.7]), np.array([0.5]), np.array([40]), 10_000, needed)
    texts = 40 * rows / 10_000
    z = (0.7 - 0.5) * np.sqrt(texts / 0.25)
    assert stats.norm.sf(z) == pytest.approx(needed)


def test_words_look_distinct_from_two_standard_deviations_on() -> None:
    """In the rows that are not held out; words that are beyond chance in all rows do so anyway."""
    counts = counted(rows(600, magic=(40, 1.0)))
    judged = judge(counts, ShortcutOptions())
    z = z_statistic(counts.in_folds(range(HELD_OUT, FOLDS)), counts.rows[HELD_OUT:].sum(axis=0)).max(axis=1)
    assert ((z >= 2) & (z < 3)).sum() > 3
    assert set(judged.word.tolist()) == {*np.flatnonzero(z >= 2).tolist(), counts.words.index("magic")}
