"""The inner loops of the kernel for several layers."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from scansnap.dynamics.compiled.layer_loops import TILE, activate, add_transposed_product, product, transpose, weigh
from scansnap.systems.yz.lanes import LANES

TYPES = pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 1e-5), (np.float64, 1e-14)])


@njit
def call_activate(h, smooth):
    activate(h, 0, smooth)


@njit
def call_weigh(c, absent, counts):
    return weigh(c, 0, absent, counts, 0)


@njit
def call_products(a, b, rows, g, out, grown, turned):
    product(a, 1, 11, b, 2, rows, 1, 5, out, 3)
    add_transposed_product(a, 1, 11, g, 3, grown, 2, rows, 1, 5)
    transpose(b, 2, rows, 1, 5, turned, 1)


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float32, 4), (np.float64, 4)])
def test_tanh_is_exact_to_rounding(dtype, ulps: float) -> None:
    """200,000 points of every size, against float128 where there is one, else float64."""
    half = np.concatenate([np.geomspace(1e-30, 1, 50_000), np.linspace(0, 25, 50_000)])
    points = np.concatenate([-half, half]).astype(dtype)
    h = np.zeros((1, -(-len(points) // LANES) * LANES), dtype)
    h[0, : len(points)] = points
    call_activate(h, True)
    expected = np.tanh(points.astype(np.longdouble))
    error = np.abs(h[0, : len(points)] - expected)
    assert (error <= ulps * np.finfo(dtype).eps * np.abs(expected)).all()


@TYPES
@pytest.mark.parametrize("smooth", [True, False])
def test_what_is_not_finite(dtype, digits: float, smooth: bool) -> None:
    h = np.zeros((1, LANES), dtype)
    h[0, :4] = np.nan, np.inf, -np.inf, -3
    call_activate(h, smooth)
    np.testing.assert_allclose(
        h[0, :4], [np.nan, 1, -1, np.tanh(-3)] if smooth else [np.nan, np.inf, 0, 0], rtol=digits
    )


@TYPES
def test_weights_of_present_tokens(dtype, digits: float) -> None:
    """An absent token has no weight, whatever its score; the present ones are compared with each other."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 20, (1, 2 * LANES)).astype(dtype)
    counts = rng.integers(0, 4, (1, 2 * LANES)).astype(dtype)
    counts[0, :3], scores[0, :2] = (0, 1, 2), (1e4, -1e4)
    absent = np.where(counts > 0, 0, -np.inf).astype(dtype)
    top = scores[counts > 0].max()
    expected = np.where(counts > 0, counts * np.exp(np.minimum(scores.astype(np.float64) - top, 0)), 0)
    total = call_weigh(scores, absent, counts)
    np.testing.assert_allclose(scores, expected, rtol=digits, atol=1e-30)
    assert total == pytest.approx(expected.sum(), rel=digits)
    scores[0, 5] = np.nan
    assert np.isnan(call_weigh(scores, absent, counts))


@TYPES
def test_products_of_listed_rows(dtype, digits: float) -> None:
    rng = np.random.default_rng(1)
    a, b, g = (rng.normal(size=(24, 2 * LANES)).astype(dtype) for _ in range(3))
    a[:, 5:] = 0
    rows = np.array([[0] * TILE, [7, 0, 3, 11, 1, 12, 12, 12]], np.int32)
    out, grown, turned = (np.ones((40, 2 * LANES), dtype) for _ in range(3))
    call_products(a, b, rows, g, out, grown, turned)
    taken = b[2 + rows[1, :5]]
    np.testing.assert_allclose(out[3:14], a[1:12, :5] @ taken, rtol=digits, atol=digits)
    assert (out[:3] == 1).all()
    expected = np.ones_like(grown)
    expected[2 + rows[1, :5]] += a[1:12, :5].T @ g[3:14]
    np.testing.assert_allclose(grown, expected, rtol=digits, atol=digits)
    np.testing.assert_array_equal(turned[1 : 1 + 2 * LANES, :5], taken.T)
    assert (turned[1 : 1 + 2 * LANES, 5:] == 0).all()
    assert (turned[0] == 1).all()
