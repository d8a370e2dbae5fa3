"""The numbers of one look, summed while attention is seen.

What is measured of an attention is reduced to a few numbers for each head at once, on its device, so that no layer's
weights outlive it, except those of the rows that are followed from look to look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from scansnap.monitor.aside import Aside
from scansnap.monitor.calls import AttentionCall, Kind
from scansnap.monitor.chosen_rows import ChosenRows
from scansnap.monitor.probe import SHOWN, Piece, Probe
from scansnap.monitor.quantities import Rows, Sample
from scansnap.monitor.sight import Expected
from scansnap.monitor.sums import Group, Portion, Sums
from scansnap.runtime.errors import ScanSnapError

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


def most_heads(layers: Mapping[str, SeenLayer]) -> int:
    """The most heads of a layer."""
    return max((layer.heads for layer in layers.values()), default=0)


def shown(layers: Mapping[str, SeenLayer]) -> tuple[int, int]:
    """The rows and keys of a pattern."""
    queries = max((layer.queries for layer in layers.values()), default=0)
    keys = max((layer.keys for layer in layers.values()), default=0)
    return min(SHOWN, queries), min(SHOWN, keys)


@dataclass
class Tally:
    """Sums over the pieces of one look; a first look also learns the layers."""

    probe: Probe
    groups: tuple[Group, ...]
    layers: dict[str, SeenLayer]
    learns: bool = False
    ends_early: bool = False  # whether a pass ends with the last attention
    shows: bool = True  # whether patterns are kept
    failure: Exception | None = None
    _seen: set[str] = field(default_factory=set)
    _softmaxes: list[tuple[str, int, int]] = field(default_factory=list)  # the module, rows and keys

    def __post_init__(self) -> None:
        device, number, heads = self.probe.device, len(self.layers), most_heads(self.layers)
        self.aside = Aside(device)
        self.sums = Sums(self.groups, number, heads, device)
        self.pattern = torch.full((number, heads, *shown(self.layers)), math.nan, device=device)
        self._number = {name: i for i, name in enumerate(self.layers)}

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
                layer, tensors = self.layers[name], [v for v in vars(call).values() if isinstance(v, Tensor)]
                with self.aside.reading(*tensors):
                    self._measure(layer, call)
                with self.aside.reading(*tensors, lane=1):
                    self._show(layer, call)
        except Exception as error:
            self.failure = error

    def note_softmax(self, name: str, rows: int, keys: int) -> None:
        """Take note of a softmax that was not announced."""
        self._softmaxes.append((name, rows, keys))

    def unseen(self) -> tuple[str, ...]:
        """Modules of which no attention was seen, but a softmax over as many keys as there are tokens."""
        lengths = {length for layer in self.layers.values() for length in (layer.queries, layer.keys)}
        names = (
            name
            for name, rows, keys in self._softmaxes
            if keys > 1 and (rows == keys or {rows, keys} <= lengths) and name not in self.layers
        )
        return tuple(dict.fromkeys(names))

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

    def finish(self) -> None:
        """End a pass; a failure is kept for later."""
        try:
            if self.failure is None:
                with self.aside.reading():
                    self.sums.finish()
            self.aside.join()
        except Exception as error:
            self.failure = error

    def raise_failure(self) -> None:
        """Raise what has failed, if anything.

        It is not kept: a failure holds the frames that it came through, and these hold this tally and the tensors of
        the pass, which would wait together for Python's collector of cycles, while a smaller piece needs their memory.
        """
        failure, self.failure = self.failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure

    def is_complete(self) -> bool:
        """Whether this pass has seen all that it is for."""
        return self.ends_early and not self.learns and len(self._seen) == len(self.layers)

    def _learn(self, name: str, call: AttentionCall) -> None:
        windows, heads, queries, keys = call.sizes
        rows = self.probe.positions(self._piece, windows, queries).first(CHECKED)
        kind = "cross" if "cross" in name.lower() else call.kind(rows)
        self.layers[name] = SeenLayer(name, kind, windows, heads, queries, keys, call.key_heads, call.width, call.dtype)

    def _measure(self, layer: SeenLayer, call: AttentionCall) -> None:
        windows, heads, queries, keys = call.sizes
        if heads != layer.heads:
            raise ScanSnapError(f"{layer.name} has {heads} heads, and had {layer.heads} when the watch was made")
        rows = self.probe.positions(self._piece, windows, queries)
        in_decoder = "decoder" in layer.name
        is_real = self.probe.real_tokens(self._piece, windows, queries, decoder=in_decoder)
        real_keys = self.probe.real_tokens(self._piece, windows, keys, decoder=in_decoder and layer.kind != "cross")
        first = rows.positions.new_zeros(windows) if real_keys is None else real_keys.int().argmax(1)
        is_usual = (queries, keys) == (layer.queries, layer.keys)
        if self.probe.function is not None:  # it may call the model with what it likes
            is_usual &= windows == layer.windows
        start = 0
        for some in call.pieces(rows):
            logits = call.logits(some)
            seen_keys, weights = call.seen_keys(some, logits), call.weights(logits)
            if is_real is not None:  # what padding attends to does not count
                seen_keys = seen_keys * is_real.take_along_dim(some.positions, 1)[:, None]
            seen = Rows(weights, logits, seen_keys, some.positions, first, layer.kind != "cross")
            self._add(layer, seen, start, is_usual)
            start += some.positions.shape[1]

    def _show(self, layer: SeenLayer, call: AttentionCall) -> None:
        """Keep the pattern of the first window."""
        _, _, queries, keys = call.sizes
        if self.shows and self._piece.start == 0 and (queries, keys) == (layer.queries, layer.keys):
            whole = ChosenRows.all(1, min(SHOWN, queries), self.pattern.device)
            pattern = call.first_window().weights_of(whole)[0, ..., :SHOWN]
            self.pattern[self._number[layer.name]][tuple(map(slice, pattern.shape))] = pattern

    def _add(self, layer: SeenLayer, seen: Rows, start: int, is_usual: bool) -> None:
        """Add some rows; `start` counts those of each window before them; `is_usual` if there are as many as before."""
        piece = self._piece
        own = len(seen.weights) * piece.windows // (piece.windows + piece.repeated)
        samples: dict[Sample, Rows] = {"probe": seen.part(slice(own))}
        if piece.repeated and layer.kind != "cross":
            tokens = self.probe.repeated_tokens(layer.keys, piece.repeated)
            samples["repeated"] = replace(seen.part(slice(own, None)), tokens=tokens)
        followed = self._followed(layer, samples["probe"], start) if piece.follow and is_usual else None
        self.sums.add(Portion(self._number[layer.name], samples, followed, layer.has_before))

    def _followed(self, layer: SeenLayer, seen: Rows, start: int) -> Tensor | None:
        """Where the weights of these rows, or of the first of them, are kept from look to look."""
        windows, heads, rows, keys = seen.weights.shape
        share = windows // self._piece.windows
        if layer.before is None:
            total = self.probe.followed_windows * share
            every = self.probe.positions(self._piece, layer.windows, layer.queries).positions.shape[1]
            most = every if self.probe.rows is None else FOLLOWED // (len(self.layers) * total * heads * keys)
            layer.before = seen.weights.new_empty(total, heads, max(1, min(every, most)), keys)
        number = min(layer.before.shape[2] - start, rows)
        return layer.before[self._piece.start * share :][:windows, :, start : start + number] if number > 0 else None
