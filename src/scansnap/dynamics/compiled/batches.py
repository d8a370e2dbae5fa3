"""The sequences of an update, in order of class: compiled."""

from __future__ import annotations

import numpy as np

from scansnap.data.compiled_draws import draw_class, draw_counts
from scansnap.data.random_stream import sequence_key, uniform
from scansnap.dynamics.compiled.portions import draw_portions, give_portions, weigh_portions
from scansnap.dynamics.random_entries import CHOICE_STREAM
from scansnap.runtime.inner_function import GENERAL, inner


@inner(forceinline=True)
def draw_batch(plan, rule, pool, scratch, u, seed, t, s):
    """Batch t of a seed, the u-th, as the s-th of the scratch: class n has the rows firsts[n] .. firsts[n+1]-1.

    A row of `weights` holds the counts of the class's tokens, or P(l|n) for T -> infinity, weighed by a fixed bias on
    positions; with a bias that is learned, the portions that it will weigh are kept instead.
    """
    firsts, weights = scratch.firsts[s], scratch.weights[s]
    class_index, order = scratch.class_index, scratch.order
    has_portions, is_learned = plan.bucket.shape[0] > 0, scratch.bias_scale.shape[0] > 0
    layer = s if is_learned else 0
    num_classes = plan.size.shape[0]
    pooled = pool.class_index.shape[1]
    for n in range(num_classes + 1):
        firsts[n] = 0
    for b in range(weights.shape[0]):
        if GENERAL and pooled > 0:
            n = pool.class_index[u, _pick(pool, seed, t, b)]
        elif rule.batch_size > 0:
            n = draw_class(sequence_key(seed, t, b), plan.class_thresholds)
        else:
            n = b
        class_index[b] = n
        firsts[n + 1] += 1
    for n in range(num_classes):
        firsts[n + 1] += firsts[n]
    for b in range(weights.shape[0]):
        n = class_index[b]
        order[firsts[n]] = b
        firsts[n] += 1
    for n in range(num_classes, 0, -1):
        firsts[n] = firsts[n - 1]
    firsts[0] = 0
    if GENERAL and scratch.places.shape[2] > 0:
        draw_portions(plan, scratch, seed, t, layer, firsts)
    for row in range(weights.shape[0]):
        b = order[row]
        n = class_index[b]
        size, key = plan.size[n], sequence_key(seed, t, b)
        pick = _pick(pool, seed, t, b) if GENERAL and pooled > 0 else b
        if GENERAL and has_portions:
            give_portions(plan, pool, scratch, u, pick, n, layer, row)
        elif GENERAL and pooled > 0:
            for w in range(size):
                weights[row, w] = pool.counts[u, pick, w]
        elif rule.length > 0:
            counts = scratch.counts
            draw_counts(key, rule.length, plan.thresholds, plan.conditional, n, size, scratch.draws, counts)
            for w in range(size):
                weights[row, w] = counts[w]
        else:
            for w in range(size):
                weights[row, w] = plan.support_probs[0, n, w]
    if GENERAL and has_portions and not is_learned:
        weigh_portions(scratch, layer, scratch.weights, s)


@inner(forceinline=True)
def _pick(pool, seed, t, b):
    """Where sequence b of update t is in the pool."""
    if pool.chosen:
        return np.int64(uniform(sequence_key(seed, CHOICE_STREAM + t, b), 0) * pool.class_index.shape[1])
    return (t - pool.start) * pool.stride + b
