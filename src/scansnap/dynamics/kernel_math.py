"""The inner loops of the CPU kernel: sequences of one class against the rows of y that they touch.

A class's sequences are taken up to eight together, rounded up to an even number: f has zeros in the columns of those
that are not there.  What is summed stays in registers, and what is loaded is used for as many sequences or rows as the
registers allow.  Rows are whole vectors: `CompactLayout` pads them.  Matrices come with the index of the row that is
meant, because a slice taken in the caller's loop costs two calls of the reference counter.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types
from numba.extending import intrinsic, overload

from scansnap.dynamics.kernel_lanes import (
    add,
    load,
    load_each,
    multiply_add,
    multiply_add_each,
    spread_each,
    store,
    store_each,
    sum_of_products,
    total,
    zero_each,
)
from scansnap.model.compact import LANES

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning, since they mark divergence."""

_jit = njit(fastmath=FAST, error_model="numpy", forceinline=True)
# Always inlined: a callee that stays a function of its own is optimised apart in the process that compiles it, and
# together with its caller in one that reads it from disk, and the two may round differently.


@_jit
def weighted_sums(y, support, n, size, f, count, out):
    """out_ij = sum_w f_wi y[rows_w, j] for `count` sequences and the rows of class n."""
    if count > 6:
        _weighted_sums_8(y, support, n, size, f, out)
    elif count > 4:
        _weighted_sums_6(y, support, n, size, f, out)
    elif count > 2:
        _weighted_sums_4(y, support, n, size, f, out)
    else:
        _weighted_sums_2(y, support, n, size, f, out)


@_jit
def add_outer_products(v, y, support, n, size, f, x, count, products):
    """v[rows_w, j] += G_wj and products_w += sum_j y[rows_w, j] G_wj with G_wj = sum_i f_wi x_ij."""
    if count > 6:
        _add_outer_products_8(v, y, support, n, size, f, x, products)
    elif count > 4:
        _add_outer_products_6(v, y, support, n, size, f, x, products)
    elif count > 2:
        _add_outer_products_4(v, y, support, n, size, f, x, products)
    else:
        _add_outer_products_2(v, y, support, n, size, f, x, products)


def _weighted_sums_of(count):
    """The weighted sums of as many sequences as there are, each kept in a register while the rows of y go by."""

    @_jit
    def weighted_sums(y, support, n, size, f, out):
        for j in range(0, out.shape[1], LANES):
            sums = zero_each(y, LANES, count)
            for w in range(size):
                sums = multiply_add_each(spread_each(f, w, LANES, count), load(y, support[n, w], j, LANES), sums)
            store_each(out, j, sums)

    return weighted_sums


def _add_outer_products_of(count):
    """The outer products of as many sequences, two rows at a time so that they share the loads of x."""

    @_jit
    def add_outer_products(v, y, support, n, size, f, x, products):
        for w in range(0, size - 1, 2):
            row_a, row_b = support[n, w], support[n, w + 1]
            a, b = spread_each(f, w, LANES, count), spread_each(f, w + 1, LANES, count)
            product_a, product_b = zero_each(y, LANES, 2)
            for j in range(0, x.shape[1], LANES):
                residuals = load_each(x, j, LANES, count)
                product_a = _add_to_row(v, y, row_a, j, sum_of_products(a, residuals), product_a)
                product_b = _add_to_row(v, y, row_b, j, sum_of_products(b, residuals), product_b)
            products[w] += total(product_a)
            products[w + 1] += total(product_b)
        if size % 2:
            row, a = support[n, size - 1], spread_each(f, size - 1, LANES, count)
            (product,) = zero_each(y, LANES, 1)
            for j in range(0, x.shape[1], LANES):
                product = _add_to_row(v, y, row, j, sum_of_products(a, load_each(x, j, LANES, count)), product)
            products[size - 1] += total(product)

    return add_outer_products


@_jit
def _add_to_row(v, y, row, j, part, product):
    """v[row] += part from column j on; the product grows by that of the same columns of y with part."""
    store(v, row, j, add(load(v, row, j, LANES), part))
    return multiply_add(load(y, row, j, LANES), part, product)


_weighted_sums_2, _weighted_sums_4, _weighted_sums_6, _weighted_sums_8 = map(_weighted_sums_of, (2, 4, 6, 8))
_add_outer_products_2, _add_outer_products_4, _add_outer_products_6, _add_outer_products_8 = map(
    _add_outer_products_of, (2, 4, 6, 8)
)


@intrinsic
def _bits_of(context, x):
    """The bits of a float32 as an int32."""
    return types.int32(types.float32), lambda ctx, builder, sig, args: builder.bitcast(args[0], ir.IntType(32))


@intrinsic
def _float_of(context, bits):
    """The float32 with these bits."""
    return types.float32(types.int32), lambda ctx, builder, sig, args: builder.bitcast(args[0], ir.FloatType())


def largest(x, i, length):
    """max of x_ij for j < length; with a NaN among them it means nothing, and the sums that follow are NaN anyway."""
    raise NotImplementedError("only compiled code calls this")


@overload(largest, jit_options={"forceinline": True})
def _largest(x, i, length):
    if x.dtype == types.float32:
        # IEEE floats order like their bits once the magnitude bits of negative ones are flipped; a maximum of integers
        # is vectorised, a maximum of floats that may be NaN is not.
        def vectorised(x, i, length):
            top = int32(-(2**31))
            for j in range(length):
                bits = _bits_of(x[i, j])
                top = max(top, bits ^ ((bits >> int32(31)) & int32(0x7FFFFFFF)))
            return _float_of(top ^ ((top >> int32(31)) & int32(0x7FFFFFFF)))

        return vectorised

    def plain(x, i, length):
        top = x[i, 0]
        for j in range(1, length):
            top = max(top, x[i, j])
        return top

    return plain


def scaled_exp(x, i, length, shift, scale):
    """x_ij <- scale_j exp(x_ij - shift) for j < length, where x_ij <= shift.

    Returns the sum of the new x_ij, and their sum weighted by the old x_ij - shift: what a softmax's gradient needs.
    """
    raise NotImplementedError("only compiled code calls this")


@overload(scaled_exp, jit_options={"fastmath": FAST, "error_model": "numpy", "forceinline": True})
def _scaled_exp(x, i, length, shift, scale):
    if x.dtype == types.float32:
        # 2^k exp(t) with |t| <= ln(2)/2 and a minimax polynomial for exp(t) (Cephes' expf): 1 ulp, and, unlike a
        # call of the C library per entry, sixteen at a time.
        def vectorised(x, i, length, shift, scale):
            total = float32(0.0)
            moment = float32(0.0)
            for j in range(length):
                below = x[i, j] - shift
                below = float32(-87.0) if below < float32(-87.0) else below  # NaN stays NaN
                t = below
                k = np.floor(t * float32(1.4426950408889634) + float32(0.5))
                t = t - k * float32(0.693359375) + k * float32(2.12194440e-4)
                p = float32(1.9875691500e-4)
                p = p * t + float32(1.3981999507e-3)
                p = p * t + float32(8.3334519073e-3)
                p = p * t + float32(4.1665795894e-2)
                p = p * t + float32(1.6666665459e-1)
                p = p * t + float32(5.0000001201e-1)
                power = _float_of((int32(k) + int32(127)) << int32(23))
                value = (p * t * t + t + float32(1.0)) * power * scale[j]
                value = float32(0.0) if below <= float32(-87.0) else value
                x[i, j] = value
                total += value
                moment += below * value
            return total, moment

        return vectorised

    def plain(x, i, length, shift, scale):
        total = 0.0
        moment = 0.0
        for j in range(length):
            below = max(x[i, j] - shift, -746.0)  # exp is 0 there, and -inf * 0 would be NaN
            value = scale[j] * math.exp(below)
            x[i, j] = value
            total += value
            moment += below * value
        return total, moment

    return plain
