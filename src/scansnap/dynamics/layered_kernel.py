"""The gradient of several layers on the CPU, in compiled code: the forward and backward of `model/layered.py`.

A sequence with W distinct tokens has m = W + 1 rows of features x_i: those of its tokens, then that of its query.
Write X for the rows of the tokens and P_u = I - u u^T.  A layer goes forward by

    q_i = Z^T x_i,   c_i = softmax(X q_i + ln a),   u_i = LN(X^T c_i),   h_i = Y^T u_i,   x'_i = LN(x_i + phi(h_i))

and back, from dx'_i = dJ/dx'_i, with rho_i and |X^T c_i| the lengths that the two LN divide by, by

    de_i = P_x'_i dx'_i / rho_i,       dh_i = phi'(h_i) de_i,       du_i = P_u_i Y dh_i / |X^T c_i|,
    g_i = X du_i,                      ds_i = c_i (g_i - c_i . g_i),                  dq_i = X^T ds_i,
    dY += sum_i u_i dh_i^T,            dZ += sum_i x_i dq_i^T,
    dx_i = de_i + Z dq_i,              and for the tokens besides    dX += sum_i (c_i du_i^T + ds_i q_i^T).

The last layer is the same with the query as its only row i, the logits for h, and the weighted residual e_n - p for dh.
In the first layer x_l = e_l, so X q_i is read from Z, u_i = f_i = c_i / |c_i|_2 lives on the W tokens,
h_i = sum_l f_il Y_l, and with g_il = Y_l . dh_i

    dY_l += f_il dh_i,                 dZ_il += f_il (g_il - f_il sum_l' f_il' g_il')                  (Lemma 1).

A token that does not occur has c_il = 0 in every row, and nothing of its own reaches the output or comes back.

Operations
----------
Multiply-adds per sequence are 3 m W N in the first layer; 6 m N^2 + 6 m W N in a layer between; and 3 N^2 + 3 N C +
6 W N in the last, whose products are taken for eight sequences at once so that Z and Y are read once for all of them.
A sequence's rows stay in the cache from its forward to its backward pass.  Where a product needs the transpose of a
matrix, it was transposed once: for the update, for the class, or for the sequence.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.base.source_stamp import source_stamp
from scansnap.dynamics.kernel import _residual
from scansnap.dynamics.kernel_math import FAST
from scansnap.dynamics.layered_math import (
    TILE,
    activate,
    add_direction_gradient,
    add_one_hot,
    add_rows,
    add_transposed_product,
    clear_row,
    copy_row,
    divide_row,
    inner,
    multiply_rows,
    normalize_gradient,
    product,
    scale_row,
    slope,
    softmax_gradient,
    sum_rows,
    to_unit,
    transpose,
    two_outer_products,
    weigh,
)

GROUP = TILE
"""Sequences whose last layer is computed together."""

_jit = njit(fastmath=FAST, error_model="numpy", forceinline=True)  # `kernel_math` says why always inlined


class LayeredPlan(NamedTuple):
    """What does not change during training."""

    size: NDArray[np.int32]  # (K,) tokens of each class
    tokens: NDArray[np.int32]  # (K, W') their coordinates, padded with a coordinate that nothing has
    query: NDArray[np.int64]  # (K,) the coordinate of each class's query
    next_column: NDArray[np.int64]  # (K,)
    multiplicity: NDArray[np.floating]  # (1, C)
    num_columns: int  # C without padding
    each: NDArray[np.int32]  # (1, max(N', C)) 0, 1, 2, ...: all rows of a matrix, as a list
    smooth: bool  # tanh, not ReLU


class LayeredMatrices(NamedTuple):
    """Y and Z of all layers, or the gradients by them; N' is N padded to whole vectors, with at least one to spare."""

    attention: NDArray[np.floating]  # (R, L N', N') Z, layer after layer
    hidden: NDArray[np.floating]  # (R, (L - 1) N', N') Y of the layers below the last
    decoder: NDArray[np.floating]  # (R, N', C) Y of the last


class LayeredBatch(NamedTuple):
    """The sequences of an update."""

    class_index: NDArray[np.int64]  # (R, B)
    counts: NDArray[np.floating]  # (R, B, S) of every contextual token, by coordinate
    weights: NDArray[np.floating]  # (R, B) of each sequence in the loss; those of weight 0 are passed over


class Scratch(NamedTuple):
    """What one thread needs besides.

    A block is the m rows of a sequence, in whole tiles.  There is one for each sequence of a group, and again for each
    layer where the backward pass needs a value; the last layer keeps one row per sequence, in consecutive rows.
    """

    counts: NDArray[np.floating]  # (GROUP, W') a_l of each sequence
    absent: NDArray[np.floating]  # (GROUP, W') 0 where a_l > 0, else -inf
    boost: NDArray[np.floating]  # (one block, W') exp(Z_il) of a class, relative to the largest of each row
    pull: NDArray[np.floating]  # (one block, W') dZ_il of a class
    x: NDArray[np.floating]  # (L blocks, N') features that enter each layer
    q: NDArray[np.floating]  # (L blocks, N')
    c: NDArray[np.floating]  # (L blocks, W'); f in the first layer
    u: NDArray[np.floating]  # (L blocks, N')
    t: NDArray[np.floating]  # (L blocks, N') phi(h), then dh
    shrink: NDArray[np.floating]  # (L blocks, 2) 1 / |X^T c_i| and 1 / rho_i
    logits: NDArray[np.floating]  # (GROUP, C), then the weighted residuals
    dx: NDArray[np.floating]  # (blocks, N')
    du: NDArray[np.floating]  # (one block, N')
    ds: NDArray[np.floating]  # (one block, W')
    dq: NDArray[np.floating]  # (one block, N')
    own: NDArray[np.floating]  # (GROUP, N') x of the queries in the last layer, then Z dq
    features: NDArray[np.floating]  # (N', W') X^T of a sequence
    rows: NDArray[np.floating]  # (N', W') the first layer's Y of a class's tokens, transposed
    attention: NDArray[np.floating]  # (L N', N') Z^T of each layer
    hidden: NDArray[np.floating]  # (L N', N') Y^T of each layer below the last
    decoder: NDArray[np.floating]  # (C, N') Y^T of the last


def make_scratch(plan: LayeredPlan, layers: int, features: int) -> Scratch:
    """Room for one thread, where N' = `features`."""
    width, columns = plan.tokens.shape[1], plan.multiplicity.shape[1]
    height = (int(plan.size.max()) // TILE + 1) * TILE  # whole tiles that hold W + 1 rows
    blocks = GROUP * height

    def room(rows: int, entries: int) -> NDArray[np.floating]:
        return np.zeros((rows, entries), plan.multiplicity.dtype)

    return Scratch(
        counts=room(GROUP, width),
        absent=room(GROUP, width),
        boost=room(height, width),
        pull=room(height, width),
        x=room(layers * blocks, features),
        q=room(layers * blocks, features),
        c=room(layers * blocks, width),
        u=room(layers * blocks, features),
        t=room(layers * blocks, features),
        shrink=room(layers * blocks, 2),
        logits=room(GROUP, columns),
        dx=room(blocks, features),
        du=room(height, features),
        ds=room(height, width),
        dq=room(height, features),
        own=room(GROUP, features),
        features=room(features, width),
        rows=room(features, width),
        attention=room(layers * features, features),
        hidden=room(layers * features, features),
        decoder=room(columns, features),
    )


@_jit
def _coordinate(plan, n, i):
    """The coordinate of row i of a sequence of class n: that of a token, or of the query, which comes last."""
    return plan.tokens[n, i] if i < plan.size[n] else plan.query[n]


@_jit
def _boost(plan, z, n, room):
    """exp(Z_il) for the rows of class n, which its sequences share."""
    size = plan.size[n]
    for i in range(size + 1):
        token = _coordinate(plan, n, i)
        top = room.boost.dtype.type(-np.inf)
        for w in range(size):
            top = max(top, z[token, plan.tokens[n, w]])
        for w in range(size):
            room.boost[i, w] = math.exp(z[token, plan.tokens[n, w]] - top)
        for w in range(size, room.boost.shape[1]):
            room.boost[i, w] = 0


@_jit
def _first_layer(plan, z, y, n, s, room, at, above):
    """Features of a sequence after the first layer, in rows `above` on of x; its other values are in rows `at` on.

    If every token that is present is negligible beside one that is absent, those present are compared with each other.
    """
    size = plan.size[n]
    for i in range(size + 1):
        square = multiply_rows(room.boost, i, room.counts, s, room.c, at + i)
        if square < 1e-20:
            clear_row(room.c, at + i)
            for w in range(size):
                room.c[at + i, w] = z[_coordinate(plan, n, i), plan.tokens[n, w]]
            weigh(room.c, at + i, room.absent, room.counts, s)
            square = inner(room.c, at + i, room.c, at + i)
        divide_row(room.c, at + i, math.sqrt(square))
    product(room.c, at, size + 1, y, 0, plan.tokens, n, size, room.t, at)
    for i in range(size + 1):
        activate(room.t, at + i, plan.smooth)
        square = add_one_hot(room.t, at + i, _coordinate(plan, n, i), room.x, above + i)
        room.shrink[at + i, 1] = to_unit(room.x, above + i, square)


@_jit
def _first_layer_back(plan, n, room, at, dy):
    """Add the first layer's gradients, that by Z to `pull`, given dh in t and the class's rows of Y, transposed."""
    size = plan.size[n]
    add_transposed_product(room.c, at, size + 1, room.t, at, dy, 0, plan.tokens, n, size)
    product(room.t, at, size + 1, room.rows, 0, plan.each, 0, room.rows.shape[0], room.ds, 0)  # g
    for i in range(size + 1):
        add_direction_gradient(room.c, at + i, room.ds, i, room.pull, i)


@_jit
def _change_class(plan, before, n, y, room, dz):
    """Add what the sequences of class `before` pull to dZ, and prepare for those of class n; -1 is none."""
    for i in range(plan.size[before] + 1 if before >= 0 else 0):
        for w in range(plan.size[before]):
            dz[_coordinate(plan, before, i), plan.tokens[before, w]] += room.pull[i, w]
    if n >= 0:
        transpose(y, 0, plan.tokens, n, plan.size[n], room.rows, 0)
        for i in range(room.pull.shape[0]):
            clear_row(room.pull, i)


@_jit
def _layer_between(plan, z, y, first, n, s, room, at, above):
    """The same for a layer between the first and the last; its matrices begin at row `first` of z and y."""
    size, features = plan.size[n], room.x.shape[1]
    product(room.x, at, size + 1, z, first, plan.each, 0, features, room.q, at)
    transpose(room.x, at, plan.each, 0, size, room.features, 0)
    product(room.q, at, size + 1, room.features, 0, plan.each, 0, features, room.c, at)
    for i in range(size + 1):
        divide_row(room.c, at + i, weigh(room.c, at + i, room.absent, room.counts, s))
    product(room.c, at, size + 1, room.x, at, plan.each, 0, size, room.u, at)
    for i in range(size + 1):
        room.shrink[at + i, 0] = to_unit(room.u, at + i, inner(room.u, at + i, room.u, at + i))
    product(room.u, at, size + 1, y, first, plan.each, 0, features, room.t, at)
    for i in range(size + 1):
        activate(room.t, at + i, plan.smooth)
        square = add_rows(room.t, at + i, room.x, at + i, room.x, above + i)
        room.shrink[at + i, 1] = to_unit(room.x, above + i, square)


@_jit
def _layer_between_back(plan, first, n, room, at, block, dz, dy):
    """Add the gradients of such a layer, given dh in t and de in dx, which becomes the gradient by its own features."""
    size, features = plan.size[n], room.x.shape[1]
    add_transposed_product(room.u, at, size + 1, room.t, at, dy, first, plan.each, 0, features)
    product(room.t, at, size + 1, room.hidden, first, plan.each, 0, features, room.du, 0)
    for i in range(size + 1):
        normalize_gradient(room.u, at + i, room.shrink[at + i, 0], room.du, i)
    transpose(room.x, at, plan.each, 0, size, room.features, 0)
    product(room.du, 0, size + 1, room.features, 0, plan.each, 0, features, room.ds, 0)
    for i in range(size + 1):
        softmax_gradient(room.c, at + i, room.ds, i)
    add_transposed_product(room.c, at, size + 1, room.du, 0, room.dx, block, plan.each, 0, size)
    add_transposed_product(room.ds, 0, size + 1, room.q, at, room.dx, block, plan.each, 0, size)
    product(room.ds, 0, size + 1, room.x, at, plan.each, 0, size, room.dq, 0)
    add_transposed_product(room.x, at, size + 1, room.dq, 0, dz, first, plan.each, 0, features)
    product(room.dq, 0, size + 1, room.attention, first, plan.each, 0, features, room.du, 0)
    for i in range(size + 1):
        add_rows(room.dx, block + i, room.du, i, room.dx, block + i)


@_jit
def _last_layer(plan, z, y, first, classes, order, begin, count, room, at, height):
    """Logits of a group of sequences."""
    for s in range(count):
        copy_row(room.x, at + s * height + plan.size[classes[order[begin + s]]], room.own, s)
    product(room.own, 0, GROUP, z, first, plan.each, 0, room.x.shape[1], room.q, at)
    for s in range(count):
        size = plan.size[classes[order[begin + s]]]
        clear_row(room.c, at + s)
        for w in range(size):
            room.c[at + s, w] = inner(room.q, at + s, room.x, at + s * height + w)
        divide_row(room.c, at + s, weigh(room.c, at + s, room.absent, room.counts, s))
        sum_rows(room.c, at + s, size, room.x, at + s * height, room.u, at + s)
        room.shrink[at + s, 0] = to_unit(room.u, at + s, inner(room.u, at + s, room.u, at + s))
    product(room.u, at, GROUP, y, 0, plan.each, 0, room.x.shape[1], room.logits, 0)


@_jit
def _last_layer_back(plan, first, classes, order, begin, count, room, at, height, dz, dy):
    """Add its gradients, given the weighted residuals; the gradient by its features is in dx."""
    features = room.x.shape[1]
    add_transposed_product(room.u, at, count, room.logits, 0, dy, 0, plan.each, 0, features)
    product(room.logits, 0, GROUP, room.decoder, 0, plan.each, 0, room.decoder.shape[0], room.du, 0)
    for s in range(count):
        size, block = plan.size[classes[order[begin + s]]], s * height
        normalize_gradient(room.u, at + s, room.shrink[at + s, 0], room.du, s)
        clear_row(room.ds, s)
        for w in range(size):
            room.ds[s, w] = inner(room.du, s, room.x, at + block + w)
        softmax_gradient(room.c, at + s, room.ds, s)
        sum_rows(room.ds, s, size, room.x, at + block, room.dq, s)
        two_outer_products(room.c, at + s, room.du, s, room.ds, s, room.q, at + s, size, room.dx, block)
    add_transposed_product(room.own, 0, count, room.dq, 0, dz, first, plan.each, 0, features)
    product(room.dq, 0, GROUP, room.attention, first, plan.each, 0, features, room.own, 0)
    for s in range(count):
        copy_row(room.own, s, room.dx, s * height + plan.size[classes[order[begin + s]]])


@_jit
def _see(plan, n, room, at, height, blocks, top, s, seen):
    """The attention of every layer as the output sees it (`model/layered.py`), from the last one down."""
    size = plan.size[n]
    for w in range(size):
        seen[top, w] = room.c[at + s, w]
    for j in range(top - 1, -1, -1):
        for i in range(size):
            row = j * blocks + s * height + i
            mass = room.c.dtype.type(0)
            for w in range(size):
                mass += room.c[row, w]  # of the first layer's f; 1 elsewhere
            for w in range(size):
                seen[j, w] += seen[j + 1, i] * room.c[row, w] / mass


@_jit
def _by_class(classes, weights, num_classes):
    """The sequences that have a weight, in order of class."""
    first = np.zeros(num_classes + 1, np.int64)
    for b in range(classes.shape[0]):
        if weights[b] != 0:
            first[classes[b] + 1] += 1
    for n in range(num_classes):
        first[n + 1] += first[n]
    order = np.empty(first[num_classes], np.int64)
    for b in range(classes.shape[0]):
        if weights[b] != 0:
            order[first[classes[b]]] = b
            first[classes[b]] += 1
    return order


def _compile(stamp: int):
    """The function cached on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
    def layered_gradients(plan, matrices, batch, runs, layers, learn, room, gradient, losses, accuracies, seen):
        """Losses and accuracies (R,) of these runs, without holding Python's lock.

        If `learn`, the gradient of J by each matrix is written to `gradient`.  If `seen` (R, B, L, W') has runs, the
        attention of every layer at the sequence's tokens is added to it.
        """
        if stamp < 0:
            return
        features, top = room.x.shape[1], layers - 1
        height = room.du.shape[0]
        blocks = GROUP * height
        at = top * blocks
        for r in runs:
            z, y, last = matrices.attention[r], matrices.hidden[r], matrices.decoder[r]
            dz, dy, d_last = gradient.attention[r], gradient.hidden[r], gradient.decoder[r]
            if learn:
                dz[:] = 0
                dy[:] = 0
                d_last[:] = 0
                for j in range(1 if top > 0 else 0, layers):
                    transpose(z, j * features, plan.each, 0, features, room.attention, j * features)
                for j in range(1, top):
                    transpose(y, j * features, plan.each, 0, features, room.hidden, j * features)
                transpose(last, 0, plan.each, 0, features, room.decoder, 0)
            classes, weights = batch.class_index[r], batch.weights[r]
            order = _by_class(classes, weights, plan.size.shape[0])
            loss, correct = 0.0, 0.0
            boosted, turned = -1, -1  # the classes that `boost` and `rows` are of
            for begin in range(0, order.shape[0], GROUP):
                count = min(GROUP, order.shape[0] - begin)
                for s in range(count):
                    b = order[begin + s]
                    n, block = classes[b], s * height
                    for w in range(room.counts.shape[1]):
                        room.counts[s, w] = batch.counts[r, b, plan.tokens[n, w]] if w < plan.size[n] else 0
                        room.absent[s, w] = 0 if room.counts[s, w] > 0 else -np.inf
                    if top == 0:
                        for i in range(plan.size[n] + 1):
                            clear_row(room.x, block + i)
                            room.x[block + i, _coordinate(plan, n, i)] = 1
                    else:
                        if n != boosted:
                            _boost(plan, z, n, room)
                            boosted = n
                        _first_layer(plan, z, y, n, s, room, block, blocks + block)
                    for j in range(1, top):
                        here = j * blocks + block
                        _layer_between(plan, z, y, j * features, n, s, room, here, here + blocks)
                _last_layer(plan, z, last, top * features, classes, order, begin, count, room, at, height)
                for s in range(count):
                    b = order[begin + s]
                    scale, _, far, odds, hit = _residual(
                        room.logits, s, plan.next_column[classes[b]], plan.multiplicity, plan.num_columns
                    )
                    scale_row(room.logits, s, room.logits.dtype.type(weights[b]) * scale)
                    loss += weights[b] * (far + math.log1p(odds))
                    correct += weights[b] * hit
                    if seen.shape[0] > 0:
                        _see(plan, classes[b], room, at, height, blocks, top, s, seen[r, b])
                if not learn:
                    continue
                _last_layer_back(plan, top * features, classes, order, begin, count, room, at, height, dz, d_last)
                if top == 0:
                    continue
                for s in range(count):
                    n, block = classes[order[begin + s]], s * height
                    for j in range(top - 1, -1, -1):
                        here = j * blocks + block
                        for i in range(plan.size[n] + 1):
                            normalize_gradient(room.x, here + blocks + i, room.shrink[here + i, 1], room.dx, block + i)
                            slope(room.t, here + i, room.dx, block + i, plan.smooth)
                        if j > 0:
                            _layer_between_back(plan, j * features, n, room, here, block, dz, dy)
                    if n != turned:
                        _change_class(plan, turned, n, y, room, dz)
                        turned = n
                    _first_layer_back(plan, n, room, block, dy)
            _change_class(plan, turned, -1, y, room, dz)
            losses[r] = loss
            accuracies[r] = correct

    return layered_gradients


layered_gradients = _compile(source_stamp(__name__))
