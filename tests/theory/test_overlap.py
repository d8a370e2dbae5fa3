"""Directions, overlaps and the bounds of Lemmas 13 to 17 over random classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scansnap import theory

pytestmark = pytest.mark.rounding


def random_directions(seed: int, classes: int, tokens: int, shared: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    probs = rng.exponential(size=(classes, tokens)) * (rng.random((classes, tokens)) < shared)
    probs[np.arange(classes), np.arange(classes)] += 1
    return theory.directions(probs / probs.sum(axis=1, keepdims=True), rng.normal(size=tokens))


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 8), shared=st.floats(0.05, 0.9), top=st.floats(0.01, 0.99))
@settings(max_examples=300, deadline=None)
def test_weak_overlaps_alone_make_the_drive_positive(seed: int, classes: int, shared: float, top: float) -> None:
    """Theorem 1 (a) with |lambda_1| = top/K and no lower bound on |lambda_i|, at any M; and how large Eq. 93 can be."""
    e = theory.overlaps(random_directions(seed, classes, 20, shared))
    largest = np.abs(theory.eigenvalues(e)[0])
    assume(largest > 1e-3)
    e = e * top / (classes * largest)
    _, beta = theory.backpropagated_gradient(e, vocab_size=classes + seed % 1000 + 1)
    drive = theory.drive(e, beta, speed=1.0)
    assert (drive[e.sum(axis=1) > 0] > 0).all()
    least = -np.diag(theory.inverse_overlaps(e)).max()
    assert theory.diagonal_bound(e) <= least * (1 + 1e-9) + 1e-15
    assert theory.diagonal_bound(e, form="published") <= 1.5 * least + 1e-15


def test_the_drive_can_be_negative_where_overlaps_are_not_weak() -> None:
    """One class overlaps four others by 0.4 and a sixth by 1e-4."""
    e = np.zeros((6, 6))
    e[0, 1:5], e[0, 5] = 0.4, 1e-4
    e += e.T
    _, beta = theory.backpropagated_gradient(e, vocab_size=1600)
    assert theory.drive(e, beta, speed=1.0)[5] < 0


def test_the_published_definition_has_the_other_sign() -> None:
    e = np.array([[0.0, 0.3], [0.3, 0.0]])
    np.testing.assert_array_equal(theory.inverse_overlaps(e, form="published"), -theory.inverse_overlaps(e))
    np.testing.assert_allclose(theory.inverse_overlaps(e), np.eye(2) - np.linalg.inv(np.eye(2) + e))


def test_huge_logits_do_not_overflow() -> None:
    f = theory.directions([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], [700.0, -700.0, 700.0])
    np.testing.assert_allclose(f, [[1, 0, 0], [0, 0, 1]])
