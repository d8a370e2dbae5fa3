"""Sequences by bucket of positions, and the gradient of a bias on them: compiled.

A bias weighs the counts a_gl of token l in bucket g (`position_bias.py`), and a sequence of T - 1 tokens has at most
T - 1 of them that are not 0, whatever the number of buckets.  So a sequence is a list of *portions*: portion e is
amount_e of the token place_e of its class, in bucket `plan.bucket[e]`.  A sequence that the kernel draws has a portion
of 1 for each position; one that is given as numbers (G, W), counts or P_g(l|n), has one for each of them.  Then

    a_l = sum_e exp(b_g(e)) amount_e [place_e = l],
    dJ/db_g = sum_{e in g} exp(b_g) amount_e (dJ/d ln a_l)/a_l,      l = place_e,

one addition for each portion either way, and the sum over the sequences of a batch is taken portion by portion.  No
exponential is taken of z + b: it is a product of one for each token of a class and one for each bucket.

A fixed bias needs a_l alone, which are the same for all runs of a seed: the sequences are weighed when they are drawn.
"""

from __future__ import annotations

import math

from numba import uint32

from scansnap.data.compiled_draws import fill_words, find_places_of_four
from scansnap.data.random_stream import sequence_key
from scansnap.dynamics.compiled.lanes import (
    add,
    divide,
    load,
    load_columns,
    multiply,
    multiply_add,
    spread,
    store,
    store_across,
    store_each,
    subtract,
    zero_unless_above,
)
from scansnap.dynamics.compiled.loops import hot, inner_products, rare
from scansnap.dynamics.compiled.plan import GROUP, ROWS, TOGETHER
from scansnap.dynamics.compiled.readout import LINEAR, OWN, SQUARE


@rare
def give_portions(plan, pool, scratch, u, pick, n, layer, b):
    """The portions of sequence b, of class n: those of a sequence of the pool, or P_g(l|n)."""
    amounts = scratch.amounts
    for e in range(amounts.shape[2]):
        amounts[layer, b, e] = pool.counts[u, pick, e] if pool.class_index.shape[1] > 0 else plan.bucket_probs[n, e]


@rare
def draw_portions(plan, scratch, seed, t, layer, firsts):
    """The portions of the sequences of update t, class after class.

    Rows beyond a class are filled again with the next: those beyond the batch are never read.
    """
    draws, thresholds, rows = scratch.places[layer], plan.position_thresholds, plan.position_rows
    for n in range(plan.size.shape[0]):
        for row in range(firsts[n], firsts[n + 1]):
            fill_words(sequence_key(seed, t, scratch.order[row]), draws, row)
        for row in range(firsts[n], firsts[n + 1], TOGETHER):
            find_places_of_four(thresholds, rows, n, plan.size[n], draws, row)


@rare
def weigh_portions(scratch, layer, weights, s):
    """a_l of the sequences in a layer of portions, into weights[s]."""
    places, amounts, scale = scratch.places, scratch.amounts, scratch.portion_scale
    batch, width = weights.shape[1:]
    for b in range(batch):
        for w in range(width):
            weights[s, b, w] = 0
        for e in range(amounts.shape[2]):
            weights[s, b, e % width] += scale[e] * amounts[layer, b, e]
    if places.shape[2] > 0:
        for b in range(0, batch - TOGETHER + 1, TOGETHER):
            _add_scales(places, layer, scale, weights, s, b, TOGETHER)
        for b in range(batch - batch % TOGETHER, batch):
            _add_scales(places, layer, scale, weights, s, b, 1)


@hot
def _add_scales(places, layer, scale, weights, s, begin, count):
    """The portions of a few sequences, in turn: so an addition seldom waits for the one before it."""
    for e in range(scale.shape[0]):
        part = scale[e]
        for i in range(count):
            weights[s, begin + i, uint32(places[layer, begin + i, e])] += part


@rare
def weigh_batch(plan, rule, scratch, s, bias):
    """exp(b) of a learned bias, and the counts, and P(l|n) for Lemma 3's gradient, that it weighs.

    The largest exp(b) is one, so that none overflows.
    """
    scale, probs = scratch.bias_scale, scratch.bias_probs
    top = bias[0, 0]
    for g in range(scale.shape[0]):
        top = max(top, bias[0, g])
    for g in range(scale.shape[0]):
        scale[g] = math.exp(bias[0, g] - top)
    for e in range(scratch.portion_scale.shape[0]):
        scratch.portion_scale[e] = scale[plan.bucket[e]]
        scratch.portion_slope[e] = 0
    only = scratch.bias_weights.shape[0] - 1  # 0, but not as a literal
    weigh_portions(scratch, s, scratch.bias_weights, only)
    if rule.modified:
        for n in range(probs.shape[1]):
            for w in range(probs.shape[2]):
                probs[0, n, w] = 0
                for g in range(scale.shape[0]):
                    probs[0, n, w] += scale[g] * plan.bucket_probs[n, g * probs.shape[2] + w]


@rare
def add_portion_slopes(plan, scratch, y, n, weights, layer, s, begin, count):
    """portion_slope_e += amount_e (dJ/d ln a_l)/a_l of the sequences; dJ/d ln a_l is dz_l of the sequence, over heads.

    A token alone has no gradient (`mark_moving`).
    """
    f, bends, slopes, products = scratch.f, scratch.bends, scratch.slopes, scratch.products
    places, amounts = scratch.places, scratch.amounts
    portion_slope, per_count = scratch.portion_slope, scratch.per_count
    stride, size, own = plan.slots.shape[1], plan.size[n], plan.own[n]
    scale = load(scratch.factor, 0, 0, GROUP)
    for head in range(plan.heads):
        inner_products(y, plan.slots, n * plan.heads + head, size, scratch.logits, products)
        row = ROWS * head
        square, linear = load(bends, row + SQUARE, 0, GROUP), load(bends, row + LINEAR, 0, GROUP)
        for w in range(size):
            part = load(f, head * stride + w, 0, GROUP)
            slope = subtract(multiply(scale, load(products, w, 0, GROUP)), multiply_add(part, square, linear))
            if w == own:
                slope = subtract(slope, load(bends, row + OWN, 0, GROUP))
            before = load(slopes, w, 0, GROUP) if head > 0 else spread(y.dtype.type(0), slope)
            store(slopes, w, 0, multiply_add(part, slope, before))
    for w in range(0, size, GROUP):
        store_each(products, w, 0, load_columns(weights, layer, begin, w, GROUP))
    none, one = spread(y.dtype.type(0), scale), spread(y.dtype.type(1), scale)
    present = none
    for w in range(size):
        present = add(present, zero_unless_above(load(products, w, 0, GROUP), none, one))
    for w in range(size):
        weight = load(products, w, 0, GROUP)
        share = zero_unless_above(weight, none, divide(load(slopes, w, 0, GROUP), weight))
        store_across(per_count, 0, w, zero_unless_above(present, one, share))
    for i in range(count):
        b = begin + i
        for e in range(amounts.shape[2]):
            portion_slope[e] += amounts[s, b, e] * per_count[i, e % per_count.shape[1]]
        if places.shape[2] > 0:
            for e in range(portion_slope.shape[0]):
                portion_slope[e] += per_count[i, uint32(places[s, b, e])]


@rare
def add_bias_gradient(plan, scratch, gradient):
    """gradient_g += the slopes of the portions of bucket g."""
    for e in range(scratch.portion_slope.shape[0]):
        gradient[0, plan.bucket[e]] += scratch.portion_scale[e] * scratch.portion_slope[e]
