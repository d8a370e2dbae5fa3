"""Measurements of attention: how sparse each head is over the validation split, and how much its pattern moves.

Sparse and frozen are different things, so both are measured.  A row is the attention of one query on the keys up to and
including itself; the first row of a window has one key and is left out.  The weights are those of
`TextTransformer.attention`, which equal those of the fused kernels to rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.text.model.transformer import TextTransformer
from scansnap.text.training.options import SAMPLED
from scansnap.text.training.windows import spread

TOP = (1, 5)
"""The sizes k of top-k mass; a row counts if it has more than k keys."""

AT_ONCE = {"cpu": 3_000_000, "cuda": 200_000_000}
"""Numbers in memory at once while attention is measured: on a CPU about as many as fit in its cache."""


class Watch:
    """Measures attention on the same windows of the validation split at each record."""

    def __init__(self, model: TextTransformer, windows: Tensor) -> None:
        """`windows` (N, T) must be on the model's device."""
        self._model, self._windows = model, windows
        length = windows.shape[1]
        self.sample = spread(windows, SAMPLED)  # the windows on which change between records is measured
        keys = torch.arange(1, length + 1, device=windows.device)  # the number of keys of each row
        self._log_keys = keys[1:].log()
        self._rows = {k: keys > k for k in TOP}
        self.pattern = self._sampled()

    def change(self) -> NDArray[np.float64]:
        """The share of a row's attention that moved since the last call, mean over the sample (layers, heads)."""
        pattern = self._sampled()
        moved = 0.5 * (pattern - self.pattern).abs().sum(-1)[..., 1:].mean((2, 3), dtype=torch.float64)
        self.pattern = pattern
        return moved.cpu().numpy()

    def measure(self) -> dict[str, NDArray[np.float64]]:
        """Means over all rows (layers, heads): entropy in nats, entropy relative to its largest value, top-k mass."""
        shape = self._model.shape
        numbers = shape.window * (
            shape.heads * shape.window + 3 * shape.width
        )  # the weights; the input, queries and keys
        at_once = max(1, AT_ONCE[self._windows.device.type] // numbers)
        parts = [self._sums(part) for part in self._windows.split(at_once)]
        count, length = self._windows.shape
        totals = {name: sum(part[name] for part in parts) for name in parts[0]}
        rows = {f"top_{k}": int(self._rows[k].sum()) for k in TOP}
        # Where no row has more than k keys there is no mean: 0/0 is NaN.
        means = {name: total / (count * rows.get(name, length - 1)) for name, total in totals.items()}
        return {name: mean.cpu().numpy() for name, mean in means.items()}  # type: ignore[union-attr]

    def _sampled(self) -> Tensor:
        return torch.stack([weights.transpose(0, 1) for weights in self._model.attention(self.sample)])

    def _sums(self, windows: Tensor) -> dict[str, Tensor]:
        """Sums over rows of what `measure` averages."""
        sums: dict[str, list[Tensor]] = {}
        for weights in self._model.attention(windows):  # (N, H, T, T)
            entropy = torch.special.entr(weights).sum(-1)[..., 1:]
            top = weights.topk(min(max(TOP), weights.shape[-1]), -1).values  # (N, H, T, k), largest first
            values = {"entropy": entropy, "normalized_entropy": entropy / self._log_keys}
            for k in TOP:
                values[f"top_{k}"] = top[..., :k].sum(-1) * self._rows[k]
            for name, value in values.items():
                sums.setdefault(name, []).append(value.sum((0, 2), dtype=torch.float64))
        return {name: torch.stack(layers) for name, layers in sums.items()}
