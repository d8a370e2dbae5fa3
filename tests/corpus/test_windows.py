"""Counts against a dictionary filled token by token, and derived quantities against their definitions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus.slow_counts import count_query, slow_tables


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
    counted = count_query(ids, query, window, vocab_size=8)
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
    counted = count_query([0, 1, 9, 5] * 30 + [0, 2, 9, 6] * 10, 9, 3, vocab_size=10)
    assert counted.distinctness[0] == 0
    assert counted.distinctness[1] == pytest.approx(math.log(40 / 30))
    assert counted.distinctness[2] == pytest.approx(math.log(40 / 10))
    assert math.isnan(counted.distinctness[5])
    np.testing.assert_allclose(counted.cooccurrence[[0, 1, 2]], [0.5, 0.375, 0.125])
