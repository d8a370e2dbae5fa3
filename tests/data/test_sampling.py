"""Sampling: the streams, the binomials, and counts that are those of sequences.

Every stochastic test has a fixed seed, so it passes or fails always; the false-alarm rate stated is that of the seed's
choice.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy import stats

import scansnap as ss
from scansnap.data.sampling import (
    BINARY_SEARCH_SIZE,
    COUNTING_LIMIT,
    GOLDEN,
    MIX_1,
    MIX_2,
    SamplingTables,
    binomial,
    fill_draws,
    sequence_key,
    uniform,
    word,
)
from tests.strategies import sequence_classes

pytestmark = pytest.mark.rounding

MASK = 2**64 - 1


def mix_in_python(x: int) -> int:
    x = ((x ^ (x >> 30)) * int(MIX_1)) & MASK
    x = ((x ^ (x >> 27)) * int(MIX_2)) & MASK
    return x ^ (x >> 31)


def test_words_are_splitmix64() -> None:
    """Against the definition in exact integers, and SplitMix64's published first output from state 0."""
    assert mix_in_python(int(GOLDEN)) == 0xE220A8397B1DCDAF
    seed, step, index, j = 12345, 6, 7, 8
    key = mix_in_python((seed + int(GOLDEN)) & MASK)
    key = mix_in_python((key + (step + 1) * int(GOLDEN)) & MASK)
    key = mix_in_python((key + (index + 1) * int(GOLDEN)) & MASK)
    expected = mix_in_python((key + (j + 1) * int(GOLDEN)) & MASK)

    @njit
    def compiled(seed, step, index, j):
        return word(sequence_key(seed, step, index), j)

    assert int(compiled(np.uint64(seed), step, index, j)) == expected


def test_streams_are_uniform_and_apart() -> None:
    """Kolmogorov-Smirnov on 20,000 numbers across seeds, steps and indices, and along one stream: level 1e-3 each."""

    @njit
    def across(count):
        out = np.empty((4, count))
        for i in range(count):
            out[0, i] = uniform(sequence_key(np.uint64(i), 0, 0), 0)
            out[1, i] = uniform(sequence_key(np.uint64(1), i, 0), 0)
            out[2, i] = uniform(sequence_key(np.uint64(1), 0, i), 0)
            out[3, i] = uniform(sequence_key(np.uint64(1), 0, 0), i)
        return out

    values = across(20_000)
    for row in values:
        assert stats.kstest(row, "uniform").pvalue > 1e-3
    correlation = np.corrcoef(values) - np.eye(4)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(20_000)  # six pairs: level 4e-5


@pytest.mark.parametrize(
    ("trials", "p"), [(1, 0.3), (7, 0.5), (40, 0.1), (40, 0.9), (200, 0.04), (200, 0.3), (5000, 0.002), (10**6, 0.7)]
)
def test_binomials(trials: int, p: float) -> None:
    """Chi-squared over cells of probability about 1/20 with 40,000 draws: level 1e-4 in each of eight settings."""

    @njit
    def draw(trials, p, count):
        out = np.empty(count, np.int64)
        for i in range(count):
            out[i] = binomial(trials, p, sequence_key(np.uint64(3), 0, i), 1)[0]
        return out

    values = draw(trials, p, 40_000)
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 21)[1:-1], trials, p))
    cells = np.diff(np.concatenate([[0.0], stats.binom.cdf(edges, trials, p), [1.0]]))
    counted = np.bincount(np.searchsorted(edges, values), minlength=len(cells))
    recorded = cells > 1e-12
    assert counted[~recorded].sum() == 0
    if recorded.sum() > 1:
        assert stats.chisquare(counted[recorded], cells[recorded] / cells[recorded].sum() * len(values)).pvalue > 1e-4


@settings(max_examples=40)
@given(classes=sequence_classes(), length=st.integers(2, 300), seed=st.integers(0, 2**63 - 1))
def test_counts_are_those_of_the_sequences(classes: ss.SequenceClasses, length: int, seed: int) -> None:
    sequences, owner = ss.sample_sequences(classes, num=20, seq_len=length, seed=seed)
    counts, same = ss.sample_counts(classes, num=20, seq_len=length, seed=seed)
    assert owner.tolist() == same.tolist()
    assert (sequences[:, -1] == classes.query[owner]).all()
    histogram = [np.bincount(s[:-1], minlength=classes.vocab_size) for s in sequences]
    assert (np.array(histogram) == counts).all()
    assert (counts[classes.probs[owner] == 0] == 0).all()


def test_wide_classes_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary search, and counting against thresholds in NumPy, are two ways to one result."""
    rng = np.random.default_rng(0)
    size = BINARY_SEARCH_SIZE + 44
    p = rng.dirichlet(np.ones(size))
    classes = ss.SequenceClasses.from_supports(
        tokens=[np.arange(size)], probs=[p / p.sum()], query=[0], next_token=[1], vocab_size=size
    )
    counts = classes.draw(seeds=np.array([9], np.uint64), step=0, num_sequences=1, length=150).counts[0, 0]
    draws = np.empty(192, np.int32)
    fill_draws(np.uint64(sequence_key(np.uint64(9), 0, 0)), draws)
    places = np.searchsorted(SamplingTables.of(classes).thresholds[0, :-1], draws[:150], side="right")
    assert (counts == np.bincount(places, minlength=size)).all()


@pytest.mark.parametrize("seq_len", [128, COUNTING_LIMIT + 1, COUNTING_LIMIT + 2, 100_000])
def test_counts_are_multinomial(seq_len: int) -> None:
    """Means and covariances over 20,000 sequences of one class, each side of the switch to binomials: |z| < 4.5."""
    p = np.array([0.5, 0.3, 0.15, 0.05])
    classes = ss.SequenceClasses.from_supports(
        tokens=[[0, 1, 2, 3]], probs=[p], query=[0], next_token=[1], vocab_size=4
    )
    counts, _ = ss.sample_counts(classes, num=20_000, seq_len=seq_len, seed=8)
    length, num = seq_len - 1, len(counts)
    assert (counts.sum(1) == length).all()
    covariance = length * (np.diag(p) - np.outer(p, p))
    error = np.sqrt(np.diag(covariance) / num)
    assert (np.abs(counts.mean(0) - length * p) < 4.5 * error).all()
    variances = np.diag(covariance)
    spread = np.sqrt((np.outer(variances, variances) + covariance**2) / num)  # of a Gaussian's sample covariance
    assert (np.abs(np.cov(counts.T) - covariance) < 5 * spread).all()


@pytest.mark.parametrize("seq_len", [129, COUNTING_LIMIT + 2])
def test_two_million_counts_are_binomial(seq_len: int) -> None:
    """Each token's count in 2,000,000 sequences is Binomial(T - 1, p): chi-squared over cells of about 1/40.

    Five tokens at level 1e-5, so a false alarm in 5e-5 of the seeds.  The sampler of long sequences inverts small means
    and rejects above; the third token is where a rejection that is slightly wrong shows most.
    """
    p, length, num = np.array([0.5, 0.004, 0.0095, 0.3, 0.1865]), seq_len - 1, 2_000_000
    classes = ss.SequenceClasses.from_supports(
        tokens=[[0, 1, 2, 3, 4]], probs=[p], query=[0], next_token=[1], vocab_size=5
    )
    counts, _ = ss.sample_counts(classes, num=num, seq_len=seq_len, seed=11)
    assert (counts.sum(1) == length).all()
    for token, share in enumerate(p):
        edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 41)[1:-1], length, share))
        cells = np.diff(np.concatenate([[0.0], stats.binom.cdf(edges, length, share), [1.0]]))
        counted = np.bincount(np.searchsorted(edges, counts[:, token]), minlength=len(cells))
        assert stats.chisquare(counted, cells * num).pvalue > 1e-5, token


def test_classes_are_drawn_with_their_weights() -> None:
    """Chi-squared on 50,000 classes: level 1e-3."""
    weights = np.array([0.6, 0.3, 0.1])
    base = ss.synthetic(num_query=1, next_per_query=3)
    classes = ss.SequenceClasses(
        probs=base.probs, query=base.query, next_token=base.next_token, vocab_size=base.vocab_size, weights=weights
    )
    _, owner = ss.sample_counts(classes, num=50_000, seq_len=2, seed=4)
    assert stats.chisquare(np.bincount(owner), weights * 50_000).pvalue > 1e-3


def test_class_and_tokens_are_independent_draws() -> None:
    """Two classes with equal tokens: counts given the class have equal means; 20,000 sequences, |z| < 4.5."""
    classes = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]] * 2, query=[2, 2], next_token=[0, 3], vocab_size=4)
    counts, owner = ss.sample_counts(classes, num=20_000, seq_len=65, seed=11)
    first = [counts[owner == n, 0] for n in range(2)]
    error = np.sqrt(sum(x.var() / len(x) for x in first))
    assert abs(first[0].mean() - first[1].mean()) < 4.5 * error
    # Also for the draws that share a word's bits with each other and follow the class's word.
    sequences, owner = ss.sample_sequences(classes, num=20_000, seq_len=65, seed=11)
    for position in range(64):
        rates = [sequences[owner == n, position].mean() for n in range(2)]
        assert abs(rates[0] - rates[1]) < 5 * np.sqrt(0.5 / 10_000)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("num", [-1, 2.5, "3"]),
        ("seed", [-1, "a", 0.5]),
        ("seq_len", [1, 0, 2.5, float("nan"), float("inf"), True]),
    ],
)
def test_requests_are_checked(name: str, values: list[object]) -> None:
    for sample in (ss.sample_sequences, ss.sample_counts):
        for value in values:
            with pytest.raises(ss.InputError, match=rf"^{name} is .*: give a whole number from [012] "):
                sample(ss.syn_small(), **{"num": 1, "seq_len": 8, name: value})
