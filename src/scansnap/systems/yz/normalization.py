"""LN: what a layer does to the attended tokens before the decoder reads them.

    l2       LN(x) = x / |x|_2                                    the paper's
    layer    LN(x) = (x - mean x) / |x - mean x|_2                standard LayerNorm

Both give unit length: LayerNorm's further factor sqrt(M) is a constant that belongs to Y and to its learning rate, and
without it the same rates mean the same thing.  The gradient back through LN, from g = dJ/dLN(x), is for either kind

    dJ/dx = (g - mean g - u (u . g)) / |x - mean x|_2                      (no means for the l2 kind),

Lemma 1's projection; for the centered kind it is the product of two projections, which commute because u sums to zero.

A user's own normalization needs `forward`, and `spreads` if that is not False: without `unit` and `project`, autograd
supplies the gradient (`dynamics/readout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from scansnap.validation.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from scansnap.systems.yz.rows import TokenRows


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
