"""The Triton kernels of `fused_cross_entropy.py`; imported only where they run.

The tensor cores compute a float32 product as three tf32 products (`PRECISION` "tf32x3"): with a = a1 + a2, where a1 is
its leading bits, a b = a1 b1 + a1 b2 + a2 b1 to float32's own rounding.  `logits` is padded to whole blocks, so that no
access to it needs a mask; its rows are `stride` apart.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def make_logits(
    hidden,
    decoder,
    bias,
    logits,
    tops,
    sums,
    count,
    vocab,
    stride,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Logits (N, V); the largest of each row and block of tokens, and the sum of exponentials below it (blocks, N)."""
    block = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = block * TOKENS + tl.arange(0, TOKENS)
    word = decoder + token[None, :].to(tl.int64) * WIDTH
    logit = tl.zeros((ROWS, TOKENS), tl.float32)
    for start in range(0, WIDTH, DEPTH):
        k = start + tl.arange(0, DEPTH)
        h = tl.load(hidden + row[:, None] * WIDTH + k[None, :], (row[:, None] < count) & (k[None, :] < WIDTH), 0.0)
        w = tl.load(word + k[:, None], (token[None, :] < vocab) & (k[:, None] < WIDTH), 0.0)
        logit = tl.dot(h, w, logit, input_precision=PRECISION)
    logit += tl.load(bias + token, token < vocab, 0.0)[None, :].to(tl.float32)
    rounded = tl.where(token[None, :] < vocab, logit, float("-inf")).to(logits.dtype.element_ty)
    tl.store(logits + row[:, None].to(tl.int64) * stride + token[None, :], rounded)
    logit = rounded.to(tl.float32)
    top = tl.max(logit, 1)
    tl.store(tops + block * count + row, top, row < count)
    top = tl.where(top == float("-inf"), 0.0, top)  # every token of the block is impossible
    tl.store(sums + block * count + row, tl.sum(tl.exp(logit - top[:, None]), 1), row < count)


@triton.jit
def normalize(
    logits, targets, tops, sums, normalizers, losses, count, stride, blocks, ROWS: tl.constexpr, BLOCKS: tl.constexpr
):
    """log Z and the loss of each row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    block = tl.arange(0, BLOCKS)
    place = block[:, None] * count + row[None, :]
    inside = (block[:, None] < blocks) & (row[None, :] < count)
    top = tl.load(tops + place, inside, float("-inf"))
    largest = tl.where(row < count, tl.max(top, 0), 0.0)
    z = tl.sum(tl.exp(top - largest[None, :]) * tl.load(sums + place, inside, 0.0), 0)
    normalizer = largest + tl.log(tl.where(row < count, z, 1.0))
    target = tl.load(targets + row, row < count, 0)
    target_logit = tl.load(logits + row.to(tl.int64) * stride + target, row < count, 0.0).to(tl.float32)
    tl.store(normalizers + row, normalizer, row < count)
    tl.store(losses + row, normalizer - target_logit, row < count)


@triton.jit
def make_errors(logits, targets, normalizers, totals, count, stride, ROWS: tl.constexpr, TOKENS: tl.constexpr):
    """Replace logits by probabilities minus one-hot targets, and sum these over each block of rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    place = logits + row[:, None].to(tl.int64) * stride + token[None, :]
    normalizer = tl.load(normalizers + row, row < count, float("inf"))  # so that padding rows have no error
    error = tl.exp(tl.load(place).to(tl.float32) - normalizer[:, None])
    target = tl.load(targets + row, row < count, -1)
    error = tl.where(token[None, :] == target[:, None], error - 1.0, error)
    tl.store(place, error.to(logits.dtype.element_ty))
    tl.store(totals + tl.program_id(0) * stride + token, tl.sum(error, 0))
