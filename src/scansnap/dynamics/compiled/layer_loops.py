"""The inner loops of the kernel for several layers: products of small matrices, and what is done to each of their rows.

Rows are whole vectors, padded with zeros.  A matrix is named by an array and its first row in it, so that no slice is
taken in a loop.  Products take eight rows at a time: the rows that fill up the last eight of a block hold whatever they
hold, and nothing reads what becomes of them.
"""

from __future__ import annotations

import math

from numba import types
from numba.extending import overload

from scansnap.dynamics.compiled.lanes import (
    add,
    add_to_listed,
    divide,
    highest,
    load,
    maximum,
    minimum,
    multiply,
    multiply_add,
    multiply_add_each,
    nearest,
    one_at,
    spread,
    spread_along,
    spread_down,
    store,
    store_across,
    store_each,
    subtract,
    times_power_of_two,
    total,
    zero_each,
    zero_unless_above,
)
from scansnap.dynamics.compiled.loops import FAST, inner_product
from scansnap.runtime.inner_function import inner
from scansnap.systems.yz.lanes import LANES

TILE = 8
"""Rows of a product that are computed together, each in registers of its own."""

REORDERED = FAST - {"arcp"}
"""Sums may be reordered, but a quotient is no product with a reciprocal: attention to a single token is exactly 1, and
so its gradient exactly 0, which rules that ignore the size of a gradient would otherwise take for one."""

jit = inner(allocates=True, fastmath=REORDERED, error_model="numpy", forceinline=True)  # `loops`: why always inlined


@jit
def product(a, first_a, count, b, first_b, rows, n, depth, out, first_out):
    """out_i = sum_k a_ik b_k for `count` rows, rounded up to whole tiles; row k of b is first_b + rows[n, k]."""
    for j in range(0, out.shape[1], LANES):
        for i in range(0, count, TILE):
            sums = zero_each(b, LANES, TILE)
            for k in range(depth):
                part = load(b, first_b + rows[n, k], j, LANES)
                sums = multiply_add_each(spread_down(a, first_a + i, k, LANES, TILE), part, sums)
            store_each(out, first_out + i, j, sums)


@jit
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


@jit
def transpose(a, first_a, rows, n, count, out, first_out):
    """out_kw = a_wk for `count` rows w, 0 beyond; row w of a is first_a + rows[n, w]."""
    for k in range(a.shape[1] if count < out.shape[1] else 0):
        clear_row(out, first_out + k)
    for w in range(count):
        for k in range(0, a.shape[1], LANES):
            store_across(out, first_out + k, w, load(a, first_a + rows[n, w], k, LANES))


@jit
def sum_rows(a, i, count, b, first_b, out, o):
    """out_o = sum_w a_iw b_w over `count` rows w of b."""
    for k in range(0, out.shape[1], LANES):
        (result,) = zero_each(b, LANES, 1)
        for w in range(count):
            result = multiply_add(spread(a[i, w], result), load(b, first_b + w, k, LANES), result)
        store(out, o, k, result)


@jit
def two_outer_products(a, i, b, j, c, k, d, m, count, out, first_out):
    """out_w = a_iw b_j + c_kw d_m for `count` rows w of out."""
    for o in range(0, out.shape[1], LANES):
        first, second = load(b, j, o, LANES), load(d, m, o, LANES)
        for w in range(count):
            part = multiply(spread(a[i, w], first), first)
            store(out, first_out + w, o, multiply_add(spread(c[k, w], second), second, part))


@jit
def multiply_rows(a, i, b, j, out, o):
    """out_o = a_i b_j, entry by entry; returns |out_o|_2^2."""
    (squares,) = zero_each(out, LANES, 1)
    for k in range(0, out.shape[1], LANES):
        part = multiply(load(a, i, k, LANES), load(b, j, k, LANES))
        store(out, o, k, part)
        squares = multiply_add(part, part, squares)
    return total(squares)


@jit
def add_rows(a, i, b, j, out, o):
    """out_o = a_i + b_j; returns |out_o|_2^2."""
    (squares,) = zero_each(out, LANES, 1)
    for k in range(0, out.shape[1], LANES):
        part = add(load(a, i, k, LANES), load(b, j, k, LANES))
        store(out, o, k, part)
        squares = multiply_add(part, part, squares)
    return total(squares)


@jit
def add_one_hot(a, i, place, out, o):
    """out_o = a_i + e_place; returns |out_o|_2^2."""
    (squares,) = zero_each(out, LANES, 1)
    for k in range(0, out.shape[1], LANES):
        part = load(a, i, k, LANES)
        part = add(part, one_at(place - k, part))
        store(out, o, k, part)
        squares = multiply_add(part, part, squares)
    return total(squares)


@jit
def softmax_gradient(c, i, g, j):
    """g_j <- c_i (g_j - c_i . g_j), entry by entry: the gradient back through a softmax."""
    along = inner_product(c, i, g, j)
    for k in range(0, g.shape[1], LANES):
        part = load(g, j, k, LANES)
        store(g, j, k, multiply(load(c, i, k, LANES), subtract(part, spread(along, part))))


@jit
def add_direction_gradient(f, i, g, j, out, o):
    """out_o += f_i (g_j - f_i (f_i . g_j)), entry by entry: Lemma 1's."""
    along = inner_product(f, i, g, j)
    for k in range(0, out.shape[1], LANES):
        part = load(f, i, k, LANES)
        gradient = multiply_add(spread(-along, part), part, load(g, j, k, LANES))
        store(out, o, k, multiply_add(part, gradient, load(out, o, k, LANES)))


@jit
def copy_row(a, i, b, j):
    """b_j <- a_i."""
    for k in range(0, a.shape[1], LANES):
        store(b, j, k, load(a, i, k, LANES))


@jit
def clear_row(a, i):
    """a_i <- 0."""
    (zero,) = zero_each(a, LANES, 1)
    for k in range(0, a.shape[1], LANES):
        store(a, i, k, zero)


@jit
def scale_row(a, i, rate):
    """a_i *= rate."""
    for k in range(0, a.shape[1], LANES):
        part = load(a, i, k, LANES)
        store(a, i, k, multiply(spread(rate, part), part))


@jit
def divide_row(a, i, divisor):
    """a_i /= divisor: an entry that equals the divisor becomes exactly 1."""
    for k in range(0, a.shape[1], LANES):
        part = load(a, i, k, LANES)
        store(a, i, k, divide(part, spread(divisor, part)))


@jit
def to_unit(a, i, square):
    """a_i <- a_i / |a_i|_2, given |a_i|_2^2; returns 1 / |a_i|_2."""
    inverse = a.dtype.type(1) / a.dtype.type(math.sqrt(square))
    scale_row(a, i, inverse)
    return inverse


@jit
def normalize_gradient(unit, i, inverse, g, j):
    """g_j <- (g_j - u_i (u_i . g_j)) / length: the gradient back through LN."""
    along = inner_product(unit, i, g, j)
    for k in range(0, g.shape[1], LANES):
        part = load(g, j, k, LANES)
        part = multiply_add(spread(-along, part), load(unit, i, k, LANES), part)
        store(g, j, k, multiply(spread(inverse, part), part))


@jit
def slope(t, i, g, j, smooth):
    """t_i = phi(h) -> phi'(h) g_j, in place: 1 - t^2 for tanh, 1[t > 0] for ReLU."""
    if smooth:
        for k in range(0, t.shape[1], LANES):
            value, part = load(t, i, k, LANES), load(g, j, k, LANES)
            store(t, i, k, multiply_add(multiply(value, multiply(spread(-1.0, value), value)), part, part))
    else:
        (zero,) = zero_each(t, LANES, 1)
        for k in range(0, t.shape[1], LANES):
            store(t, i, k, zero_unless_above(load(t, i, k, LANES), zero, load(g, j, k, LANES)))


@jit
def activate(h, i, smooth):
    """h_i <- phi(h_i): tanh if `smooth`, else ReLU; NaN stays NaN."""
    if smooth:
        for k in range(0, h.shape[1], LANES):
            store(h, i, k, _tanh(load(h, i, k, LANES)))
    else:
        (zero,) = zero_each(h, LANES, 1)
        for k in range(0, h.shape[1], LANES):
            store(h, i, k, maximum(zero, load(h, i, k, LANES)))


@jit
def weigh(c, i, absent, counts, s):
    """Scores c_il -> a_l exp(c_il - max), with a_l = counts_sl; returns the sum.

    The maximum is over tokens that are present; absent_sl is -inf for the others, and 0 for these.
    """
    top = add(load(c, i, 0, LANES), load(absent, s, 0, LANES))
    for k in range(LANES, c.shape[1], LANES):
        top = maximum(top, add(load(c, i, k, LANES), load(absent, s, k, LANES)))
    (result,) = zero_each(c, LANES, 1)
    tops = spread(highest(top), result)
    for k in range(0, c.shape[1], LANES):
        below = minimum(spread(0.0, result), subtract(load(c, i, k, LANES), tops))
        power, rest = _exp_parts(maximum(spread(-87.0, result), below))  # beyond, nothing that matters is left
        part = multiply(load(counts, s, k, LANES), multiply_add(power, rest, power))
        store(c, i, k, part)
        result = add(result, part)
    return total(result)


@jit
def _tanh(x):
    """e / (e + 2) with e = exp(2 x) - 1, to a few ulp; beyond +-20 tanh rounds to +-1.

    e = (2^k - 1) + 2^k (exp(t) - 1): neither term loses digits, however small x is.
    """
    x = minimum(spread(20.0, x), maximum(spread(-20.0, x), x))
    power, rest = _exp_parts(add(x, x))
    e = multiply_add(power, rest, subtract(power, spread(1.0, x)))
    return divide(e, add(e, spread(2.0, x)))


@jit
def _exp_parts(x):
    """2^k and exp(t) - 1 with x = k ln(2) + t and |t| <= ln(2)/2, for x between -87 and 87."""
    k = nearest(multiply(x, spread(1.4426950408889634, x)))
    # ln(2) in two parts, the first with few digits, so that k times it is exact
    t = multiply_add(k, spread(-0.693359375, x), x)
    t = multiply_add(k, spread(2.121944400546905827679e-4, x), t)
    return times_power_of_two(spread(1.0, x), k), _exp_minus_one(t)


def _exp_minus_one(t):
    """t + t^2/2! + t^3/3! + ..., as many terms as the type resolves for |t| <= ln(2)/2."""
    raise NotImplementedError("only compiled code calls this")


@overload(_exp_minus_one, jit_options={"fastmath": REORDERED, "error_model": "numpy", "forceinline": True})
def _exp_minus_one_of(t):
    last = 8 if t.dtype == types.float32 else 14
    highest = 1 / math.factorial(last)
    others = tuple(1 / math.factorial(n) for n in range(last - 1, 0, -1))

    def horner(t):
        result = spread(highest, t)
        for coefficient in others:
            result = multiply_add(result, t, spread(coefficient, t))
        return multiply(t, result)

    return horner
