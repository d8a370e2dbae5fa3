"""Dropout, with random numbers that are cheap on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def drop(x: Tensor, share: float) -> Tensor:
    """`x` with a random `share` of its entries set to zero and the others divided by 1 - share.

    On a CPU, PyTorch's own dropout draws Bernoulli numbers one by one; uniform numbers take less than half as long.
    """
    if not share:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, share)
    mask = torch.rand_like(x, dtype=torch.float32).ge_(share).div_(1 - share)  # bf16 numbers would be too coarse
    return x * mask.to(x.dtype)
