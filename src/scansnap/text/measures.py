"""What a text run measures: how sparse each head's attention is, how much its pattern moves, and which tokens win.

Attention is measured by the monitor (`scansnap.monitor`), over all rows of the measured windows; how much it moves is
measured on a sample of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.monitor.capture import AnnouncedModule
from scansnap.monitor.probe import Probe
from scansnap.monitor.quantities import quantities
from scansnap.monitor.snapshot import SnapshotTaker
from scansnap.text.dataset import WINNERS
from scansnap.text.model_file import TextModel
from scansnap.text.options import FEWEST_WINDOWS
from scansnap.text.windows import spread
from scansnap.text.yz import YZText

MEASURED_QUANTITIES = ("entropy", "normalized_entropy", "top_1", "top_5", "moved")

NUMBERS_AT_ONCE = {"cpu": 6_000_000, "cuda": 200_000_000}
"""Numbers in memory at once while attention is measured."""


class AttentionMeasurement:
    """Measures attention on the same windows of the validation split at each record."""

    def __init__(self, model: TextModel, windows: Tensor) -> None:
        """`windows` (N, T) must be on the model's device."""
        sampled = spread(np.arange(len(windows)), FEWEST_WINDOWS)
        self.sample = windows[sampled]  # the windows on which change between records is measured
        others = np.setdiff1d(np.arange(len(windows)), sampled)
        numbers = model.shape.window * model.shape.measured_numbers
        parts = [model] if isinstance(model, YZText) else model.layers
        self._taker = SnapshotTaker(
            model,
            Probe(torch.cat([self.sample, windows[others]]), None, windows.device, followed=len(sampled)),
            quantities(MEASURED_QUANTITIES),
            announced=[AnnouncedModule(part) for part in parts],  # a GPU computes long windows by hand too
            with_pattern=False,
            max_windows=max(1, NUMBERS_AT_ONCE[windows.device.type] // numbers),
        )

    def measure(self) -> dict[str, NDArray[np.float64]]:
        """Means over all rows (layers, heads); the share that moved since the last call is over the sample."""
        measured = self._taker.take().check().values
        return {name: measured[name] for name in MEASURED_QUANTITIES}

    def pattern(self, windows: int) -> NDArray[np.float32]:
        """The attention of the first windows of the sample, when it was last measured (layer, head, window, T, T)."""
        return self._taker.followed(windows).cpu().numpy()

    def state(self) -> NDArray[Any]:
        """What the next measurement compares with; empty before the first."""
        before = [layer.before for layer in self._taker.layers.values() if layer.before is not None]
        return torch.stack(before).cpu().numpy() if before else np.zeros(0, np.float32)

    def restore(self, state: NDArray[Any]) -> None:
        """Continue from what `state` returned."""
        self._taker.find_layers()
        for layer, before in zip(self._taker.layers.values(), torch.from_numpy(state), strict=True):
            layer.before, layer.has_before = before.to(self.sample.device), True


class Winners:
    """Reads the rows of Z of some queries; the layer and the head, of which there is one, are the first axes."""

    def __init__(self, model: YZText, queries: NDArray[np.int64]) -> None:
        self._model, self._queries = model, torch.from_numpy(queries)

    def measure(self) -> dict[str, NDArray[np.float64]]:
        """The tokens (layer, head, query, rank) with the largest logits, and these; NaN if fewer are above 0.

        All logits start at 0, so that those above it have gained.
        """
        top = self._rows().topk(min(WINNERS, self._model.shape.vocab_size), 1)
        has_gained = top.values > 0
        values = {"winner": top.indices.double(), "winner_logit": top.values.double()}
        return {name: v.masked_fill(~has_gained, torch.nan)[None, None].cpu().numpy() for name, v in values.items()}

    def logits(self) -> NDArray[np.float64]:
        """The rows of Z (layer, head, query, token)."""
        return self._rows()[None, None].double().cpu().numpy()

    def _rows(self) -> torch.Tensor:
        return self._model.attention_logits[self._queries.to(self._model.attention_logits.device)]
