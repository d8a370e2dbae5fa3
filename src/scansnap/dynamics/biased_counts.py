"""Token counts weighed by a bias on their positions, and the gradient by the bias; derived in `position_bias.py`."""

from __future__ import annotations

import torch
from torch import Tensor


def biased_counts(buckets: Tensor, bias: Tensor) -> Tensor:
    """a (R, B, S) from the buckets' counts (R, B, G, S) and the bias (R, 1, G), up to a factor of each run."""
    return (buckets * _weights(bias)[:, None, :, None]).sum(2)  # compiled, the product is never stored


def bias_gradient(buckets: Tensor, bias: Tensor, counts: Tensor, dlog_a: Tensor) -> Tensor:
    """dJ/db (R, 1, G) from a and dJ/d ln a (R, B, S) of each sequence, summed over heads."""
    per_count = torch.where(counts > 0, dlog_a / counts, 0.0)  # an absent token has no share and no gradient
    return (_weights(bias) * (buckets * per_count[:, :, None]).sum((1, 3)))[:, None]


def _weights(bias: Tensor) -> Tensor:
    """exp(b) (R, G) without overflow: the largest is one."""
    return torch.exp(bias - bias.amax(2, keepdim=True))[:, 0]
