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
and sequence.

Momentum without visiting idle rows
-----------------------------------
SGD with momentum mu moves v <- mu v + g, Y <- Y + eta v at every step, even if g = 0.  The kernel stores u = mu v, the
velocity that the next step starts from, so a step is u <- u + g, Y <- Y + eta u, u <- mu u.  A row that has been idle
for k steps has moved by eta u (1 + mu + ... + mu^(k-1)) and its u has become mu^k u; both are applied when the row is
next touched.  `age` counts the updates a row has seen.  Without momentum u returns to zero after every step and merely
accumulates the gradient.  Adam has no such closed form: it visits all rows at every step.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.base.source_stamp import source_stamp
from scansnap.data.compiled_draws import COUNTING_LIMIT, draw_class, draw_counts, padded_length
from scansnap.data.random_stream import sequence_key
from scansnap.dynamics.kernel_lanes import load, multiply, store, total
from scansnap.dynamics.kernel_math import FAST, add_outer_products, largest, move_row, scaled_exp, weighted_sums
from scansnap.model.lanes import LANES

ROOM = 512
"""Entries left free around arrays that compiled loops write: more than any loop handles at once."""

GROUP = 8
"""The number of sequences of one class taken together: `kernel_math` loads a row of Y once for all of them."""


DRAWN_AT_ONCE = 2**16
"""Numbers drawn ahead for the runs of a seed: enough to keep a run in the cache for many steps before the next run
takes its place, few enough to fit there beside it.  At least one batch is drawn."""


class KernelPlan(NamedTuple):
    """What does not change during training: the compact layout and the sampling tables."""

    size: NDArray[np.int32]  # (K,)
    support: NDArray[np.int32]  # (K, W)
    support_probs: NDArray[np.floating]  # (K, W)
    query_index: NDArray[np.int64]  # (K,)
    next_column: NDArray[np.int64]  # (K,)
    class_weights: NDArray[np.float64]  # (K,) P(n)
    multiplicity: NDArray[np.floating]  # (1, C)
    column_rate: NDArray[np.floating]  # (1, C) 1 / multiplicity
    num_columns: int  # C without padding
    query_offsets: NDArray[np.int64]  # (Q + 1,)
    query_rows: NDArray[np.int64]  # entries of Z that can move, query by query
    thresholds: NDArray[np.int32]  # (K, W)
    conditional: NDArray[np.float64]  # (K, W)
    class_thresholds: NDArray[np.float64]  # (K,)


class KernelState(NamedTuple):
    """What training changes, for every run; all of it is needed to continue a run to identical numbers."""

    decoder: NDArray[np.floating]  # (R, S, C) y
    decoder_velocity: NDArray[np.floating]  # (R, S, C) u = mu v
    decoder_age: NDArray[np.int64]  # (R, S) updates seen
    attention_logits: NDArray[np.floating]  # (R, Q, S) z
    attention_velocity: NDArray[np.floating]  # (R, Q, S)
    attention_age: NDArray[np.int64]  # (R, Q)
    decoder_moments: NDArray[np.floating]  # (R, 2, S, C) Adam's; (R, 2, 0, 0) otherwise
    attention_moments: NDArray[np.floating]  # (R, 2, Q, S)
    diverged: NDArray[np.int64]  # (R,) the step whose loss was not finite; -1 if none yet


class KernelRule(NamedTuple):
    """How a step is taken."""

    batch_size: int  # 0: every class once, with weight P(n)
    length: int  # contextual tokens T - 1; 0: T -> infinity, counts replaced by P(l|n)
    momentum: float
    adam: bool
    beta_1: float
    beta_2: float
    epsilon: float


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _advance_run(plan, state, rule, r, lr_y, lr_z, start, firsts, weights, update, losses, accuracies):
    """Take update `start` of run r and those after it, one with each of the batches (`_draw_batch`)."""
    y, v, age = state.decoder[r], state.decoder_velocity[r], state.decoder_age[r]
    z, vz, query_age = state.attention_logits[r], state.attention_velocity[r], state.attention_age[r]
    kind = y.dtype.type
    num_classes, width = plan.support.shape
    columns = y.shape[1]
    batch = weights.shape[1]

    whole_vectors = (width + LANES - 1) // LANES * LANES
    boost = _apart(1, whole_vectors, kind(0))  # exp(z) of a class's tokens, relative to the largest
    f = _apart(width, GROUP, kind(0))  # a column per sequence
    x = _apart(GROUP, columns, kind(0))  # logits, then residuals up to a factor
    factor = _apart(2, GROUP, kind(0))  # of each residual, and a_s, both times the sequence's weight
    pull = _apart(1, width, kind(0))[0]  # sum_j y_lj G_lj
    bend = _apart(1, width, kind(0))[0]  # sum_s f_sl^2 a_s
    touched_rows = np.empty(y.shape[0], np.int64)
    touched_queries = np.empty(z.shape[0], np.int64)
    ones = np.ones((1, max(boost.shape[1], z.shape[1])), y.dtype)

    for s in range(weights.shape[0]):
        t = start + s
        if state.diverged[r] >= 0:
            losses[s] = np.nan
            accuracies[s] = np.nan
            continue
        num_rows, num_queries = 0, 0
        loss, correct = 0.0, 0.0
        for n in range(num_classes):
            if firsts[s, n] == firsts[s, n + 1]:
                continue
            size, q = plan.size[n], plan.query_index[n]
            num_queries = _touch_query(
                z,
                vz,
                query_age,
                q,
                plan.query_offsets,
                plan.query_rows,
                t,
                update,
                rule.momentum,
                lr_z,
                touched_queries,
                num_queries,
            )
            num_rows = _touch_rows(
                y,
                v,
                age,
                plan.support,
                n,
                size,
                plan.column_rate,
                t,
                update,
                rule.momentum,
                lr_y,
                touched_rows,
                num_rows,
            )
            for w in range(size):
                boost[0, w] = z[q, plan.support[n, w]]
                bend[w] = 0
                pull[w] = 0
            for w in range(size, boost.shape[1]):
                boost[0, w] = -np.inf
            scaled_exp(boost, 0, largest(boost, 0), ones)
            weight = 1.0 / batch if rule.batch_size > 0 else plan.class_weights[n]
            for begin in range(firsts[s, n], firsts[s, n + 1], GROUP):
                count = min(GROUP, firsts[s, n + 1] - begin)
                _directions(z, q, plan.support, n, size, boost, weights, s, begin, count, f)
                weighted_sums(y, plan.support, n, size, f, count, x)
                odds = 0.0  # (1 + odds_1) (1 + odds_2) ... - 1: one logarithm for all of them
                for i in range(count):
                    scale, along, far, one_odds, hit = _residual(
                        x, i, plan.next_column[n], plan.multiplicity, plan.num_columns
                    )
                    factor[0, i] = kind(weight) * scale
                    factor[1, i] = kind(weight) * along
                    loss += weight * far
                    odds += one_odds + odds * one_odds
                    correct += weight * hit
                loss += weight * math.log1p(odds)
                if update:
                    scale, along = load(factor, 0, 0, GROUP), load(factor, 1, 0, GROUP)
                    for w in range(size):
                        part = load(f, w, 0, GROUP)
                        bend[w] += total(multiply(multiply(part, part), along))
                        store(f, w, 0, multiply(part, scale))  # so that f_i x_i is the sequence's part of G
                    add_outer_products(v, y, plan.support, n, size, f, x, count, pull)
            if update:
                for w in range(size):
                    vz[q, plan.support[n, w]] += pull[w] - bend[w]
        losses[s] = loss
        accuracies[s] = correct
        if not math.isfinite(loss):
            state.diverged[r] = t
            losses[s] = np.nan
            accuracies[s] = np.nan
        elif update and rule.adam:
            _adam(rule, t, y, v, age, state.decoder_moments[r], plan.column_rate, lr_y)
            _adam(rule, t, z, vz, query_age, state.attention_moments[r], ones, lr_z)
        elif update:
            mu, rate = kind(rule.momentum), kind(lr_y)
            for i in range(num_rows):
                move_row(y, v, touched_rows[i], rate, plan.column_rate, mu)
            rate = kind(lr_z)
            for i in range(num_queries):
                q = touched_queries[i]
                for k in range(plan.query_offsets[q], plan.query_offsets[q + 1]):
                    entry = plan.query_rows[k]
                    z[q, entry] += rate * vz[q, entry]
                    vz[q, entry] *= mu


@njit(forceinline=True)
def _apart(rows, columns, zero):
    """A zeroed matrix with room around it.

    If the arrays that compiled loops read and write begin within a few registers of each other, the loops fall back to
    one entry at a time, which rounds differently.  Room around each array rules this out, wherever memory is allocated.
    """
    space = np.full(rows * columns + 2 * ROOM, zero)
    return space[ROOM : ROOM + rows * columns].reshape(rows, columns)


@njit(forceinline=True)
def _draw_batch(plan, rule, seed, t, first, weights):
    """Batch t of a seed, its sequences in order of class: class n has the rows first[n] .. first[n+1]-1 of `weights`.

    A row holds the counts of the class's tokens, or P(l|n) for T -> infinity.
    """
    batch, width = weights.shape
    num_classes = first.shape[0] - 1
    class_index = np.empty(batch, np.int64)
    draws = np.empty(padded_length(min(rule.length, COUNTING_LIMIT)), np.int32)
    counts = np.empty(width, np.int32)
    first[:] = 0
    for b in range(batch):
        n = draw_class(sequence_key(seed, t, b), plan.class_thresholds) if rule.batch_size > 0 else b
        class_index[b] = n
        first[n + 1] += 1
    for n in range(num_classes):
        first[n + 1] += first[n]
    for b in range(batch):
        n = class_index[b]
        row, size = first[n], plan.size[n]
        if rule.length > 0:
            key = sequence_key(seed, t, b)
            draw_counts(key, rule.length, plan.thresholds, plan.conditional, n, size, draws, counts)
            for w in range(size):
                weights[row, w] = counts[w]
        else:
            for w in range(size):
                weights[row, w] = plan.support_probs[n, w]
        first[n] += 1
    for n in range(num_classes, 0, -1):
        first[n] = first[n - 1]
    first[0] = 0


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _touch_rows(y, v, age, support, n, size, column_rate, t, update, momentum, lr, touched, count):
    """Bring the rows of a class's tokens up to date for step t, and list those that this step will move."""
    for w in range(size):
        row = support[n, w]
        if age[row] > t:
            continue
        idle = t - age[row]
        if idle > 0 and momentum > 0.0:
            decay = momentum**idle
            drift = y.dtype.type(lr * (1.0 - decay) / (1.0 - momentum))
            move_row(y, v, row, drift, column_rate, y.dtype.type(decay))
        age[row] = t
        if update:
            age[row] = t + 1
            touched[count] = row
            count += 1
    return count


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _touch_query(z, vz, age, q, offsets, entries, t, update, momentum, lr, touched, count):
    """The same for a row of Z."""
    if age[q] > t:
        return count
    idle = t - age[q]
    if idle > 0 and momentum > 0.0:
        decay = momentum**idle
        drift = z.dtype.type(lr * (1.0 - decay) / (1.0 - momentum))
        for k in range(offsets[q], offsets[q + 1]):
            entry = entries[k]
            z[q, entry] += drift * vz[q, entry]
            vz[q, entry] *= z.dtype.type(decay)
    age[q] = t
    if update:
        age[q] = t + 1
        touched[count] = q
        count += 1
    return count


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _directions(z, q, support, n, size, boost, weights, s, begin, count, f):
    """f_i = c~ / |c~|_2 with c~_w = weight_w exp(z_qw) (Eq. 5) for the sequences from `begin`; 0 from `count` on.

    `boost` is exp(z) relative to the class's largest logit.  If every token that is present is negligible beside one
    that is absent, the logits of those present are compared with each other instead.
    """
    kind = z.dtype.type
    for i in range(count):
        square = kind(0)
        for w in range(size):
            part = boost[0, w] * weights[s, begin + i, w]
            square += part * part
        if square < kind(1e-20):
            _direction_of_present(z, q, support, n, size, weights, s, begin, i, f)
            continue
        scale = kind(1) / kind(math.sqrt(square))
        for w in range(size):
            f[w, i] = scale * boost[0, w] * weights[s, begin + i, w]
    for i in range(count, GROUP):
        for w in range(size):
            f[w, i] = 0


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _direction_of_present(z, q, support, n, size, weights, s, begin, i, f):
    """The same for sequence begin + i, with the logits of tokens that are present compared with each other."""
    kind = z.dtype.type
    top = kind(-np.inf)
    for w in range(size):
        if weights[s, begin + i, w] > 0:
            top = max(top, z[q, support[n, w]])
    square = kind(0)
    for w in range(size):
        present = weights[s, begin + i, w] > 0
        f[w, i] = weights[s, begin + i, w] * math.exp(z[q, support[n, w]] - top) if present else kind(0)
        square += f[w, i] * f[w, i]
    scale = kind(1) / kind(math.sqrt(square))
    for w in range(size):
        f[w, i] *= scale


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _residual(x, i, n, multiplicity, num_columns):
    """x_i: logits -> the residual e_n - p of sequence i up to a factor, in place.

    Returns that factor; a = sum_j logits_j (e_n - p)_j; two numbers b and c >= 0 that make up the loss, b + log(1 + c);
    and whether n alone has the largest logit.

    1 - p_n is the sum of the other probabilities, never a difference from one: late in training it is far below the
    rounding of p_n.  The residual sums to zero, so a may be formed from logits relative to the largest.
    """
    kind = x.dtype.type
    own = x[i, n]
    x[i, n] = -np.inf
    for j in range(num_columns, x.shape[1]):
        x[i, j] = -np.inf  # padding
    other = largest(x, i)
    top = max(own, other)
    rest, moment = scaled_exp(x, i, top, multiplicity)
    x[i, n] = -rest
    own_exp = kind(math.exp(own - top))
    scale = kind(-1) / (rest + own_exp)
    along = scale * (moment - (own - top) * rest)
    hit = 1.0 if own > other else 0.0
    if own - top > -30:
        return scale, along, 0.0, float(rest) / float(own_exp), hit
    return scale, along, float(top) - float(own), float(rest) + float(own_exp) - 1.0, hit


@njit(fastmath=FAST, error_model="numpy", forceinline=True)
def _adam(rule, t, x, gradient, age, moments, column_rate, lr):
    """Adam's step for every entry; the accumulated gradient of the rows that this step touched is reset."""
    kind = x.dtype.type
    b1, b2 = kind(rule.beta_1), kind(rule.beta_2)
    step = kind(lr / (1.0 - rule.beta_1 ** (t + 1)))
    second = kind(1.0 / math.sqrt(1.0 - rule.beta_2 ** (t + 1)))
    eps = kind(rule.epsilon)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            g = column_rate[0, j] * gradient[i, j]
            m = b1 * moments[0, i, j] + (kind(1) - b1) * g
            s = b2 * moments[1, i, j] + (kind(1) - b2) * g * g
            moments[0, i, j] = m
            moments[1, i, j] = s
            x[i, j] += step * m / (kind(math.sqrt(s)) * second + eps)
        if age[i] == t + 1:
            gradient[i] = 0


def _compile(stamp: int):
    """The function cached on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
    def advance(plan, state, rule, runs, seeds, lr_y, lr_z, start, stop, update, losses, accuracies):
        """Take updates start .. stop-1 of the given runs, which share a seed, without holding Python's lock.

        losses and accuracies (R, stop - start) are those of each batch before its update.  With `update` false nothing
        is learned: the batches are only evaluated.  A call without runs only compiles.
        """
        if stamp < 0 or runs.shape[0] == 0:
            return
        num_classes, width = plan.support.shape
        batch = rule.batch_size if rule.batch_size > 0 else num_classes
        window = min(stop - start, max(1, DRAWN_AT_ONCE // (batch * width + num_classes)))
        firsts = np.empty((window, num_classes + 1), np.int64)
        weights = np.empty((window, batch, width), state.decoder.dtype)
        for begin in range(start, stop, window):
            end = min(begin + window, stop)
            for t in range(begin, end):
                _draw_batch(plan, rule, seeds[runs[0]], t, firsts[t - begin], weights[t - begin])
            for r in runs:
                _advance_run(
                    plan,
                    state,
                    rule,
                    r,
                    lr_y[r],
                    lr_z[r],
                    begin,
                    firsts[: end - begin],
                    weights[: end - begin],
                    update,
                    losses[r, begin - start :],
                    accuracies[r, begin - start :],
                )

    return advance


advance = _compile(source_stamp(__name__))


def compiled_before() -> bool:
    """Whether an earlier process left a compiled kernel on disk; otherwise the first call takes some ten seconds."""
    return any(Path(advance._cache.cache_path).glob("kernel.*advance-*.nbc"))
