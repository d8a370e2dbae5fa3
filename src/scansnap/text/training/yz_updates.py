"""Updates of Y and Z on text: plain SGD along gradients in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.errors import InputError
from scansnap.text.model.yz import YZText
from scansnap.text.training.options import YZTextOptions
from scansnap.text.training.ranks import Ranks


class YZUpdates:
    """Y and Z in training."""

    def __init__(self, model: YZText, options: YZTextOptions, ranks: Ranks) -> None:
        if ranks.count > 1:
            raise InputError(f"the model yz is trained by one process, but there are {ranks.count}: start one.")
        self.model, self._options, self._device = model, options, ranks.device

    def update(self, step: int, inputs: Tensor, targets: Tensor, rate_share: float | None = None) -> Tensor:
        """Learn from a batch (B, T) and return its loss before the update, still on the device."""
        share = 1.0 if rate_share is None else rate_share
        rates = {"lr_y": share * self._options.lr_y, "lr_z": share * self._options.rate_z}
        return self.model.step(inputs.to(self._device), targets.to(self._device), **rates)

    def evaluate(self, windows: Tensor, rows_at_once: int) -> float:
        """The mean loss over windows (N, T + 1)."""
        return float(self.model.loss(windows[:, :-1], windows[:, 1:]))

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue to identical numbers."""
        return {name: tensor.cpu().numpy() for name, tensor in self.model.state_dict().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned, without a copy on a CPU: Y and Z may fill half of its memory."""
        tensors = {name: torch.from_numpy(values).to(self._device) for name, values in state.items()}
        self.model.load_state_dict(tensors, assign=True)
