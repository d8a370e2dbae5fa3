"""Which rows of attention are computed: others in each window, or the same in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ChosenRows:
    """Rows (B, r) of each window; where they are the same `span` in all windows, nothing is copied to take them."""

    positions: Tensor
    span: slice | None = None

    @classmethod
    def all(cls, windows: int, length: int, device: torch.device) -> ChosenRows:
        """Every row of every window."""
        return cls(torch.arange(length, device=device).expand(windows, -1), slice(0, length))

    def of(self, tensor: Tensor) -> Tensor:
        """These rows of a tensor that broadcasts to (B, H, T, ...)."""
        if tensor.shape[2] == 1:
            return tensor
        return tensor.take_along_dim(self.column, 2) if self.span is None else tensor[:, :, self.span]

    @property
    def column(self) -> Tensor:
        """The positions as (B, 1, r, 1), or (1, 1, r, 1) where they are the same in all windows."""
        positions = self.positions if self.span is None else self.positions[:1]
        return positions[:, None, :, None]

    def first(self, count: int) -> ChosenRows:
        """The first `count` rows of each window."""
        return next(self.split(count))

    def split(self, size: int) -> Iterator[ChosenRows]:
        """The rows in pieces of at most `size` of each window."""
        start = 0 if self.span is None else self.span.start
        for i, part in enumerate(self.positions.split(size, 1)):
            first = start + i * size
            yield ChosenRows(part, None if self.span is None else slice(first, first + part.shape[1]))
