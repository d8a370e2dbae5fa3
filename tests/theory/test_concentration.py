"""Concentration bounds: the arithmetic, and coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap import theory
from scansnap.base.errors import InputError


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
