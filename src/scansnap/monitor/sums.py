"""Sums of each quantity over the rows of each layer.

Quantities of the same rows are reduced together, and on a GPU so are layers of the same shape: what counts there is
how many operations are launched, not how large they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scansnap.monitor.quantities import HeadQuantity, QuantityError, Reduction, Rows, Sample

TOGETHER = {"cpu": 0, "cuda": 1 << 24}
"""Weights of several layers that wait to be measured together.  With their copy side by side and what a quantity makes
of them they take about 24 bytes each: 384 MiB on a GPU."""


@dataclass(frozen=True)
class Group:
    """Quantities of the same rows that are reduced in the same way."""

    members: tuple[HeadQuantity, ...]
    place: slice  # of them along the axis of quantities
    sample: Sample
    reduction: Reduction


def groups_of(record: Sequence[HeadQuantity]) -> tuple[Group, ...]:
    """The quantities in groups, in the order in which sums hold them."""
    kinds = dict.fromkeys((quantity.sample, quantity.reduction) for quantity in record)
    groups: list[Group] = []
    start = 0
    for kind in kinds:
        members = tuple(quantity for quantity in record if (quantity.sample, quantity.reduction) == kind)
        groups.append(Group(members, slice(start, start + len(members)), *kind))
        start += len(members)
    return tuple(groups)


@dataclass(frozen=True)
class Portion:
    """Some rows of one layer: those of the probe, and of windows of repeated tokens."""

    layer: int
    samples: dict[Sample, Rows]
    followed: Tensor | None = None  # where the weights of the first rows of the probe are kept from look to look
    has_before: bool = False  # whether it holds those of the look before

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(rows.weights.numel() for rows in self.samples.values())

    def follows(self, other: Portion) -> bool:
        """Whether this is the next layer, of the same shape."""
        return self.layer == other.layer + 1 and self._shape() == other._shape()

    def _shape(self) -> list[object]:
        samples = [
            (name, rows.weights.shape, rows.weights.dtype, rows.weights.device, rows.is_self, rows.tokens is None)
            for name, rows in self.samples.items()
        ]
        return [*samples, None if self.followed is None else self.followed.shape, self.has_before]


class Sums:
    """Sums over portions, for so many layers with so many heads at most."""

    def __init__(self, groups: tuple[Group, ...], layers: int, heads: int, device: torch.device) -> None:
        self._groups = groups
        shape = groups[-1].place.stop, layers, heads
        self._totals = torch.zeros(shape, dtype=torch.float64, device=device)  # (quantity, layer, head)
        self._counts = torch.zeros_like(self._totals)
        for group in groups:
            if group.reduction == "max":
                self._totals[group.place] = -math.inf
        self.is_bad = torch.zeros(shape[1:], dtype=torch.bool, device=device)  # whether a logit was not finite
        self.failures: dict[str, QuantityError] = {}  # by the name of the quantity
        self._waiting: list[Portion] = []

    def add(self, portion: Portion) -> None:
        """Add a portion, at once or with those of the next layers."""
        if self._waiting and not portion.follows(self._waiting[-1]):
            self.finish()
        self._waiting.append(portion)
        at_most = TOGETHER.get(self._totals.device.type, TOGETHER["cuda"])
        if sum(waiting.size for waiting in self._waiting) + portion.size > at_most:
            self.finish()

    def finish(self) -> None:
        """Measure what still waits."""
        portions, self._waiting = self._waiting, []
        if not portions:
            return
        samples = {name: _together([portion.samples[name] for portion in portions]) for name in portions[0].samples}
        probe, followed = samples["probe"], [portion.followed for portion in portions if portion.followed is not None]
        if followed:
            first_rows = probe.part(slice(None), slice(followed[0].shape[2]))
            samples["followed"] = replace(first_rows, before=torch.cat(followed) if portions[0].has_before else None)
        number = len(portions)
        layers = slice(portions[0].layer, portions[0].layer + number)
        is_bad = (probe.entropy.isnan() & (probe.keys > 0)).unflatten(0, (number, -1))  # softmax of NaN or infinity
        is_bad = is_bad.any(3).any(1)  # (layer, H)
        self.is_bad[layers, : is_bad.shape[1]].logical_or_(is_bad.to(self.is_bad.device))
        for group in self._groups:
            rows = samples.get(group.sample)
            if rows is None:  # or these are no quantities of rows
                continue
            values = torch.stack([self._compute(quantity, rows) for quantity in group.members])
            values = values.unflatten(1, (number, -1))  # (quantity, layer, B, H, r)
            place = group.place, layers, slice(values.shape[3])
            totals, counts = self._totals[place], self._counts[place]
            does_count = values == values  # it is not NaN
            counts.add_(does_count.sum((2, 4)).to(counts.device))
            if group.reduction == "max":
                largest = values.masked_fill(~does_count, -math.inf).amax((2, 4))
                torch.maximum(totals, largest.to(totals), out=totals)
            else:
                totals.add_(torch.where(does_count, values, 0.0).sum((2, 4), dtype=torch.float64).to(totals.device))
        for weights, portion in zip(followed, portions, strict=bool(followed)):
            weights.copy_(portion.samples["probe"].weights[:, :, : weights.shape[2]])

    def _compute(self, quantity: HeadQuantity, rows: Rows) -> Tensor:
        nothing = rows.weights[..., 0]
        if quantity.name not in self.failures:
            try:
                return quantity.of(rows, nothing.shape, nothing.dtype, nothing.device)
            except QuantityError as error:
                self.failures[quantity.name] = error.without_frames()
        return torch.full_like(nothing, math.nan)

    def values(self) -> Tensor:
        """Each quantity of each layer and head (quantity, layer, head).

        NaN where no row counts, where a logit was not finite, and of a quantity that failed.
        """
        values = torch.where((self._counts > 0) & ~self.is_bad, self._totals, math.nan)
        for group in self._groups:
            if group.reduction == "mean":
                values[group.place] /= self._counts[group.place]
            for i, quantity in enumerate(group.members):
                if quantity.name in self.failures:
                    values[group.place.start + i] = math.nan
        return values


def _together(parts: list[Rows]) -> Rows:
    """Rows of several layers as if they were those of more windows."""
    if len(parts) == 1:
        return parts[0]
    tokens = [rows.tokens for rows in parts if rows.tokens is not None]
    return Rows(
        torch.cat([rows.weights for rows in parts]),
        torch.cat([rows.logits for rows in parts]),
        torch.cat([rows.keys for rows in parts]),
        torch.cat([rows.positions for rows in parts]),
        torch.cat([rows.first for rows in parts]),
        parts[0].is_self,
        tokens=torch.cat(tokens) if tokens else None,
    )
