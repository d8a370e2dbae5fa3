"""Counts against a dictionary filled token by token, and derived quantities against their definitions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from scansnap.corpus.windows import occurrences_of
from tests.corpus.slow_counts import slow_tables


def slow_distinctness(pairs: Counter[tuple[int, int]], following: Counter[int]) -> dict[int, float]:
    by_token: dict[int, Counter[int]] = defaultdict(Counter)
    for (token, next_token), count in pairs.items():
        by_token[token][next_token] = count
    total = sum(following.values())
    return {
        token: sum(
            n / sum(counts.values()) * math.log(n / sum(counts.values()) / (following[next_token] / total))
            for next_token, n in counts.items()
        )
        for token, counts in by_token.items()
    }


@given(ids=st.lists(st.integers(0, 5), min_size=2, max_size=200), window=st.integers(2, 12))
def test_counts_of_one_query_are_those_of_a_dictionary(ids: list[int], window: int) -> None:
    query = ids[0]
    tables = slow_tables([ids], window)
    pairs = Counter({(token, n): count for (m, n, token), count in tables["triples"].items() if m == query})
    following = Counter({n: count for (m, n), count in tables["bigrams"].items() if m == query})
    counted = occurrences_of(np.array(ids, np.int32), query, window, vocab_size=8).count()
    assert counted.num_occurrences == following.total()
    assert [following[n] for n in range(8)] == counted.next_counts.tolist()
    assert [[pairs[token, n] for n in range(8)] for token in range(8)] == counted.counts.toarray().tolist()
    assert counted.token_counts.tolist() == counted.counts.sum(axis=1).tolist()
    np.testing.assert_allclose(counted.cooccurrence * max(1, pairs.total()), counted.token_counts)
    expected = slow_distinctness(pairs, following)
    np.testing.assert_allclose(
        counted.distinctness, [expected.get(token, math.nan) for token in range(8)], atol=1e-12, rtol=1e-12
    )


def test_common_tokens_say_nothing_and_distinct_tokens_everything() -> None:
    # 9 is the query; 0 precedes it always, 1 only before 5, 2 only before 6
    ids = np.array([0, 1, 9, 5] * 30 + [0, 2, 9, 6] * 10)
    counted = occurrences_of(ids, 9, 3).count()
    assert counted.distinctness[0] == 0
    assert counted.distinctness[1] == pytest.approx(math.log(40 / 30))
    assert counted.distinctness[2] == pytest.approx(math.log(40 / 10))
    assert math.isnan(counted.distinctness[5])
    np.testing.assert_allclose(counted.cooccurrence[[0, 1, 2]], [0.5, 0.375, 0.125])


def test_shuffling_keeps_contexts_and_next_tokens_and_breaks_their_link() -> None:
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 2, 2000)
    ids = np.stack([topic, np.full(2000, 9), topic + 5], axis=1).ravel()  # the topic decides what follows 9
    occurrences = occurrences_of(ids, 9, 2)
    counted = occurrences.count()
    control = occurrences.shuffled(rng).count()
    assert (control.token_counts == counted.token_counts).all()
    assert (control.next_counts == counted.next_counts).all()
    assert counted.distinctness[0] > 0.6
    # 2 N D is about chi-squared with 1 degree of freedom: over 20 once in 10^5
    assert 0 < control.distinctness[0] < 20 / 2000
    again = occurrences.shuffled(np.random.default_rng(1)).count().counts.toarray()
    assert (again == occurrences.shuffled(np.random.default_rng(1)).count().counts.toarray()).all()
    assert (again != control.counts.toarray()).any()


@pytest.mark.parametrize(
    ("ids", "query", "options", "message"),
    [
        ([0, 1, 2], 7, {}, "token 7 never occurs before another token"),
        ([0, 1, 2], 2, {}, "token 2 never occurs before another token"),
        ([0, 1, 2], 0, {"window": 1}, "window is 1: give a whole number from 2"),
        ([0, 1, 2], 0, {"vocab_size": 2}, "to below vocab_size, 2"),
        ([0, -1, 2], 0, {}, "ids range from -1 to 2"),
        ([[0, 1]], 0, {}, "shape .* give a list"),
        ([0.0, 1.0], 0, {}, "type float64: give a list of at least two whole numbers"),
        ([0], 0, {}, "at least two"),
    ],
)
def test_impossible_arguments_are_refused(ids: list, query: int, options: dict, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        occurrences_of(np.array(ids), query, **{"window": 5, **options})
