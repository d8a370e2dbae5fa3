"""Looks on a GPU that are recorded once and then replayed.

A look is a few thousand small operations, and a GPU spends most of it waiting for Python to launch them.  As a CUDA
graph they are launched at once, from the same addresses: a replay reads the parameters and buffers as they are then.

What Python decides is decided for good when a graph is captured, so a look is replayed only while nothing has changed
that it can depend on: the modules' attributes, those of their configurations, the addresses of all tensors, and
torch's settings.  Anything else is looked at afresh and captured again, a few times.  A look is not captured at all
where it draws random numbers or changes buffers or attributes, where the model has hooks, and where the probe is a
function.  The graph's first replay must give the numbers of the look that it was captured from.

A graph keeps its memory from look to look; one that takes more than `HELD` of the device's is given up.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

HELD = 1 / 32
"""The largest share of a device's memory that a graph may keep."""

CAPTURES = 3
"""How often a look is captured before changes of the model are taken to be its habit."""


class Replay:
    """The graph of a look at a model, if it can have one."""

    _end: torch.cuda.Event  # of the last replay

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        self._captures = 0 if device.type == "cuda" and _on_one_device(model, device) else CAPTURES
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: tuple[Tensor, ...] = ()  # on the host, where the graph leaves it
        self._conditions: Conditions | None = None

    @property
    def may_capture(self) -> bool:
        """Whether a look may still be captured."""
        return self._captures < CAPTURES

    def start(self) -> bool:
        """Begin to replay a look, behind what the device has been given to do; False where it has to be done."""
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
        """The tensors of the replayed look, on the host."""
        self._end.synchronize()
        return tuple(tensor.clone() for tensor in self._result)

    def drop(self) -> None:
        """Forget the graph and free its memory."""
        self._graph, self._result, self._conditions = None, (), None

    def capture(self, work: Callable[[], tuple[Tensor, ...]], expected: tuple[Tensor, ...]) -> None:
        """Capture `work`, and run its graph once, which must give the `expected` tensors."""
        self._captures += 1
        graph = torch.cuda.CUDAGraph()
        conditions = Conditions(self._model)
        result = tuple(torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in expected)
        reserved = torch.cuda.memory_reserved(self._device)
        with torch.cuda.device(self._device):
            try:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    for on_host, tensor in zip(result, work(), strict=True):
                        on_host.copy_(tensor, non_blocking=True)
            except Exception:
                self._captures = CAPTURES
                _end_failed_capture()
                return
            held = torch.cuda.memory_reserved(self._device) - reserved
            graph.replay()
            torch.cuda.synchronize()
        is_same = all(
            torch.allclose(a.double(), b.double().cpu(), rtol=1e-2, atol=1e-6, equal_nan=True)
            for a, b in zip(result, expected, strict=True)
        )
        if is_same and held <= HELD * torch.cuda.get_device_properties(self._device).total_memory:
            self._graph, self._result, self._conditions, self._end = graph, result, conditions, torch.cuda.Event()
        else:
            self._captures = CAPTURES


def _on_one_device(model: nn.Module, device: torch.device) -> bool:
    return all(tensor.device == device for tensor in itertools.chain(model.parameters(), model.buffers()))


def _end_failed_capture() -> None:
    """Capture next to nothing: a capture that failed leaves torch's random generator waiting for the end of one."""
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        torch.zeros((), device="cuda")


def has_hooks(model: nn.Module) -> bool:
    """Whether hooks may count on a forward pass that runs, and runs to its end."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Conditions:
    """All that a captured look takes for granted: the same objects in the same places.

    What modules hold is gone through one level deep: their attributes, and what is in these if they are lists,
    dictionaries, sets or configurations.  The objects are kept, so that no other object gets the identity of one.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._attributes = [(vars(module), list(vars(module).values()), module.training) for module in modules]
        values = [value for _, attributes, _ in self._attributes for value in attributes]
        containers = {id(held): held for held in map(_container, values) if held is not None}.values()
        self._filled = [(container, list(_items(container))) for container in containers if container]
        self._empty = [container for container in containers if not container]
        self._tensors = list(itertools.chain(model.parameters(), model.buffers()))
        self._tensors += [value for value in values if isinstance(value, Tensor)]
        self._places, self._settings = self._read_places(), list(_settings())

    def hold(self) -> bool:
        """Whether nothing has changed but the mode, which a look sets itself."""
        return (
            not any(self._empty)
            and list(_settings()) == self._settings
            and self._read_places() == self._places
            and all(_changes(container, contents) == 0 for container, contents in self._filled)
            and all(
                _changes(attributes, values) == (attributes["training"] is not training)
                for attributes, values, training in self._attributes
            )
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


def _container(value: Any) -> list[Any] | tuple[Any, ...] | set[Any] | dict[Any, Any] | None:
    """What holds the contents of a container or a configuration."""
    if isinstance(value, list | tuple | set | dict):
        return value
    if isinstance(value, nn.Module | Tensor | type) or callable(value):
        return None
    contents = getattr(value, "__dict__", None)
    return contents if isinstance(contents, dict) else None


def _items(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _changes(container: Any, contents: list[Any]) -> int:
    """How many of its contents a container no longer holds; all of them if it has more or fewer now."""
    if len(container) != len(contents):
        return len(contents) + 1
    return sum(map(operator.is_not, _items(container), contents))
