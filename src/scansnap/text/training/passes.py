"""Passes over a text's windows in an order that a seed draws.

`train_text` reads the text in columns, always in the same order.  (Y, Z) starts from zero, so that the order of its
windows is all that can differ between two runs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

LAST = 100
"""The loss is the mean of so many last updates."""


class Stepping(Protocol):
    """A model that makes a step of SGD on windows."""

    def step(self, ids: Tensor, next_tokens: Tensor, *, lr_y: float, lr_z: float) -> Tensor:
        """Learn from windows (B, T) and return their loss."""


def train_in_passes(
    model: Stepping, windows: Tensor, *, batch_size: int, passes: int, seed: int, lr_y: float, lr_z: float
) -> float:
    """Train on windows (N, T + 1), `passes` times over, each in its own order; the loss of the last updates."""
    rng = np.random.default_rng(seed)
    losses: list[Tensor] = []
    for _ in range(passes):
        order = torch.from_numpy(rng.permutation(len(windows))).to(windows.device)
        for chosen in order[: len(order) // batch_size * batch_size].split(batch_size):
            batch = windows[chosen]
            losses.append(model.step(batch[:, :-1], batch[:, 1:], lr_y=lr_y, lr_z=lr_z))
    return float(torch.stack(losses[-LAST:]).double().mean())
