"""From attention to the direction that the decoder reads, and the gradient back: normalisation and residual connection.

Attention c of one sequence (l1-normalised, over contextual tokens) becomes the direction v over all rows of Y:

    u = LN(c),      v = u, or with the residual connection v = LN(u + e_m)                  (Section 7, in (Y, Z) form)

with LN(x) = x / |x|_2, or (x - mean x) / |x - mean x|_2 for standard LayerNorm.  Sums over tokens count a row that
stands for nu tokens nu times (`model/compact.py`).

The gradient back through LN, from g = dJ/dLN(x), is for either kind

    dJ/dx = (g - mean g - u (u . g)) / |x - mean x|_2                      (no means for the l2 kind),

Lemma 1's projection; for the centred kind it is the product of two projections, which commute because u sums to zero.
The softmax asks for one more projection, dz = c o (dJ/dc - c . dJ/dc).  It is idle, as in the proof of Lemma 1: LN(s x)
is LN(x) for s > 0, so that c . dJ/dc = 0 for either kind, with or without a residual connection, and

    dz = (c / |c - mean c|_2) o (g - mean g - u (u . g)).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.model.architecture import Architecture
from scansnap.model.compact import CompactLayout


@dataclass(frozen=True)
class Readout:
    """The shape of an architecture's directions, on a device."""

    architecture: Architecture
    num_tokens: int  # M
    num_rows: int  # S: the first rows are those of attention
    num_decoder_rows: int  # D
    multiplicity: Tensor | None  # (D,) nu, where any row stands for more than one token
    own_row: Tensor  # (K,) the row of each class's query

    @classmethod
    def of(cls, layout: CompactLayout, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> Readout:
        merged = layout.row_multiplicity.max() > 1
        return cls(
            architecture=layout.architecture,
            num_tokens=layout.classes.vocab_size,
            num_rows=layout.num_rows,
            num_decoder_rows=layout.num_decoder_rows,
            multiplicity=torch.tensor(layout.row_multiplicity, dtype=dtype, device=device) if merged else None,
            own_row=torch.tensor(
                layout.own_row if layout.architecture.residual else [], dtype=torch.int64, device=device
            ),
        )

    def forward(self, c: Tensor, class_index: Tensor) -> Directions:
        """Directions for attention c (R, B, H, S) of sequences of the classes (R, B)."""
        more = self.num_decoder_rows - self.num_rows
        inner, length = self._unit(torch.nn.functional.pad(c, (0, more)) if more else c)
        scaled = c / length if more or self._centred else inner
        if not self.architecture.residual:
            return Directions(self, scaled, inner, inner, None)
        own = self.own_row[class_index][:, :, None, None].expand(-1, -1, c.shape[2], 1)
        outer, outer_length = self._unit(inner.scatter_add(3, own, torch.ones_like(inner[..., :1])))
        return Directions(self, scaled, inner, outer, outer_length)

    @property
    def _centred(self) -> bool:
        return self.architecture.normalization == "layer"

    def weigh(self, x: Tensor) -> Tensor:
        """nu x: entries as often as there are tokens behind them."""
        return x if self.multiplicity is None else x * self.multiplicity

    def _mean(self, x: Tensor) -> Tensor:
        return self.weigh(x).sum(3, keepdim=True) / self.num_tokens

    def _unit(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """LN(x) and the length it was divided by."""
        if self._centred:
            x = x - self._mean(x)
        if self.multiplicity is None:
            length = torch.linalg.vector_norm(x, dim=3, keepdim=True)
        else:
            length = (self.weigh(x) * x).sum(3, keepdim=True).sqrt()
        return x / length, length

    def project(self, unit: Tensor, g: Tensor) -> Tensor:
        """g - mean g - u (u . g)."""
        along = (self.weigh(unit) * g).sum(3, keepdim=True)
        found = torch.addcmul(g, unit, along, value=-1)
        return found - self._mean(g) if self._centred else found


@dataclass(frozen=True)
class Directions:
    """v (R, B, H, D) and what its gradient needs."""

    readout: Readout
    scaled: Tensor  # (R, B, H, S) c / |c - mean c|
    inner: Tensor  # u
    value: Tensor  # v
    outer_length: Tensor | None  # |u + e_m|, centred or not, where there is a residual connection

    def backward(self, g: Tensor) -> Tensor:
        """dJ/dz (R, B, H, S) from g = dJ/dv (R, B, H, D)."""
        if self.outer_length is not None:
            g = self.readout.project(self.value, g) / self.outer_length
        back = self.readout.project(self.inner, g)
        return self.scaled * (back if back.shape == self.scaled.shape else back[..., : self.readout.num_rows])
