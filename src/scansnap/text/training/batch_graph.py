"""Work on batches of one size that a GPU captures once as a graph and replays."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class BatchGraph:
    """A graph and the tensors (B, T) that it reads."""

    def __init__(
        self, capture: Callable[[Tensor, Tensor], torch.cuda.CUDAGraph], inputs: Tensor, targets: Tensor
    ) -> None:
        """`capture` makes the graph of the work on these tensors, which must be on the GPU."""
        self._batch = inputs, targets
        self._graph = capture(inputs, targets)

    def replay(self, inputs: Tensor, targets: Tensor) -> None:
        """Do the work on another batch, without waiting for it."""
        for static, values in zip(self._batch, (inputs, targets), strict=True):
            assert static.shape == values.shape  # a graph is for one size
            static.copy_(values.pin_memory() if values.device.type == "cpu" else values, non_blocking=True)
        self._graph.replay()
