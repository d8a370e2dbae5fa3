"""Position codes: added to a transformer's input, or to its attention logits by distance.

A bias on attention logits by relative position acts like a prior on contextual tokens (Section 7).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BUCKETS = 32
FARTHEST = 128
"""T5's distances: half of the buckets contain one distance each, the others grow up to `FARTHEST`."""


def sinusoidal(window: int, width: int) -> Tensor:
    """Sines in the even and cosines in the odd columns (window, width), at wavelengths from 2 pi to 10000 * 2 pi."""
    position = torch.arange(window)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(window, width)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : width // 2]
    return table


def distances(window: int) -> Tensor:
    """The distance from query i back to key j (window, window); 0 for keys after the query, which are masked."""
    position = torch.arange(window)
    return (position[:, None] - position).clamp(min=0)


def alibi(heads: int, window: int) -> Tensor:
    """-slope * distance (heads, window, window), with slopes 2^(-8/heads), 2^(-16/heads), ..."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    return -slopes[:, None, None] * distances(window)


def buckets(window: int) -> Tensor:
    """The bucket of each distance (window, window): one for each small distance, then growing geometrically."""
    distance = distances(window)
    near = BUCKETS // 2
    ratio = torch.log(distance.clamp(min=1) / near) / math.log(FARTHEST / near)
    return torch.where(distance < near, distance, (near + (ratio * (BUCKETS - near)).long()).clamp(max=BUCKETS - 1))


class RelativeBias(nn.Module):
    """T5's learned bias: a number for each head and bucket of distances, initially zero."""

    bucket: Tensor

    def __init__(self, heads: int, window: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(BUCKETS, heads))
        self.register_buffer("bucket", buckets(window), persistent=False)

    def forward(self) -> Tensor:
        """(heads, window, window)"""
        # Both sum their gradient in one order; plain indexing does not, with several threads or on a GPU.
        rows = functional.embedding if self.table.device.type == "cpu" else by_bucket
        return rows(self.bucket, self.table).permute(2, 0, 1)


def by_bucket(bucket: Tensor, table: Tensor) -> Tensor:
    """table[bucket] for buckets (window, window), with a gradient that a GPU sums in one order.

    `embedding` does not from some thousand entries on: it adds up the many entries of a bucket as they come.
    """
    return _ByBucket.apply(bucket, table)


class _ByBucket(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bucket: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(bucket)
        ctx.count = len(table)
        return table[bucket]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        (bucket,) = ctx.saved_tensors
        sums = [(gradient * (bucket == b)[..., None]).sum((0, 1)) for b in range(ctx.count)]
        return None, torch.stack(sums)
