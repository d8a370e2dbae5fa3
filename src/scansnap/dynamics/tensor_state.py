"""The state that tensor engines keep between updates, how it moves, and how it is restored."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.engine import Array, Work
from scansnap.dynamics.update_rules import Update, UpdateRule, memory_of


class TensorState:
    """Parameters and the update rule's memory by name, the step, and where runs diverged."""

    spins = True

    @staticmethod
    def numbers_at_once(work: Work) -> float:
        """None: each run has its own batch."""
        return 0.0

    def __init__(
        self,
        parameters: dict[str, Tensor],
        rates: Mapping[str, Tensor],
        shares: Mapping[str, Tensor],
        rule: UpdateRule,
        runs: int,
        device: torch.device,
    ) -> None:
        self.parameters = parameters
        self._rates = rates  # (R, 1, 1) of each parameter
        self._shares = shares  # of parameters that hold merged entries
        self._rule = rule
        self._memory = {
            name: {word: torch.zeros_like(matrix) for word in memory_of(rule)} for name, matrix in parameters.items()
        }
        # The step as a tensor, so that a captured graph sees it change.
        self.step_tensor = torch.zeros((), dtype=torch.int64, device=device)
        self._diverged = np.full(runs, -1, np.int64)

    @property
    def step(self) -> int:
        return int(self.step_tensor)

    def diverged(self) -> NDArray[np.int64]:
        return self._diverged

    def move(self, name: str, gradient: Tensor) -> None:
        """One step of the rule for a parameter, from the gradient of its groups of merged entries."""
        self._rule.move(
            Update(
                matrix=self.parameters[name],
                group_gradient=gradient,
                share=self._shares.get(name),
                rate=self._rates[name],
                step=self.step_tensor,
                memory=self._memory[name],
            )
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Parameters and the rule's memory of them."""
        remembered = {
            f"{name}_{word}": array for name, arrays in self._memory.items() for word, array in arrays.items()
        }
        return {**self.parameters, **remembered}

    def state(self) -> dict[str, Array]:
        return {"diverged": self._diverged, **{name: tensor.cpu().numpy() for name, tensor in self.tensors.items()}}

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        self.step_tensor.fill_(step)
        self._diverged = np.asarray(state["diverged"], np.int64)
        for name, tensor in self.tensors.items():
            tensor.copy_(torch.as_tensor(np.asarray(state[name])))
