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
def draw(
    seeds, step, size, thresholds, class_thresholds, support, class_index, counts,
    batch, num_classes, width, num_rows, length, half,
    CLASSES: tl.constexpr, DRAWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program per sequence: `data.sampling.draw_class`, `fill_draws` and `count_by_thresholds`."""
    golden = tl.full((), GOLDEN, tl.uint64)
    program = tl.program_id(0)
    r, b = program // batch, program % batch
    run = mix(tl.load(seeds + r).to(tl.uint64) + golden)
    update = mix(run + (tl.load(step).to(tl.uint64) + 1) * golden)
    key = mix(update + (b.to(tl.uint64) + 1) * golden)

    u = ((mix(key + golden) >> 11).to(tl.float64) + 0.5) * 1.1102230246251565e-16  # 2^-53
    k = tl.arange(0, CLASSES)
    cumulative = tl.load(class_thresholds + k, mask=k < num_classes - 1, other=2.0)
    n = tl.sum((cumulative <= u).to(tl.int32))
    tl.store(class_index + program, n.to(tl.int64))

    j = tl.arange(0, DRAWS)
    low = j < half
    words = mix(key + (tl.where(low, j, j - half) + 2).to(tl.uint64) * golden)
    bits = tl.where(low, words & 0xFFFFFFFF, words >> 32).to(tl.int64)
    draws = tl.where(j < length, bits - 2147483648, 2147483647).to(tl.int32)
    # A draw between the previous token's threshold and a token's own gives that token.
    tokens = tl.load(size + n)
    w = tl.arange(0, WIDTH)
    lower = tl.load(thresholds + n * width + w - 1, mask=(w > 0) & (w < tokens), other=-2147483648)
    upper = tl.load(thresholds + n * width + w, mask=w < tokens - 1, other=2147483647)
    inside = (draws[None, :] >= lower[:, None]) & (draws[None, :] < upper[:, None])
    value = tl.sum(inside.to(tl.int32), axis=1)
    # The last token also takes the largest draw, which is below no threshold; padding draws equal it.
    largest = tl.sum(((draws == 2147483647) & (j < length)).to(tl.int32))
    value += tl.where(w == tokens - 1, largest, 0)
    rows = tl.load(support + n * width + w, mask=w < tokens, other=0)
    tl.store(counts + program * num_rows + rows, value.to(counts.dtype.element_ty), mask=w < tokens)
