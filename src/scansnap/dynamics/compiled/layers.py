"""The gradient of several layers on the CPU, in compiled code: the forward and backward of `systems/yz/layered.py`.

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
6 W N in the last.  Eight sequences at a time go forward and back, so that a matrix is read once for all of them while
their rows stay in the cache.  Where a product needs the transpose of a matrix, it was transposed once: for the update,
for the class, or for the sequence.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.dynamics.compiled.layer_loops import (
    REORDERED,
    TILE,
    activate,
    add_direction_gradient,
    add_one_hot,
    add_rows,
    add_transposed_product,
    clear_row,
    copy_row,
    divide_row,
    jit,
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
from scansnap.dynamics.compiled.loops import exclude, inner_product, softmax_residual
from scansnap.runtime.source_stamp import source_stamp

GROUP = TILE
"""Sequences whose last layer is computed together."""


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

    The rows of a group's sequences follow each other; where the backward pass needs a value of every layer, so do the
    layers, each with room for G rows.  The last layer keeps one row per sequence, in consecutive rows.
    """

    kind: NDArray[np.int64]  # (GROUP,) the class of each sequence
    start: NDArray[np.int64]  # (GROUP + 1,) its first row
    counts: NDArray[np.floating]  # (GROUP, W') a_l
    absent: NDArray[np.floating]  # (GROUP, W') 0 where a_l > 0, else -inf
    x: NDArray[np.floating]  # (L G, N') features that enter each layer
    q: NDArray[np.floating]  # (L G, N')
    c: NDArray[np.floating]  # (L G, W'); f in the first layer
    u: NDArray[np.floating]  # (L G, N')
    t: NDArray[np.floating]  # (L G, N') phi(h), then dh
    shrink: NDArray[np.floating]  # (L G, 2) 1 / |X^T c_i| and 1 / rho_i
    logits: NDArray[np.floating]  # (GROUP, C), then the weighted residuals
    dx: NDArray[np.floating]  # (G, N')
    du: NDArray[np.floating]  # (G, N')
    ds: NDArray[np.floating]  # (G, W')
    dq: NDArray[np.floating]  # (G, N')
    own: NDArray[np.floating]  # (GROUP, N') x of the queries in the last layer, then Z dq
    boost: NDArray[np.floating]  # (G, W') exp(Z_il) of a class in the first layer, relative to the largest of each row
    pull: NDArray[np.floating]  # (G, W') dZ_il of a class in the first layer
    rows: NDArray[np.floating]  # (N', W') the first layer's Y of a class's tokens, transposed
    features: NDArray[np.floating]  # (N', W') X^T of a sequence
    attention: NDArray[np.floating]  # (L N', N') Z^T of each layer
    hidden: NDArray[np.floating]  # (L N', N') Y^T of each layer below the last
    decoder: NDArray[np.floating]  # (C, N') Y^T of the last


def make_scratch(plan: LayeredPlan, layers: int, features: int) -> Scratch:
    """Room for one thread, where N' = `features`."""
    width, columns = plan.tokens.shape[1], plan.multiplicity.shape[1]
    rows = GROUP * (int(plan.size.max()) + 1) + TILE  # the last tile may reach past the last row

    def room(rows: int, entries: int) -> NDArray[np.floating]:
        return np.zeros((rows, entries), plan.multiplicity.dtype)

    return Scratch(
        kind=np.zeros(GROUP, np.int64),
        start=np.zeros(GROUP + 1, np.int64),
        counts=room(GROUP, width),
        absent=room(GROUP, width),
        x=room(layers * rows, features),
        q=room(layers * rows, features),
        c=room(layers * rows, width),
        u=room(layers * rows, features),
        t=room(layers * rows, features),
        shrink=room(layers * rows, 2),
        logits=room(GROUP, columns),
        dx=room(rows, features),
        du=room(rows, features),
        ds=room(rows, width),
        dq=room(rows, features),
        own=room(GROUP, features),
        boost=room(rows, width),
        pull=room(rows, width),
        rows=room(features, width),
        features=room(features, width),
        attention=room(layers * features, features),
        hidden=room(layers * features, features),
        decoder=room(columns, features),
    )


@jit
def _coordinate(plan, n, i):
    """The coordinate of row i of a sequence of class n: that of a token, or of the query, which comes last."""
    return plan.tokens[n, i] if i < plan.size[n] else plan.query[n]


@jit
def _load_group(plan, batch, r, order, begin, room):
    """Take up to GROUP sequences from `begin` on; returns how many."""
    count = min(GROUP, order.shape[0] - begin)
    for s in range(count):
        b = order[begin + s]
        n = batch.class_index[r, b]
        room.kind[s] = n
        room.start[s + 1] = room.start[s] + plan.size[n] + 1
        for w in range(room.counts.shape[1]):
            room.counts[s, w] = batch.counts[r, b, plan.tokens[n, w]] if w < plan.size[n] else 0
            room.absent[s, w] = 0 if room.counts[s, w] > 0 else -np.inf
    return count


@jit
def _same_class(room, s, count):
    """The end of the sequences from s on that are of one class."""
    end = s
    while end < count and room.kind[end] == room.kind[s]:
        end += 1
    return end


@jit
def _one_hot(plan, room, count):
    """The features of tokens, as rows: what a single layer reads."""
    for s in range(count):
        for i in range(room.start[s + 1] - room.start[s]):
            clear_row(room.x, room.start[s] + i)
            room.x[room.start[s] + i, _coordinate(plan, room.kind[s], i)] = 1


@jit
def _boost(plan, z, n, room):
    """exp(Z_il) for the rows of class n, which its sequences share."""
    size = plan.size[n]
    for i in range(size + 1):
        token = _coordinate(plan, n, i)
        top = room.boost.dtype.type(-np.inf)
        for w in range(size):
            top = max(top, z[token, plan.tokens[n, w]])
        clear_row(room.boost, i)
        for w in range(size):
            room.boost[i, w] = math.exp(z[token, plan.tokens[n, w]] - top)


@jit
def _first_layer(plan, z, y, s, end, room, above):
    """Features of the sequences s .. end-1 of one class after the first layer, in rows `above` on of x.

    If every token that is present is negligible beside one that is absent, those present are compared with each other.
    """
    n, first, stop = room.kind[s], room.start[s], room.start[end]
    size = plan.size[n]
    for row in range(first, stop):
        i, sequence = (row - first) % (size + 1), s + (row - first) // (size + 1)
        square = multiply_rows(room.boost, i, room.counts, sequence, room.c, row)
        if square < 1e-20:
            clear_row(room.c, row)
            for w in range(size):
                room.c[row, w] = z[_coordinate(plan, n, i), plan.tokens[n, w]]
            weigh(room.c, row, room.absent, room.counts, sequence)
            square = inner_product(room.c, row, room.c, row)
        divide_row(room.c, row, math.sqrt(square))
    product(room.c, first, stop - first, y, 0, plan.tokens, n, size, room.t, first)
    for row in range(first, stop):
        activate(room.t, row, plan.smooth)
        square = add_one_hot(room.t, row, _coordinate(plan, n, (row - first) % (size + 1)), room.x, above + row)
        room.shrink[row, 1] = to_unit(room.x, above + row, square)


@jit
def _first_layer_back(plan, s, end, room, dy):
    """Add the gradients of these sequences, that by Z to `pull`, given dh in t and the transposed rows of Y."""
    n, first, stop = room.kind[s], room.start[s], room.start[end]
    size = plan.size[n]
    add_transposed_product(room.c, first, stop - first, room.t, first, dy, 0, plan.tokens, n, size)
    product(room.t, first, stop - first, room.rows, 0, plan.each, 0, room.rows.shape[0], room.ds, first)  # g
    for row in range(first, stop):
        add_direction_gradient(room.c, row, room.ds, row, room.pull, (row - first) % (size + 1))


@jit
def _change_class(plan, before, n, y, room, dz):
    """Add what the sequences of class `before` pull to dZ, and prepare for those of class n; -1 is none."""
    for i in range(plan.size[before] + 1 if before >= 0 else 0):
        for w in range(plan.size[before]):
            dz[_coordinate(plan, before, i), plan.tokens[before, w]] += room.pull[i, w]
    if n >= 0:
        transpose(y, 0, plan.tokens, n, plan.size[n], room.rows, 0)
        for i in range(plan.size[n] + 1):
            clear_row(room.pull, i)


@jit
def _layer_between(plan, z, y, first, count, room, at, above):
    """Features of a group after a layer between the first and the last, in rows `above` on of x.

    Its values are in rows `at` on, and its matrices in rows `first` on of z and y.
    """
    features, stop = room.x.shape[1], at + room.start[count]
    product(room.x, at, stop - at, z, first, plan.each, 0, features, room.q, at)
    for s in range(count):
        begin, size = at + room.start[s], plan.size[room.kind[s]]
        transpose(room.x, begin, plan.each, 0, size, room.features, 0)
        product(room.q, begin, size + 1, room.features, 0, plan.each, 0, features, room.c, begin)
        for row in range(begin, begin + size + 1):
            divide_row(room.c, row, weigh(room.c, row, room.absent, room.counts, s))
        product(room.c, begin, size + 1, room.x, begin, plan.each, 0, size, room.u, begin)
    for row in range(at, stop):
        room.shrink[row, 0] = to_unit(room.u, row, inner_product(room.u, row, room.u, row))
    product(room.u, at, stop - at, y, first, plan.each, 0, features, room.t, at)
    for row in range(at, stop):
        activate(room.t, row, plan.smooth)
        square = add_rows(room.t, row, room.x, row, room.x, above - at + row)
        room.shrink[row, 1] = to_unit(room.x, above - at + row, square)


@jit
def _layer_between_back(plan, first, count, room, at, dz, dy):
    """Add the gradients of such a layer, given dh in t and de in dx, which becomes the gradient by its own features."""
    features, rows = room.x.shape[1], room.start[count]
    add_transposed_product(room.u, at, rows, room.t, at, dy, first, plan.each, 0, features)
    product(room.t, at, rows, room.hidden, first, plan.each, 0, features, room.du, 0)
    for i in range(rows):
        normalize_gradient(room.u, at + i, room.shrink[at + i, 0], room.du, i)
    for s in range(count):
        begin, size = room.start[s], plan.size[room.kind[s]]
        transpose(room.x, at + begin, plan.each, 0, size, room.features, 0)
        product(room.du, begin, size + 1, room.features, 0, plan.each, 0, features, room.ds, begin)
        for i in range(begin, begin + size + 1):
            softmax_gradient(room.c, at + i, room.ds, i)
        add_transposed_product(room.c, at + begin, size + 1, room.du, begin, room.dx, begin, plan.each, 0, size)
        add_transposed_product(room.ds, begin, size + 1, room.q, at + begin, room.dx, begin, plan.each, 0, size)
        product(room.ds, begin, size + 1, room.x, at + begin, plan.each, 0, size, room.dq, begin)
    add_transposed_product(room.x, at, rows, room.dq, 0, dz, first, plan.each, 0, features)
    product(room.dq, 0, rows, room.attention, first, plan.each, 0, features, room.du, 0)
    for i in range(rows):
        add_rows(room.dx, i, room.du, i, room.dx, i)


@jit
def _last_layer(plan, z, y, first, count, room, at):
    """Logits of a group of sequences; q, c, u and the length of sequence s are in row at + s."""
    for s in range(count):
        copy_row(room.x, at + room.start[s + 1] - 1, room.own, s)
    product(room.own, 0, count, z, first, plan.each, 0, room.x.shape[1], room.q, at)
    for s in range(count):
        row, begin, size = at + s, at + room.start[s], plan.size[room.kind[s]]
        clear_row(room.c, row)
        for w in range(size):
            room.c[row, w] = inner_product(room.q, row, room.x, begin + w)
        divide_row(room.c, row, weigh(room.c, row, room.absent, room.counts, s))
        sum_rows(room.c, row, size, room.x, begin, room.u, row)
        room.shrink[row, 0] = to_unit(room.u, row, inner_product(room.u, row, room.u, row))
    product(room.u, at, count, y, 0, plan.each, 0, room.x.shape[1], room.logits, 0)


@jit
def _last_layer_back(plan, first, count, room, at, dz, dy):
    """Add its gradients, given the weighted residuals; the gradient by its features is in dx."""
    features = room.x.shape[1]
    add_transposed_product(room.u, at, count, room.logits, 0, dy, 0, plan.each, 0, features)
    product(room.logits, 0, count, room.decoder, 0, plan.each, 0, room.decoder.shape[0], room.du, 0)
    for s in range(count):
        begin, size = room.start[s], plan.size[room.kind[s]]
        normalize_gradient(room.u, at + s, room.shrink[at + s, 0], room.du, s)
        clear_row(room.ds, s)
        for w in range(size):
            room.ds[s, w] = inner_product(room.du, s, room.x, at + begin + w)
        softmax_gradient(room.c, at + s, room.ds, s)
        sum_rows(room.ds, s, size, room.x, at + begin, room.dq, s)
        two_outer_products(room.c, at + s, room.du, s, room.ds, s, room.q, at + s, size, room.dx, begin)
    add_transposed_product(room.own, 0, count, room.dq, 0, dz, first, plan.each, 0, features)
    product(room.dq, 0, count, room.attention, first, plan.each, 0, features, room.own, 0)
    for s in range(count):
        copy_row(room.own, s, room.dx, room.start[s + 1] - 1)


@jit
def _see(plan, s, room, capacity, top, seen):
    """The attention of every layer as the output sees it (`systems/yz/layered.py`), from the last one down."""
    size = plan.size[room.kind[s]]
    for w in range(size):
        seen[top, w] = room.c[top * capacity + s, w]
    for j in range(top - 1, -1, -1):
        for i in range(size):
            row = j * capacity + room.start[s] + i
            mass = room.c.dtype.type(0)
            for w in range(size):
                mass += room.c[row, w]  # of the first layer's f; 1 elsewhere
            for w in range(size):
                seen[j, w] += seen[j + 1, i] * room.c[row, w] / mass


@jit
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

    @njit(cache=True, nogil=True, fastmath=REORDERED, error_model="numpy")
    def layered_gradients(plan, matrices, batch, runs, layers, learn, room, gradient, losses, accuracies, seen):
        """Losses and accuracies (R,) of these runs, without holding Python's lock.

        If `learn`, the gradient of J by each matrix is written to `gradient`.  If `seen` (R, B, L, W') has runs, the
        attention of every layer at the sequence's tokens is added to it.
        """
        if stamp < 0:
            return
        features, capacity, top = room.x.shape[1], room.dx.shape[0], layers - 1
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
            order = _by_class(batch.class_index[r], batch.weights[r], plan.size.shape[0])
            loss, correct = 0.0, 0.0
            boosted, turned = -1, -1  # the classes that `boost` and `rows` are of
            for begin in range(0, order.shape[0], GROUP):
                count = _load_group(plan, batch, r, order, begin, room)
                if top == 0:
                    _one_hot(plan, room, count)
                s = 0 if top > 0 else count
                while s < count:
                    if room.kind[s] != boosted:
                        boosted = room.kind[s]
                        _boost(plan, z, boosted, room)
                    end = _same_class(room, s, count)
                    _first_layer(plan, z, y, s, end, room, capacity)
                    s = end
                for j in range(1, top):
                    _layer_between(plan, z, y, j * features, count, room, j * capacity, (j + 1) * capacity)
                _last_layer(plan, z, last, top * features, count, room, top * capacity)
                for s in range(count):
                    b = order[begin + s]
                    weight = batch.weights[r, b]
                    column = plan.next_column[room.kind[s]]
                    own, other = exclude(room.logits, s, column, plan.num_columns)
                    scale, _, far, odds, hit = softmax_residual(room.logits, s, column, own, other, plan.multiplicity)
                    scale_row(room.logits, s, weight * scale)
                    loss += weight * (far + math.log1p(odds))
                    correct += weight * hit
                    if seen.shape[0] > 0:
                        _see(plan, s, room, capacity, top, seen[r, b])
                if not learn:
                    continue
                _last_layer_back(plan, top * features, count, room, top * capacity, dz, d_last)
                for j in range(top - 1, -1, -1):
                    at = j * capacity
                    for i in range(room.start[count]):
                        normalize_gradient(room.x, at + capacity + i, room.shrink[at + i, 1], room.dx, i)
                        slope(room.t, at + i, room.dx, i, plan.smooth)
                    if j > 0:
                        _layer_between_back(plan, j * features, count, room, at, dz, dy)
                s = 0 if top > 0 else count
                while s < count:
                    if room.kind[s] != turned:
                        _change_class(plan, turned, room.kind[s], y, room, dz)
                        turned = room.kind[s]
                    end = _same_class(room, s, count)
                    _first_layer_back(plan, s, end, room, dy)
                    s = end
            _change_class(plan, turned, -1, y, room, dz)
            losses[r] = loss
            accuracies[r] = correct

    return layered_gradients


layered_gradients = _compile(source_stamp(__name__))
