"""Concentration bounds: the arithmetic, and coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scansnap import theory
from scansnap.runtime.errors import InputError


def test_class_counts_stay_within_the_radius() -> None:
    """20,000 binomial counts at delta = 0.1: Hoeffding is conservative, so no more than 10% may fall outside; by chance
    a share of 10% would be exceeded by 1% with probability under 1e-5."""
    rng = np.random.default_rng(0)
    for steps, classes in ((100, 2), (1000, 10)):
        counts = rng.binomial(steps, 1 / classes, size=20_000)
        outside = np.abs(counts - np.ceil(steps / classes)) > theory.count_radius(steps, failure=0.1)
        assert outside.mean() <= 0.11


def test_the_second_bound_of_lemma_10_needs_enough_steps() -> None:
    few, many = 5, 50
    assert theory.count_radius(few, failure=0.5, form="loose") < theory.count_radius(few, failure=0.5)
    assert theory.count_radius(many, failure=0.5, form="loose") > theory.count_radius(many, failure=0.5)
    assert theory.count_radius(1000, failure=0.999, form="remark") <= 2  # vanishes as delta -> 1


def test_growth_deviation_bounds_h() -> None:
    mean, radius = 100.0, 30.0
    for size, rate in ((10, 0.1), (1000, 0.5), (1000, 5.0)):
        h = theory.decoder_growth([mean - radius, mean, mean + radius], vocab_size=size, lr_y=rate)
        assert np.abs(h / h[1] - 1).max() <= theory.growth_deviation(mean, radius)
        nearly_linear = theory.decoder_growth([1.0, 2.0], vocab_size=10**6, lr_y=1e-3)
        assert nearly_linear[1] / nearly_linear[0] - 1 > 0.99 * theory.growth_deviation(1.0, 1.0)  # and it is sharp


def test_residual_deviation_is_exact_at_the_ends_and_the_published_bound_can_fail() -> None:
    size, rate, mean, radius = 1000, 0.5, 20.0, 12.0
    h = theory.decoder_growth([mean - radius, mean, mean + radius], vocab_size=size, lr_y=rate)
    r = theory.residual_size(h, vocab_size=size)
    exact = theory.residual_deviation(mean, radius, vocab_size=size, lr_y=rate)
    assert exact == pytest.approx(np.abs(r / r[1] - 1).max())


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
    assert exact <= theory.residual_deviation(mean, share * mean, **arguments, form="proved") * (1 + 1e-9)
    residual = theory.residual_size(theory.decoder_growth([mean, mean * (1 + share)], **arguments), vocab_size=size)
    late = mean >= 2 * (1 + theory.growth_crossings(vocab_size=size).omega_1) * np.log(size) / rate
    bound = 2 * share / (1 + share) if late else rate * share * mean / 3
    assert 1 - residual[1] / residual[0] <= bound * (1 + 1e-9) + 1e-12  # above the mean


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


def test_frequencies_stay_within_the_radius() -> None:
    """20,000 sequences of 127 tokens; coverage of the 5% bound, which Hoeffding makes conservative."""
    rng = np.random.default_rng(1)
    frequency = rng.binomial(127, 0.3, size=20_000) / 127
    assert (np.abs(frequency - 0.3) > theory.frequency_radius(128, failure=0.05)).mean() <= 0.055
    assert theory.frequency_radius(128, failure=0.05) == pytest.approx(np.sqrt(np.log(40) / 254))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="failure holds 1"):
        theory.count_radius(10, failure=1.0)
    with pytest.raises(InputError, match="unknown form"):
        theory.count_radius(10, failure=0.5, form="los")
