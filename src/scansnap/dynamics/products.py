"""The matrix products of a step: between Y and the directions and residuals of a batch.

    logits = v Y,      g = x Y^T,      dY = v^T x           for v (R, B, H D), x (R, B, C), Y (R, H D, C)

Unless LN spreads, a direction is zero except at the tokens of its sequence's class, and with a residual connection at
its query: some twenty of all rows.  Of g only these entries matter, because dz = c o (...) is zero elsewhere.
`support_products.py` reads these rows alone; the products here also multiply the zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Products(Protocol):
    """The three products; `class_index` (R, B) holds the class of each sequence."""

    in_class_order: bool
    """Whether the sequences of a batch must be in the order of their classes."""

    def read(self, v: Tensor, decoder: Tensor, class_index: Tensor) -> Tensor:
        """v Y (R, B, C)."""

    def back(self, x: Tensor, decoder: Tensor, class_index: Tensor) -> Tensor:
        """x Y^T (R, B, H D), zero where a direction must be."""

    def outer(self, v: Tensor, x: Tensor, class_index: Tensor) -> Tensor:
        """v^T x (R, H D, C)."""


@dataclass(frozen=True)
class DenseProducts:
    """Products over all rows, for any batch."""

    in_class_order = False

    def read(self, v: Tensor, decoder: Tensor, class_index: Tensor) -> Tensor:
        return v @ decoder

    def back(self, x: Tensor, decoder: Tensor, class_index: Tensor) -> Tensor:
        return x @ decoder.mT

    def outer(self, v: Tensor, x: Tensor, class_index: Tensor) -> Tensor:
        return v.mT @ x
