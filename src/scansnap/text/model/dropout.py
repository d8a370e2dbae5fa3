"""Dropout, with random numbers that do not hold up a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def drop(x: Tensor, share: float) -> Tensor:
    """`x` with a random `share` of its entries zero and the others divided by 1 - share.

    PyTorch's own draws one Bernoulli number after another on a CPU; uniform ones take less than half as long.
    """
    if not share:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, share)
    kept = torch.rand_like(x, dtype=torch.float32).ge_(share).div_(1 - share)  # in bf16 numbers would be too coarse
    return x * kept.to(x.dtype)
