"""Distinct, common and spurious tokens: symmetry, degrees of distinctness, TF-IDF, priors by position."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import scansnap as ss
from scansnap import theory

pytestmark = pytest.mark.rounding


@pytest.mark.parametrize(
    ("probs", "query", "wanted"),
    [
        ([[0.5, 0.3, 0.2, 0, 0], [0.5, 0, 0, 0.2, 0.3]], [7, 7], (True, True, True)),  # in any order
        ([[0.5, 0.3, 0.2, 0, 0], [0.5, 0, 0, 0.2, 0.3]], [7, 8], (False, True, True)),
        ([[0.5, 0.3, 0.2, 0, 0], [0.5, 0, 0, 0.4, 0.1]], [7, 7], (True, False, True)),
        ([[0.5, 0.3, 0.2, 0], [0.5, 0, 0, 0.5]], [7, 7], (True, False, True)),  # not as many
        ([[0.2, 0.3, 0.5, 0], [0.3, 0.2, 0, 0.5]], [7, 7], (True, True, False)),
        ([[0.2, 0.3, 0.5, 0], [0.1, 0.4, 0, 0.5]], [7, 7], (True, True, False)),
        ([[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]], [7, 7, 7], (True, False, False)),
    ],
)
def test_each_condition_of_corollary_2_is_its_own(probs: list, query: list, wanted: tuple) -> None:
    symmetry = theory.symmetry(probs, query=query)
    assert (symmetry.single_query, symmetry.matching_distinct, symmetry.shared_common) == wanted
    assert symmetry.holds == all(wanted)


def test_a_prior_multiplies_the_sizes_of_buckets() -> None:
    """w_g in proportion to sizes[g] exp(b_g), whatever is added to all b_g, also where exp(b_g) overflows."""
    parts = np.array([[0.2, 0.6, 0.1], [0.8, 0.4, 0.9]])
    bias = np.log([3.0, 1.0, 0.5])
    wanted = parts @ np.array([3.0, 2.0, 2.0]) / 7
    for shift in (0.0, 800.0, -800.0):
        np.testing.assert_allclose(theory.position_prior(parts, sizes=[1, 2, 4], bias=bias + shift), wanted, rtol=1e-12)
    steep = theory.position_prior(parts, sizes=[1, 2, 4], bias=[-800.0, 0.0, 800.0])
    np.testing.assert_allclose(steep, parts[:, 2], rtol=1e-12)


def draw(seed: int, *, density: float, queries: int = 0, shared: bool = False) -> ss.SequenceClasses:
    """Five classes of unequal weights over eight contextual tokens; `density` is the chance that one has a token.

    By default every class has its own query; with `shared`, two classes of two queries have the same next token.
    """
    rng = np.random.default_rng(seed)
    probs = np.zeros((5, 18))
    present = rng.random((5, 8)) < density
    present[np.arange(5), rng.integers(8, size=5)] = True  # no class is empty
    probs[:, :8] = np.where(present, rng.dirichlet(np.ones(8), size=5), 0)
    next_token = [13, 14, 15, 16, 13 if shared else 17]
    query = 8 + (np.arange(5) if not queries else rng.permutation(np.arange(5) % queries))
    return ss.SequenceClasses(
        probs=probs / probs.sum(1, keepdims=True),
        query=query,
        next_token=next_token,
        vocab_size=18,
        weights=rng.dirichlet(np.full(5, 5.0)),
    )


def second_step(classes: ss.SequenceClasses, rate: float) -> np.ndarray:
    """z (Q x L) after two expected updates, over rate^2/M: the first finds Y = 0 and does not move Z."""
    options = {"lr_y": rate, "lr_z": rate, "batch_size": None, "seq_len": math.inf, "dtype": "float64"}
    run = ss.train(classes, steps=2, **options, record_every=1, record="attention_logits", progress=False)
    logits = ss.measure.one_head(run)["attention_logits"].isel(run=0).values
    assert not logits[1].any()
    return logits[2] * classes.vocab_size / rate**2


@pytest.mark.parametrize("seed", range(40))
def test_one_is_distinct_and_every_token_has_eq_98(seed: int) -> None:
    classes = draw(seed, density=[0.2, 0.5, 1.0][seed % 3], shared=seed % 2 == 1)
    probs, weights, next_token = classes.probs, classes.weights, classes.next_token
    share = theory.distinctness(probs, weights=weights, next_token=next_token)
    favored = theory.favored(probs, weights=weights, next_token=next_token)
    for n in range(5):
        assert np.flatnonzero(share[n] == 1).tolist() == classes.distinct_tokens(n).tolist()
        assert favored[n, classes.distinct_tokens(n)].all()
    assert ((share > 0) == (probs > 0)).all()
    assert (share <= 1).all()
    drive = theory.early_drive(probs, weights=weights, next_token=next_token)
    np.testing.assert_allclose(drive.sum(axis=1), 0, atol=1e-12)
    if not classes.has_psi:
        return
    f = theory.directions(probs)
    rho = theory.overlaps(f) @ weights
    rest = np.divide(1 - share, share, out=np.zeros_like(share), where=share > 0)
    np.testing.assert_allclose(drive, f**2 * (rho[:, None] - weights[:, None] * rest), atol=1e-12)
    least = weights / (weights + rho)
    above = (share > least[:, None]) & (probs > 0)
    assert (favored == (above | (share == 1))).all()


@pytest.mark.parametrize("shared", [False, True])
def test_it_is_the_first_update_of_z(shared: bool) -> None:
    """Dense classes at a rate of 1e-8, at which predictions stay 1/M; the most distinct gain most for their size."""
    classes = draw(7, density=1.0, shared=shared)
    assert not any(len(classes.distinct_tokens(n)) for n in range(5))
    probs = classes.probs[:, :8]
    options = {"weights": classes.weights, "next_token": classes.next_token}
    drive = theory.early_drive(probs, **options, vocab_size=18)
    moved = second_step(classes, 1e-8) / classes.weights[:, None]
    np.testing.assert_allclose(moved, drive, rtol=1e-5, atol=1e-6 * np.abs(drive).max())
    assert ((moved > 0) == theory.favored(probs, **options, vocab_size=18)).all()
    if not shared:
        size = theory.directions(probs) ** 2
        order = np.argsort(theory.distinctness(probs, weights=classes.weights), axis=1)
        assert (np.diff(np.take_along_axis(moved / size, order, 1), axis=1) > 0).all()


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
