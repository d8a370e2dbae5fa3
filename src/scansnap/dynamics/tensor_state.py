"""What engines on tensors keep from update to update, and how it is taken up again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.engine import Array


class TensorState:
    """Parameters and the update rules' memory by name, the step, and where runs diverged."""

    def __init__(self, tensors: dict[str, Tensor], runs: int, device: torch.device) -> None:
        self._tensors = tensors
        # The step as a tensor, so that a captured graph sees it change.
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._diverged = np.full(runs, -1, np.int64)

    @property
    def step(self) -> int:
        return int(self._step)

    def diverged(self) -> NDArray[np.int64]:
        return self._diverged

    def state(self) -> dict[str, Array]:
        return {"diverged": self._diverged, **{name: tensor.cpu().numpy() for name, tensor in self._tensors.items()}}

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        self._step.fill_(step)
        self._diverged = np.asarray(state["diverged"], np.int64)
        for name, tensor in self._tensors.items():
            tensor.copy_(torch.as_tensor(np.asarray(state[name])))
