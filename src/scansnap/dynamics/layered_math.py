"""The inner loops of the kernel for several layers: products of small matrices, and what is done to each of their rows.

Rows are whole vectors, padded with zeros.  A matrix is named by an array and its first row in it, so that no slice is
taken in a loop.  Products take eight rows at a time: the rows that fill up the last eight of a block hold whatever they
hold, and nothing reads what becomes of them.
"""

from __future__ import annotations

import math

from numba import njit, types
from numba.extending import overload

from scansnap.dynamics.kernel_lanes import (
    add_to_listed,
    divide,
    load,
    maximum,
    minimum,
    multiply,
    multiply_add,
    multiply_add_each,
    spread,
    spread_along,
    spread_down,
    store,
    store_down,
    total,
    zero_each,
)
from scansnap.dynamics.kernel_math import FAST
from scansnap.model.lanes import LANES

TILE = 8
"""Rows of a product that are computed together, each in registers of its own."""

_jit = njit(fastmath=FAST, error_model="numpy", forceinline=True)  # `kernel_math` says why always inlined


@_jit
def product(a, first_a, count, b, first_b, rows, n, depth, out, first_out):
    """out_i = sum_k a_ik b_k for `count` rows, rounded up to whole tiles; row k of b is first_b + rows[n, k]."""
    for j in range(0, out.shape[1], LANES):
        for i in range(0, count, TILE):
            sums = zero_each(b, LANES, TILE)
            for k in range(depth):
                part = load(b, first_b + rows[n, k], j, LANES)
                sums = multiply_add_each(spread_down(a, first_a + i, k, LANES, TILE), part, sums)
            store_down(out, first_out + i, j, sums)


@_jit
def add_transposed_product(a, first_a, count, b, first_b, out, first_out, rows, n, depth):
    """out_k += sum_i a_ik b_i over `count` rows i; row k of out is first_out + rows[n, k].

    `depth` is rounded up to whole tiles: a has zeros there, and the rows listed for them may be any.
    """
    for j in range(0, out.shape[1], LANES):
        for k in range(0, depth, TILE):
            sums = zero_each(b, LANES, TILE)
            for i in range(count):
                part = load(b, first_b + i, j, LANES)
                sums = multiply_add_each(spread_along(a, first_a + i, k, LANES, TILE), part, sums)
            add_to_listed(out, first_out, rows, n, k, j, sums)


@_jit
def transpose(a, first_a, rows, n, count, out, first_out):
    """out_kl = a_lk for `count` rows l, 0 beyond; row l of a is first_a + rows[n, l]."""
    for l in range(count):
        row = first_a + rows[n, l]
        for k in range(a.shape[1]):
            out[first_out + k, l] = a[row, k]
    for k in range(a.shape[1]):
        for l in range(count, out.shape[1]):
            out[first_out + k, l] = 0


@_jit
def inner(a, i, b, j):
    """a_i . b_j."""
    (products,) = zero_each(a, LANES, 1)
    for k in range(0, a.shape[1], LANES):
        products = multiply_add(load(a, i, k, LANES), load(b, j, k, LANES), products)
    return total(products)


@_jit
def add_row(a, i, rate, b, j):
    """a_i += rate b_j."""
    for k in range(0, a.shape[1], LANES):
        part = load(b, j, k, LANES)
        store(a, i, k, multiply_add(spread(rate, part), part, load(a, i, k, LANES)))


@_jit
def copy_row(a, i, b, j):
    """b_j <- a_i."""
    for k in range(0, a.shape[1], LANES):
        store(b, j, k, load(a, i, k, LANES))


@_jit
def clear_row(a, i):
    """a_i <- 0."""
    (zero,) = zero_each(a, LANES, 1)
    for k in range(0, a.shape[1], LANES):
        store(a, i, k, zero)


@_jit
def scale_row(a, i, rate):
    """a_i *= rate."""
    for k in range(0, a.shape[1], LANES):
        part = load(a, i, k, LANES)
        store(a, i, k, multiply(spread(rate, part), part))


@_jit
def normalize(a, i):
    """a_i <- a_i / |a_i|_2; returns 1 / |a_i|_2."""
    inverse = a.dtype.type(1) / a.dtype.type(math.sqrt(inner(a, i, a, i)))
    scale_row(a, i, inverse)
    return inverse


@_jit
def normalize_gradient(unit, i, inverse, g, j):
    """g_j <- (g_j - u_i (u_i . g_j)) / length: the gradient back through LN."""
    along = inner(unit, i, g, j)
    for k in range(0, g.shape[1], LANES):
        part = load(g, j, k, LANES)
        part = multiply_add(spread(-along, part), load(unit, i, k, LANES), part)
        store(g, j, k, multiply(spread(inverse, part), part))


@_jit
def slope(t, i, g, j, smooth):
    """t_i = phi(h) -> phi'(h) g_j, in place: 1 - t^2 for tanh, 1[t > 0] for ReLU."""
    if smooth:
        for k in range(0, t.shape[1], LANES):
            value, part = load(t, i, k, LANES), load(g, j, k, LANES)
            store(t, i, k, multiply_add(multiply(value, multiply(spread(-1.0, value), value)), part, part))
    else:
        for k in range(t.shape[1]):
            t[i, k] = g[j, k] if t[i, k] > 0 else t.dtype.type(0)


def activate(h, i, smooth):
    """h_i <- phi(h_i): tanh if `smooth`, else ReLU."""
    raise NotImplementedError("only compiled code calls this")


@overload(activate, jit_options={"fastmath": FAST, "error_model": "numpy", "forceinline": True})
def _activate(h, i, smooth):
    if h.dtype == types.float32:

        def vectorized(h, i, smooth):
            if smooth:
                for k in range(0, h.shape[1], LANES):
                    store(h, i, k, _tanh(load(h, i, k, LANES)))
            else:
                _rectify(h, i)

        return vectorized

    def plain(h, i, smooth):
        if smooth:
            for k in range(h.shape[1]):
                h[i, k] = math.tanh(h[i, k])
        else:
            _rectify(h, i)

    return plain


@_jit
def _rectify(h, i):
    """ReLU; NaN stays NaN."""
    for k in range(h.shape[1]):
        if h[i, k] < 0:
            h[i, k] = 0


@_jit
def _tanh(x):
    """tanh of float32s, to 3 ulp; NaN stays NaN.

    x P(x^2) / Q(x^2) with P and Q of degree 4 that minimize the largest relative error on [-9, 9], 2e-8; beyond, tanh
    rounds to +-1.
    """
    one = spread(1.0, x)
    x = minimum(spread(9.0, x), maximum(spread(-9.0, x), x))
    s = multiply(x, x)
    p = spread(1.3355079793779886e-8, x)
    p = multiply_add(p, s, spread(2.0609414144523094e-5, x))
    p = multiply_add(p, s, spread(3.495609420991462e-3, x))
    p = multiply_add(p, s, spread(1.3381043902784798e-1, x))
    p = multiply_add(p, s, one)
    q = spread(7.776738651429303e-7, x)
    q = multiply_add(q, s, spread(3.285668879205383e-4, x))
    q = multiply_add(q, s, spread(2.5877064261190363e-2, x))
    q = multiply_add(q, s, spread(4.671435951131403e-1, x))
    q = multiply_add(q, s, one)
    t = divide(multiply(x, p), q)
    return minimum(one, maximum(spread(-1.0, x), t))
