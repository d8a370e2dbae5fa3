"""Snapshots on a GPU: recorded once as a CUDA graph, then replayed.

A snapshot is a few thousand small operations, and a GPU spends most of it waiting for Python to launch them.  As a CUDA
graph they are launched at once, from the same addresses: a replay reads the parameters and buffers as they are then.

What Python decides is fixed when a graph is captured, so a graph is replayed only while nothing has changed that it can
depend on: the modules' attributes, those of their configurations, the addresses of all tensors, and torch's settings.
Otherwise the snapshot is taken without the graph and captured again, a few times.  It is not captured at all where it
draws random numbers or changes buffers or attributes, where the model has hooks, and where the probe is a function.
The graph's first replay must give the numbers of the snapshot that it was captured from.

A graph keeps its memory between snapshots; one that takes more than `MAX_MEMORY_SHARE` of the device's is given up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.monitor.isolation import ModuleAttributes

MAX_MEMORY_SHARE = 1 / 32
"""The largest share of a device's memory that a graph may keep."""

MAX_CAPTURES = 3
"""Give up on CUDA graphs after this many captures."""


class GraphReplay:
    """The graph of a snapshot of a model, if it can have one."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        tensors = itertools.chain(model.parameters(), model.buffers())
        is_possible = device.type == "cuda" and all(tensor.device == device for tensor in tensors)
        self._captures_left = MAX_CAPTURES if is_possible else 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: tuple[Tensor, ...] = ()  # where the graph leaves it
        self._conditions: ReplayConditions | None = None

    @property
    def may_capture(self) -> bool:
        """Whether a snapshot may still be captured."""
        return self._captures_left > 0

    def run(self) -> tuple[Tensor, ...] | None:
        """The tensors of the replayed snapshot, until the next replay; None if it must be taken without the graph."""
        if self._graph is None:
            return None
        if self._conditions is None or not self._conditions.hold():
            self.drop()
            return None
        self._graph.replay()
        return self._result

    def drop(self) -> None:
        """Forget the graph and free its memory."""
        self._graph, self._result, self._conditions = None, (), None

    def capture(self, work: Callable[[], tuple[Tensor, ...]], expected: tuple[Tensor, ...]) -> None:
        """Capture `work`, and run its graph once, which must give the `expected` tensors."""
        self._captures_left -= 1
        graph = torch.cuda.CUDAGraph()
        conditions = ReplayConditions(self._model)
        reserved = torch.cuda.memory_reserved(self._device)
        with torch.cuda.device(self._device):
            try:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    result = work()
            except Exception:
                self._captures_left = 0
                _end_failed_capture()
                return
            held = torch.cuda.memory_reserved(self._device) - reserved
            graph.replay()
            torch.cuda.synchronize()
        is_same = all(
            torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-6, equal_nan=True)
            for a, b in zip(result, expected, strict=True)
        )
        if is_same and held <= MAX_MEMORY_SHARE * torch.cuda.get_device_properties(self._device).total_memory:
            self._graph, self._result, self._conditions = graph, result, conditions
        else:
            self._captures_left = 0


def _end_failed_capture() -> None:
    """Capture next to nothing: a capture that failed leaves torch's random generator waiting for the end of one."""
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        torch.zeros((), device="cuda")


class ReplayConditions:
    """All that a captured snapshot takes for granted: the same objects in the same places.

    The attributes of modules are compared one level deep, with the contents of containers and configurations.
    """

    def __init__(self, model: nn.Module) -> None:
        self._attributes = ModuleAttributes(list(model.modules()), contents=_contents)
        held = [value for value in self._attributes.values() if isinstance(value, Tensor)]
        self._tensors = [*model.parameters(), *model.buffers(), *held]
        self._places, self._settings = self._read_places(), list(_settings())

    def hold(self) -> bool:
        """Whether nothing has changed but the mode, which a snapshot sets itself."""
        return (
            list(_settings()) == self._settings and self._read_places() == self._places and self._attributes.are_same()
        )

    def _read_places(self) -> list[Hashable]:
        return [(tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in self._tensors]


def _settings() -> Iterator[Hashable]:
    """Settings of torch that choose what is computed, and how."""
    for kind in ("cuda", "cpu"):
        yield torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    backends = torch.backends.cuda
    yield torch.get_float32_matmul_precision(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    yield backends.flash_sdp_enabled(), backends.mem_efficient_sdp_enabled(), backends.math_sdp_enabled()
    yield backends.cudnn_sdp_enabled()


def _contents(value: Any) -> list[Any] | set[Any] | dict[Any, Any] | None:
    """What holds the contents of a container or a configuration."""
    if isinstance(value, list | set | dict):
        return value
    if isinstance(value, nn.Module | Tensor | type) or callable(value):
        return None
    contents = getattr(value, "__dict__", None)
    return contents if isinstance(contents, dict) else None
