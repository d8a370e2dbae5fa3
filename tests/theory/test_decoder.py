"""The decoder's closed form, the gradient it sends back, and both measured, against plain linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap import theory
from tests.dynamics.reference import population_gradients
from tests.theory.test_overlap import random_directions

pytestmark = pytest.mark.rounding


def by_hand(f: np.ndarray, counts: np.ndarray, size: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Y = F (F^T F)^{-1} W with w_n = (M-1) h(N_n) zeta_n, and g_n = Y (e_n - softmax(Y^T f_n))."""
    identity = np.eye(size)
    h = theory.decoder_growth(counts, vocab_size=size, lr_y=rate)
    w = np.array([(size - 1) * h[n] * size / (size - 1) * (identity[n] - 1 / size) for n in range(len(f))])
    y = f.T @ np.linalg.inv(f @ f.T) @ w
    alpha = np.exp(w) / np.exp(w).sum(axis=1, keepdims=True)
    return y, np.array([y @ (identity[n] - alpha[n]) for n in range(len(f))])


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 6), scale=st.floats(0.1, 50))
@settings(max_examples=200, deadline=None)
def test_theorem_1_and_5_reproduce_the_gradient_sent_back(seed: int, classes: int, scale: float) -> None:
    """Uneven counts, so that theta and sigma matter: all of Eqs. 70 to 88 in one identity."""
    size, rate = 40, 0.5
    rng = np.random.default_rng(seed)
    f = random_directions(seed, classes, 15, 0.3)
    counts = scale * (1 + rng.random(classes))
    y, g = by_hand(f, counts, size, rate)
    logits = theory.decoder_logits(counts, next_token=np.arange(classes), vocab_size=size, lr_y=rate)
    np.testing.assert_allclose(theory.decoder(f, logits), y, atol=1e-9 * np.abs(y).max())

    theta, sigma = theory.sampling_factors(counts, vocab_size=size, lr_y=rate)
    gamma = theory.speed(counts.mean(), vocab_size=size, num_classes=1, lr_y=rate)
    e = theory.overlaps(f)
    iota, beta = theory.backpropagated_gradient(e, vocab_size=size, theta=theta, sigma=sigma)
    np.testing.assert_allclose(gamma * (iota[:, None] * f - beta @ f), g, atol=1e-9 * np.abs(g).max())

    measured = theory.measured_gradient(f, y, next_token=np.arange(classes))
    np.testing.assert_allclose(measured.drive, theory.drive(e, beta, speed=gamma), atol=1e-8 * np.abs(g).max())
    np.testing.assert_allclose(measured.beta * measured.speed[:, None], beta * gamma, atol=1e-7 * np.abs(g).max())
    assert measured.misfit.max() < 1e-7


def test_the_printed_eq_88_is_the_published_form() -> None:
    """Letter by letter, with uneven counts."""
    f = random_directions(3, 4, 15, 0.4)
    e = theory.overlaps(f)
    inverse = theory.inverse_overlaps(e)
    theta, sigma = np.array([0.1, -0.2, 0.3, 0.05]), np.array([0.2, 0.1, -0.3, 0.4])
    q_1, q_0 = theory.centered_products(vocab_size=40)
    _, published = theory.backpropagated_gradient(e, vocab_size=40, theta=theta, sigma=sigma, form="published")
    for n in range(4):
        for m in range(4):
            rest = sum((1 + theta[k]) * inverse[k, m] for k in range(4) if k != n)
            printed = (1 + sigma[n]) * (q_1 * (1 + theta[n]) * inverse[n, m] + q_0 * ((1 + theta[m]) + rest))
            assert n == m or published[n, m] == pytest.approx(printed, rel=1e-12)


def test_the_misfit_is_relative_to_the_gradient() -> None:
    """One class: the coefficient of f is f . g, and what is left over is measured in units of |g|, however small."""
    f = theory.directions([[0.5, 0.3, 0.2]])
    y = np.random.default_rng(0).normal(size=(3, 4))
    for scale in (1.0, 1e-8):
        measured = theory.measured_gradient(f, scale * y, next_token=[1])
        g = measured.gradient[0]
        left = np.linalg.norm(g - (f[0] @ g) * f[0]) / np.linalg.norm(g)
        assert left > 0.1
        assert measured.misfit[0] == pytest.approx(left, rel=1e-9)
    start = theory.measured_gradient(f, 0 * y, next_token=[1])
    assert (start.misfit[0], start.speed[0], start.drive[0], start.logit_gain[0]) == (0, 0, 0, 0)
    assert np.isnan(start.iota[0])
    assert start.beta[0, 0] == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_two_parts_of_the_energy_law_make_the_gradient(seed: int) -> None:
    """dz/dt = gained - shared for any Y; and what is gained is the growth of the rows' energy under true SGD."""
    classes = ss.syn_medium(num_query=3)
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(classes.vocab_size, classes.vocab_size))
    z = rng.normal(size=(3, classes.vocab_size))
    f = theory.directions(classes.probs, z[np.searchsorted(classes.queries, classes.query)])
    measured = theory.measured_gradient(f, y, next_token=classes.next_token)
    gained, shared = theory.energy_velocity(f, measured, query=classes.query, weights=classes.weights, lr_z=1.0)
    dy, dz, _ = population_gradients(classes, y, z)
    np.testing.assert_allclose(gained - shared, dz, atol=1e-12 * np.abs(dz).max())
    np.testing.assert_allclose(gained.sum(axis=0), (y * dy).sum(axis=1), atol=1e-12 * np.abs(dy).max())
