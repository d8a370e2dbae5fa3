"""What training needs of a model that learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor


class Learner(Protocol):
    """A model and how it learns."""

    moments: int
    """Numbers that it keeps for each parameter."""

    def update(self, step: int, inputs: Tensor, targets: Tensor, rate_share: float | None = None) -> Tensor:
        """Learn from a batch (B, T) and return its loss before the update, still on the device.

        With `rate_share`, which is then given for every update, the rates are that share of those of the options.
        """

    def evaluate(self, windows: Tensor, rows_at_once: int) -> float:
        """The mean loss over windows (N, T + 1), with so many rows of logits in memory at once."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue to identical numbers."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
