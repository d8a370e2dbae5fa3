"""The numbers of one look, summed while attention is seen.

What is measured of an attention is reduced to a few numbers for each head at once, on its device, so that no layer's
weights outlive it, except those of the rows that are followed from look to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from scansnap.monitor.calls import AttentionCall, Kind
from scansnap.monitor.chosen_rows import ChosenRows
from scansnap.monitor.probe import SHOWN, Piece, Probe
from scansnap.monitor.quantities import HeadQuantity, Rows
from scansnap.monitor.sight import Expected

FOLLOWED = 1 << 25
"""The most weights of all layers that are kept from look to look to see what moved: 128 MiB in float32.  Where the
sampled rows have more, fewer of them are followed; where all rows are asked for, all are followed."""

CHECKED = 16
"""Rows of each window by which a layer is learned and checked at the first look."""


@dataclass
class SeenLayer:
    """One attention of the model, as the first look saw it."""

    name: str
    kind: Kind
    windows: int
    heads: int
    queries: int
    keys: int
    key_heads: int
    width: int
    dtype: torch.dtype
    error: float = math.nan  # of the output that the weights give, relative to the largest number in it
    before: Tensor | None = None  # weights of the rows that are followed, at the look before
    has_before: bool = False


@dataclass
class _Sums:
    """Sums over the rows of a layer; quantities along the first axis, heads along the second."""

    totals: Tensor
    counts: Tensor
    is_bad: Tensor  # whether a logit was not finite
    pattern: Tensor | None = None


@dataclass
class Tally:
    """Sums over the pieces of one look; a first look also learns the layers."""

    probe: Probe
    record: Sequence[HeadQuantity]
    layers: dict[str, SeenLayer]
    learns: bool = False
    ends_early: bool = False  # whether a pass ends with the last attention
    shows: bool = True  # whether patterns are kept
    failure: Exception | None = None
    sums: dict[str, _Sums] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def start(self, piece: Piece) -> None:
        """Begin a pass over this piece."""
        self._piece = piece
        self._seen.clear()

    def add(self, name: str, call: AttentionCall) -> None:
        """Measure a call; a failure is kept for later, so that it does not stop the model halfway."""
        self._seen.add(name)
        if self.failure is not None:
            return
        try:
            if self.learns:
                self._learn(name, call)
            elif name in self.layers:
                self._measure(self.layers[name], call)
        except Exception as error:
            self.failure = error

    def check(self, name: str, returned: Expected, expected: Expected) -> None:
        """At the first look, compare what the model's attention returned with what the weights make it."""
        if not self.learns or self.failure is not None:
            return
        layer = self.layers[name]
        rows = self.probe.positions(self._piece, layer.windows, layer.queries).first(CHECKED)
        try:
            theirs, ours = returned(rows).float(), expected(rows).float()
        except Exception as error:
            self.failure = error
            return
        size = torch.maximum(theirs.abs().amax(), ours.abs().amax()).clamp(min=1e-30)
        layer.error = float((theirs - ours).abs().amax() / size)

    def is_complete(self) -> bool:
        """Whether this pass has seen all that it is for."""
        return self.ends_early and not self.learns and len(self._seen) == len(self.layers)

    def _learn(self, name: str, call: AttentionCall) -> None:
        windows, heads, queries, keys = call.sizes
        rows = self.probe.positions(self._piece, windows, queries).first(CHECKED)
        kind = "cross" if "cross" in name.lower() else call.kind(rows)
        self.layers[name] = SeenLayer(name, kind, windows, heads, queries, keys, call.key_heads, call.width, call.dtype)

    def _measure(self, layer: SeenLayer, call: AttentionCall) -> None:
        windows, _, queries, keys = call.sizes
        rows = self.probe.positions(self._piece, windows, queries)
        in_decoder = "decoder" in layer.name
        is_real = self.probe.real_tokens(self._piece, windows, queries, decoder=in_decoder)
        real_keys = self.probe.real_tokens(self._piece, windows, keys, decoder=in_decoder and layer.kind != "cross")
        first = rows.positions.new_zeros(windows) if real_keys is None else real_keys.int().argmax(1)
        is_usual = (queries, keys) == (layer.queries, layer.keys)
        start = 0
        for some in call.pieces(rows):
            logits = call.logits(some)
            seen_keys = call.seen_keys(some, logits)
            weights = call.weights(logits, seen_keys)
            if is_real is not None:  # what padding attends to does not count
                seen_keys = seen_keys * is_real.take_along_dim(some.positions, 1)[:, None]
            seen = Rows(weights, logits, seen_keys, some.positions, first, layer.kind != "cross")
            self._add(layer, seen, start, is_usual)
            start += some.positions.shape[1]
        if self.shows and self._piece.start == 0 and is_usual:
            shown = ChosenRows.all(1, min(SHOWN, queries), rows.positions.device)
            self.sums[layer.name].pattern = call.first_window().weights_of(shown)[0, ..., : min(SHOWN, keys)]

    def _add(self, layer: SeenLayer, seen: Rows, start: int, is_usual: bool) -> None:
        """Add some rows; `start` counts those of each window before them; `is_usual` if there are as many as before."""
        sums = self.sums.get(layer.name)
        if sums is None:
            counts = torch.zeros(len(self.record), layer.heads, dtype=torch.float64, device=seen.weights.device)
            totals = counts.clone()
            for i, quantity in enumerate(self.record):
                if quantity.reduction == "max":
                    totals[i] = -math.inf
            self.sums[layer.name] = sums = _Sums(totals, counts, counts.new_zeros((), dtype=torch.bool))
        piece = self._piece
        own = len(seen.weights) * piece.windows // (piece.windows + piece.repeated)
        probe = seen.part(slice(own))
        samples = {
            "probe": probe,
            "followed": self._followed(layer, probe, start) if piece.follow and is_usual else None,
        }
        if piece.repeated and layer.kind != "cross":
            tokens = self.probe.repeated_tokens(layer.keys, piece.repeated)
            samples["repeated"] = replace(seen.part(slice(own, None)), tokens=tokens)
        sums.is_bad |= probe.entropy.isnan().any()  # softmax of NaN or infinity is NaN
        for i, quantity in enumerate(self.record):
            rows = samples.get(quantity.sample)
            if rows is None:  # or it is no quantity of rows
                continue
            values = quantity.compute(rows)
            does_count = ~values.isnan()
            sums.counts[i] += does_count.sum((0, 2))
            if quantity.reduction == "max":
                largest = values.masked_fill(~does_count, -math.inf).amax((0, 2))
                sums.totals[i] = torch.maximum(sums.totals[i], largest.double())
            else:
                sums.totals[i] += values.nan_to_num(0.0).sum((0, 2), dtype=torch.float64)

    def _followed(self, layer: SeenLayer, seen: Rows, start: int) -> Rows | None:
        """The rows that are followed, with their weights at the look before, which these replace."""
        windows, heads, rows, keys = seen.weights.shape
        share = windows // self._piece.windows
        if layer.before is None:
            total = self.probe.followed_windows * share
            every = self.probe.positions(self._piece, layer.windows, layer.queries).positions.shape[1]
            most = every if self.probe.rows is None else FOLLOWED // (len(self.layers) * total * heads * keys)
            layer.before = seen.weights.new_empty(total, heads, max(1, min(every, most)), keys)
        number = min(layer.before.shape[2] - start, rows)
        if number <= 0:
            return None
        place = layer.before[self._piece.start * share :][:windows, :, start : start + number]
        now = replace(seen.part(slice(None), slice(number)), before=place.clone() if layer.has_before else None)
        place.copy_(now.weights)
        return now
