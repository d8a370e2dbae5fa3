"""Counts, frequencies and finite sequences: bounds against draws, drives against exact sums and training."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap import theory

pytestmark = pytest.mark.rounding


@settings(max_examples=300, deadline=None)
@given(
    size=st.integers(4, 10**6),
    rate=st.floats(1e-3, 5.0),
    time=st.floats(0.01, 1e3),
    share=st.floats(1e-3, 0.99),
)
def test_the_proved_bound_of_lemma_11_holds_on_both_sides(size: int, rate: float, time: float, share: float) -> None:
    """Means from a hundredth to a thousand times ln M/eta_Y, radii up to the whole mean."""
    mean = time * np.log(size) / rate
    arguments = {"vocab_size": size, "lr_y": rate}
    exact = theory.residual_deviation(mean, share * mean, **arguments)
    proved = theory.residual_deviation(mean, share * mean, **arguments, form="proved")
    assert exact <= proved * (1 + 1e-9)
    assert proved <= rate * share * mean * (1 + 1e-9)
    residual = theory.residual_size(theory.decoder_growth([mean, mean * (1 + share)], **arguments), vocab_size=size)
    late = mean >= 2 * (1 + theory.growth_crossings(vocab_size=size).omega_1) * np.log(size) / rate
    bound = 2 * share / (1 + share) if late else rate * share * mean / 3
    assert 1 - residual[1] / residual[0] <= bound * (1 + 1e-9) + 1e-12  # above the mean


def test_published_deviation_of_the_residual_changes_once() -> None:
    """eta_Y Delta/3 before Nbar = 2 (1 + omega_1) ln M / eta_Y + Delta, Delta/Nbar from there on."""
    size, rate, radius = 1000, 0.5, 12.0
    change = 2 * (1 + theory.growth_crossings(vocab_size=size).omega_1) * np.log(size) / rate + radius
    mean = change * np.array([0.5, 1 - 1e-9, 1 + 1e-9, 2])
    published = theory.residual_deviation(mean, radius, vocab_size=size, lr_y=rate, form="published")
    early, late = rate * radius / 3, radius / mean
    np.testing.assert_allclose(published, [early, early, late[2], late[3]], rtol=1e-14)


@pytest.mark.parametrize(("mean", "radius"), [(20.0, 12.0), (20.0, 0.0), (2.0, 500.0), (500.0, 100.0)])
def test_deviation_of_the_residual_is_the_larger_of_both_ends(mean: float, radius: float) -> None:
    """Counts do not fall below zero, so that the upper end can be the larger one."""
    h = theory.decoder_growth([max(mean - radius, 0), mean, mean + radius], vocab_size=100, lr_y=0.5)
    residual = theory.residual_size(h, vocab_size=100)
    deviation = theory.residual_deviation(mean, radius, vocab_size=100, lr_y=0.5)
    assert deviation == pytest.approx(np.abs(residual / residual[1] - 1).max(), rel=1e-12, abs=1e-15)


def uneven_classes() -> ss.SequenceClasses:
    """Four classes of unequal weights over three queries, whose ids do not come in increasing order."""
    probs = np.zeros((4, 14))
    probs[0, :4] = [0.4, 0.3, 0.2, 0.1]
    probs[1, [0, 1, 4]] = [0.2, 0.5, 0.3]
    probs[2, [0, 2, 5]] = [0.05, 0.6, 0.35]
    probs[3, [1, 6]] = [0.7, 0.3]
    return ss.SequenceClasses(
        probs=probs, query=[9, 7, 9, 8], next_token=[10, 11, 12, 13], vocab_size=14, weights=[0.4, 0.3, 0.2, 0.1]
    )


def test_direction_variance_is_the_diagonal_of_the_whole_covariance() -> None:
    """M Cov M^T/(T-1) with M = (I - f f^T) diag(e^z)/|c~| and Cov = diag(p) - p p^T, at nonzero logits."""
    probs = uneven_classes().probs[:, :7]
    logits = np.random.default_rng(0).normal(size=probs.shape)
    variance = theory.direction_variance(probs, logits, seq_len=6)
    for n, (p, z) in enumerate(zip(probs, logits, strict=True)):
        tilted = p * np.exp(z)
        size = np.linalg.norm(tilted)
        f = tilted / size
        turn = (np.eye(len(p)) - np.outer(f, f)) @ np.diag(np.exp(z)) / size
        covariance = turn @ (np.diag(p) - np.outer(p, p)) @ turn.T / 5
        np.testing.assert_allclose(variance[n], np.diag(covariance), rtol=1e-12, atol=1e-12 * covariance.max())


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_early_logits_in_the_limit_are_training(steps: int) -> None:
    """Expected updates at rates of 1e-8, where predictions stay 1/M to that relative size."""
    classes = uneven_classes()
    rates = {"lr_y": 1e-8, "lr_z": 2e-8}
    options = {**rates, "steps": steps, "batch_size": None, "seq_len": math.inf, "dtype": "float64"}
    run = ss.train(classes, **options, record=("attention_logits",), progress=False)
    trained = ss.measure.one_head(run)["attention_logits"].isel(run=0).sel(step=steps)
    setting = {"query": classes.query, "weights": classes.weights, "vocab_size": 14, **rates}
    logits = theory.early_logits(steps, classes.probs[:, classes.contextual_tokens], **setting)
    wanted = trained.values[np.argsort(classes.queries)]  # rows of the theory are in increasing order of id
    np.testing.assert_allclose(logits, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    assert (np.abs(wanted).max(axis=1) > 0).all() == (steps > 1)  # the first step finds Y = 0


def test_early_logits_add_the_drive_of_finite_length() -> None:
    """The difference to the limit is eta_Y eta_Z t(t-1)/2 sum_n P(n)^2 (1 - 1/M) drive_n, row by row."""
    classes = uneven_classes()
    probs = classes.probs[:, classes.contextual_tokens]
    arguments = {
        "query": classes.query,
        "weights": classes.weights,
        "vocab_size": 14,
        "lr_y": 0.3,
        "lr_z": 0.2,
    }
    steps = np.array([2, 7])
    more = theory.early_logits(steps, probs, **arguments, seq_len=100) - theory.early_logits(steps, probs, **arguments)
    drive = theory.finite_length_drive(probs, seq_len=100)
    wanted = np.zeros((3, probs.shape[1]))
    for n, query in enumerate(classes.query):
        wanted[query - 7] += classes.weights[n] ** 2 * (13 / 14) * drive[n]
    np.testing.assert_allclose(more[0], 0.3 * 0.2 * 1 * wanted, rtol=1e-10, atol=1e-16)
    np.testing.assert_allclose(more[1], 0.3 * 0.2 * 21 * wanted, rtol=1e-10, atol=1e-16)
