"""The (Y, Z) layer on a CPU in compiled code: the gradient of a batch, and the steps of an update rule.

This is the closed form of `gradients.py` (Lemma 1), restricted to the tokens of each class.

Attention
---------
For a sequence of class n with token weights a_l (its counts, or P(l|n) for T -> infinity) and a head's logits z,

    c_l = a_l exp(z_l),      c^ = c / |c - mean c|_2                                  (no mean for the l2 normalization)

and the decoder reads v = c^ - mean(c^) 1, or with the residual connection v = (c^ - mean(c^) 1 + e_m - (1/M) 1) / L,
with L the length of the numerator.  Either way v = w - mean(w) 1, where w = c^/L has entries for the tokens of the
class and, with the residual connection, 1/L more for its query.  With S/M the mean of all rows of Y,

    logits = sum_l w_l Y_l - (sum_l w_l) S/M,      dY_l = w_l x - mean(w) x,

so a sequence touches the rows of its tokens, its query's row, and one row of means.  x = e_n - p is the residual.

The gradient of the logits z
----------------------------
With g_l = Y_l . x, h = (S/M) . x, a = logits . x, c^-mean = mean(c^) and u_m = c^_m - mean(c^):

    dz_l = w_l g_l - w_l^2 square - w_l linear - [l = m] w_l own

    square = a,            linear = h - c^-mean a,                              own = 0      (no residual connection)
    square = a + L^2 k,    linear = h - (c^-mean + 1/M) a/L - c^-mean L k,      own = a/L    (residual connection)
    k = (L a - (g_m - h) - (1 + u_m) a/L) / L,

where 1/M and h are 0 for the l2 normalization.  The sum over the sequences s of a class has the first term
sum_j y_lj G_lj with G_lj = sum_s w_sl x_sj: the class's part of the decoder gradient, which is needed anyway.  So the
products g_sl, a third of the arithmetic, are formed only where a bias on positions is learned.

The dz of a class sum to zero, because the softmax ignores a shift of all logits.  What rounding leaves of the sum is
subtracted in proportion to w_l^2; in a stiff flow it would add up.

`systems/yz/compact.py` merges the columns of Y that stay equal.  x holds the residuals of groups of columns; dY is the
gradient of each entry, 1/multiplicity of its group's.

`advance` and `gradients` are cached on disk; all other functions are inlined into them (`forceinline`), so that a
process that compiles them and one that loads them run the same code.  A function reads the fields of its tuples before
its first branch: otherwise numba counts references to their arrays in every sequence, which takes twice the time.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np

from scansnap.storage.code_cache import njit

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning, since they mark divergence."""

SUM, MEAN, LENGTH, ENTRY = range(4)
"""Columns of `KernelSwitches.shape`."""

SGD, ADAM, SIGN, NORMALIZED = range(4)
"""The update rules of `update_rules.py`."""

Rule = namedtuple("Rule", ["kind", "momentum", "beta_1", "beta_2", "epsilon", "weight_decay", "clip"])
"""A rule with its settings, and the options of a step; 0 for none.  Numba compiles places of fields: so it is here."""


# --- exponentials and linear algebra ----------


@njit(fastmath={"contract"}, error_model="numpy", forceinline=True)
def exponentials(x, top, polynomial, constants, shift, powers, bits, rest):
    """x_j <- exp(x_j - top), or 0 if that is too small for a float; rest_j <- x_j - top."""
    one, none = x.dtype.type(1), x.dtype.type(0)
    per_two, high, low, magic, least = constants[0], constants[1], constants[2], constants[3], constants[4]
    for j in range(len(x)):
        below = x[j] - top
        below = least if below < least else below
        rest[j] = below
        shifted = below * per_two + magic
        powers[j] = shifted
        k = shifted - magic
        x[j] = (below - k * high) - k * low
    for j in range(len(x)):
        bits[j] <<= shift[0]
    c0, c1, c2, c3, c4, c5 = polynomial[0], polynomial[1], polynomial[2], polynomial[3], polynomial[4], polynomial[5]
    c6, c7, c8, c9 = polynomial[6], polynomial[7], polynomial[8], polynomial[9]
    for j in range(len(x)):
        t = x[j]
        q = (((((c0 * t + c1) * t + c2) * t + c3) * t + c4) * t + c5) * t + c6
        q = ((q * t + c7) * t + c8) * t + c9
        q = (q * t + one) * t + one
        x[j] = none if rest[j] <= least else q * powers[j]


@njit(fastmath=FAST | {"nnan"}, error_model="numpy", forceinline=True)
def largest(x):
    """The largest entry; any number if one is NaN, but then the sums that follow are NaN."""
    top = x[0]
    for j in range(1, len(x)):
        top = x[j] if x[j] > top else top
    return top


@njit(error_model="numpy", forceinline=True)
def cholesky(matrix, least):
    """Replace the lower triangle of a matrix by its Cholesky factor; False if a pivot is not above `least`."""
    for j in range(len(matrix)):
        for i in range(j, len(matrix)):
            entry = matrix[i, j]
            for k in range(j):
                entry -= matrix[i, k] * matrix[j, k]
            if i > j:
                matrix[i, j] = entry / matrix[j, j]
            elif entry > least:
                matrix[j, j] = math.sqrt(entry)
            else:
                return False
    return True


@njit(error_model="numpy", forceinline=True)
def substitute(factor, x):
    """x <- (L L')^{-1} x for the factor L in the lower triangle."""
    for i in range(len(x)):
        entry = x[i]
        for k in range(i):
            entry -= factor[i, k] * x[k]
        x[i] = entry / factor[i, i]
    for i in range(len(x) - 1, -1, -1):
        x[i] /= factor[i, i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]


# --- attention ----------


@njit(error_model="numpy", forceinline=True)
def rescale_to_present(z, q, rows, n, size, weights, b, w, h):
    """Fill w[h] with a_l exp(z_l) relative to the largest logit of a token that is present; returns |w|^2."""
    kind, top, square = w.dtype.type, -np.inf, w.dtype.type(0)
    for i in range(size):
        if weights[b, i] > 0:
            top = max(top, float(z[q, rows[n, i]]))
    for i in range(size):
        w[h, i] = weights[b, i] * math.exp(z[q, rows[n, i]] - top) if weights[b, i] > 0 else kind(0)
        square += w[h, i] * w[h, i]
    return square


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def normalize(switches, n, h, size, w):
    """c/|c|_2 -> w of a centered normalization or a residual connection, and its shape."""
    kind, own, num_tokens, shape = w.dtype.type, switches.own_slot[n], switches.num_tokens, switches.shape
    share, total, scale = kind(0), kind(0), kind(1)
    if switches.centered:
        share = kind(1 / num_tokens)
        for i in range(size):
            total += w[h, i]
        mean = total * share
        square = mean * mean * kind(num_tokens - size)
        for i in range(size):
            square += (w[h, i] - mean) * (w[h, i] - mean)
        scale = kind(1) / kind(math.sqrt(square))
        total *= scale
    mean = total * share
    entry = (w[h, own] * scale if own >= 0 else kind(0)) - mean
    length = kind(1)
    if switches.residual:
        length = kind(math.sqrt(kind(2) + kind(2) * entry - share))
        w[h, w.shape[1] - 1] = kind(1) / length
        total = (total + kind(1)) / length
        scale /= length
    for i in range(size):
        w[h, i] *= scale
    shape[h, SUM], shape[h, MEAN], shape[h, LENGTH], shape[h, ENTRY] = total, mean, length, entry


# --- gradient: the sequences of a class, one after another ----------


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def start_class(layer, z, n, heads, scratch):
    """Fill exp_z with exp(z) relative to the largest logit of class n, and its sums over sequences with zeros."""
    size, rows, exp_z, dz, squares, G = layer.size[n], layer.rows, scratch.exp_z, scratch.dz, scratch.squares, scratch.G
    for h in range(heads):
        q = layer.query[n] * heads + h
        top = z[q, rows[n, 0]]
        for i in range(1, size):
            logit = z[q, rows[n, i]]
            top = logit if logit > top else top
        for i in range(size):
            exp_z[h, i] = math.exp(z[q, rows[n, i]] - top)
            dz[h, i] = 0
            squares[h, i] = 0
        for i in range(G.shape[1]):
            for j in range(G.shape[2]):
                G[h, i, j] = 0


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def attend(layer, switches, z, weights, n, b, heads, scratch):
    """The coefficients w of sequence b, of class n."""
    size, rows, exp_z, w = layer.size[n], layer.rows, scratch.exp_z, scratch.w
    kind = w.dtype.type
    for h in range(heads):
        square = kind(0)
        for i in range(size):
            value = weights[b, i] * exp_z[h, i]
            w[h, i] = value
            square += value * value
        if square < kind(1e-20):  # every token present is negligible beside one that is absent
            square = rescale_to_present(z, layer.query[n] * heads + h, rows, n, size, weights, b, w, h)
        scale = kind(1) / kind(math.sqrt(square))
        for i in range(size):
            w[h, i] *= scale
        if switches is not None:
            if switches.centered or switches.residual:
                normalize(switches, n, h, size, w)


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def decode(layer, switches, y, n, heads, block, scratch):
    """logits = sum_l w_l Y_l - (sum_l w_l) S/M; a head has `block` rows of y."""
    size, rows, w, logits, columns = layer.size[n], layer.rows, scratch.w, scratch.logits, y.shape[1]
    if switches is not None:
        shape, mean_row, parts, own_row = switches.shape, switches.mean_row, switches.parts, switches.own_row[n]
        centered, residual, width = switches.centered, switches.residual, w.shape[1] - 1
    for j in range(columns):
        logits[j] = 0
    for h in range(heads):
        for i in range(0, size - size % 4, 4):  # four rows at once: logits are loaded and stored less often
            row_0, row_1 = h * block + rows[n, i], h * block + rows[n, i + 1]
            row_2, row_3 = h * block + rows[n, i + 2], h * block + rows[n, i + 3]
            w_0, w_1, w_2, w_3 = w[h, i], w[h, i + 1], w[h, i + 2], w[h, i + 3]
            for j in range(columns):
                logits[j] += (w_0 * y[row_0, j] + w_1 * y[row_1, j]) + (w_2 * y[row_2, j] + w_3 * y[row_3, j])
        for i in range(size - size % 4, size):
            row, part = h * block + rows[n, i], w[h, i]
            for j in range(columns):
                logits[j] += part * y[row, j]
        if switches is not None:
            if residual:
                row, part = h * block + own_row, w[h, width]
                for j in range(columns):
                    logits[j] += part * y[row, j]
            if centered:
                part = shape[h, SUM]
                for j in range(columns):
                    logits[j] -= part * mean_row[h, j]
            if heads > 1:  # parts_h holds the sum up to head h
                for j in range(columns):
                    parts[h, j] = logits[j]


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def compare(column, weight, multiplicity, scratch):
    """x = e_n - p, with its weight; returns the loss of a sequence, the share of it that is right, and a = logits . x.

    1 - p_n is the sum of the other probabilities, never a difference from one.
    """
    logits, x = scratch.logits, scratch.x
    polynomial, constants, shift, powers, bits, rests = scratch.exponential
    kind, columns = x.dtype.type, len(x)
    target = logits[column]
    logits[column] = -np.inf
    for j in range(columns):
        x[j] = logits[j]
    other = largest(x)
    top = target if target > other else other
    exponentials(x, top, polynomial, constants, shift, powers, bits, rests)
    rest, a = kind(0), kind(0)
    for j in range(columns):
        x[j] *= multiplicity[j]
        rest += x[j]
        a += x[j] * rests[j]
    target_exp = math.exp(target - top)
    scale = kind(weight) / (rest + kind(target_exp))
    for j in range(columns):
        x[j] *= -scale
    x[column] = rest * scale
    a = scale * ((target - top) * rest - a)  # from logits relative to the largest: x sums to zero
    if target - top > -30:
        loss = weight * math.log1p(float(rest) / target_exp)
    else:
        loss = weight * (float(top) - float(target) + math.log(float(rest) + target_exp))
    return loss, weight * (target > other), a


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def add_sequence(layer, switches, y, learned, n, heads, block, a, scratch):
    """Add what a sequence of class n contributes: w x to G, and its terms `square`, `linear` and `own` to dz."""
    size, rows, w, x, G = layer.size[n], layer.rows, scratch.w, scratch.x, scratch.G
    dz, squares, kind, columns = scratch.dz, scratch.squares, y.dtype.type, y.shape[1]
    if switches is not None:
        shape, mean_row, mean_gradient = switches.shape, switches.mean_row, switches.mean_gradient
        parts, slopes, width = switches.parts, switches.slopes, w.shape[1] - 1
        own_row, own_slot = switches.own_row[n], switches.own_slot[n]
        centered, residual, share = switches.centered, switches.residual, kind(1 / switches.num_tokens)
        share = share if centered else kind(0)
    for h in range(heads):
        square, linear = a, kind(0)
        if switches is not None:
            own, own_a = kind(0), a
            if heads > 1:  # a of this head
                own_a = kind(0)
                for j in range(columns):
                    own_a += (parts[h, j] - (parts[h - 1, j] if h > 0 else kind(0))) * x[j]
            square = own_a
            if centered or residual:
                mean_slope, own_slope, mean, length = kind(0), kind(0), shape[h, MEAN], shape[h, LENGTH]
                if centered:
                    part = shape[h, SUM]
                    for j in range(columns):
                        mean_slope += mean_row[h, j] * x[j]
                        mean_gradient[h, j] += part * x[j]
                linear = mean_slope - mean * own_a
                if residual:
                    row, part = h * block + own_row, w[h, width]
                    for j in range(columns):
                        own_slope += y[row, j] * x[j]
                        G[h, width, j] += part * x[j]
                    k = length * own_a - (own_slope - mean_slope) - (kind(1) + shape[h, ENTRY]) * own_a / length
                    k /= length
                    square = own_a + length * length * k
                    linear = mean_slope - (mean + share) * own_a / length - mean * length * k
                    own = own_a / length
                    if own_slot >= 0:
                        dz[h, own_slot] += w[h, own_slot] * own
            if learned:
                for i in range(size):
                    row, slope = h * block + rows[n, i], -w[h, i] * square - linear
                    for j in range(columns):
                        slope += y[row, j] * x[j]
                    slope = w[h, i] * (slope - (own if i == own_slot else kind(0)))
                    slopes[i] = slope + (slopes[i] if h > 0 else kind(0))
        for i in range(size):
            part = w[h, i]
            squares[h, i] += part * part
            dz[h, i] += part * (part * square + linear)
        for i in range(size):
            part = w[h, i]
            for j in range(columns):
                G[h, i, j] += part * x[j]


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def add_class(layer, switches, y, n, heads, block, scratch):
    """Add the part of class n to dY and dZ, from its sums over sequences."""
    size, rows, column_rate, columns = layer.size[n], layer.rows, layer.column_rate, y.shape[1]
    dz, squares, G, dY, dZ, kind = scratch.dz, scratch.squares, scratch.G, scratch.dY, scratch.dZ, y.dtype.type
    if switches is not None:
        residual, own_row, moves = switches.residual, switches.own_row[n], switches.moves
    for h in range(heads):
        left, all_squares = kind(0), kind(0)
        for i in range(size):
            row, G_dot_y = h * block + rows[n, i], kind(0)
            for j in range(columns):
                G_dot_y += y[row, j] * G[h, i, j]
                dY[row, j] += G[h, i, j] * column_rate[j]
            dz[h, i] = G_dot_y - dz[h, i]
            left += dz[h, i]
            all_squares += squares[h, i]
        if switches is not None:
            if residual:
                for j in range(columns):
                    dY[h * block + own_row, j] += G[h, G.shape[1] - 1, j] * column_rate[j]
        for i in range(size):
            if switches is not None:
                if not moves[i]:
                    continue
            dZ[layer.query[n] * heads + h, rows[n, i]] += dz[h, i] - left * (squares[h, i] / all_squares)


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def add_gradient(layer, switches, y, z, bias, batches, s, update, scratch):
    """Add the gradient of batch s to scratch.dY, dZ and db; returns its loss and accuracy.

    `y` (H D, C) and `z` (Q H, S); `bias` (1, G) is a learned bias on positions, otherwise (1, 0).  `switches` is None
    in the basic setting: then numba leaves out all that follows `switches is not None`.
    """
    heads, block, learned = 1, 0, bias.shape[1] > 0
    weights = batches.weights[s]
    if switches is not None:
        heads, block = switches.heads, len(switches.row_multiplicity)
        if learned:
            weights = switches.weights
            weigh_buckets(bias, batches.buckets[s], switches.scale, weights)
        if switches.centered:
            mean_rows(y, switches.row_multiplicity, switches.num_tokens, switches.mean_row)
            clear(switches.mean_gradient)
        if switches.modified:
            clear(switches.residuals)
    loss, correct = 0.0, 0.0
    for n in range(len(layer.size)):
        begin, end = batches.first[s, n], batches.first[s, n + 1]
        if begin == end:
            continue
        start_class(layer, z, n, heads, scratch)
        for b in range(begin, end):
            attend(layer, switches, z, weights, n, b, heads, scratch)
            decode(layer, switches, y, n, heads, block, scratch)
            column, weight = layer.next_column[n], batches.class_weight[n]
            more_loss, more_correct, a = compare(column, weight, layer.multiplicity, scratch)
            loss += more_loss
            correct += more_correct
            if not update:
                continue
            add_sequence(layer, switches, y, learned, n, heads, block, a, scratch)
            if switches is not None:
                if switches.modified:
                    for j in range(y.shape[1]):
                        switches.residuals[n, j] += scratch.x[j]
                if learned:
                    buckets, slopes = batches.buckets[s], switches.slopes
                    add_bias_gradient(layer.size[n], switches.scale, buckets, weights, b, slopes, scratch.db)
        if not update:
            continue
        if switches is not None:
            mark_moving(weights, begin, end, layer.size[n], switches.moves)
        add_class(layer, switches, y, n, heads, block, scratch)
    if switches is not None:
        if update and switches.centered:  # dY_l -= mean(w) x, for every row
            for row in range(heads * block):
                for j in range(y.shape[1]):
                    mean = switches.mean_gradient[row // block, j] * layer.column_rate[j]
                    scratch.dY[row, j] -= mean / y.dtype.type(switches.num_tokens)
    return loss, correct


@njit(error_model="numpy", forceinline=True)
def mark_moving(weights, begin, end, size, moves):
    """Mark the tokens of a class that stand beside another one in some sequence: only these have a gradient.

    A token alone has all the attention, whatever its logit.  The difference of two sums that should then be 0 is their
    rounding, which a rule that ignores the size of a gradient would follow.
    """
    for i in range(size):
        moves[i] = False
    for b in range(begin, end):
        if not is_alone(weights, b, size):
            for i in range(size):
                moves[i] |= weights[b, i] > 0


@njit(error_model="numpy", forceinline=True)
def is_alone(weights, b, size):
    """Whether sequence b has only one token of its class."""
    present = 0
    for i in range(size):
        present += weights[b, i] > 0
    return present < 2


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def mean_rows(y, row_multiplicity, num_tokens, out):
    """S/M: the mean over all tokens of the rows of Y, head by head."""
    block = len(row_multiplicity)
    for row in range(len(y)):
        share = out.dtype.type(row_multiplicity[row % block] / num_tokens)
        for j in range(y.shape[1]):
            out[row // block, j] = share * y[row, j] + (out[row // block, j] if row % block else out.dtype.type(0))


# --- a bias on positions that is learned ----------


@njit(error_model="numpy", forceinline=True)
def weigh_buckets(bias, buckets, scale, weights):
    """Fill scale with exp(b_g), the largest 1, and weights with a_l = sum_g exp(b_g) a_gl (`start.py`)."""
    top = largest(bias[0])
    for g in range(bias.shape[1]):
        scale[g] = math.exp(bias[0, g] - top)
    for b in range(weights.shape[0]):
        weights[b] = 0
        for g in range(bias.shape[1]):
            part = scale[g]
            for i in range(weights.shape[1]):
                weights[b, i] += part * buckets[b, g, i]


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def add_bias_gradient(size, scale, buckets, weights, b, slopes, out):
    """Add dJ/db_g = exp(b_g) sum_l a_gl (dJ/d ln a_l)/a_l of sequence b; a token alone has no gradient."""
    if is_alone(weights, b, size):
        return
    for i in range(size):
        slopes[i] = slopes[i] / weights[b, i] if weights[b, i] > 0 else slopes.dtype.type(0)
    for g in range(len(scale)):
        total = slopes.dtype.type(0)
        for i in range(size):
            total += buckets[b, g, i] * slopes[i]
        out[0, g] += scale[g] * total


# --- Lemma 3's decoder gradient ----------


@njit(error_model="numpy", forceinline=True)
def add_modification(layer, switches, z, bias, scratch):
    """Add to dY what Lemma 3 adds; returns whether V'V has an inverse.

    The gradient of a sequence of class n moves Y along v + m_n instead of v, with m_n = V A e_n, A = (V'V)^{-1} - I and
    the columns of V the directions of the classes for T -> infinity (`gradients.py`).  With X_n the sum of the
    residuals of class n, that adds sum_n v_n R_n', R = (V'V)^{-1} X - X: one more sequence for each class.
    """
    rows, size, heads, block = layer.rows, layer.size, switches.heads, len(switches.row_multiplicity)
    residuals, gram, column, v = switches.residuals, switches.gram, switches.column, switches.v
    dY, w, num_classes = scratch.dY, scratch.w, len(size)
    probs = switches.probs
    if bias.shape[1] > 0:
        probs = switches.biased_probs
        weigh_buckets(bias, switches.bucket_probs, switches.scale, probs)
    for n in range(num_classes):
        v[n] = 0.0
        for h in range(heads):
            square = rescale_to_present(z, layer.query[n] * heads + h, rows, n, size[n], probs, n, w, h)
            for i in range(size[n]):
                w[h, i] /= math.sqrt(square)
            if switches.centered or switches.residual:
                normalize(switches, n, h, size[n], w)
            if switches.centered:
                for row in range(h * block, (h + 1) * block):
                    v[n, row] -= switches.shape[h, SUM] / switches.num_tokens
            for i in range(size[n]):
                v[n, h * block + rows[n, i]] += w[h, i]
            if switches.residual:
                v[n, h * block + switches.own_row[n]] += w[h, w.shape[1] - 1]
    for n in range(num_classes):
        for m in range(n + 1):
            gram[n, m] = 0.0
            for row in range(len(dY)):
                gram[n, m] += switches.row_multiplicity[row % block] * v[n, row] * v[m, row]
    if not cholesky(gram, 1e-13 * heads):
        return False
    for j in range(residuals.shape[1]):
        column[:] = residuals[:, j]
        substitute(gram, column)
        for n in range(num_classes):
            change = (column[n] - residuals[n, j]) * layer.column_rate[j]
            for row in range(len(dY)):
                dY[row, j] += v[n, row] * change
    return True


# --- update rules ----------


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def step_sgd(momentum, rate, x, g, velocity):
    """v <- mu v + g, x <- x + eta v."""
    mu, eta = x.dtype.type(momentum), x.dtype.type(rate)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            velocity[i, j] = mu * velocity[i, j] + g[i, j]
            x[i, j] += eta * velocity[i, j]


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def squared_norm(g, rows, columns):
    """|g|^2 over the whole matrix; `rows` and `columns` are how many of it each stands for, and repeat."""
    total = 0.0
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            total += rows[i % len(rows)] * columns[j % len(columns)] * g[i, j] * g[i, j]
    return total


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def move(rule, t, rate, x, g, memory, rows, columns):
    """One step of a rule for the matrix x with the gradient g, both by entry; `rows` and `columns` as above."""
    kind = x.dtype.type
    velocity, square = memory
    if rule.kind == SGD:
        step_sgd(rule.momentum, rate, x, g, velocity)
    elif rule.kind == ADAM:
        first = kind(rate / (1.0 - rule.beta_1 ** (t + 1)))
        second = kind(1.0 / math.sqrt(1.0 - rule.beta_2 ** (t + 1)))
        b1, b2, epsilon = kind(rule.beta_1), kind(rule.beta_2), kind(rule.epsilon)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                velocity[i, j] = b1 * velocity[i, j] + (kind(1) - b1) * g[i, j]
                square[i, j] = b2 * square[i, j] + (kind(1) - b2) * g[i, j] * g[i, j]
                x[i, j] += first * velocity[i, j] / (kind(math.sqrt(square[i, j])) * second + epsilon)
    elif rule.kind == SIGN:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                if g[i, j] != 0:
                    x[i, j] += math.copysign(kind(rate), g[i, j])
    else:
        norm = squared_norm(g, rows, columns)
        if norm > 0:
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    x[i, j] += kind(rate / math.sqrt(norm)) * g[i, j]


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def decay(x, share, center):
    """Take a share of each entry's distance from the center of its column; one center is that of all columns."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] -= share * (x[i, j] - center[j % len(center)])


@njit(error_model="numpy", forceinline=True)
def clip_gradient(most, rows, columns, ones, scratch):
    """Shorten the gradient of all parameters together to the largest norm allowed."""
    total = squared_norm(scratch.dY, rows, columns) + squared_norm(scratch.dZ, ones, ones)
    total += squared_norm(scratch.db, ones, ones)
    if total > most**2:
        factor = ones.dtype.type(most / math.sqrt(total))
        for gradient in (scratch.dY, scratch.dZ, scratch.db):
            gradient *= factor


@njit(cache=True, nogil=True, error_model="numpy")
def advance(layer, switches, rule, state, r, batches, begin, rates_y, rates_z, update, losses, shares, scratch):
    """Take one update for each of the batches, from update `begin` on, or only measure them; releases the GIL."""
    y, z, bias = state.decoder[r], state.attention_logits[r], state.position_bias[r]
    decoder_memory = state.decoder_velocity[r], state.decoder_square[r]
    logits_memory = state.attention_logits_velocity[r], state.attention_logits_square[r]
    bias_memory = state.position_bias_velocity[r], state.position_bias_square[r]
    ones, zeros = np.ones(1, y.dtype), np.zeros(1, y.dtype)
    for s in range(len(batches.first)):
        t = begin + s
        losses[s] = np.nan
        shares[s] = np.nan
        if state.diverged[r] >= 0:
            continue
        clear(scratch.dY)
        clear(scratch.dZ)
        loss, correct = add_gradient(layer, switches, y, z, bias, batches, s, update, scratch)
        if not math.isfinite(loss):
            state.diverged[r] = t
            continue
        losses[s] = loss
        shares[s] = correct
        if not update:
            continue
        if switches is not None:
            if switches.modified and not add_modification(layer, switches, z, bias, scratch):
                state.singular[r] = t
                state.diverged[r] = t + 1
                continue
        eta_y, eta_z = rates_y[s], rates_z[s]
        if switches is None:
            step_sgd(rule.momentum, eta_y, y, scratch.dY, decoder_memory[0])
            step_sgd(rule.momentum, eta_z, z, scratch.dZ, logits_memory[0])
        else:
            rows, columns = switches.row_multiplicity, layer.multiplicity
            if rule.clip > 0:
                clip_gradient(rule.clip, rows, columns, ones, scratch)
            if rule.weight_decay > 0:
                decay(y, y.dtype.type(eta_y * rule.weight_decay), zeros)
                decay(z, y.dtype.type(eta_z * rule.weight_decay), layer.prior)
                decay(bias, y.dtype.type(eta_z * rule.weight_decay), zeros)
            move(rule, t, eta_y, y, scratch.dY, decoder_memory, rows, columns)
            move(rule, t, eta_z, z, scratch.dZ, logits_memory, ones, ones)
            move(rule, t, eta_z, bias, scratch.db, bias_memory, ones, ones)
            clear(scratch.db)


@njit(error_model="numpy", forceinline=True)
def clear(gradient):
    """Set a gradient to zero."""
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            gradient[i, j] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def gradients(layer, switches, batches, entries, z, bias, states, update, out, measures, scratch):
    """Fill out (n, N) with the gradients of the first batch at states (n, N), or only measure them; releases the GIL.

    A state is y, then the `entries` of z that it has, then a learned bias; the other entries of z (Q H, S) stay.
    measures (n, 3) are loss, accuracy, and whether the gradient exists: Lemma 3's may not.
    """
    (rows, columns), width, count = scratch.dY.shape, z.shape[1], len(entries)
    for n in range(len(states)):
        state, slopes = states[n], out[n]
        y = state[: rows * columns].reshape(rows, columns)
        for k in range(count):
            z[entries[k] // width, entries[k] % width] = state[rows * columns + k]
        bias[0] = state[rows * columns + count :]
        clear(scratch.dY)
        clear(scratch.dZ)
        clear(scratch.db)
        measures[n, 0], measures[n, 1] = add_gradient(layer, switches, y, z, bias, batches, 0, update, scratch)
        measures[n, 2] = 1.0
        if not update:
            continue
        if switches is not None:
            if switches.modified and not add_modification(layer, switches, z, bias, scratch):
                measures[n, 2] = 0.0
        slopes[: rows * columns].reshape(rows, columns)[:] = scratch.dY
        for k in range(count):
            slopes[rows * columns + k] = scratch.dZ[entries[k] // width, entries[k] % width]
        slopes[rows * columns + count :] = scratch.db[0]
