"""From attention logits to what the decoder reads, and the gradient back, for sequences of one class: compiled.

This is `readout.py` in the fewest numbers.  Subtracting the mean makes a direction v dense, but only by a constant.
With 1 the vector of ones over all M tokens,

    u = c^ - mean(c^) 1,              c^ = c / |c - mean c|                         (no means for the l2 kind)
    v = u,  or  v = (u + e_m - (1/M) 1) / L  with  L = |u + e_m - (1/M) 1|          (with the residual connection)

so v = w - mean(w) 1, where w = c^/L has entries for the tokens of the class and, with the residual connection, 1/L more
for its query.  With S the sum of all rows of Y, the decoder reads

    logits = sum_l v_l Y_l = sum_l w_l Y_l - (sum_l w_l) S/M = sum_l w_l Y_l + w_0 Y_0,
    Y_0 = S/sqrt(M),      w_0 = -(sum_l w_l)/sqrt(M),

one more row.  Each row of Y moves by (w_l - mean w) x.  Let Y = Y^ - (1/M) 1 (S - S(0))^T, where Y^_l moves by w_l x
alone: then S, the sum of the rows of Y^, moves by (sum_l w_l) x, Y by what it should, and since the v of every
sequence sum to zero, Y^ is read like Y.  So the kernel trains Y^, whose rows idle unless a class has them, and Y_0
moves by -w_0 x, against its gradient.

A class reads for each head the rows in its *slots*: those of its tokens, then that of its query with the residual
connection, then Y_0 where means are subtracted.  If the query is one of the tokens, its row is in two slots.

Backward, with g_l = Y_l . x of the residual x, h = Y_0 . x/sqrt(M) its mean over all tokens, a = v . g = logits . x,
c^-mean = mean(c^), u_m = u's entry for the query, and 1/M read as 0 for the l2 kind:

    dz_l = c^_l (g_l - h - u_l a)                                                   (no residual connection)
    dz_l = c^_l ((g_l - h - v_l a)/L - u_l k),
    k = u . (g - h - v a)/L = (L a - (g_m - h) - (1 + u_m) a/L)/L,

for u = L v - e_m + (1/M) 1 and u . v = (1 + u_m)/L.  In terms of w both are

    dz_l = w_l g_l - w_l^2 square - w_l linear - [l = m] w_l own

    square = a,              linear = h - c^-mean a,                                  own = 0      (no residual)
    square = a + L^2 k,      linear = h - (c^-mean + 1/M) a/L - c^-mean L k,          own = a/L

and the basic setting has square = a alone.  `training.py` explains why g_l need not be formed for each sequence.
"""

from __future__ import annotations

import math

import numpy as np

from scansnap.dynamics.compiled.lanes import (
    add,
    divide,
    first_lanes,
    load,
    load_columns,
    multiply,
    multiply_add,
    spread,
    square_root,
    store,
    store_each,
    subtract,
    zero_unless_above,
)
from scansnap.dynamics.compiled.loops import hot, inner_product, largest, rare, scaled_exp
from scansnap.dynamics.compiled.plan import ENTRY, GROUP, LENGTH, MEAN, ROWS, SCALE
from scansnap.runtime.inner_function import GENERAL

SQUARE, LINEAR, OWN = range(3)
"""Rows of `bends` for each head; there are as many as of `shape`."""


@hot
def class_boost(plan, scratch, z, n):
    """exp(z) of the tokens of class n relative to the largest, one row for each head."""
    size, boost = plan.size[n], scratch.boost
    for head in range(plan.heads):
        q = plan.query_index[n] * plan.heads + head
        for w in range(size):
            boost[head, w] = z[q, plan.support[n, w]]
        for w in range(size, boost.shape[1]):
            boost[head, w] = -np.inf
        scaled_exp(boost, head, largest(boost, head), scratch.ones)


@hot
def directions(plan, scratch, z, n, head, weights, s, begin, count):
    """w of the sequences from `begin` of weights[s], in the slots of a head; columns of f from `count` on are 0."""
    _attention(plan, scratch, z, n, head, weights, s, begin, count)
    if GENERAL and (plan.residual or plan.num_tokens > 0):
        _normalize(plan, scratch, n, head, count)


@hot
def _attention(plan, scratch, z, n, head, weights, s, begin, count):
    """f_i = c / |c|_2 with c_w = weight_w exp(z_qw) (Eq. 5).

    `boost` is exp(z) relative to the class's largest logit.  If every token that is present is negligible beside one
    that is absent, the logits of those present are compared with each other instead.
    """
    kind = z.dtype.type
    size, boost, f, first = plan.size[n], scratch.boost, scratch.f, head * plan.slots.shape[1]
    squares = spread(kind(0), load(f, first, 0, GROUP))
    present, none = first_lanes(count, squares), squares
    for w in range(0, size, GROUP):  # whole vectors; what lies beyond the class is overwritten, or never read
        store_each(f, first + w, 0, load_columns(weights, s, begin, w, GROUP))
    for w in range(size):
        part = multiply(load(f, first + w, 0, GROUP), spread(boost[head, w], squares))
        squares = multiply_add(part, part, squares)
        store(f, first + w, 0, part)
    scale = zero_unless_above(present, none, divide(spread(kind(1), squares), square_root(squares)))
    for w in range(size):
        store(f, first + w, 0, multiply(load(f, first + w, 0, GROUP), scale))
    store(scratch.shape, ROWS * head + SCALE, 0, squares)  # until `_normalize` has its own numbers there
    for i in range(count):
        if scratch.shape[ROWS * head + SCALE, i] < kind(1e-20):
            _attention_to_present(plan, scratch, z, n, head, weights, s, begin, i)


@rare
def _attention_to_present(plan, scratch, z, n, head, weights, s, begin, i):
    """The same for sequence begin + i, with the logits of tokens that are present compared with each other."""
    kind = z.dtype.type
    size, f, first = plan.size[n], scratch.f, head * plan.slots.shape[1]
    q = plan.query_index[n] * plan.heads + head
    top = kind(-np.inf)
    for w in range(size):
        if weights[s, begin + i, w] > 0:
            logit = z[q, plan.support[n, w]]
            top = logit if logit > top else top
    square = kind(0)
    for w in range(size):
        present = weights[s, begin + i, w] > 0
        f[first + w, i] = weights[s, begin + i, w] * math.exp(z[q, plan.support[n, w]] - top) if present else kind(0)
        square += f[first + w, i] * f[first + w, i]
    scale = kind(1) / kind(math.sqrt(square))
    for w in range(size):
        f[first + w, i] *= scale


@hot
def _normalize(plan, scratch, n, head, count):
    """c/|c|_2 -> w, with the further slots."""
    f, shape, row = scratch.f, scratch.shape, ROWS * head
    kind = f.dtype.type
    size, own, first = plan.size[n], plan.own[n], head * plan.slots.shape[1]
    sums = squares = spread(kind(0), load(f, first, 0, GROUP))
    if plan.num_tokens > 0:
        for w in range(size):
            sums = add(sums, load(f, first + w, 0, GROUP))
        means = multiply(sums, spread(kind(1.0 / plan.num_tokens), sums))
        squares = multiply(multiply(means, means), spread(kind(plan.num_tokens - size), means))
        for w in range(size):
            centered = subtract(load(f, first + w, 0, GROUP), means)
            squares = multiply_add(centered, centered, squares)
    store(shape, row + MEAN, 0, sums)
    store(shape, row + SCALE, 0, squares)
    for i in range(count):
        shrink, length, mean, total = kind(1), kind(1), kind(0), kind(0)
        if plan.num_tokens > 0:
            shrink = kind(1) / kind(math.sqrt(shape[row + SCALE, i]))
            total = shape[row + MEAN, i] * shrink
            mean = total / kind(plan.num_tokens)
        entry = (f[first + own, i] * shrink if own >= 0 else kind(0)) - mean
        if plan.residual:
            length = kind(math.sqrt(kind(2) + kind(2) * entry - _share(plan, kind)))
            f[first + size, i] = kind(1) / length
            total = (total + kind(1)) / length
        if plan.num_tokens > 0:
            f[first + size + int(plan.residual), i] = -total / kind(math.sqrt(plan.num_tokens))
        shape[row + MEAN, i] = mean
        shape[row + LENGTH, i] = length
        shape[row + ENTRY, i] = entry
        shape[row + SCALE, i] = shrink / length
    for i in range(count, GROUP):
        shape[row + SCALE, i] = 0
        for w in range(size, size + further_slots(plan)):
            f[first + w, i] = 0
    scale = load(shape, row + SCALE, 0, GROUP)
    for w in range(size):
        store(f, first + w, 0, multiply(load(f, first + w, 0, GROUP), scale))


@hot
def further_slots(plan):
    """Slots of a class and head besides those of its tokens."""
    return int(plan.residual) + int(plan.num_tokens > 0) if GENERAL else 0


@hot
def _share(plan, kind):
    """1/M, or 0 for the l2 kind."""
    return kind(1.0 / plan.num_tokens) if plan.num_tokens > 0 else kind(0)


@rare
def bends_of(plan, scratch, y, n, head, count):
    """square, linear and own of each sequence, from its residual and its part of the logits."""
    kind = y.dtype.type
    x, factor, shape, bends = scratch.logits, scratch.factor, scratch.shape, scratch.bends
    k, size, row = n * plan.heads + head, plan.size[n], ROWS * head
    for i in range(count):
        scale, a = factor[0, i], factor[1, i]
        if plan.heads > 1:
            a = scale * inner_product(scratch.parts, head * GROUP + i, x, i)
        mean, length, entry = shape[row + MEAN, i], shape[row + LENGTH, i], shape[row + ENTRY, i]
        h = kind(0)
        if plan.num_tokens > 0:
            center = plan.slots[k, size + int(plan.residual)]
            h = scale * inner_product(y, center, x, i) / kind(math.sqrt(plan.num_tokens))
        bends[row + SQUARE, i] = a
        bends[row + LINEAR, i] = h - mean * a
        bends[row + OWN, i] = kind(0)
        if plan.residual:
            g_own = scale * inner_product(y, plan.slots[k, size], x, i) - h
            along = (length * a - g_own - (kind(1) + entry) * a / length) / length
            bends[row + SQUARE, i] = a + length * length * along
            bends[row + LINEAR, i] = h - (mean + _share(plan, kind)) * a / length - mean * length * along
            bends[row + OWN, i] = a / length
    for i in range(count, GROUP):
        for k in range(ROWS):
            bends[row + k, i] = 0


@rare
def mark_moving(plan, scratch, n, weights, layer, begin, end):
    """Mark the tokens of class n that stand beside another one in some sequence: only these have a gradient.

    A token alone has all the attention, whatever its logit.  The difference of two sums that should then be 0 is their
    rounding, which a rule that ignores the size of a gradient would follow.
    """
    for w in range(plan.size[n]):
        scratch.moves[w] = False
    for b in range(begin, end):
        if not _is_alone(plan, n, weights, layer, b):
            for w in range(plan.size[n]):
                if weights[layer, b, w] > 0:
                    scratch.moves[w] = True


@rare
def _is_alone(plan, n, weights, layer, b):
    """Whether sequence b has only one token of class n."""
    present = 0
    for w in range(plan.size[n]):
        present += 1 if weights[layer, b, w] > 0 else 0
    return present < 2
