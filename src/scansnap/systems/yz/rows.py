"""Vectors over all M tokens, of which only some entries are stored (`systems/yz/compact.py`).

A row that stands for nu tokens counts nu times in every sum over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenRows:
    """The rows along the last axis of a tensor, and how many tokens each stands for.

    >>> ss.TokenRows(num_tokens=34).num_tokens
    34
    """

    num_tokens: int  # M
    multiplicity: Tensor | None = None  # (D,) nu, where any row stands for more than one token

    def weigh(self, x: Tensor) -> Tensor:
        """nu x: each entry times the number of tokens behind it."""
        return x if self.multiplicity is None else x * self.multiplicity

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all M tokens (.., 1)."""
        return self.weigh(x).sum(-1, keepdim=True) / self.num_tokens

    def length(self, x: Tensor) -> Tensor:
        """|x|_2 over all M tokens (.., 1)."""
        if self.multiplicity is None:
            return torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (self.weigh(x) * x).sum(-1, keepdim=True).sqrt()

    def along(self, unit: Tensor, g: Tensor) -> Tensor:
        """u . g over all M tokens (.., 1)."""
        return (self.weigh(unit) * g).sum(-1, keepdim=True)
