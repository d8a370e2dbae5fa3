"""From attention logits to the direction that the decoder reads, and the gradient back.

The logits z of a sequence's query and its token counts a become attention c over contextual tokens, and attention
becomes the direction v over all rows of Y (`systems/yz/architecture.py`):

    u = LN(c),      v = u, or with the residual connection v = LN(u + e_m)                  (Section 7, in (Y, Z) form)

Sums over tokens count a row that stands for nu tokens nu times.

For the softmax and the built-in normalizations the gradient is in closed form.  After LN's own projection the softmax
requires one more, dz = c o (dJ/dc - c . dJ/dc).  It has no effect, as in the proof of Lemma 1: LN(s x) is LN(x) for
s > 0, so c . dJ/dc = 0 with or without a residual connection, and

    dz = (c / |c - mean c|_2) o (g - mean g - u (u . g))                                   (no means for the l2 kind).

For any other map, normalization or addition, autograd goes back through the same steps; `compare_gradients` in
`dynamics/gradients.py` shows how far apart the two gradients are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from scansnap.systems.yz.architecture import (
    ADD_QUERY,
    SOFTMAX,
    Addition,
    AttentionMap,
    ClosedFormMap,
    ClosedFormNormalization,
    Normalization,
    TokenRows,
)
from scansnap.systems.yz.compact import CompactLayout


@dataclass(frozen=True)
class Readout:
    """A layer's parts and the shape of its directions, on a device."""

    attention_map: AttentionMap
    normalizer: Normalization
    spreads: bool  # whether LN gives an entry to tokens that do not occur
    addition: Addition | None
    rows: TokenRows  # those of Y
    num_rows: int  # S: the first rows are those of attention
    num_decoder_rows: int  # D
    own_row: Tensor  # (K,) the row of each class's query

    @classmethod
    def of(cls, layout: CompactLayout, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> Readout:
        merged = layout.row_multiplicity.max() > 1
        multiplicity = torch.tensor(layout.row_multiplicity, dtype=dtype, device=device) if merged else None
        layer = layout.layer
        own_row = layout.own_row.tolist() if layer.addition is not None else []
        return cls(
            attention_map=layer.map,
            normalizer=layer.normalizer,
            spreads=layer.spreads,
            addition=layer.addition,
            rows=TokenRows(layout.classes.vocab_size, multiplicity),
            num_rows=layout.num_rows,
            num_decoder_rows=layout.num_decoder_rows,
            own_row=torch.tensor(own_row, dtype=torch.int64, device=device),
        )

    @cached_property
    def has_closed_form(self) -> bool:
        """Whether every part of the layer has its gradient in closed form."""
        return (
            (self.is_softmax or _writes_out(self.attention_map, ClosedFormMap, "backward"))
            and _writes_out(self.normalizer, ClosedFormNormalization, "unit")
            and self.addition in (None, ADD_QUERY)
        )

    @cached_property
    def is_softmax(self) -> bool:
        """Whether the map is the softmax, whose own projection has no effect."""
        return self.attention_map == SOFTMAX

    def forward(self, z: Tensor, log_a: Tensor, class_index: Tensor, *, autograd: bool = False) -> Directions:
        """Directions for logits z (R, B, H, S) and ln a (R, B, 1, S) of sequences of the classes (R, B)."""
        if self.has_closed_form and not autograd:
            return self._closed_form(z, log_a, class_index)
        return AutogradDirections.of(self, z, log_a, class_index)

    def direction(self, z: Tensor, log_a: Tensor, class_index: Tensor) -> Tensor:
        """v from the forward maps alone."""
        u = self.normalizer.forward(self._padded(self.attention_map.forward(z, log_a)), self.rows)
        if self.addition is None:
            return u
        return self.normalizer.forward(self.addition.forward(u, self._query(u, class_index)), self.rows)

    def _closed_form(self, z: Tensor, log_a: Tensor, class_index: Tensor) -> ClosedFormDirections:
        normalizer = cast(ClosedFormNormalization, self.normalizer)
        c = self.attention_map.forward(z, log_a)
        inner, length = normalizer.unit(self._padded(c), self.rows)
        if self.addition is None:
            return ClosedFormDirections(self, z, log_a, c, length, inner, inner, None)
        with_query = inner.scatter_add(3, self._own(inner, class_index), torch.ones_like(inner[..., :1]))
        outer, outer_length = normalizer.unit(with_query, self.rows)
        return ClosedFormDirections(self, z, log_a, c, length, inner, outer, outer_length)

    def _padded(self, c: Tensor) -> Tensor:
        """c (.., S) with zeros for the other rows of Y (.., D)."""
        more = self.num_decoder_rows - self.num_rows
        return functional.pad(c, (0, more)) if more else c

    def _own(self, u: Tensor, class_index: Tensor) -> Tensor:
        return self.own_row[class_index][:, :, None, None].expand(-1, -1, u.shape[2], 1)

    def _query(self, u: Tensor, class_index: Tensor) -> Tensor:
        """e_m (R, B, H, D)."""
        return torch.zeros_like(u).scatter(3, self._own(u, class_index), 1.0)


def _writes_out(part: object, form: type, name: str) -> bool:
    """Whether a part's closed form fits its `forward`: a subclass that overrides only `forward` has none."""
    bases = type(part).__mro__

    def first(word: str) -> int:
        return next((i for i, base in enumerate(bases) if word in vars(base)), 0)

    return isinstance(part, form) and first("forward") >= first(name)


@dataclass(frozen=True)
class ClosedFormDirections:
    """v and what its gradient needs."""

    readout: Readout
    z: Tensor
    log_a: Tensor
    attention: Tensor  # (R, B, H, S) c
    length: Tensor  # |c - mean c|
    inner: Tensor  # u
    value: Tensor  # v
    outer_length: Tensor | None  # |u + e_m|, centered or not, where there is a residual connection

    def backward(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """dJ/dz and dJ/d ln a (R, B, H, S) from g = dJ/dv (R, B, H, D)."""
        readout, rows = self.readout, self.readout.rows
        normalizer = cast(ClosedFormNormalization, readout.normalizer)
        if self.outer_length is not None:
            g = normalizer.project(self.value, g, rows) / self.outer_length
        back = normalizer.project(self.inner, g, rows)
        if back.shape != self.attention.shape:
            back = back[..., : readout.num_rows]
        if not readout.is_softmax:
            closed_map = cast(ClosedFormMap, readout.attention_map)
            return closed_map.backward(self.z, self.log_a, self.attention, back / self.length)
        plain = self.inner.shape == self.attention.shape and not readout.spreads
        dz = (self.inner if plain else self.attention / self.length) * back
        return dz, dz  # the softmax sees z and ln a through their sum alone


@dataclass(frozen=True)
class AutogradDirections:
    """v with the graph that led to it."""

    readout: Readout
    value: Tensor
    z: Tensor
    log_a: Tensor
    graph: Tensor  # v, attached

    @classmethod
    def of(cls, readout: Readout, z: Tensor, log_a: Tensor, class_index: Tensor) -> AutogradDirections:
        with torch.enable_grad():
            z, log_a = z.detach().requires_grad_(), log_a.expand_as(z).detach().requires_grad_()
            graph = readout.direction(z, log_a, class_index)
        return cls(readout, graph.detach(), z, log_a, graph)

    def backward(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """dJ/dz and dJ/d ln a (R, B, H, S) from g = dJ/dv (R, B, H, D)."""
        # A row that stands for nu tokens has nu times the gradient that each of them has.
        weighed = self.readout.rows.weigh(g)
        slopes = torch.autograd.grad(self.graph, (self.z, self.log_a), weighed, allow_unused=True)
        # An absent token has ln a = -inf, where a map's gradient may be 0 times infinity.
        dz, dlog_a = (torch.zeros_like(self.z) if slope is None else slope.nan_to_num(nan=0.0) for slope in slopes)
        return torch.where(self.log_a == -torch.inf, 0.0, dz), torch.where(self.log_a == -torch.inf, 0.0, dlog_a)


Directions = ClosedFormDirections | AutogradDirections
"""Directions of sequences, with the gradient back through them."""
