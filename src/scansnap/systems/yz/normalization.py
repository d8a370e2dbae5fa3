"""LN: what a layer does to the attended tokens before the decoder reads them.

    l2       LN(x) = x / |x|_2                                    the paper's
    layer    LN(x) = (x - mean x) / |x - mean x|_2                standard LayerNorm

Both give unit length: LayerNorm's further factor sqrt(M) is a constant that belongs to Y and to its learning rate, and
without it the same rates mean the same thing.  The gradient back through LN, from g = dJ/dLN(x), is for either kind

    dJ/dx = (g - mean g - u (u . g)) / |x - mean x|_2                      (no means for the l2 kind),

Lemma 1's projection; for the centered kind it is the product of two projections, which commute because u sums to zero.

Vectors over all M tokens are stored by row (`systems/yz/compact.py`): a row that stands for nu tokens counts nu times
in every sum over tokens, which `TokenRows` takes.

A user's own normalization needs `forward`, and `spreads` if that is not False: without `unit` and `project`, autograd
supplies the gradient (`dynamics/readout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from scansnap.validation.registry import Registry

if TYPE_CHECKING:
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
        import torch

        if self.multiplicity is None:
            return torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (self.weigh(x) * x).sum(-1, keepdim=True).sqrt()

    def along(self, unit: Tensor, g: Tensor) -> Tensor:
        """u . g over all M tokens (.., 1)."""
        return (self.weigh(unit) * g).sum(-1, keepdim=True)


class Normalization(Protocol):
    """A map of vectors over tokens, along their last axis.

    >>> class Plain:
    ...     spreads = False
    ...     def forward(self, x, rows: ss.TokenRows):
    ...         return x
    >>> ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, normalization=Plain()).sizes["step"]
    6
    """

    @property
    def spreads(self) -> bool:
        """Whether tokens with a zero entry get a nonzero one, as they do when the mean is subtracted.

        All of them must get the same entry.
        """

    def forward(self, x: Tensor, rows: TokenRows) -> Tensor:
        """LN(x); sums over tokens are those of `rows`."""


@runtime_checkable
class ClosedFormNormalization(Protocol):
    """A normalization u = r/|r|_2 with r linear in x, and LN(s x) = LN(x) for s > 0: its gradient is a projection."""

    def unit(self, x: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
        """u and the length |r| that r was divided by."""

    def project(self, unit: Tensor, g: Tensor, rows: TokenRows) -> Tensor:
        """|r| dJ/dx from g = dJ/du."""


NORMALIZATIONS: Registry[Normalization] = Registry("normalization", "forward")
"""Normalizations of the attended tokens, by name: `normalization=`.

>>> "layer" in ss.NORMALIZATIONS
True
"""


@NORMALIZATIONS.register("l2")
@dataclass(frozen=True)
class L2Normalization:
    """x / |x|_2."""

    spreads = False

    def forward(self, x: Tensor, rows: TokenRows) -> Tensor:
        return self.unit(x, rows)[0]

    def unit(self, x: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
        length = rows.length(x)
        return x / length, length

    def project(self, unit: Tensor, g: Tensor, rows: TokenRows) -> Tensor:
        return g.addcmul(unit, rows.along(unit, g), value=-1)


@NORMALIZATIONS.register("layer")
@dataclass(frozen=True)
class LayerNormalization:
    """(x - mean x) / |x - mean x|_2."""

    spreads = True

    def forward(self, x: Tensor, rows: TokenRows) -> Tensor:
        return self.unit(x, rows)[0]

    def unit(self, x: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
        return L2Normalization().unit(x - rows.mean(x), rows)

    def project(self, unit: Tensor, g: Tensor, rows: TokenRows) -> Tensor:
        return L2Normalization().project(unit, g, rows) - rows.mean(g)
