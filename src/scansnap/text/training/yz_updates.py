"""Updates of Y and Z on text: plain SGD along gradients in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.runtime.cuda_graph import capture
from scansnap.runtime.errors import InputError
from scansnap.text.model.yz import YZText
from scansnap.text.training.batch_graph import BatchGraph
from scansnap.text.training.options import YZTextOptions
from scansnap.text.training.ranks import Ranks


class YZUpdates:
    """Y and Z in training."""

    moments = 0

    def __init__(self, model: YZText, options: YZTextOptions, ranks: Ranks) -> None:
        if ranks.count > 1:
            raise InputError(f"the model yz is trained by one process, but there are {ranks.count}: start one.")
        self.model, self._options, self._device = model, options, ranks.device
        self._graph: BatchGraph | None = None
        self._result = torch.zeros((), dtype=torch.float64, device=self._device)
        self._rate_share = torch.ones((), dtype=model.decoder.dtype, device=self._device)  # what the graph reads

    def update(self, step: int, inputs: Tensor, targets: Tensor, rate_share: float | None = None) -> Tensor:
        """Learn from a batch (B, T) and return its loss before the update, still on the device."""
        self._rate_share.fill_(1.0 if rate_share is None else rate_share)
        if self._device.type == "cuda" and self._graph is None:
            self._graph = BatchGraph(self._capture, inputs.to(self._device), targets.to(self._device))
        if self._graph is None:
            self._update(inputs, targets)
        else:
            self._graph.replay(inputs, targets)
        return self._result.clone()

    def evaluate(self, windows: Tensor, rows_at_once: int) -> float:
        """The mean loss over windows (N, T + 1)."""
        return float(self.model.loss(windows[:, :-1], windows[:, 1:]))

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue to identical numbers."""
        return {name: tensor.cpu().numpy() for name, tensor in self.model.state_dict().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; a CPU takes it over, since Y and Z may fill half of its memory."""
        tensors = {name: torch.from_numpy(values) for name, values in state.items()}
        self.model.load_state_dict(tensors, assign=self._device.type == "cpu")

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        lr_y, lr_z = (rate * self._rate_share for rate in (self._options.lr_y, self._options.rate_z))
        self._result.copy_(self.model.step(inputs, targets, lr_y=lr_y, lr_z=lr_z))

    def _capture(self, inputs: Tensor, targets: Tensor) -> torch.cuda.CUDAGraph:
        """A graph of the update on these tensors; the model stays as it was."""
        return capture(lambda: self._update(inputs, targets), self.model.parameters())
