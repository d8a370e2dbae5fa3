"""Compare the closed form of a system's gradient with autograd of a plain model, one run after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scansnap.systems.system import System

Tensors = dict[str, Tensor]


def compare_with_autograd(system: System, loss_of: Callable[[Any, Any], Tensor], seed: int = 7) -> None:
    """`loss_of(blocks, data)` is the loss of one run; three runs, at random parameters near the start."""
    seeds, rng = np.arange(3, dtype=np.uint64), np.random.default_rng(seed)
    state = {name: torch.tensor(v + rng.normal(size=v.shape)) for name, v in system.start(seeds).items()}
    data = {name: torch.as_tensor(values) for name, values in system.data(seeds, None).items()}
    gradient, loss = system.gradient(state, data)
    for run in range(len(seeds)):
        blocks = {name: values[run].clone().requires_grad_() for name, values in state.items()}
        plain = loss_of(blocks, {name: values[run] for name, values in data.items()})
        torch.testing.assert_close(loss[run], plain.detach(), rtol=1e-12, atol=1e-12)
        for name, slope in zip(blocks, torch.autograd.grad(-plain, list(blocks.values())), strict=True):
            torch.testing.assert_close(gradient[name][run], slope, rtol=1e-12, atol=1e-12)
