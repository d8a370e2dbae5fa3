"""Position codes: added to a transformer's input, or to its attention logits by distance.

A bias on attention logits by relative position acts like a prior on contextual tokens (Section 7).
"""

from __future__ import annotations

import math

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
        # `embedding` sums its gradient in a fixed order on any device; indexing with several threads does not.
        return functional.embedding(self.bucket, self.table).permute(2, 0, 1)
