"""Quantities of attention rows, reduced to one number for each layer and head.

Quantities of the same rows are reduced together, and on a GPU so are layers of the same shape: in a snapshot of GPT-2
small on an H200 that saves 2 of 12 ms, since its time goes into launching many small operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from scansnap.monitor.quantities import HeadQuantity, Profile, QuantityError, Reduction, Rows, Sample

MAX_WAITING = {"cpu": 0, "cuda": 1 << 24}
"""Weights of several layers that wait to be measured together.  With their concatenation and what a quantity makes of
them they take about 24 bytes each: 384 MiB on a GPU."""


ENOUGH = 0.5
"""A candidate of a profile counts if at least this share of the rows could attend to it."""


@dataclass(frozen=True)
class LayerRows:
    """Some rows of one layer: those of the probe, and those of windows of repeated tokens."""

    layer: int
    samples: dict[Sample, Rows]
    followed: Tensor | None = None  # where the weights of the first rows of the probe are kept between snapshots
    has_before: bool = False  # whether it holds those of the snapshot before

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(rows.weights.numel() for rows in self.samples.values())

    def can_join(self, before: LayerRows) -> bool:
        """Whether this is the next layer, of the same shape."""
        return self.layer == before.layer + 1 and self._shape() == before._shape()

    def _shape(self) -> list[object]:
        held = [getattr(rows, field.name) for rows in self.samples.values() for field in fields(Rows)]
        tensors = [(v.shape, v.dtype, v.device) if isinstance(v, Tensor) else v for v in [*held, self.followed]]
        return [*self.samples, *tensors, self.has_before]


class Reductions:
    """Means, maxima and profiles of quantities over the rows of `layers` layers with at most `heads` heads."""

    def __init__(self, record: Sequence[HeadQuantity], layers: int, heads: int, device: torch.device) -> None:
        self._record = record
        self._groups: dict[tuple[Sample, Reduction], list[HeadQuantity]] = {}
        for quantity in record:
            if quantity.reduction in ("mean", "max"):
                self._groups.setdefault((quantity.sample, quantity.reduction), []).append(quantity)
        self._profiled = [quantity for quantity in record if quantity.reduction in ("peak", "place")]
        self._profiles: dict[tuple[str, int], Profile] = {}  # by quantity and n; totals and counts (layer, head, n)
        self._same: dict[str, str] = {}  # the quantity whose profile this one reads too
        self._totals, self._counts = {}, {}  # each (quantity, layer, head)
        for group, members in self._groups.items():
            start = -math.inf if group[1] == "max" else 0.0
            shape = len(members), layers, heads
            self._totals[group] = torch.full(shape, start, dtype=torch.float64, device=device)
            self._counts[group] = torch.zeros(shape, dtype=torch.float64, device=device)
        self.is_bad = torch.zeros((layers, heads), dtype=torch.bool, device=device)  # whether a logit was not finite
        self.failures: dict[str, QuantityError] = {}  # by the name of the quantity
        self._max_waiting = MAX_WAITING.get(device.type, MAX_WAITING["cuda"])
        self._waiting: list[LayerRows] = []

    def add(self, rows: LayerRows) -> None:
        """Add some rows, at once or together with those of the next layers."""
        if self._waiting and not rows.can_join(self._waiting[-1]):
            self.finish()
        self._waiting.append(rows)
        if sum(waiting.size for waiting in self._waiting) + rows.size > self._max_waiting:
            self.finish()

    def finish(self) -> None:
        """Measure the rows that still wait."""
        parts, self._waiting = self._waiting, []
        if not parts:
            return
        samples = {name: Rows.concatenate([part.samples[name] for part in parts]) for name in parts[0].samples}
        probe, followed = samples["probe"], [part.followed for part in parts if part.followed is not None]
        if followed:
            first_rows = probe.part(slice(None), slice(followed[0].shape[2]))
            samples["followed"] = replace(first_rows, before=torch.cat(followed) if parts[0].has_before else None)
        number = len(parts)
        layers = slice(parts[0].layer, parts[0].layer + number)
        is_bad = (probe.entropy.isnan() & (probe.keys > 0)).unflatten(0, (number, -1))  # softmax of NaN or infinity
        is_bad = is_bad.any(3).any(1)  # (layer, H)
        self.is_bad[layers, : is_bad.shape[1]].logical_or_(is_bad.to(self.is_bad.device))
        for group, members in self._groups.items():
            rows = samples.get(group[0])
            if rows is None:  # or these are no quantities of rows
                continue
            values = torch.stack([self._compute(quantity, rows) for quantity in members])
            values = values.unflatten(1, (number, -1))  # (quantity, layer, B, H, r)
            heads = slice(values.shape[3])
            totals, counts = self._totals[group][:, layers, heads], self._counts[group][:, layers, heads]
            does_count = values == values  # it is not NaN
            counts.add_(does_count.sum((2, 4)).to(counts.device))
            if group[1] == "max":
                largest = values.masked_fill(~does_count, -math.inf).amax((2, 4))
                torch.maximum(totals, largest.to(totals), out=totals)
            else:
                totals.add_(torch.where(does_count, values, 0.0).sum((2, 4), dtype=torch.float64).to(totals.device))
        added: list[tuple[Profile, str]] = []
        for quantity in self._profiled:
            if (rows := samples.get(quantity.sample)) is not None:
                profile = self.values_of(quantity, rows, rows.keys.shape)
                self._same[quantity.name] = next((name for p, name in added if p is profile), quantity.name)
                if profile is not None and self._same[quantity.name] == quantity.name:
                    added.append((profile, quantity.name))
                    self._add_profile(quantity.name, profile, layers)
        for weights, part in zip(followed, parts, strict=bool(followed)):
            weights.copy_(part.samples["probe"].weights[:, :, : weights.shape[2]])

    def _compute(self, quantity: HeadQuantity, rows: Rows) -> Tensor:
        like = rows.weights[..., 0]
        values = self.values_of(quantity, rows, like.shape)
        return torch.full_like(like, math.nan) if values is None else values.to(like)

    def values_of(self, quantity: HeadQuantity, measured: object, shape: Sequence[int]) -> Any:
        """What a quantity says of rows or projections; None if it fails, or has failed before."""
        if quantity.name not in self.failures:
            try:
                return quantity.of(measured, shape)
            except QuantityError as error:
                self.failures[quantity.name] = error.without_frames()
        return None

    def _add_profile(self, name: str, profile: Profile, layers: slice) -> None:
        """Add the rows of some layers, summed over windows; layers may have other numbers of candidates."""
        size = len(profile.labels)
        if (name, size) not in self._profiles:
            zeros = torch.zeros((2, *self.is_bad.shape, size), dtype=torch.float64, device=self.is_bad.device)
            self._profiles[name, size] = Profile(zeros[0], zeros[1], profile.labels)
        for sums, values in zip(self._profiles[name, size][:2], profile[:2], strict=True):
            of_layers = values.unflatten(0, (layers.stop - layers.start, -1)).sum(1)  # (layer, H, n)
            sums[layers, : of_layers.shape[1]] += of_layers.to(sums)

    def values(self) -> Tensor:
        """Each quantity of each layer and head (quantity, layer, head).

        NaN where no row counts, where a logit was not finite, and of a quantity that failed.
        """
        values: dict[str, Tensor] = {}
        for group, members in self._groups.items():
            totals, counts = self._totals[group], self._counts[group]
            reduced = torch.where((counts > 0) & ~self.is_bad, totals, math.nan)
            if group[1] == "mean":
                reduced = reduced / counts
            values |= {quantity.name: number for quantity, number in zip(members, reduced, strict=True)}
        for quantity in self._profiled:
            values[quantity.name] = self._largest(quantity)
        for name in self.failures:
            values[name] = torch.full_like(values[name], math.nan)
        return torch.stack([values[quantity.name] for quantity in self._record])

    def _largest(self, quantity: HeadQuantity) -> Tensor:
        """The largest mean of a profile, or its place (layer, head), among candidates that enough rows could choose."""
        result = torch.full(self.is_bad.shape, math.nan, dtype=torch.float64, device=self.is_bad.device)
        for (name, size), (totals, counts, labels) in self._profiles.items():
            if name == self._same.get(quantity.name) and size:
                does_count = (counts > 0) & (counts >= ENOUGH * counts.amax(-1, keepdim=True))
                mean, place = (totals / counts).masked_fill_(~does_count, -math.inf).max(-1)
                value = mean if quantity.reduction == "peak" else labels.to(place.device)[place].double()
                result = torch.where(does_count.any(-1), value, result)
        return result.masked_fill(self.is_bad, math.nan)
