"""The z statistic, its exact tail and the correction, against independent slow ones."""

from __future__ import annotations

from collections import Counter

import mpmath
import numpy as np
import pytest
from scipy import stats

import scansnap as ss
from scansnap.shortcuts.features import NESTED_KINDS
from scansnap.shortcuts.judging import distinctness, number_of_tests, z_statistic


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
    assert [number_of_tests(np.array([0.05] * n), 0.1) for n in (2, 3)] == [2, 3]  # p is the level itself


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


def test_pairs_and_positions_are_explained_by_their_words_as_defined() -> None:
    """In texts of label a, words tend to stand in order: a hundred features of which half say more than their words.

    Ten of their tails are within a factor of three of the limit, so that a count that is off by one shows.
    """
    rng = np.random.default_rng(1)
    rows, of_word = [], Counter[tuple[str, str]]()
    for _ in range(3000):
        label = "ab"[int(rng.integers(2))]
        weights = np.array([1.5 if label == "a" else 1 / 1.5] * 6 + [1.0] * 8)
        words = rng.choice(14, 8, p=weights / weights.sum())
        if label == "a":
            for k in range(7):
                if rng.random() < 0.8 and words[k] > words[k + 1]:
                    words[k], words[k + 1] = words[k + 1], words[k]
        names = [f"w{word}" for word in words]
        of_word.update((name, label) for name in set(names))
        rows.append({"text": " ".join(names), "label": label})
    found = ss.shortcuts(rows, text="text", label="label", progress=False)
    assert found.num_tested_texts == len(rows)  # no text is a near copy of another
    limit, tails = found.options.level / found.num_tests, []
    for finding in found.findings:
        if finding.kind in NESTED_KINDS and finding.p <= limit:
            tails.append(
                max(
                    stats.hypergeom.sf(
                        finding.texts_with_label - 1,
                        of_word[word, "a"] + of_word[word, "b"],
                        of_word[word, finding.label],
                        finding.texts,
                    )
                    for word in finding.feature.split()
                )
            )
            assert (tails[-1] > limit) == (finding.explained_by is not None), finding.name
    near = np.array(tails) / limit
    assert (len(near), (near > 1).sum()) == (101, 50)
    assert ((near > 1 / 3) & (near < 3)).sum() == 10
