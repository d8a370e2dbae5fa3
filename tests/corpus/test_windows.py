"""Counts against a dictionary filled token by token, and derived quantities against their definitions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from scansnap.corpus import windows
from scansnap.corpus.windows import occurrences_of


def slow_counts(ids: list[int], query: int, window: int) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    pairs: Counter[tuple[int, int]] = Counter()
    following: Counter[int] = Counter()
    for t in range(len(ids) - 1):
        if ids[t] == query:
            following[ids[t + 1]] += 1
            for position in range(t - window + 1, t):
                if position >= 0:
                    pairs[ids[position], ids[t + 1]] += 1
    return pairs, following


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


@given(
    ids=st.lists(st.integers(0, 5), min_size=2, max_size=200),
    window=st.integers(2, 12),
    chunk=st.sampled_from([1, 7, 50, 10_000]),
)
def test_counts_are_those_of_a_dictionary(ids: list[int], window: int, chunk: int) -> None:
    query = ids[0]
    pairs, following = slow_counts(ids, query, window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "BLOCK_ROWS", chunk)
        counted = occurrences_of(np.array(ids, np.int32), query, window, vocab_size=8).count()
    assert counted.counts.shape == (8, 8)
    assert counted.counts.dtype == np.int64
    entries = counted.counts.tocoo()
    assert (
        dict(zip(zip(*map(np.ndarray.tolist, entries.coords), strict=True), entries.data.tolist(), strict=True))
        == pairs
    )
    assert {n: c for n, c in enumerate(counted.next_counts.tolist()) if c} == following
    assert counted.num_occurrences == sum(following.values())
    tokens = Counter()
    for (token, _), count in pairs.items():
        tokens[token] += count
    assert {token: c for token, c in enumerate(counted.token_counts.tolist()) if c} == tokens
    np.testing.assert_allclose(counted.cooccurrence * max(1, tokens.total()), counted.token_counts)
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


def test_memory_maps_are_counted(tmp_path) -> None:
    ids = np.random.default_rng(0).integers(0, 20, 5000, dtype=np.int32)
    ids.tofile(tmp_path / "ids.bin")
    mapped = np.memmap(tmp_path / "ids.bin", "<i4", mode="r")
    assert (occurrences_of(mapped, 3, 10).count().counts != occurrences_of(ids, 3, 10).count().counts).nnz == 0


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
