"""The kernel's inner loops."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from scansnap.dynamics.compiled.loops import CHUNK, add_outer_products, largest, move_row, scaled_exp, weighted_sums
from scansnap.systems.yz.compact import LANES


@njit
def call_exp(x, shift, scale):
    return largest(x, 0), scaled_exp(x, 0, shift, scale)


@njit
def call_products(y, v, slots, k, size, f, count, x, products, moves, rate, column_rate, decay):
    weighted_sums(y, slots, k, size, f, 0, count, x, 0)
    add_outer_products(v, y, slots, k, size, f, 0, x, count, products, moves, rate, column_rate, decay)


@njit
def call_move(y, v, row, rate, column_rate, decay):
    move_row(y, v, row, rate, column_rate, decay)


def call(values, shift, dtype):
    """The values, padded to whole vectors as the kernel does it, with a scale of 1."""
    x = np.full((1, -(-len(values) // LANES) * LANES), -np.inf, dtype)
    x[0, : len(values)] = values
    top, sums = call_exp(x, dtype(shift), np.ones_like(x))
    return top, sums, x[0, : len(values)]


@pytest.mark.parametrize(("dtype", "end", "ulps"), [(np.float32, -86.9, 2.0), (np.float64, -707.9, 2.0)])
def test_exponential_is_exact_to_rounding(dtype, end: float, ulps: float) -> None:
    """100,000 points from the smallest argument to 0, against float128 where there is one, else float64."""
    arguments = np.linspace(end, 0, 100_000).astype(dtype)
    x = arguments[None].copy()
    scale = np.full_like(x, 3)
    top, (total, moment) = call_exp(x, dtype(0), scale)
    expected = 3 * np.exp(arguments.astype(np.longdouble))
    assert top == 0
    assert np.abs(x[0] / expected - 1).max() < ulps * np.finfo(dtype).eps
    assert total == pytest.approx(float(expected.sum()), rel=1e-5)
    assert moment == pytest.approx(float((arguments * expected).sum()), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_below_it_is_zero(dtype) -> None:
    _, (total, moment), x = call([0, -800, -np.inf, -1e30], 0, dtype)
    assert x.tolist() == [1, 0, 0, 0]
    assert (total, moment) == (1, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_not_a_number_stays_one(dtype) -> None:
    for values in ([0, np.nan, -1], [np.nan] * LANES, [np.nan] + [0] * LANES, [0] * LANES + [np.nan]):
        _, (total, _), _ = call(values, 0, dtype)
        assert np.isnan(total)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_largest_of_any_sign(dtype) -> None:
    rng = np.random.default_rng(0)
    for shift in (-5, 0, 5):
        x = (rng.normal(size=37) + shift).astype(dtype)
        for rolled in (np.roll(x, k) for k in range(37)):
            assert call(rolled, 20, dtype)[0] == x.max()


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float32, 1e-5), (np.float64, 1e-14)])
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("columns", [3 * LANES, CHUNK + 2 * LANES])
@pytest.mark.parametrize("moving", [False, True], ids=["staying", "moving"])
def test_products_of_any_number_of_sequences(dtype, rounding: float, moving: bool, columns: int, size: int) -> None:
    """Rows 2 and 3 of the second class move if they are asked to, after the products have read them."""
    rng = np.random.default_rng(0)
    moves = np.zeros((2, 7), np.bool_)
    moves[1, 2:4] = True
    rate, decay = dtype(0.5), dtype(0.25)
    support = np.stack([np.arange(7), rng.permutation(11)[:7]]).astype(np.int32)
    rows = support[1, :size]
    for count in range(1, 9):
        y, v = rng.normal(size=(2, 11, columns)).astype(dtype)
        column_rate = rng.uniform(size=(1, columns)).astype(dtype)
        f = np.zeros((7, 8), dtype)
        f[:size, :count] = rng.normal(size=(size, count))
        x = np.full((8, columns), np.nan, dtype)
        products = np.ones(7, dtype)
        before, expected, moved = y.copy(), v.copy(), y.copy()
        call_products(
            y, v, support, 1, size, f, count, x, products, moves, rate, column_rate, decay if moving else dtype(-1)
        )
        sums = f[:size, :count].T @ before[rows]
        gradient = f[:size, :count] @ sums
        expected[rows] += gradient
        if moving and size > 3:
            own = rows[2:4]
            moved[own] += rate * column_rate * expected[own]
            expected[own] *= decay
        assert np.allclose(x[:count], sums, rtol=0, atol=10 * rounding)
        assert np.allclose(v, expected, rtol=0, atol=100 * rounding)
        assert np.allclose(y, moved, rtol=0, atol=100 * rounding)
        scale = columns / (3 * LANES)
        assert np.allclose(products[:size], 1 + (before[rows] * gradient).sum(1), rtol=0, atol=1000 * scale * rounding)
        assert (products[size:] == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moving_a_row_moves_only_that_row(dtype) -> None:
    rng = np.random.default_rng(0)
    y, v, rate = rng.normal(size=(3, 3, 2 * LANES)).astype(dtype)
    moved, slowed = y.copy(), v.copy()
    moved[1] += dtype(0.5) * rate[0] * v[1]
    slowed[1] *= dtype(0.25)
    call_move(y, v, 1, dtype(0.5), rate[:1], dtype(0.25))
    assert np.allclose(y, moved, rtol=1e-6, atol=1e-6)
    assert (v == slowed).all()
