"""Counting spurious tokens, by exhaustion and by sampling; directions with a residual connection."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

import scansnap as ss
from scansnap import theory


def test_spurious_share_by_exhaustion() -> None:
    """All classes and tokens of two sequences of two contextual tokens, with their probabilities."""
    probs = np.array([[0.5, 0.3, 0.2, 0.0], [0.6, 0.1, 0.0, 0.3]])
    weights = np.array([0.7, 0.3])
    expected = np.zeros(2)
    for owners in itertools.product(range(2), repeat=2):
        for tokens in itertools.product(range(4), repeat=4):
            chance = np.prod([weights[k] for k in owners]) * np.prod(
                [probs[owners[i // 2], token] for i, token in enumerate(tokens)]
            )
            stored = [{tokens[i] for i in range(4) if owners[i // 2] == k} for k in range(2)]
            for n in range(2):
                expected[n] += chance * sum(probs[n, token] for token in stored[n] - stored[1 - n] if token in (0, 1))
    share = theory.spurious_share(probs, weights=weights, seq_len=3, num_sequences=2)
    np.testing.assert_allclose(share, expected, rtol=1e-12)


@pytest.mark.parametrize("rare", [1e-3, 1e-9, 1e-18])
@pytest.mark.parametrize("num_sequences", [1, 16, 10**6])
def test_rare_tokens_keep_their_digits(rare: float, num_sequences: int) -> None:
    """Against the two powers, in 60 digits: their difference is as small as the token is rare."""
    weights = [0.25, 0.75]
    with mpmath.workdps(60):
        lacks = [(1 - mpmath.mpf(p)) ** 7 for p in (rare, 3 * rare)]
        nowhere = sum(mpmath.mpf(w) * q for w, q in zip(weights, lacks, strict=True))
        nowhere_else = [nowhere + w * (1 - q) for w, q in zip(weights, lacks, strict=True)]
        expected = [
            float(p * (q**num_sequences - nowhere**num_sequences))
            for p, q in zip((rare, 3 * rare), nowhere_else, strict=True)
        ]
    share = theory.spurious_share([[rare], [3 * rare]], weights=weights, seq_len=8, num_sequences=num_sequences)
    np.testing.assert_allclose(share, expected, rtol=1e-11)


def test_certain_tokens_and_empty_contexts() -> None:
    everywhere = {"weights": [0.25, 0.75], "num_sequences": 2}
    assert theory.spurious_share([[1.0], [1.0]], seq_len=5, **everywhere).tolist() == [0.0625, 0.5625]
    assert theory.spurious_share([[1.0], [1.0]], seq_len=1, **everywhere).tolist() == [0, 0]


def test_without_common_tokens_nothing_is_spurious() -> None:
    assert theory.spurious_share(np.eye(3), weights=np.ones(3) / 3, seq_len=5, num_sequences=4).tolist() == [0, 0, 0]


def test_residual_directions_and_overlaps() -> None:
    """Unit length; half the published sum where the queries do not occur in the context."""
    classes = ss.local_common()
    f = theory.directions(classes.probs)
    v = theory.residual_directions(f, classes.query)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, rtol=1e-14)
    published = theory.residual_beta(f, classes.query, form="published")
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose((v @ v.T)[off], published[off] / 2, rtol=1e-12)
    np.testing.assert_allclose(
        np.eye(4) - np.linalg.inv(v @ v.T) - theory.residual_beta(f, classes.query),
        np.diag(np.diag(np.eye(4) - np.linalg.inv(v @ v.T))),
        atol=1e-12,
    )
    with pytest.raises(ss.InputError, match="give each of 4 classes an index below"):
        theory.residual_directions(f, [0, 1])
    with pytest.raises(ss.InputError, match="unknown form 'both'"):
        theory.residual_beta(f, classes.query, form="both")


def test_local_common_is_what_it_says() -> None:
    classes = ss.local_common(num_distinct=3, vocab_size=40)
    for query in classes.queries:
        assert len(classes.local_common_tokens(int(query))) == 1
    for i in range(4):
        local = set(classes.local_distinct_tokens(i))
        assert len(local - set(classes.distinct_tokens(i))) == 1  # shared with the other query alone
    with pytest.raises(ss.InputError, match="these classes alone use 22"):
        ss.local_common(num_distinct=3, vocab_size=21)
    with pytest.raises(ss.InputError, match="num_distinct is 0"):
        ss.local_common(num_distinct=0)
