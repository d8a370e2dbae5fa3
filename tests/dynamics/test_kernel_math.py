"""The vectorized exponential of compiled code."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.dynamics.kernel import exponentials, largest
from scansnap.dynamics.kernel_data import exponential

pytestmark = pytest.mark.rounding


def exp(values: np.ndarray) -> np.ndarray:
    """exp of values that are at most 0."""
    x = values.copy()
    exponentials(x, values.dtype.type(0), *exponential(len(x), values.dtype))
    return x


@pytest.mark.parametrize(("dtype", "end"), [(np.float32, -86.9), (np.float64, -707.9)])
def test_exponential_is_exact_to_rounding(dtype: type, end: float) -> None:
    """100,000 points from the smallest argument to 0, to two units in the last place."""
    arguments = np.linspace(end, 0, 100_000).astype(dtype)
    expected = np.exp(arguments.astype(np.longdouble))
    assert np.abs(exp(arguments) / expected - 1).max() < 2 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_below_it_is_zero_and_nan_stays_nan(dtype: type) -> None:
    assert exp(np.array([0, -800, -np.inf, -1e30], dtype)).tolist() == [1, 0, 0, 0]
    assert np.isnan(exp(np.array([0, np.nan, -1], dtype))).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_largest_of_any_sign(dtype: type) -> None:
    rng = np.random.default_rng(0)
    for shift in (-5, 0, 5):
        x = (rng.normal(size=37) + shift).astype(dtype)
        assert all(largest(np.roll(x, k)) == x.max() for k in range(37))
