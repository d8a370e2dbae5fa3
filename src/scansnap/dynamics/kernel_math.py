"""The inner loops of the CPU kernel: sequences of one class against the rows of y that they touch.

Written so that the compiler turns each into fused multiply-adds over whole vector registers, with as few loads and
stores per multiply-add as the registers allow: two sequences by four tokens at a time in `weighted_sums`, up to eight
sequences at a time in `add_outer_products`.  Matrices come with the index of the row that is meant, because a slice
taken in the caller's loop costs two calls of the reference counter.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types
from numba.extending import intrinsic, overload

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning, since they mark divergence."""

_jit = njit(fastmath=FAST, error_model="numpy", forceinline=True)
# Always inlined: a callee that stays a function of its own is optimised apart in the process that compiles it, and
# together with its caller in one that reads it from disk, and the two may round differently.


@_jit
def weighted_sums(y, support, n, size, f, count, out):
    """out_ij = sum_w f_iw y[rows_w, j] for `count` sequences and the rows of class n.

    Two sequences share each load: the rows of a class rarely all fit the first-level cache.
    """
    columns = out.shape[1]
    rows = support[n]
    for i in range(count):
        for j in range(columns):
            out[i, j] = 0
    for i in range(0, count - 1, 2):
        out_a, out_b, fa, fb = out[i], out[i + 1], f[i], f[i + 1]
        for w in range(0, size - 3, 4):
            y0, y1, y2, y3 = y[rows[w]], y[rows[w + 1]], y[rows[w + 2]], y[rows[w + 3]]
            a0, a1, a2, a3 = fa[w], fa[w + 1], fa[w + 2], fa[w + 3]
            b0, b1, b2, b3 = fb[w], fb[w + 1], fb[w + 2], fb[w + 3]
            for j in range(columns):
                out_a[j] += a0 * y0[j] + a1 * y1[j] + a2 * y2[j] + a3 * y3[j]
                out_b[j] += b0 * y0[j] + b1 * y1[j] + b2 * y2[j] + b3 * y3[j]
        for w in range(size // 4 * 4, size):
            y0, a0, b0 = y[rows[w]], fa[w], fb[w]
            for j in range(columns):
                out_a[j] += a0 * y0[j]
                out_b[j] += b0 * y0[j]
    if count % 2:
        out_a, fa = out[count - 1], f[count - 1]
        for w in range(0, size - 3, 4):
            y0, y1, y2, y3 = y[rows[w]], y[rows[w + 1]], y[rows[w + 2]], y[rows[w + 3]]
            a0, a1, a2, a3 = fa[w], fa[w + 1], fa[w + 2], fa[w + 3]
            for j in range(columns):
                out_a[j] += a0 * y0[j] + a1 * y1[j] + a2 * y2[j] + a3 * y3[j]
        for w in range(size // 4 * 4, size):
            y0, a0 = y[rows[w]], fa[w]
            for j in range(columns):
                out_a[j] += a0 * y0[j]


@_jit
def add_outer_products(total, size, f, x, count):
    """total_wj += sum_i f_iw x_ij over `count` sequences of one class."""
    columns = x.shape[1]
    for i in range(0, count - 7, 8):
        x0, x1, x2, x3, x4, x5, x6, x7 = x[i], x[i + 1], x[i + 2], x[i + 3], x[i + 4], x[i + 5], x[i + 6], x[i + 7]
        for w in range(size):
            row = total[w]
            f0, f1, f2, f3 = f[i, w], f[i + 1, w], f[i + 2, w], f[i + 3, w]
            f4, f5, f6, f7 = f[i + 4, w], f[i + 5, w], f[i + 6, w], f[i + 7, w]
            for j in range(columns):
                row[j] += (
                    f0 * x0[j]
                    + f1 * x1[j]
                    + f2 * x2[j]
                    + f3 * x3[j]
                    + f4 * x4[j]
                    + f5 * x5[j]
                    + f6 * x6[j]
                    + f7 * x7[j]
                )
    for i in range(count // 8 * 8, count - 3, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for w in range(size):
            row = total[w]
            f0, f1, f2, f3 = f[i, w], f[i + 1, w], f[i + 2, w], f[i + 3, w]
            for j in range(columns):
                row[j] += f0 * x0[j] + f1 * x1[j] + f2 * x2[j] + f3 * x3[j]
    for i in range(count // 4 * 4, count - 1, 2):
        x0, x1 = x[i], x[i + 1]
        for w in range(size):
            row, f0, f1 = total[w], f[i, w], f[i + 1, w]
            for j in range(columns):
                row[j] += f0 * x0[j] + f1 * x1[j]
    if count % 2:
        x0 = x[count - 1]
        for w in range(size):
            row, f0 = total[w], f[count - 1, w]
            for j in range(columns):
                row[j] += f0 * x0[j]


@_jit
def fold(y, v, support, n, size, total, products):
    """products_w = sum_j y[rows_w, j] total_wj, and v[rows_w, j] += total_wj, in one pass; total is zeroed."""
    columns = total.shape[1]
    rows = support[n]
    for w in range(size):
        row_y, row_v, row = y[rows[w]], v[rows[w]], total[w]
        product = row.dtype.type(0)
        for j in range(columns):
            product += row_y[j] * row[j]
            row_v[j] += row[j]
            row[j] = 0
        products[w] = product


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
