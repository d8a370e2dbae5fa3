"""What a sight sees of one forward pass, whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scansnap.monitor.calls import AttentionCall
from scansnap.monitor.chosen_rows import ChosenRows
from scansnap.monitor.hugging_face import seen_by
from scansnap.monitor.look import undisturbed
from scansnap.monitor.sight import Announced, Expected, Sight


class Collector:
    """Keeps all weights of every call, and how far what the model returned is from what they give."""

    learns = False

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

    def _rows(self, call: AttentionCall) -> ChosenRows:
        windows, _, queries, _ = call.sizes
        every = ChosenRows.all(windows, queries, torch.device("cpu"))
        return ChosenRows(every.positions.contiguous())


def see(
    model: nn.Module, *args: Any, announced: tuple[Announced, ...] = (), windows: int = 2, **kwargs: Any
) -> Collector:
    """The attention of a model's forward pass."""
    collector = Collector()
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    sight = Sight(names, windows, announced, collector)
    with undisturbed(model), seen_by(sight, model), sight:
        model(*args, **kwargs)
    return collector
