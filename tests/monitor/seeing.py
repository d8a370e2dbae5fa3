"""What a capture receives of one forward pass, whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scansnap.monitor.attention import AttentionCall, every_row
from scansnap.monitor.capture import AnnouncedModule, Capture, Expected
from scansnap.monitor.isolation import isolated


class Collector:
    """Keeps all weights of every call, and how far what the model returned is from what they give."""

    is_first = False

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self.calls: dict[str, AttentionCall] = {}
        self.errors: dict[str, float] = {}

    def add(self, name: str, call: AttentionCall) -> None:
        rows = self._rows(call)
        self.calls[name] = call
        self.weights[name] = call.weights_of(rows)

    def check(self, name: str, returned: Expected, expected: Expected) -> None:
        rows = self._rows(self.calls[name])
        self.errors[name] = float((returned(rows) - expected(rows)).abs().max())

    def note_softmax(self, name: str, rows: int, keys: int) -> None:
        raise AssertionError("it does not learn")

    def is_complete(self) -> bool:
        return False

    def _rows(self, call: AttentionCall) -> Tensor:
        windows, _, queries, _ = call.sizes
        return every_row(windows, queries, torch.device("cpu"))


def see(
    model: nn.Module, *args: Any, announced: tuple[AnnouncedModule, ...] = (), windows: int = 2, **kwargs: Any
) -> Collector:
    """The attention of a model's forward pass."""
    collector = Collector()
    with isolated(model), Capture(model, windows, announced, collector):
        model(*args, **kwargs)
    return collector
