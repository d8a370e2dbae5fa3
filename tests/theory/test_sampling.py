"""Counts, frequencies and finite sequences: bounds against draws, drives against exact sums and training."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import scansnap as ss
from scansnap import theory


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


def test_counts_and_frequencies_stay_within_the_radius() -> None:
    """20,000 binomial counts: Hoeffding is conservative, so no more than delta may fall outside; by chance a share of
    10% would be exceeded by 1% with probability under 1e-5."""
    rng = np.random.default_rng(0)
    for steps, classes in ((100, 2), (1000, 10)):
        counts = rng.binomial(steps, 1 / classes, size=20_000)
        outside = np.abs(counts - np.ceil(steps / classes)) > theory.count_radius(steps, failure=0.1)
        assert outside.mean() <= 0.11
    frequency = np.random.default_rng(1).binomial(127, 0.3, size=20_000) / 127
    assert (np.abs(frequency - 0.3) > theory.frequency_radius(128, failure=0.05)).mean() <= 0.055


def test_the_second_bound_of_lemma_10_needs_enough_steps() -> None:
    for steps, enough in ((5, False), (50, True)):
        loose = theory.count_radius(steps, failure=0.5, form="loose")
        assert (loose > theory.count_radius(steps, failure=0.5)) == enough
    assert theory.count_radius(1000, failure=0.999, form="remark") <= 2  # vanishes as delta -> 1


def test_growth_deviation_bounds_h() -> None:
    mean, radius = 100.0, 30.0
    for size, rate in ((10, 0.1), (1000, 0.5), (1000, 5.0)):
        h = theory.decoder_growth([mean - radius, mean, mean + radius], vocab_size=size, lr_y=rate)
        assert np.abs(h / h[1] - 1).max() <= theory.growth_deviation(mean, radius)
    nearly_linear = theory.decoder_growth([1.0, 2.0], vocab_size=10**6, lr_y=1e-3)
    assert nearly_linear[1] / nearly_linear[0] - 1 > 0.99 * theory.growth_deviation(1.0, 1.0)  # and it is sharp


@pytest.mark.parametrize(("rate", "steps", "ratio"), [(0.05, 1600, 1.27), (0.01, 7000, 1.42)])
def test_the_constant_one_is_too_small_in_lemma_11(rate: float, steps: int, ratio: float) -> None:
    mean, radius = steps / 3, float(theory.count_radius(steps, failure=0.1))
    published = theory.residual_deviation(mean, radius, vocab_size=1600, lr_y=rate, form="published")
    assert published == radius / mean
    residual = theory.residual_size(
        theory.decoder_growth([mean, mean + radius], vocab_size=1600, lr_y=rate), vocab_size=1600
    )
    assert (1 - residual[1] / residual[0]) / published == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize("size", [100, 10**4, 10**8])
def test_two_is_the_best_constant_in_lemma_11(size: int) -> None:
    """Where e^y = (M - 1) y, with y = M h; up to 1/M."""
    crossing = (1 + theory.growth_crossings(vocab_size=size).omega_1) * np.log(size) / size
    start = theory.growth_time(crossing, vocab_size=size, lr_y=0.5)
    h = theory.decoder_growth([start, start * (1 + 1e-6)], vocab_size=size, lr_y=0.5)
    residual = theory.residual_size(h, vocab_size=size)
    assert (1 - residual[1] / residual[0]) / 1e-6 == pytest.approx(
        2 / (1 + 1 / (size * h[0])) ** 2, rel=1e-5 + 1 / size
    )


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


def test_radii_are_those_stated() -> None:
    """Lemmas 10, 12 and 18 at N = 30, K = 3, T = 30."""
    assert theory.count_radius(30, failure=0.1) == pytest.approx(np.sqrt(15 * np.log(20)) + 1, rel=1e-14)
    assert theory.count_radius(30, failure=0.1, form="loose") == pytest.approx(np.sqrt(30 * np.log(20)), rel=1e-14)
    assert theory.count_radius(30, failure=0.1, form="remark") == 9  # of 8.31
    assert theory.growth_deviation(8.0, 2.0) == 0.25
    wanted = 3 / np.sqrt(30) * np.sqrt(np.log(30))
    assert theory.logits_deviation(30, num_classes=3, failure=0.1) == pytest.approx(wanted, rel=1e-14)
    assert theory.frequency_radius(30, failure=0.1) == pytest.approx(np.sqrt(np.log(20) / 58), rel=1e-14)


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


def test_finite_length_drive_moves_attention_between_tokens() -> None:
    """It is f^2 E|u|^2 - E[u^2], which sums to zero; the frequent token gains and the rare one loses."""
    probs = uneven_classes().probs[:, :7]
    logits = np.random.default_rng(1).normal(size=probs.shape)
    drive = theory.finite_length_drive(probs, logits, seq_len=50)
    np.testing.assert_allclose(drive.sum(axis=1), 0, atol=1e-15)
    spread = theory.direction_variance(probs, logits, seq_len=50)
    for n in range(len(probs)):
        share = theory.directions(probs, logits)[n] ** 2
        np.testing.assert_allclose(drive[n], share * spread[n].sum() - spread[n], rtol=1e-12, atol=1e-16)
    plain = theory.finite_length_drive(probs[:1], seq_len=50)[0]
    assert plain[0] > 0 > plain[3]


def test_early_logits_at_finite_length_are_an_exact_mean() -> None:
    """One class of two tokens: the second step's mean over all counts of T - 1 tokens, to first order in 1/T."""
    p, size, length = 0.7, 3, 20_000
    counts = np.arange(length + 1)
    chance = binom.pmf(counts, length, p)
    f = np.stack([counts, length - counts], axis=1).astype(float)
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    sent_back = (1 - 1 / size) * (chance @ f)  # (e_n - 1/M) . (e_n - 1/M) times the mean direction
    step = chance @ (f * (sent_back - f * (f @ sent_back)[:, None]))
    logits = theory.early_logits(
        2, [[p, 1 - p]], query=[0], weights=[1.0], vocab_size=size, lr_y=0.3, lr_z=0.2, seq_len=length + 1
    )
    np.testing.assert_allclose(logits, [0.3 * 0.2 * step], rtol=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_early_logits_in_the_limit_are_training(steps: int) -> None:
    """Expected updates at rates of 1e-8, where predictions stay 1/M to that relative size."""
    classes = uneven_classes()
    trained = (
        ss.measure.one_head(
            ss.train(
                classes,
                lr_y=1e-8,
                lr_z=2e-8,
                steps=steps,
                batch_size=None,
                seq_len=math.inf,
                dtype="float64",
                record=("attention_logits",),
                progress=False,
            )
        )["attention_logits"]
        .isel(run=0)
        .sel(step=steps)
    )
    logits = theory.early_logits(
        steps,
        classes.probs[:, classes.contextual_tokens],
        query=classes.query,
        weights=classes.weights,
        vocab_size=14,
        lr_y=1e-8,
        lr_z=2e-8,
    )
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
