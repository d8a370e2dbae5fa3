"""Training on the CPU: whole runs, one after another on each core, in compiled code.

This is the closed form of `gradients.py` (Lemma 1), restricted to the entries that a sequence touches.  A run's Y, its
velocity and its batches stay in the core's cache while it advances, and every run is computed independently: its
numbers cannot depend on the runs beside it, on the number of threads, or on how the steps are divided.

A seed's batches do not depend on what is learned from them, so runs that differ only in their rates share them: the
batches of several steps are drawn once, then each run in turn takes these steps.

The attention gradient from the decoder gradient
------------------------------------------------
By Eq. 4 the sequences s of class n move z_l by sum_s f_sl (g_sl - f_sl a_s), with g_sl = sum_j y_lj x_sj the gradient
that reaches token l from the residual x_s = e_n - p_s, and a_s = sum_l f_sl g_sl = sum_j logits_sj x_sj.  The first
term is sum_j y_lj G_lj with G_lj = sum_s f_sl x_sj: the class's decoder gradient, which is needed anyway.  So the
products g_sl, a third of the arithmetic, are never formed: one inner product per token and class replaces one per token
and sequence.  Other layers have the same first term, and more numbers like a_s for each sequence in the place of the
second (`readout.py`).
"""

from __future__ import annotations

import math

import numpy as np

from scansnap.dynamics.compiled.batches import draw_batch
from scansnap.dynamics.compiled.lanes import load, multiply, multiply_add, store, total
from scansnap.dynamics.compiled.loops import (
    FAST,
    add_outer_products,
    add_row,
    exclude,
    hot,
    lesser,
    rare,
    softmax_residual,
    weighted_sums,
)
from scansnap.dynamics.compiled.modified import add_modification
from scansnap.dynamics.compiled.plan import GROUP, ROWS, SGD_RULE
from scansnap.dynamics.compiled.portions import add_bias_gradient, add_portion_slopes, weigh_batch
from scansnap.dynamics.compiled.readout import (
    LINEAR,
    OWN,
    SQUARE,
    bends_of,
    class_boost,
    directions,
    further_slots,
    mark_moving,
)
from scansnap.dynamics.compiled.rules import move_all, move_touched, moves_at_once, touch_query, touch_rows
from scansnap.runtime.inner_function import GENERAL, kept, narrowed


@hot
def _forward(plan, scratch, y, z, n, weights, layer, begin, count):
    """The logits of the sequences from `begin`."""
    heads, stride, x = plan.heads, plan.slots.shape[1], scratch.logits
    slots = plan.size[n] + further_slots(plan)
    for head in range(heads):
        directions(plan, scratch, z, n, head, weights, layer, begin, count)
        weighted_sums(
            y, plan.slots, n * heads + head, slots, scratch.f, head * stride, count, scratch.parts, head * GROUP
        )
    if GENERAL and heads > 1:
        for i in range(count + count % 2):
            for j in range(x.shape[1]):
                x[i, j] = 0
            for head in range(heads):
                add_row(x, i, x.dtype.type(1), scratch.parts, head * GROUP + i)


@hot
def _measure(plan, scratch, n, weight, count, loss, correct):
    """Logits -> residuals up to a factor, and the loss and accuracy with those of the sequences added."""
    x, factor = scratch.logits, scratch.factor
    kind, column = x.dtype.type, plan.next_column[n]
    odds = 0.0  # (1 + odds_1) (1 + odds_2) ... - 1: one logarithm for all of them
    for i in range(count):  # before the first exponential: otherwise each sequence would wait for its largest logit
        factor[0, i], factor[1, i] = exclude(x, i, column, plan.num_columns)
    for i in range(count):
        scale, along, far, one_odds, hit = softmax_residual(x, i, column, factor[0, i], factor[1, i], plan.multiplicity)
        factor[0, i] = kind(weight) * scale
        factor[1, i] = kind(weight) * along
        loss += weight * far
        odds += one_odds + odds * one_odds
        correct += weight * hit
    for i in range(count, GROUP):  # a run that diverged may have left NaN, and 0 NaN is NaN
        factor[0, i] = 0
        factor[1, i] = 0
    return loss + weight * math.log1p(odds), correct


@hot
def _backward(plan, rule, scratch, y, v, n, count, lr_y, is_last):
    """Add to the gradient of Y, to `pull` and `bend`, and to the residuals of the class if they are asked for.

    With the last sequences of a class, rows that no other class reads also move.
    """
    kind = y.dtype.type
    decay = kind(rule.momentum) if is_last and moves_at_once(rule) else kind(-1)
    f, x, bends, bend = scratch.f, scratch.logits, scratch.bends, scratch.bend
    size, stride, further, own = plan.size[n], plan.slots.shape[1], further_slots(plan), plan.own[n]
    scale, along = load(scratch.factor, 0, 0, GROUP), load(scratch.factor, 1, 0, GROUP)
    for head in range(plan.heads):
        first = head * stride
        if GENERAL and (further > 0 or plan.heads > 1):
            square = load(bends, ROWS * head + SQUARE, 0, GROUP)
            linear = load(bends, ROWS * head + LINEAR, 0, GROUP)
            if own >= 0:
                bend[first + own] += total(
                    multiply(load(f, first + own, 0, GROUP), load(bends, ROWS * head + OWN, 0, GROUP))
                )
            for w in range(size + further):
                part = load(f, first + w, 0, GROUP)
                bend[first + w] += total(multiply(part, multiply_add(part, square, linear)))
                store(f, first + w, 0, multiply(part, scale))
        else:
            for w in range(size):
                part = load(f, w, 0, GROUP)
                bend[w] += total(multiply(multiply(part, part), along))
                store(f, w, 0, multiply(part, scale))  # so that f_i x_i is the sequence's part of G
        add_outer_products(
            v,
            y,
            plan.slots,
            n * plan.heads + head,
            size + further,
            f,
            first,
            x,
            count,
            scratch.pull,
            plan.alone,
            kind(lr_y),
            plan.column_rate,
            decay,
        )
    if GENERAL and rule.modified:
        for i in range(count):
            add_row(scratch.residuals, n, scratch.factor[0, i], x, i)


@rare
def _balance(plan, scratch, n):
    """Take out of a class's dz = pull - bend what rounding leaves of its sum, in proportion to f_l^2 (`flow.py`)."""
    f, pull, bend = scratch.f, scratch.pull, scratch.bend
    for head in range(plan.heads):
        first = head * plan.slots.shape[1]
        left, squares = f.dtype.type(0), f.dtype.type(0)
        for w in range(first, first + plan.size[n]):
            pull[w] -= bend[w]
            bend[w] = 0
            left += pull[w]
            squares += f[w, 0] * f[w, 0]
        for w in range(first, first + plan.size[n]):
            if squares > 0:
                pull[w] -= left * (f[w, 0] * f[w, 0] / squares)


@hot
def _move(plan, state, rule, scratch, r, t, lr_y, lr_z):
    """Move Y, Z and a learned bias along the gradient that was accumulated."""
    y, v, z, vz = state.decoder[r], state.decoder_velocity[r], state.attention_logits[r], state.attention_velocity[r]
    bias, bias_velocity = state.position_bias[r], state.position_velocity[r]
    if GENERAL and rule.kind != SGD_RULE:
        ones, moments = scratch.ones, state.decoder_moments[r]
        rows, columns, column_rate = plan.row_multiplicity, plan.multiplicity, plan.column_rate
        num_tokens, heads, lr = plan.num_tokens, plan.heads, lr_y
        for matrix in range(3):
            if matrix == 1:
                y, v, moments = z, vz, state.attention_moments[r]
                rows, columns, column_rate = ones[0], ones, ones
                num_tokens, heads, lr = 0.0, 1, lr_z
            elif matrix == 2:
                y, v, moments = bias, bias_velocity, state.position_moments[r]
            move_all(rule, t, y, v, moments, rows, columns, column_rate, num_tokens, heads, lr)
    else:
        move_touched(plan, rule, y, v, z, vz, lr_y, lr_z, scratch.touched_rows, scratch.touched_queries)
        for g in range(bias.shape[1] if GENERAL else 0):
            bias[0, g] += y.dtype.type(lr_z) * bias_velocity[0, g]
            bias_velocity[0, g] *= y.dtype.type(rule.momentum)


@kept(fastmath=FAST, error_model="numpy")
def advance(plan, state, rule, pool, scratch, call):
    """Take the updates of a call without holding Python's lock."""
    runs, losses, shares = call.runs, call.losses, call.shares
    u, seeds, rates_y, rates_z = call.seed_index, call.seeds, call.rates_y, call.rates_z
    start, stop, origin, update = call.start, call.stop, call.origin, call.update
    if runs.shape[0] == 0:
        return
    heads, num_classes, further = plan.heads, plan.support.shape[0], further_slots(plan)
    stride = plan.slots.shape[1]
    window = scratch.firsts.shape[0]
    for opening in range(start, stop, window):
        closing = lesser(opening + window, stop)
        for t in range(opening, closing):
            draw_batch(plan, rule, pool, scratch, u, seeds[runs[0]], t, t - opening)
        for r in runs:
            y, v, age = state.decoder[r], state.decoder_velocity[r], state.decoder_age[r]
            z, vz, query_age = state.attention_logits[r], state.attention_velocity[r], state.attention_age[r]
            bias, bias_velocity = state.position_bias[r], state.position_velocity[r]
            lr_y, lr_z = rates_y[r], rates_z[r]
            learns_bias = bias.shape[1] > 0
            for t in range(opening, closing):
                s = t - opening
                if state.diverged[r] >= 0:
                    losses[r, t - origin] = np.nan
                    shares[r, t - origin] = np.nan
                    continue
                weights, probs, layer = scratch.weights, plan.support_probs, s
                if GENERAL and learns_bias:
                    weigh_batch(plan, rule, scratch, s, bias)
                    weights, probs, layer = scratch.bias_weights, scratch.bias_probs, 0
                scratch.touched_rows[0] = 0
                scratch.touched_queries[0] = 0
                loss, correct = 0.0, 0.0
                for n in range(num_classes):
                    begin, end = scratch.firsts[s, n], scratch.firsts[s, n + 1]
                    if begin == end and not (GENERAL and rule.modified):
                        continue
                    size = plan.size[n]
                    for head in range(heads):
                        q, k = plan.query_index[n] * heads + head, n * heads + head
                        touch_query(plan, rule, z, vz, query_age, q, lr_z, t, update, scratch.touched_queries)
                        touch_rows(plan, rule, y, v, age, k, size + further, lr_y, t, update, scratch.touched_rows)
                    class_boost(plan, scratch, z, n)
                    for w in range(heads * stride):
                        scratch.bend[w] = 0
                        scratch.pull[w] = 0
                    if GENERAL and rule.modified:
                        for j in range(y.shape[1]):
                            scratch.residuals[n, j] = 0
                    weight = 1.0 / weights.shape[1] if rule.batch_size > 0 else plan.class_weights[n]
                    for first in range(begin, end, GROUP):
                        count = lesser(GROUP, end - first)
                        _forward(plan, scratch, y, z, n, weights, layer, first, count)
                        loss, correct = _measure(plan, scratch, n, weight, count, loss, correct)
                        if not update:
                            continue
                        if GENERAL and (heads > 1 or further > 0 or learns_bias):
                            for head in range(heads):
                                bends_of(plan, scratch, y, n, head, count)
                        if GENERAL and learns_bias:
                            add_portion_slopes(plan, scratch, y, n, weights, layer, s, first, count)
                        _backward(plan, rule, scratch, y, v, n, count, lr_y, first + count == end)
                    if update:
                        if GENERAL and rule.balanced:
                            _balance(plan, scratch, n)
                        if GENERAL and rule.kind != SGD_RULE:
                            mark_moving(plan, scratch, n, weights, layer, begin, end)
                        for head in range(heads):
                            q = plan.query_index[n] * heads + head
                            for w in range(size):
                                if not GENERAL or rule.kind == SGD_RULE or scratch.moves[w]:
                                    slot = head * stride + w
                                    vz[q, plan.support[n, w]] += scratch.pull[slot] - scratch.bend[slot]
                losses[r, t - origin] = loss
                shares[r, t - origin] = correct
                if not math.isfinite(loss):
                    state.diverged[r] = t
                    losses[r, t - origin] = np.nan
                    shares[r, t - origin] = np.nan
                if state.diverged[r] >= 0 or not update:
                    continue
                if GENERAL and learns_bias:
                    add_bias_gradient(plan, scratch, bias_velocity)
                if GENERAL and rule.modified and not add_modification(plan, scratch, y, v, z, probs):
                    state.singular[r] = t
                    state.diverged[r] = t + 1
                _move(plan, state, rule, scratch, r, t, lr_y, lr_z)


advance_basic = narrowed(advance)
