"""Quantities of attention rows, reduced to one number for each layer and head."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scansnap.monitor.quantities import HeadQuantity, Profile, QuantityError, Rows, Sample

MIN_ROW_SHARE = 0.5
"""A candidate of a profile counts if at least this share of the rows could attend to it."""

PROFILE_REDUCTIONS = ("peak", "place")
"""Reductions of quantities whose functions return a profile."""


class Reductions:
    """Means, maxima and profiles of quantities over the rows of `layers` layers with at most `heads` heads."""

    def __init__(self, record: Sequence[HeadQuantity], layers: int, heads: int, device: torch.device) -> None:
        self._record = record
        self.is_bad = torch.zeros((layers, heads), dtype=torch.bool, device=device)  # whether a logit was not finite
        self.failures: dict[str, QuantityError] = {}  # by the name of the quantity
        self._totals: dict[str, Tensor] = {}  # by the name of the quantity (layer, head)
        self._counts: dict[str, Tensor] = {}
        self._profiled: dict[tuple[Callable[..., Any], Sample], HeadQuantity] = {}  # one quantity for each profile
        self._profiles: dict[tuple[Callable[..., Any], Sample, int], Profile] = {}  # sums over windows (layer, head, n)
        for quantity in record:
            if quantity.reduction in PROFILE_REDUCTIONS:
                self._profiled[quantity.compute, quantity.sample] = quantity
            else:
                start = -math.inf if quantity.reduction == "max" else 0.0
                self._totals[quantity.name] = self._new(start)
                self._counts[quantity.name] = self._new(0.0)

    def _new(self, value: float) -> Tensor:
        """A number for each layer and head."""
        return torch.full(self.is_bad.shape, value, dtype=torch.float64, device=self.is_bad.device)

    def add(self, layer: int, samples: Mapping[Sample, Rows], followed: Tensor | None, *, has_before: bool) -> None:
        """Add some rows of a layer: those of the probe, and those of windows of repeated tokens.

        `followed` is where the weights of the first rows of the probe are kept between snapshots; `has_before` says
        whether it holds those of the snapshot before.
        """
        probe, samples = samples["probe"], dict(samples)
        if followed is not None:
            first_rows = probe.part(slice(None), slice(followed.shape[2]))
            samples["followed"] = replace(first_rows, before=followed if has_before else None)
        is_bad = (probe.entropy.isnan() & (probe.keys > 0)).any(2).any(0)  # (H,): softmax of NaN or infinity
        self.is_bad[layer, : len(is_bad)].logical_or_(is_bad.to(self.is_bad.device))
        for quantity in self._record:
            rows = samples.get(quantity.sample)  # None for quantities of projections
            values = None if rows is None else self.values_of(quantity, rows, rows.keys.shape)
            if rows is None or values is None:
                continue
            if quantity.reduction not in PROFILE_REDUCTIONS:
                self._add_values(quantity, values.to(rows.weights), layer)
            elif self._profiled[quantity.compute, quantity.sample] is quantity:
                self._add_profile(quantity, values, layer)
        if followed is not None:
            followed.copy_(probe.weights[:, :, : followed.shape[2]])

    def values_of(self, quantity: HeadQuantity, measured: object, shape: Sequence[int]) -> Any:
        """The values of a quantity on rows or projections; None if it fails, or has failed before."""
        if quantity.name not in self.failures:
            try:
                return quantity.of(measured, shape)
            except QuantityError as error:
                self.failures[quantity.name] = error.without_frames()
        return None

    def _add_values(self, quantity: HeadQuantity, values: Tensor, layer: int) -> None:
        """Add a number for each row (B, H, r) to those of a layer."""
        totals, counts = (sums[quantity.name][layer, : values.shape[1]] for sums in (self._totals, self._counts))
        does_count = ~values.isnan()
        counts += does_count.sum((0, 2)).to(counts)
        if quantity.reduction == "max":
            largest = values.masked_fill(~does_count, -math.inf).amax((0, 2))
            torch.maximum(totals, largest.to(totals), out=totals)
        else:
            totals += values.nansum((0, 2), dtype=torch.float64).to(totals)

    def _add_profile(self, quantity: HeadQuantity, profile: Profile, layer: int) -> None:
        """Add the profile of a layer, summed over windows; layers may have other numbers of candidates."""
        key = quantity.compute, quantity.sample, len(profile.labels)
        if key not in self._profiles:
            zeros = torch.zeros((2, *self.is_bad.shape, key[2]), dtype=torch.float64, device=self.is_bad.device)
            self._profiles[key] = Profile(zeros[0], zeros[1], profile.labels)
        for sums, values in zip(self._profiles[key][:2], profile[:2], strict=True):
            of_heads = values.sum(0)  # (H, n)
            sums[layer, : len(of_heads)] += of_heads.to(sums)

    def values(self) -> Tensor:
        """Each quantity of each layer and head (quantity, layer, head).

        NaN where no row counts, where a logit was not finite, and of a quantity that failed.
        """
        return torch.stack([self._reduced(quantity).masked_fill(self.is_bad, math.nan) for quantity in self._record])

    def _reduced(self, quantity: HeadQuantity) -> Tensor:
        """The mean, the maximum, the largest mean of a profile or its place (layer, head)."""
        if quantity.name in self.failures:
            return self._new(math.nan)
        if quantity.reduction in PROFILE_REDUCTIONS:
            return self._largest(quantity)
        totals, counts = self._totals[quantity.name], self._counts[quantity.name]
        return torch.where(counts > 0, totals / counts if quantity.reduction == "mean" else totals, math.nan)

    def _largest(self, quantity: HeadQuantity) -> Tensor:
        """The largest mean of a profile, or its place, among candidates that enough rows could choose."""
        result = self._new(math.nan)
        for (compute, sample, size), (totals, counts, labels) in self._profiles.items():
            if (compute, sample) == (quantity.compute, quantity.sample) and size:
                does_count = (counts > 0) & (counts >= MIN_ROW_SHARE * counts.amax(-1, keepdim=True))
                mean, place = (totals / counts).masked_fill_(~does_count, -math.inf).max(-1)
                value = mean if quantity.reduction == "peak" else labels.to(place.device)[place].double()
                result = torch.where(does_count.any(-1), value, result)
        return result
