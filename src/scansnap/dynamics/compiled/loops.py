"""The inner loops of the CPU kernel: sequences of one class against the rows of y that one head reads for them.

`slots[k]` holds those rows, and row first + w of f the coefficients of the row in slot w, a column for each sequence.

Up to eight sequences of a class are taken together, rounded up to an even number: f has zeros in the columns of missing
ones.  Sums stay in registers, and each load serves as many sequences or rows as the registers allow.  Rows are whole
vectors: `CompactLayout` pads them.  Functions take a matrix and a row index, because a slice taken in the caller's loop
costs two calls of the reference counter.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from scansnap.dynamics.compiled.lanes import (
    add,
    highest,
    load,
    load_each,
    maximum,
    multiply,
    multiply_add,
    multiply_add_each,
    nearest,
    spread,
    spread_each,
    store,
    store_each,
    subtract,
    sum_of_products,
    times_power_of_two,
    total,
    total_each,
    zero_each,
    zero_unless_above,
)
from scansnap.runtime.inner_function import inner
from scansnap.systems.yz.lanes import LANES

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning, since they mark divergence."""

CHUNK = 512
"""Columns of the residuals of eight sequences that stay in the first cache while all rows of a class pass by."""

hot = inner(fastmath=FAST, error_model="numpy", forceinline=True)
"""For code in the innermost loops, always inlined.  Its sums may be reordered, but always in the same way: it is
optimized once, with the caller that it is inlined into (`inner_function.py`)."""

rare = inner(error_model="numpy")
"""For code that few settings run: a function of its own, which compiles faster.  Its sums keep their order."""


@hot
def lesser(a, b):
    """The lesser of two whole numbers.  Built-in `min` is compiled as a function that Python might call."""
    return a if a < b else b


@hot
def weighted_sums(y, slots, k, size, f, first, count, out, first_out):
    """out[first_out + i, j] = sum_w f_wi y[slots_w, j] for `count` sequences."""
    if count > 6:
        _weighted_sums_8(y, slots, k, size, f, first, out, first_out)
    elif count > 4:
        _weighted_sums_6(y, slots, k, size, f, first, out, first_out)
    elif count > 2:
        _weighted_sums_4(y, slots, k, size, f, first, out, first_out)
    else:
        _weighted_sums_2(y, slots, k, size, f, first, out, first_out)


@hot
def add_outer_products(v, y, slots, k, size, f, first, x, count, products, moves, rate, column_rate, decay):
    """v[slots_w, j] += G_wj and products[first + w] += sum_j y[slots_w, j] G_wj with G_wj = sum_i f_wi x_ij.

    Where moves[k, w] and decay >= 0, row and velocity then move as in `move_row`, while they are in registers.
    """
    if count > 6:
        _add_outer_products_8(v, y, slots, k, size, f, first, x, products, moves, rate, column_rate, decay)
    elif count > 4:
        _add_outer_products_6(v, y, slots, k, size, f, first, x, products, moves, rate, column_rate, decay)
    elif count > 2:
        _add_outer_products_4(v, y, slots, k, size, f, first, x, products, moves, rate, column_rate, decay)
    else:
        _add_outer_products_2(v, y, slots, k, size, f, first, x, products, moves, rate, column_rate, decay)


@hot
def inner_product(a, i, b, j):
    """sum_k a_ik b_jk."""
    (products,) = zero_each(a, LANES, 1)
    for k in range(0, a.shape[1], LANES):
        products = multiply_add(load(a, i, k, LANES), load(b, j, k, LANES), products)
    return total(products)


@hot
def inner_products(y, slots, k, size, x, out):
    """out[w, i] = sum_j y[slots_w, j] x_ij of eight sequences."""
    for w in range(size):
        row = slots[k, w]
        products = zero_each(y, LANES, 8)
        for j in range(0, x.shape[1], LANES):
            products = multiply_add_each(load_each(x, j, LANES, 8), load(y, row, j, LANES), products)
        store(out, w, 0, total_each(products))


@hot
def add_row(a, i, rate, b, j):
    """a[i] += rate b[j]."""
    for k in range(0, a.shape[1], LANES):
        part = load(b, j, k, LANES)
        store(a, i, k, multiply_add(spread(rate, part), part, load(a, i, k, LANES)))


@hot
def move_row(y, v, row, rate, column_rate, decay):
    """y[row] += rate column_rate v[row], then v[row] *= decay."""
    for j in range(0, y.shape[1], LANES):
        velocity = load(v, row, j, LANES)
        step = multiply(spread(rate, velocity), load(column_rate, 0, j, LANES))
        store(y, row, j, multiply_add(step, velocity, load(y, row, j, LANES)))
        store(v, row, j, multiply(spread(decay, velocity), velocity))


def _weighted_sums_of(count):
    """The weighted sums of all the sequences, each kept in a register while looping over the rows of y."""

    @hot
    def weighted_sums(y, slots, k, size, f, first, out, first_out):
        for j in range(0, out.shape[1], LANES):
            sums = zero_each(y, LANES, count)
            for w in range(size):
                coefficients = spread_each(f, first + w, LANES, count)
                sums = multiply_add_each(coefficients, load(y, slots[k, w], j, LANES), sums)
            store_each(out, first_out, j, sums)

    return weighted_sums


def _add_outer_products_of(count):
    """The outer products of all the sequences, two rows at a time to share the loads of x, a chunk of x at a time.

    The last of an odd number of rows is its own second row, with coefficients of 0.
    """

    @hot
    def add_outer_products(v, y, slots, k, size, f, first, x, products, moves, rate, column_rate, decay):
        for begin in range(0, x.shape[1], CHUNK):
            end = lesser(begin + CHUNK, x.shape[1])
            for w in range(0, size, 2):
                has_second = w + 1 < size
                row_a = slots[k, w]
                row_b = slots[k, w + 1] if has_second else row_a
                a, b = spread_each(f, first + w, LANES, count), zero_each(y, LANES, count)
                if has_second:
                    b = spread_each(f, first + w + 1, LANES, count)
                product_a, product_b = zero_each(y, LANES, 2)
                if decay >= 0 and moves[k, w]:
                    for j in range(begin, end, LANES):
                        residuals = load_each(x, j, LANES, count)
                        part_a, part_b = sum_of_products(a, residuals), sum_of_products(b, residuals)
                        product_a = _add_and_move(v, y, row_a, j, part_a, product_a, rate, column_rate, decay)
                        product_b = _add_and_move(v, y, row_b, j, part_b, product_b, rate, column_rate, decay)
                else:
                    for j in range(begin, end, LANES):
                        residuals = load_each(x, j, LANES, count)
                        product_a = _add_to_row(v, y, row_a, j, sum_of_products(a, residuals), product_a)
                        product_b = _add_to_row(v, y, row_b, j, sum_of_products(b, residuals), product_b)
                products[first + w] += total(product_a)
                if has_second:
                    products[first + w + 1] += total(product_b)

    return add_outer_products


@hot
def _add_to_row(v, y, row, j, part, product):
    """v[row] += part from column j on; the product grows by that of the same columns of y with part."""
    store(v, row, j, add(load(v, row, j, LANES), part))
    return multiply_add(load(y, row, j, LANES), part, product)


@hot
def _add_and_move(v, y, row, j, part, product, rate, column_rate, decay):
    """The same, then the step of `move_row`."""
    velocity, before = add(load(v, row, j, LANES), part), load(y, row, j, LANES)
    step = multiply(spread(rate, velocity), load(column_rate, 0, j, LANES))
    store(y, row, j, multiply_add(step, velocity, before))
    store(v, row, j, multiply(spread(decay, velocity), velocity))
    return multiply_add(before, part, product)


_weighted_sums_2, _weighted_sums_4, _weighted_sums_6, _weighted_sums_8 = map(_weighted_sums_of, (2, 4, 6, 8))
_add_outer_products_2, _add_outer_products_4, _add_outer_products_6, _add_outer_products_8 = map(
    _add_outer_products_of, (2, 4, 6, 8)
)


@hot
def largest(x, i):
    """max_j x_ij; meaningless if one is NaN, but then the sums that follow are NaN anyway."""
    top = load(x, i, 0, LANES)
    for j in range(LANES, x.shape[1], LANES):
        top = maximum(top, load(x, i, j, LANES))
    return highest(top)


def scaled_exp(x, i, shift, scale):
    """x_ij <- scale_j exp(x_ij - shift), where x_ij <= shift.

    Returns the sum of the new x_ij, and their sum weighted by the old x_ij - shift: what a softmax's gradient needs.
    """
    raise NotImplementedError("only compiled code calls this")


@overload(scaled_exp, jit_options={"fastmath": FAST, "error_model": "numpy", "forceinline": True})
def _scaled_exp(x, i, shift, scale):
    exp, least = (_exp_32, -87.0) if x.dtype == types.float32 else (_exp_64, -708.0)

    def scaled(x, i, shift, scale):
        total_exp, moment = zero_each(x, LANES, 2)
        shifts, lowest = spread(shift, moment), spread(least, moment)  # below this the result is 0
        for j in range(0, x.shape[1], LANES):
            below = maximum(lowest, subtract(load(x, i, j, LANES), shifts))
            value = multiply(exp(below), load(scale, 0, j, LANES))
            value = zero_unless_above(below, lowest, value)
            store(x, i, j, value)
            total_exp = add(total_exp, value)
            moment = multiply_add(below, value, moment)
        return total(total_exp), total(moment)

    return scaled


@hot
def exclude(x, i, n, num_columns):
    """Take the logit of n out of sequence i, and the padding; returns it, and the largest of the others."""
    own = x[i, n]
    x[i, n] = -np.inf
    for j in range(num_columns, x.shape[1]):
        x[i, j] = -np.inf
    return own, largest(x, i)


@hot
def softmax_residual(x, i, n, own, other, multiplicity):
    """x_i: logits without n's -> the residual e_n - p of sequence i up to a factor, in place.

    `own` is the logit of n and `other` the largest of the others.  Returns that factor; a = sum_j logits_j (e_n - p)_j;
    two numbers b and c >= 0 that make up the loss, b + log(1 + c); and whether n alone has the largest logit.

    1 - p_n is the sum of the other probabilities, never a difference from one: late in training it is far below the
    rounding of p_n.  The residual sums to zero, so a may be formed from logits relative to the largest.
    """
    kind = x.dtype.type
    top = own if own > other else other
    rest, moment = scaled_exp(x, i, top, multiplicity)
    x[i, n] = -rest
    own_exp = kind(math.exp(own - top))
    scale = kind(-1) / (rest + own_exp)
    along = scale * (moment - (own - top) * rest)
    hit = 1.0 if own > other else 0.0
    if own - top > -30:
        return scale, along, 0.0, float(rest) / float(own_exp), hit
    return scale, along, float(top) - float(own), float(rest) + float(own_exp) - 1.0, hit


@hot
def _exp_32(x):
    """exp of float32s between -87 and 87, to 1 ulp.

    2^k exp(t) with |t| <= ln(2)/2, and 1 + t + t^2 q(t) for exp(t) with the q of degree 4 that minimizes the largest
    relative error, 3e-9.
    """
    k = nearest(multiply(x, spread(1.4426950408889634, x)))
    # ln(2) in two parts, the first with few digits, so that k times it is exact
    t = multiply_add(k, spread(-0.693359375, x), x)
    t = multiply_add(k, spread(2.12194440e-4, x), t)
    q = spread(1.3814467e-3, x)
    q = multiply_add(q, t, spread(8.3687808e-3, x))
    q = multiply_add(q, t, spread(4.1668393e-2, x))
    q = multiply_add(q, t, spread(1.6666520e-1, x))
    q = multiply_add(q, t, spread(4.9999994e-1, x))
    one = spread(1.0, x)
    return times_power_of_two(multiply_add(multiply_add(q, t, one), t, one), k)


@hot
def _exp_64(x):
    """The same of float64s between -708 and 708, with a q of degree 9 and a relative error of 1.3e-17."""
    k = nearest(multiply(x, spread(1.4426950408889634, x)))
    t = multiply_add(k, spread(-0.6931471803691238, x), x)
    t = multiply_add(k, spread(-1.9082149292705877e-10, x), t)
    q = spread(2.502463332219875e-08, x)
    q = multiply_add(q, t, spread(2.763115485562374e-07, x))
    q = multiply_add(q, t, spread(2.755750743856256e-06, x))
    q = multiply_add(q, t, spread(2.480149026903066e-05, x))
    q = multiply_add(q, t, spread(0.00019841269596823096, x))
    q = multiply_add(q, t, spread(0.00138888889467478, x))
    q = multiply_add(q, t, spread(0.008333333333451622, x))
    q = multiply_add(q, t, spread(0.04166666666651608, x))
    q = multiply_add(q, t, spread(0.16666666666666483, x))
    q = multiply_add(q, t, spread(0.5000000000000012, x))
    one = spread(1.0, x)
    return times_power_of_two(multiply_add(multiply_add(q, t, one), t, one), k)
