"""Snapshots on a GPU: recorded once as a CUDA graph, then replayed.

A snapshot is a few thousand small operations, and a GPU spends most of it waiting for Python to launch them.  As a CUDA
graph they are launched at once, from the same addresses: a replay reads the parameters and buffers as they are then.
In the graph, what is measured of a layer runs on side streams and does not hold up the layers after it.

What Python decides is fixed when a graph is captured, so a graph is replayed only while nothing has changed that it can
depend on: the modules' attributes, those of their configurations, the addresses of all tensors, and torch's settings.
Otherwise the snapshot is taken without the graph and captured again, a few times.  It is not captured at all where it
draws random numbers or changes buffers or attributes, where the model has hooks, and where the probe is a function.
The graph's first replay must give the numbers of the snapshot that it was captured from.

A graph keeps its memory between snapshots; one that takes more than `MAX_SHARE` of the device's is given up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.monitor.isolation import ModuleAttributes

MAX_SHARE = 1 / 32
"""The largest share of a device's memory that a graph may keep."""

MAX_CAPTURES = 3
"""How often a snapshot is captured before changes of the model are taken to be its habit."""


class GraphReplay:
    """The graph of a snapshot of a model, if it can have one."""

    _end: torch.cuda.Event  # of the last replay

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        tensors = itertools.chain(model.parameters(), model.buffers())
        is_possible = device.type == "cuda" and all(tensor.device == device for tensor in tensors)
        self._captures_left = MAX_CAPTURES if is_possible else 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: tuple[Tensor, ...] = ()  # on the host, where the graph leaves it
        self._conditions: ReplayConditions | None = None

    @property
    def may_capture(self) -> bool:
        """Whether a snapshot may still be captured."""
        return self._captures_left > 0

    def start(self) -> bool:
        """Start a replay behind what the device has been given to do; False if the snapshot must be taken without."""
        if self._graph is None:
            return False
        if self._conditions is None or not self._conditions.hold():
            self.drop()
            return False
        self._graph.replay()
        self._end.record(torch.cuda.current_stream(self._device))
        return True

    def is_done(self) -> bool:
        """Whether the device is done with the replay."""
        return self._end.query()

    def result(self) -> tuple[Tensor, ...]:
        """The tensors of the replayed snapshot, on the host."""
        self._end.synchronize()
        return tuple(tensor.clone() for tensor in self._result)

    def drop(self) -> None:
        """Forget the graph and free its memory."""
        self._graph, self._result, self._conditions = None, (), None

    def capture(self, work: Callable[[], tuple[Tensor, ...]], expected: tuple[Tensor, ...]) -> None:
        """Capture `work`, and run its graph once, which must give the `expected` tensors."""
        self._captures_left -= 1
        graph = torch.cuda.CUDAGraph()
        conditions = ReplayConditions(self._model)
        result = tuple(torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in expected)
        reserved = torch.cuda.memory_reserved(self._device)
        with torch.cuda.device(self._device):
            try:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    for on_host, tensor in zip(result, work(), strict=True):
                        on_host.copy_(tensor, non_blocking=True)
            except Exception:
                self._captures_left = 0
                _end_failed_capture()
                return
            held = torch.cuda.memory_reserved(self._device) - reserved
            graph.replay()
            torch.cuda.synchronize()
        is_same = all(
            torch.allclose(a.double(), b.double().cpu(), rtol=1e-2, atol=1e-6, equal_nan=True)
            for a, b in zip(result, expected, strict=True)
        )
        if is_same and held <= MAX_SHARE * torch.cuda.get_device_properties(self._device).total_memory:
            self._graph, self._result, self._conditions, self._end = graph, result, conditions, torch.cuda.Event()
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


class SideStreams:
    """Streams beside the one that a graph is captured from; where nothing is captured, the current stream."""

    def __init__(self, device: torch.device) -> None:
        is_capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._main = torch.cuda.current_stream(device) if is_capturing else None
        self._streams = [torch.cuda.Stream(device) for _ in range(2)] if is_capturing else []
        self._used: set[int] = set()
        self._reading: list[tuple[Tensor, int]] = []  # what is read there, kept from being freed or overwritten

    @contextmanager
    def reading(self, *tensors: Tensor, number: int = 0) -> Iterator[None]:
        """Run on a side stream what is inside, which reads these tensors of the captured stream."""
        if self._main is None:
            yield
            return
        self._used.add(number)
        self._streams[number].wait_stream(self._main)
        self._reading += [(tensor, tensor._version) for tensor in tensors]
        with torch.cuda.stream(self._streams[number]):
            yield

    def join(self) -> None:
        """Let the captured stream wait for the side streams; refuse a model that overwrote what they read."""
        if self._main is None:
            return
        for number in self._used:  # the others are not captured
            self._main.wait_stream(self._streams[number])
        self._used.clear()
        changed = any(tensor._version != version for tensor, version in self._reading)
        self._reading.clear()
        if changed:
            raise RuntimeError("the model changes what its attention reads: a snapshot of it cannot be replayed")
