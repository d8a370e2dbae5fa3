"""The Triton kernel behind `flow_device.py`; imported only if there is a GPU to run it.

One program integrates one run from its start to the last time: `collocation.py` and `compiled/flow.py`, function by
function, with the same tableau, constants and step control, so that the derivations there hold here.  No run waits for
another, and none can change another's numbers.

A program's vectors lie in its part of a workspace in global memory, which caches hold.  Every function that reads or
writes it ends with a barrier, since another thread of the program may need what this one wrote.

Two things are done in another order, so that threads need not wait for each other:

- Several classes are taken at once, as many as fit.  What they add to a token's logit or row of y, the token collects:
  it knows the places of its classes, and adds them up in their order.
- Elimination turns 1 - h T_ii J into L D L^T, and the same row operations turn 1 into L^-1, which grows below the
  diagonal where zeros would be left.  A solution is then two products, L^-T D^-1 L^-1 x, where substitution would take
  as many steps as there are logits.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from scansnap.dynamics import collocation

STAGES = tl.constexpr(collocation.STAGES)
FIRST_STEP = tl.constexpr(collocation.FIRST_STEP)
SAFETY = tl.constexpr(collocation.SAFETY)
LEAST_GROWTH = tl.constexpr(collocation.LEAST_GROWTH)
MOST_GROWTH = tl.constexpr(collocation.MOST_GROWTH)
SOLVED = tl.constexpr(collocation.SOLVED)
MOST_SWEEPS = tl.constexpr(collocation.MOST_SWEEPS)
DIVERGING = tl.constexpr(collocation.DIVERGING)
WANTED_RATE = tl.constexpr(collocation.WANTED_RATE)
SHORTER = tl.constexpr(collocation.SHORTER)

NODES = tl.constexpr(0)
INTEGRALS = tl.constexpr(NODES + STAGES)
TRIANGLE = tl.constexpr(INTEGRALS + STAGES * STAGES)
ERROR = tl.constexpr(TRIANGLE + STAGES * STAGES)
COEFFICIENTS = tl.constexpr(ERROR + STAGES)
BETWEEN = tl.constexpr(COEFFICIENTS + (STAGES + 1) * (STAGES + 1))
"""Where the parts of a `collocation.Tableau` begin, one after another."""

STATE = tl.constexpr(0)
SLOPE = tl.constexpr(1)
BASE = tl.constexpr(2)
GUESS = tl.constexpr(3)
VALUES = tl.constexpr(4)
SLOPES = tl.constexpr(VALUES + STAGES)
CHANGES = tl.constexpr(SLOPES + STAGES)
POLYNOMIAL = tl.constexpr(CHANGES + STAGES)
VECTORS = POLYNOMIAL + STAGES + 1
"""A program's vectors, in units of a state; `collocation.integrate` has the same."""

INFINITY = tl.constexpr(float("inf"))
STRIDE = tl.constexpr(1024)
"""Entries of a vector at a time."""


class Tables(NamedTuple):
    """`compiled.flow.BasicSystem` without the rates, the tableau, and where tokens find what their classes add."""

    size: Tensor
    support: Tensor
    place: Tensor
    probs: Tensor
    query_index: Tensor
    blocks: Tensor
    next_column: Tensor
    class_weights: Tensor
    multiplicity: Tensor
    column_rate: Tensor
    tableau: Tensor
    logit_sources: Tensor  # (D, F) n W + w for every logit, class after class, then -1
    row_sources: Tensor  # (D', S) the same for every row of y


class Shape(NamedTuple):
    """The lengths of their axes."""

    classes: int  # K
    width: int  # most tokens of a class
    columns: int
    queries: int  # Q
    rows: int  # S
    logits: int  # F
    logit_sources: int  # D
    row_sources: int  # D'
    entries: int  # of y
    length: int  # of a state


def room(shape: Shape, classes: int, width: int, columns: int, logits: int) -> int:
    """The numbers in a program's part of the workspace: vectors, the Hessian and its factors, what classes add."""
    padded = -(-shape.classes // classes) * classes
    return (
        VECTORS.value * shape.length
        + (1 + collocation.STAGES) * shape.queries * logits**2
        + padded * width * (2 + columns)
    )


@triton.jit
def residual(tables, shape, state, first, K: tl.constexpr, W: tl.constexpr, C: tl.constexpr):
    """`_residual` of K classes: f (K, W), x (K, C), their rows of y (K, W, C), and what their loss is made of (K)."""
    n, w, c = first + tl.arange(0, K), tl.arange(0, W), tl.arange(0, C)
    known, present = n < shape.classes, c < shape.columns
    inside = w[None, :] < tl.load(tables.size + n, mask=known, other=0)[:, None]
    token = n[:, None] * shape.width + w[None, :]
    place = tl.load(tables.place + token, mask=inside, other=0)
    z = tl.load(state + shape.entries + place, mask=inside, other=-INFINITY)
    top = tl.where(known, tl.max(z, axis=1), 0.0)
    f = tl.load(tables.probs + token, mask=inside, other=0.0) * tl.exp(z - top[:, None])
    f = f / tl.sqrt(tl.where(known, tl.sum(f * f, axis=1), 1.0))[:, None]
    row = tl.load(tables.support + token, mask=inside, other=0)
    y = tl.load(
        state + row[:, :, None] * shape.columns + c[None, None, :],
        mask=inside[:, :, None] & present[None, None, :],
        other=0.0,
    )
    logits = tl.sum(f[:, :, None] * y, axis=1)
    own = c[None, :] == tl.load(tables.next_column + n, mask=known, other=0)[:, None]
    own_logit = tl.sum(tl.where(own, logits, 0.0), axis=1)
    logits = tl.where(own | (c >= shape.columns)[None, :], -INFINITY, logits)
    other = tl.max(logits, axis=1)
    top = tl.maximum(own_logit, other)
    x = tl.load(tables.multiplicity + c, mask=present, other=0.0)[None, :] * tl.exp(logits - top[:, None])
    rest = tl.sum(x, axis=1)
    own_exp = tl.exp(own_logit - top)
    scale = 1.0 / (rest + own_exp)
    x = tl.where(own, (rest * scale)[:, None], -scale[:, None] * x)
    weight = tl.load(tables.class_weights + n, mask=known, other=0.0)
    return f, x, y, place, inside, own, weight, own_logit - top, rest, own_exp, own_logit > other


@triton.jit
def move(tables, shape, rates, u, state, out, whole, sums, K: tl.constexpr, W: tl.constexpr, C: tl.constexpr):
    """`_move`; `sums` has room for what classes add: to logits (., W), f (., W) and x (., C), to rows of y."""
    clock = tl.load(rates + 2) * tl.exp(u)
    w, c = tl.arange(0, W), tl.arange(0, C)
    padded = (shape.classes + K - 1) // K * K
    all_f = sums + padded * W
    all_x = all_f + padded * W
    for first in range(0, shape.classes, K):
        n = first + tl.arange(0, K)
        f, x, y, _place, _inside, _own, weight, _below, _rest, _own_exp, _right = residual(
            tables, shape, state, first, K, W, C
        )
        weight *= clock
        g = tl.sum(y * x[:, None, :], axis=2)
        push = f * (g - tl.sum(f * g, axis=1)[:, None] * f)
        push -= tl.sum(push, axis=1)[:, None] * f * f
        tl.store(sums + n[:, None] * W + w[None, :], (weight * tl.load(rates + 1))[:, None] * push)
        if whole:
            tl.store(all_f + n[:, None] * W + w[None, :], f)
            share = tl.load(tables.column_rate + c, mask=c < shape.columns, other=0.0)
            tl.store(all_x + n[:, None] * C + c[None, :], (weight * tl.load(rates))[:, None] * share[None, :] * x)
    tl.debug_barrier()
    k = tl.arange(0, STRIDE)
    for first in range(0, shape.logits, STRIDE):
        value = tl.zeros((STRIDE,), tl.float64)
        for d in range(shape.logit_sources):
            source = tl.load(
                tables.logit_sources + d * shape.logits + first + k, mask=first + k < shape.logits, other=-1
            )
            value += tl.load(sums + source, mask=source >= 0, other=0.0)
        tl.store(out + shape.entries + first + k, value, mask=first + k < shape.logits)
    if whole:
        ROWS: tl.constexpr = max(1, STRIDE // C)
        r = tl.arange(0, ROWS)
        for first in range(0, shape.rows, ROWS):
            value = tl.zeros((ROWS, C), tl.float64)
            for d in range(shape.row_sources):
                source = tl.load(tables.row_sources + d * shape.rows + first + r, mask=first + r < shape.rows, other=-1)
                part = tl.load(all_f + source, mask=source >= 0, other=0.0)
                spot = all_x + (source // W)[:, None] * C + c[None, :]
                value += part[:, None] * tl.load(spot, mask=(source >= 0)[:, None], other=0.0)
            both = (first + r < shape.rows)[:, None] & (c < shape.columns)[None, :]
            tl.store(out + (first + r)[:, None] * shape.columns + c[None, :], value, mask=both)
    tl.debug_barrier()


@triton.jit
def bend(
    tables,
    shape,
    rates,
    u,
    state,
    out,
    sums,
    K: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
):
    """`_bend`; blocks are (P, P), and `sums` has room for f and e (., W) and the spread of y (., W, C)."""
    k = tl.arange(0, STRIDE)
    for first in range(0, shape.queries * P * P, STRIDE):
        tl.store(out + first + k, tl.zeros((STRIDE,), tl.float64), mask=first + k < shape.queries * P * P)
    c = tl.arange(0, C)
    padded = (shape.classes + K - 1) // K * K
    all_e = sums + padded * W
    all_spread = all_e + padded * W
    for first in range(0, shape.classes, K):
        f, x, y, _place, _inside, own, _weight, _below, _rest, _own_exp, _right = residual(
            tables, shape, state, first, K, W, C
        )
        token = (first + tl.arange(0, K))[:, None] * W + tl.arange(0, W)[None, :]
        y -= tl.sum(tl.where(own[:, None, :], y, 0.0), axis=2)[:, :, None]
        tl.store(sums + token, f)
        tl.store(all_e + token, f * tl.sum(y * x[:, None, :], axis=2))
        spread = f[:, :, None] * y * tl.sqrt(tl.abs(x))[:, None, :]
        tl.store(all_spread + token[:, :, None] * C + c[None, None, :], spread)
    tl.debug_barrier()
    v, w = tl.arange(0, W)[:, None], tl.arange(0, W)[None, :]
    for n in range(shape.classes):
        f_v, f_w = tl.load(sums + n * W + v), tl.load(sums + n * W + w)
        e_v, e_w = tl.load(all_e + n * W + v), tl.load(all_e + n * W + w)
        pairs = -e_v * e_w
        for j in range(shape.columns):
            pairs += tl.load(all_spread + (n * W + v) * C + j) * tl.load(all_spread + (n * W + w) * C + j)
        rest_v, rest_w = e_v - tl.sum(pairs, axis=1)[:, None], e_w - tl.sum(pairs, axis=0)[None, :]
        along = tl.sum(e_v)
        f_v, f_w = f_v * f_v, f_w * f_w
        entry = (3.0 * along - tl.sum(pairs)) * f_v * f_w - f_v * rest_w - f_w * rest_v - pairs
        entry += tl.where(v == w, e_v - 2.0 * along * f_v, 0.0)
        entry *= tl.load(rates + 2) * tl.exp(u) * tl.load(rates + 1) * tl.load(tables.class_weights + n)
        query, size = tl.load(tables.query_index + n), tl.load(tables.size + n)
        begin, place = tl.load(tables.blocks + query), tables.place + n * shape.width
        row = tl.load(place + v, mask=v < size, other=0) - begin
        column = tl.load(place + w, mask=w < size, other=0) - begin
        targets, inside = out + (query * P + row) * P + column, (v < size) & (w < size)
        tl.store(targets, tl.load(targets, mask=inside, other=0.0) + entry, mask=inside)
        tl.debug_barrier()


@triton.jit
def factorize(tables, shape, jacobian, step, factors, P: tl.constexpr):
    """The factors of every stage and block: D^-1 on the diagonal, L^-1 below.  Returns 0 if one is not positive."""
    i, j = tl.arange(0, P)[:, None], tl.arange(0, P)[None, :]
    positive = 1
    for stage in range(STAGES):
        shift = step * tl.load(tables.tableau + TRIANGLE + stage * (STAGES + 1))
        for b in range(shape.queries):
            width = (tl.load(tables.blocks + b + 1) - tl.load(tables.blocks + b)).to(tl.int32)
            a = tl.where(i == j, 1.0, 0.0) - shift * tl.load(jacobian + b * P * P + i * P + j)
            k = 0
            while (k < width) & (positive > 0):
                row = tl.sum(tl.where(i == k, a, 0.0), axis=0)
                pivot = tl.sum(tl.where(tl.arange(0, P) == k, row, 0.0))
                lower = row / pivot  # below the pivot, by symmetry
                reduced = tl.where(j == k, 0.0, a) - lower[:, None] * tl.where(j == k, 1.0, row[None, :])
                a = tl.where(i > k, reduced, a)
                positive = tl.where(pivot > 0.0, 1, 0)
                k += 1
            tl.store(
                factors + (stage * shape.queries + b) * P * P + i * P + j,
                tl.where(i == j, 1.0 / tl.where(i == j, a, 1.0), a),
            )
    tl.debug_barrier()
    return positive


@triton.jit
def solve_block(factor, x, P: tl.constexpr):
    """(1 - h T_ii J)^-1 x."""
    p = tl.arange(0, P)
    a = tl.load(factor + p[:, None] * P + p[None, :])
    a = tl.where(p[:, None] > p[None, :], a, 0.0)
    x += tl.sum(a * x[None, :], axis=1)
    x *= tl.load(factor + p * (P + 1))
    return x + tl.sum(a * x[:, None], axis=0)


@triton.jit
def combine(shape, out, base, own, step, weights, rows, count, more_weights, more_rows, more):
    """out = own base + step sum_j weights_j rows_j, over `count` rows and `more` others."""
    k = tl.arange(0, STRIDE)
    for first in range(0, shape.length, STRIDE):
        inside = first + k < shape.length
        total = own * tl.load(base + first + k, mask=inside, other=0.0)
        for j in range(count):
            row = tl.load(rows + j * shape.length + first + k, mask=inside, other=0.0)
            total += step * tl.load(weights + j) * row
        for j in range(more):
            row = tl.load(more_rows + j * shape.length + first + k, mask=inside, other=0.0)
            total += step * tl.load(more_weights + j) * row
        tl.store(out + first + k, total, mask=inside)
    tl.debug_barrier()


@triton.jit
def accumulate(shape, out, more, sign):
    """out += sign more."""
    k = tl.arange(0, STRIDE)
    for first in range(0, shape.length, STRIDE):
        inside = first + k < shape.length
        value = tl.load(out + first + k, mask=inside, other=0.0)
        tl.store(out + first + k, value + sign * tl.load(more + first + k, mask=inside, other=0.0), mask=inside)
    tl.debug_barrier()


@triton.jit
def copy(out, values, length):
    """out = values."""
    k = tl.arange(0, STRIDE)
    for first in range(0, length, STRIDE):
        tl.store(out + first + k, tl.load(values + first + k, mask=first + k < length), mask=first + k < length)
    tl.debug_barrier()


@triton.jit
def parts(change, start, end, k, inside, rtol, atol):
    """The squares of a change's entries, each relative to what is allowed."""
    before = tl.abs(tl.load(start + k, mask=inside, other=0.0))
    after = tl.abs(tl.load(end + k, mask=inside, other=0.0))
    part = change / (atol + rtol * tl.maximum(before, after))
    return part * part


@triton.jit
def size_of(change, start, end, length, rtol, atol):
    """`_size_of`."""
    k = tl.arange(0, STRIDE)
    total = tl.zeros((STRIDE,), tl.float64)
    for first in range(0, length, STRIDE):
        inside = first + k < length
        total += parts(tl.load(change + first + k, mask=inside, other=0.0), start, end, first + k, inside, rtol, atol)
    tl.debug_barrier()
    return tl.sqrt(tl.sum(total) / length)


@triton.jit
def size_between(x, y, scale, length, rtol, atol):
    """`_size_between`."""
    k = tl.arange(0, STRIDE)
    total = tl.zeros((STRIDE,), tl.float64)
    for first in range(0, length, STRIDE):
        inside = first + k < length
        change = tl.load(y + first + k, mask=inside, other=0.0) - tl.load(x + first + k, mask=inside, other=0.0)
        total += parts(change, scale, scale, first + k, inside, rtol, atol)
    tl.debug_barrier()
    return tl.sqrt(tl.sum(total) / length)


@triton.jit
def evaluate(shape, polynomial, x, out):
    """`evaluate`."""
    k = tl.arange(0, STRIDE)
    for first in range(0, shape.length, STRIDE):
        inside = first + k < shape.length
        value = tl.load(polynomial + STAGES * shape.length + first + k, mask=inside, other=0.0)
        for m in range(STAGES):
            row = (STAGES - 1 - m) * shape.length
            value = value * x + tl.load(polynomial + row + first + k, mask=inside, other=0.0)
        tl.store(out + first + k, value, mask=inside)
    tl.debug_barrier()


@triton.jit
def newton(tables, shape, own, state, value, base, change, slope, factors, rtol, atol, P: tl.constexpr):
    """The Newton step of a stage's logits; returns its size."""
    p = tl.arange(0, P)
    total = tl.zeros((P,), tl.float64)
    for b in range(shape.queries):
        begin, end = tl.load(tables.blocks + b), tl.load(tables.blocks + b + 1)
        k = shape.entries + begin + p
        inside = begin + p < end
        at = tl.load(value + k, mask=inside, other=0.0)
        slopes = tl.load(change + k, mask=inside, other=0.0) - tl.load(slope + k, mask=inside, other=0.0)
        x = tl.load(base + k, mask=inside, other=0.0) + own * slopes - at
        x = solve_block(factors + b * P * P, x, P)
        part = x / (atol + rtol * tl.abs(tl.load(state + k, mask=inside, other=0.0)))
        total += tl.where(inside, part * part, 0.0)
        tl.store(value + k, at + x, mask=inside)
    tl.debug_barrier()
    return tl.sqrt(tl.sum(total) / (shape.length - shape.entries))


@triton.jit
def sweep_until_solved(
    tables,
    shape,
    rates,
    u,
    step,
    vectors,
    factors,
    sums,
    rtol,
    atol,
    K: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
):
    """`_solve`."""
    length, tableau = shape.length, tables.tableau
    state, base = vectors + STATE * length, vectors + BASE * length
    slopes, changes = vectors + SLOPES * length, vectors + CHANGES * length
    rate = tl.full((), 0.0, tl.float64)
    before = tl.full((), 1.0, tl.float64)
    sweep, going = 0, 1
    while going > 0:
        sweep += 1
        moved = tl.full((), 0.0, tl.float64)
        finite = 1
        for i in range(STAGES):
            value, change, slope = vectors + (VALUES + i) * length, changes + i * length, slopes + i * length
            now = u + tl.load(tableau + NODES + i) * step
            own = step * tl.load(tableau + TRIANGLE + i * (STAGES + 1))
            combine(
                shape,
                base,
                state,
                1.0,
                step,
                tableau + INTEGRALS + i * STAGES,
                slopes,
                STAGES,
                tableau + TRIANGLE + i * STAGES,
                changes,
                i,
            )
            size = size_between(value, base, state, shape.entries, rtol, atol)
            finite = tl.where(size < INFINITY, finite, 0)
            moved = tl.maximum(moved, size)
            copy(value, base, shape.entries)
            for whole in range(2):
                move(tables, shape, rates, now, value, change, whole > 0, sums, K, W, C)
                if whole == 0:
                    own_factors = factors + i * shape.queries * P * P
                    size = newton(tables, shape, own, state, value, base, change, slope, own_factors, rtol, atol, P)
                    finite = tl.where(size < INFINITY, finite, 0)
                    moved = tl.maximum(moved, size)
            accumulate(shape, change, slope, -1.0)
        for i in range(STAGES):
            accumulate(shape, slopes + i * length, changes + i * length, 1.0)
        rate = tl.where(sweep > 1, moved / before, 0.0)
        tiny = moved < 1e-3 * SOLVED
        solved = tiny | ((sweep > 1) & (rate < 1.0) & (moved * rate < SOLVED * (1.0 - rate)))
        solved = solved & (finite > 0)
        failed = (finite == 0) | (sweep == MOST_SWEEPS) | ((sweep > 2) & (rate > DIVERGING))
        rate = tl.where(solved, tl.where(tiny, tl.minimum(rate, WANTED_RATE), rate), 1.0)
        going = tl.where(solved | failed, 0, 1)
        before = moved
    return sweep, rate


@triton.jit
def error_between(tables, ratio):
    """`_error_between`."""
    beyond = 1.0 + tl.load(tables.tableau + NODES) * ratio
    outside = beyond
    power = ratio
    for i in range(STAGES):
        outside *= beyond - tl.load(tables.tableau + NODES + i)
        power *= ratio
    return power * tl.load(tables.tableau + BETWEEN) / outside


@triton.jit
def error_of_step(tables, shape, step, before, within, vectors, factors, rtol, atol, P: tl.constexpr):
    """The error of a step over what is allowed, also between its ends if a result is wanted `within`."""
    length, tableau = shape.length, tables.tableau
    state, base, end = vectors, vectors + BASE * length, vectors + (VALUES + STAGES - 1) * length
    own = step * tl.load(tableau + TRIANGLE)
    slopes = vectors + SLOPES * length
    combine(shape, base, vectors + SLOPE * length, own, step, tableau + ERROR, slopes, STAGES, tableau, slopes, 0)
    p = tl.arange(0, P)
    for b in range(shape.queries):
        begin, stop = tl.load(tables.blocks + b), tl.load(tables.blocks + b + 1)
        spot, inside = base + shape.entries + begin + p, begin + p < stop
        x = solve_block(factors + b * P * P, tl.load(spot, mask=inside, other=0.0), P)
        tl.store(spot, x, mask=inside)
    tl.debug_barrier()
    error = size_of(base, state, end, length, rtol, atol)
    if within:
        change = size_between(vectors + GUESS * length, vectors + VALUES * length, state, length, rtol, atol)
        change *= error_between(tables, step / before)
        error = tl.where(change > error, change, error)
    return error


@triton.jit
def first_guess(
    tables, shape, rates, u, step, before, vectors, sums, K: tl.constexpr, W: tl.constexpr, C: tl.constexpr
):
    """`_guess`, and a copy of its first stage."""
    length = shape.length
    for i in range(STAGES):
        value, node = vectors + (VALUES + i) * length, tl.load(tables.tableau + NODES + i)
        if before > 0.0:
            evaluate(shape, vectors + POLYNOMIAL * length, 1.0 + node * step / before, value)
        else:
            copy(value, vectors + STATE * length, length)
        move(tables, shape, rates, u + node * step, value, vectors + (SLOPES + i) * length, True, sums, K, W, C)
    copy(vectors + GUESS * length, vectors + VALUES * length, length)


@triton.jit
def measure(tables, shape, state, K: tl.constexpr, W: tl.constexpr, C: tl.constexpr):
    """`_measure`."""
    loss = tl.zeros((K,), tl.float64)
    accuracy = tl.zeros((K,), tl.float64)
    for first in range(0, shape.classes, K):
        _f, _x, _y, _place, _inside, _own, weight, below, rest, own_exp, right = residual(
            tables, shape, state, first, K, W, C
        )
        # log(1 + r) for r < 1: the rounding of 1 + r cancels in the quotient; where r is lost in it, it is r.
        ratio = tl.minimum(rest / own_exp, 1.0)
        more = 1.0 + ratio
        small = tl.where(more > 1.0, tl.log(more) * (ratio / tl.where(more > 1.0, more - 1.0, 1.0)), ratio)
        loss += weight * tl.where(own_exp > rest, small, tl.log(rest + own_exp) - below)
        accuracy += tl.where(right, weight, 0.0)
    return tl.sum(loss), tl.sum(accuracy)


@triton.jit
def integrate(
    tables,
    shape,
    all_rates,
    starts,
    all_times,
    all_states,
    losses,
    accuracies,
    reached,
    workspace,
    count,
    room,
    tolerances,
    most_evaluations,
    K: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
):
    """`collocation.integrate` of a run, then the loss and accuracy at the times that it reached.

    The run's rates are (eta_Y, eta_Z, s); its times are those of u; its part of the workspace has `room` numbers.
    """
    run, length = tl.program_id(0).to(tl.int64), shape.length
    rtol, atol = tl.load(tolerances), tl.load(tolerances + 1)
    rates, times, states = all_rates + 3 * run, all_times + count * run, all_states + run * count * length
    vectors = workspace + run * room
    state, slope, end_value = (
        vectors + STATE * length,
        vectors + SLOPE * length,
        vectors + (VALUES + STAGES - 1) * length,
    )
    jacobian = vectors + VECTORS * length
    factors = jacobian + shape.queries * P * P
    sums = factors + STAGES * shape.queries * P * P
    copy(state, starts + run * length, length)
    end = tl.load(times + count - 1)
    u = tl.full((), 0.0, tl.float64)
    before = tl.full((), 0.0, tl.float64)
    step = tl.full((), FIRST_STEP, tl.float64)
    record = tl.full((), 0, tl.int64)
    evaluations, moved = 1, 1
    while (record < count) & (tl.load(times + tl.minimum(record, count - 1)) <= 0.0):
        copy(states + record * length, state, length)
        record += 1
    move(tables, shape, rates, u, state, slope, True, sums, K, W, C)
    while (record < count) & (evaluations < most_evaluations) & (u + 1e-14 * end < u + step):
        last = step >= end - u
        step = tl.where(last, end - u, step)
        if moved > 0:
            bend(tables, shape, rates, u, state, jacobian, sums, K, W, C, P)
        moved = 0
        positive = factorize(tables, shape, jacobian, step, factors, P)
        sweeps = 0
        rate = tl.full((), 1.0, tl.float64)
        change = tl.full((), SHORTER, tl.float64)
        if positive > 0:
            first_guess(tables, shape, rates, u, step, before, vectors, sums, K, W, C)
            sweeps, rate = sweep_until_solved(
                tables, shape, rates, u, step, vectors, factors, sums, rtol, atol, K, W, C, P
            )
            evaluations += STAGES * (2 * sweeps + 1)
        if rate < 1.0:
            within = (before > 0.0) & (tl.load(times + record) < u + step) & ~(last & (record == count - 1))
            error = error_of_step(tables, shape, step, before, within, vectors, factors, rtol, atol, P)
            growth = SAFETY * tl.exp(tl.log(tl.where(error > 1e-10, error, 1e-10)) * (-1.0 / (STAGES + 1)))
            growth = tl.minimum(growth, MOST_GROWTH)
            if error <= 1.0:
                for m in range(STAGES + 1):
                    weights = tables.tableau + COEFFICIENTS + m * (STAGES + 1)
                    row = vectors + (POLYNOMIAL + m) * length
                    values = vectors + VALUES * length
                    combine(shape, row, state, tl.load(weights), 1.0, weights + 1, values, STAGES, weights, values, 0)
                while (record < count) & (last | (tl.load(times + tl.minimum(record, count - 1)) <= u + step)):
                    x = (tl.load(times + record) - u) / step
                    evaluate(shape, vectors + POLYNOMIAL * length, x, states + record * length)
                    record += 1
                u = tl.where(last, end, u + step)
                before = step
                moved = 1
                copy(state, end_value, length)
                copy(slope, vectors + (SLOPES + STAGES - 1) * length, length)
                change = tl.minimum(growth, tl.maximum(WANTED_RATE / tl.maximum(rate, 1e-10), LEAST_GROWTH))
            elif error < INFINITY:
                change = tl.maximum(growth, LEAST_GROWTH)
        step *= change
    tl.store(reached + run, u)
    i = tl.full((), 0, tl.int64)
    while i < record:
        loss, accuracy = measure(tables, shape, states + i * length, K, W, C)
        tl.store(losses + run * count + i, loss)
        tl.store(accuracies + run * count + i, accuracy)
        i += 1
