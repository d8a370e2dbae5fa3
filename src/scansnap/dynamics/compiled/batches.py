"""The sequences of an update, in order of class: compiled."""

from __future__ import annotations

import math

from scansnap.base.inner_function import inner
from scansnap.data.compiled_draws import draw_class, draw_counts
from scansnap.data.random_stream import sequence_key, uniform
from scansnap.dynamics.compiled.loops import rare
from scansnap.dynamics.random_entries import CHOICE_STREAM


@inner(forceinline=True)
def draw_batch(plan, rule, pool, scratch, u, seed, t, s):
    """Batch t of a seed, the u-th, as the s-th of the scratch: class n has the rows firsts[n] .. firsts[n+1]-1.

    A row of `weights` holds the counts of the class's tokens, or P(l|n) for T -> infinity; a row of `picks` says which
    sequence of the pool it is.
    """
    firsts, weights, picks, class_index = scratch.firsts[s], scratch.weights[s], scratch.picks[s], scratch.class_index
    num_classes = plan.size.shape[0]
    pooled = pool.class_index.shape[1]
    for n in range(num_classes + 1):
        firsts[n] = 0
    for b in range(weights.shape[0]):
        if pooled > 0:
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
        row, size = firsts[n], plan.size[n]
        if pooled > 0:
            picks[row] = _pick(pool, seed, t, b)
            for w in range(size):
                weights[row, w] = pool.counts[u, picks[row], 0, w]
        elif rule.length > 0:
            key, counts = sequence_key(seed, t, b), scratch.counts
            draw_counts(key, rule.length, plan.thresholds, plan.conditional, n, size, scratch.draws, counts)
            for w in range(size):
                weights[row, w] = counts[w]
        else:
            for w in range(size):
                weights[row, w] = plan.support_probs[0, n, w]
        firsts[n] += 1
    for n in range(num_classes, 0, -1):
        firsts[n] = firsts[n - 1]
    firsts[0] = 0


@inner(forceinline=True)
def _pick(pool, seed, t, b):
    """Where sequence b of update t is in the pool."""
    if pool.chosen:
        return int(uniform(sequence_key(seed, CHOICE_STREAM + t, b), 0) * pool.class_index.shape[1])
    return (t - pool.start) * pool.stride + b


@rare
def weigh_batch(plan, pool, scratch, u, s, bias):
    """exp(b) of a learned bias, and the counts and P(l|n) that it weighs: a_l = sum_g exp(b_g) a_gl.

    The largest exp(b) is one, so that none overflows.
    """
    scale = scratch.bias_scale
    top = bias[0, 0]
    for g in range(scale.shape[0]):
        top = max(top, bias[0, g])
    for g in range(scale.shape[0]):
        scale[g] = math.exp(bias[0, g] - top)
    for b in range(scratch.bias_weights.shape[1]):
        _weigh(scale, pool.counts[u], scratch.picks[s, b], scratch.bias_weights, b)
    for n in range(scratch.bias_probs.shape[1]):
        _weigh(scale, plan.bucket_probs, n, scratch.bias_probs, n)


@rare
def _weigh(scale, counts, k, weights, b):
    """weights[0, b, w] = sum_g scale_g counts[k, g, w]."""
    for w in range(weights.shape[2]):
        weights[0, b, w] = 0
        for g in range(scale.shape[0]):
            weights[0, b, w] += scale[g] * counts[k, g, w]
