"""Looks at a model: passes over the probe in pieces, summed to a number for each quantity, layer and head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from scansnap.base.errors import InputError, ScanSnapError
from scansnap.monitor.look import uncompiled, undisturbed
from scansnap.monitor.probe import SHOWN, Piece, Probe
from scansnap.monitor.quantities import HeadQuantity
from scansnap.monitor.sight import AllSeen, LayerSums, SeenLayer, Sight


class FailedLook(ScanSnapError):
    """A look that has no result; the message is its reason."""


@dataclass(frozen=True)
class Measured:
    """What a look measured."""

    values: dict[str, NDArray[np.float64]]  # (layer, head)
    pattern: NDArray[np.float32]  # (layer, head, row, key)


class Observer:
    """Looks at a model on a probe.

    A look holds the tensors of a forward pass over one piece of the probe without gradients, 20 bytes for each of the
    `AT_ONCE` weights that are computed at once, the keys of one layer in float32, and 4 bytes for each of at most
    `FOLLOWED` weights that are kept from look to look.
    """

    def __init__(self, model: nn.Module, probe: Probe, record: Sequence[HeadQuantity]) -> None:
        self._model = uncompiled(model)
        self.probe, self.record = probe, tuple(record)
        self.layers: dict[str, SeenLayer] = {}
        self._at_most: int | None = None  # windows in a piece

    @property
    def heads(self) -> int:
        """The most heads of a layer."""
        return max((layer.heads for layer in self.layers.values()), default=0)

    @property
    def shown(self) -> tuple[int, int]:
        """The rows and keys of a pattern."""
        queries = max((layer.queries for layer in self.layers.values()), default=0)
        keys = max((layer.keys for layer in self.layers.values()), default=0)
        return min(SHOWN, queries), min(SHOWN, keys)

    def learn(self) -> None:
        """See which modules attend, and how; refused if none is seen."""
        piece = next(self.probe.pieces(self._at_most, repeat=False))
        layers: dict[str, SeenLayer] = {}
        sight = self._pass(piece, layers, learns=True)
        if sight.failure is not None:
            raise sight.failure
        if not layers:
            raise InputError(
                f"no attention was seen in {type(self._model).__name__}: it is seen where a model calls "
                "scaled_dot_product_attention; announce attention that is written by hand with watch.attention(module)."
            )
        self.layers = layers

    def look(self) -> Measured:
        """Measure, in smaller and smaller pieces if there is no memory for more."""
        while True:
            try:
                if not self.layers:
                    self.learn()
                return self._look()
            except InputError:
                raise
            except Exception as error:
                for layer in self.layers.values():
                    layer.has_before = False
                windows = self._at_most or self.probe.windows
                if isinstance(error, FailedLook) or windows == 1 or self.probe.batch_dim is None:
                    raise
                self._at_most = math.ceil(windows / 2)

    def _look(self) -> Measured:
        sums: dict[str, LayerSums] = {}
        for piece in self.probe.pieces(self._at_most):
            sight = self._pass(piece, self.layers, sums)
            if sight.failure is not None:
                raise sight.failure
        for layer in self.layers.values():
            layer.has_before = layer.before is not None
        return self._collect(sums)

    def _pass(
        self, piece: Piece, layers: dict[str, SeenLayer], sums: dict[str, LayerSums] | None = None, learns: bool = False
    ) -> Sight:
        names = {id(module): name for name, module in self._model.named_modules()}
        sight = Sight(
            names, self.probe, piece, self.record, layers, {} if sums is None else sums, learns, ends=not learns
        )
        with undisturbed(self._model):
            try:
                with sight:
                    if self.probe.function is not None:
                        self.probe.function(self._model)
                    else:
                        piece.call(self._model)
            except AllSeen:
                pass
        return sight

    def _collect(self, sums: dict[str, LayerSums]) -> Measured:
        shape = len(self.record), len(self.layers), self.heads
        device = next(iter(sums.values())).totals.device
        values = torch.full(shape, math.nan, dtype=torch.float64, device=device)
        pattern = torch.full((*shape[1:], *self.shown), math.nan, device=device)
        is_bad = torch.zeros(len(self.layers), dtype=torch.bool, device=device)
        for i, name in enumerate(self.layers):
            if name not in sums:
                continue
            layer = sums[name]
            means = layer.totals / layer.counts  # 0/0 is NaN where no row counts
            for j, quantity in enumerate(self.record):
                row = layer.totals[j].masked_fill(layer.counts[j] == 0, math.nan)
                values[j, i, : layer.totals.shape[1]] = row if quantity.reduction == "max" else means[j]
            is_bad[i] = layer.is_bad
            if layer.pattern is not None:
                heads, rows, keys = layer.pattern.shape
                pattern[i, :heads, :rows, :keys] = layer.pattern
        if bad := is_bad.nonzero().flatten().tolist():
            raise FailedLook(f"the attention logits of {list(self.layers)[bad[0]]} are not finite")
        numbers = values.cpu().numpy()
        return Measured({quantity.name: numbers[j] for j, quantity in enumerate(self.record)}, pattern.cpu().numpy())
