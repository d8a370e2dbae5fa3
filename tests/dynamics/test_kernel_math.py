"""The kernel's own exponential and maximum."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from scansnap.dynamics.kernel_math import largest, scaled_exp


@njit
def call(x, shift, scale):
    return largest(x, 0, x.shape[1]), scaled_exp(x, 0, x.shape[1], shift, scale)


@pytest.mark.parametrize(("dtype", "end", "ulps"), [(np.float32, -86.9, 2.0), (np.float64, -700.0, 2.0)])
def test_exponential_is_exact_to_rounding(dtype, end: float, ulps: float) -> None:
    """100,000 points from the smallest argument to 0, against float128 where there is one, else float64."""
    arguments = np.linspace(end, 0, 100_000).astype(dtype)
    x = arguments[None].copy()
    scale = np.full(arguments.shape, 3, dtype)
    top, (total, moment) = call(x, dtype(0), scale)
    expected = 3 * np.exp(arguments.astype(np.longdouble))
    assert top == 0
    assert np.abs(x[0] / expected - 1).max() < ulps * np.finfo(dtype).eps
    assert total == pytest.approx(float(expected.sum()), rel=1e-5)
    assert moment == pytest.approx(float((arguments * expected).sum()), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_below_it_is_zero(dtype) -> None:
    x = np.array([[0, -800, -np.inf, -1e30]], dtype)
    _, (total, moment) = call(x, dtype(0), np.ones(4, dtype))
    assert x.tolist() == [[1, 0, 0, 0]]
    assert (total, moment) == (1, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_not_a_number_stays_one(dtype) -> None:
    x = np.array([[0, np.nan, -1]], dtype)
    _, (total, _) = call(x, dtype(0), np.ones(3, dtype))
    assert np.isnan(total)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_largest_of_any_sign(dtype) -> None:
    rng = np.random.default_rng(0)
    for shift in (-5, 0, 5):
        x = (rng.normal(size=(1, 37)) + shift).astype(dtype)
        assert call(x.copy(), dtype(20), np.ones(37, dtype))[0] == x.max()
