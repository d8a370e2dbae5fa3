"""The Triton kernel behind `device_sampling.py`; imported only if there is a GPU to run it."""

from __future__ import annotations

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
MIX_2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix(x):
    """`data.random_stream.mix`."""
    x = (x ^ (x >> 30)) * tl.full((), MIX_1, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full((), MIX_2, tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def sequence_key(seeds, step, r, b):
    """`data.random_stream.sequence_key` of sequence b of update `step`, for seed number r."""
    golden = tl.full((), GOLDEN, tl.uint64)
    run = mix(tl.load(seeds + r).to(tl.uint64) + golden)
    update = mix(run + (step.to(tl.uint64) + 1) * golden)
    return mix(update + (b.to(tl.uint64) + 1) * golden)


@triton.jit
def uniform(key):
    """`data.random_stream.uniform` of a stream's word 0."""
    return ((mix(key + tl.full((), GOLDEN, tl.uint64)) >> 11).to(tl.float64) + 0.5) * 1.1102230246251565e-16  # 2^-53


@triton.jit
def draw_class(
    seeds, step, class_thresholds, class_index, batch, num_classes, CLASSES: tl.constexpr, BATCH: tl.constexpr
):
    """A program's key, class, and place in its batch, which is in the order of the classes if BATCH is not 0."""
    program = tl.program_id(0)
    r, b = program // batch, program % batch
    key = sequence_key(seeds, step, r, b)
    u = uniform(key)
    k = tl.arange(0, CLASSES)
    cumulative = tl.load(class_thresholds + k, mask=k < num_classes - 1, other=2.0)
    n = tl.sum((cumulative <= u).to(tl.int32))
    place = b
    if BATCH > 0:
        # A class grows with u, so that the order of u is one of the classes.
        others = tl.arange(0, BATCH)
        theirs = uniform(sequence_key(seeds, step, r, others))
        before = (theirs < u) | ((theirs == u) & (others < b))
        place = tl.sum((before & (others < batch)).to(tl.int32))
    place = r.to(tl.int64) * batch + place
    tl.store(class_index + place, n.to(tl.int64))
    return key, n, place


@triton.jit
def draw(
    seeds,
    step,
    size,
    thresholds,
    class_thresholds,
    support,
    class_index,
    counts,
    batch,
    num_classes,
    width,
    table,
    num_rows,
    length,
    half,
    CLASSES: tl.constexpr,
    DRAWS: tl.constexpr,
    WIDTH: tl.constexpr,
    BATCH: tl.constexpr,
):
    """One program per sequence: `data.compiled_draws.draw_class`, `fill_draws` and `count_by_thresholds`."""
    golden = tl.full((), GOLDEN, tl.uint64)
    key, n, place = draw_class(seeds, tl.load(step), class_thresholds, class_index, batch, num_classes, CLASSES, BATCH)
    j = tl.arange(0, DRAWS)
    low = j < half
    words = mix(key + (tl.where(low, j, j - half) + 2).to(tl.uint64) * golden)
    bits = tl.where(low, words & 0xFFFFFFFF, words >> 32).to(tl.int64)
    draws = tl.where(j < length, bits - 2147483648, 2147483647).to(tl.int32)
    # A draw between the previous token's threshold and a token's own gives that token.
    tokens = tl.load(size + n)
    w = tl.arange(0, WIDTH)
    lower = tl.load(thresholds + n * table + w - 1, mask=(w > 0) & (w < tokens), other=-2147483648)
    upper = tl.load(thresholds + n * table + w, mask=w < tokens - 1, other=2147483647)
    inside = (draws[None, :] >= lower[:, None]) & (draws[None, :] < upper[:, None])
    value = tl.sum(inside.to(tl.int32), axis=1)
    # The last token also takes the largest draw, which is below no threshold; padding draws equal it.
    largest = tl.sum(((draws == 2147483647) & (j < length)).to(tl.int32))
    value += tl.where(w == tokens - 1, largest, 0)
    rows = tl.load(support + n * width + w, mask=w < tokens, other=0)
    tl.store(counts + place * num_rows + rows, value.to(counts.dtype.element_ty), mask=w < tokens)


@triton.jit
def draw_by_position(
    seeds,
    step,
    size,
    thresholds,
    class_thresholds,
    support,
    sizes,
    starts,
    class_index,
    counts,
    batch,
    num_classes,
    width,
    table,
    num_rows,
    num_buckets,
    largest,
    CLASSES: tl.constexpr,
    BUCKETS: tl.constexpr,
    WIDTH: tl.constexpr,
    BATCH: tl.constexpr,
):
    """One program per sequence: `data.position_sampling.draw_positions` and `count_places`.

    It goes through the positions of many buckets at once, one of each at a time, up to those of the `largest`.
    """
    golden = tl.full((), GOLDEN, tl.uint64)
    key, n, place = draw_class(seeds, tl.load(step), class_thresholds, class_index, batch, num_classes, CLASSES, BATCH)
    tokens = tl.load(size + n)
    w = tl.arange(0, WIDTH)[None, :]
    rows = tl.load(support + n * width + w, mask=w < tokens, other=0)
    for first_bucket in range(0, num_buckets, BUCKETS):
        g = first_bucket + tl.arange(0, BUCKETS)
        positions = tl.load(sizes + g, mask=g < num_buckets, other=0).to(tl.int32)
        start = tl.load(starts + g, mask=g < num_buckets, other=0)
        here = (g < num_buckets)[:, None] & (w < tokens)
        row = thresholds + ((n * num_buckets + g) * table)[:, None] + w
        lower = tl.load(row - 1, mask=here & (w > 0), other=-2147483648)
        upper = tl.load(row, mask=here & (w < tokens - 1), other=2147483647)
        value = tl.zeros((BUCKETS, WIDTH), dtype=tl.int32)
        for d in range(largest):
            words = mix(key + (start + d + 2).to(tl.uint64) * golden)
            draws = ((words & 0xFFFFFFFF).to(tl.int64) - 2147483648).to(tl.int32)[:, None]
            # The last token has all draws from the threshold before it on.
            inside = (draws >= lower) & ((draws < upper) | (w == tokens - 1))
            value += (inside & (d < positions)[:, None]).to(tl.int32)
        places = counts + ((place * num_buckets + g) * num_rows)[:, None] + rows
        tl.store(places, value.to(counts.dtype.element_ty), mask=here)


@triton.jit
def choose(seeds, step, stream, choice, batch, count, BATCH: tl.constexpr):
    """One program per seed: `dynamics.random_entries.choose`."""
    r = tl.program_id(0)
    b = tl.arange(0, BATCH)
    u = uniform(sequence_key(seeds, stream + tl.load(step), r, b))
    tl.store(choice + r.to(tl.int64) * batch + b, (u * count).to(tl.int64), mask=b < batch)
