"""Measuring on further streams while a captured look goes on with the model's next layers.

In a CUDA graph what is measured of a layer need not hold up the layers after it: many small operations fill the gaps
of few large ones.  Where nothing is captured, Python launches one operation after the other, and a stream is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

LANES = 2


class Aside:
    """Streams beside the one that is captured, if one is."""

    def __init__(self, device: torch.device) -> None:
        is_capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._main = torch.cuda.current_stream(device) if is_capturing else None
        self._lanes = [torch.cuda.Stream(device) for _ in range(LANES)] if is_capturing else []
        self._used: set[int] = set()
        self._reading: list[tuple[Tensor, int]] = []  # what is read there, kept from being freed or overwritten

    @contextmanager
    def reading(self, *tensors: Tensor, lane: int = 0) -> Iterator[None]:
        """Do aside what is inside, which reads these tensors of the captured stream."""
        if self._main is None:
            yield
            return
        self._used.add(lane)
        self._lanes[lane].wait_stream(self._main)
        self._reading += [(tensor, tensor._version) for tensor in tensors]
        with torch.cuda.stream(self._lanes[lane]):
            yield

    def join(self) -> None:
        """Go on when all is done."""
        if self._main is None:
            return
        for lane in self._used:  # the others are not captured
            self._main.wait_stream(self._lanes[lane])
        self._used.clear()
        changed = any(tensor._version != version for tensor, version in self._reading)
        self._reading.clear()
        if changed:
            raise RuntimeError("the model changes what its attention reads: a look at it cannot be replayed")
