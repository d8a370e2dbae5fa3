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
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

HELD = 1 / 32
"""The largest share of a device's memory that a graph may keep."""

CAPTURES = 3
"""How often a look is captured before changes of the model are taken to be its habit."""

PLAIN = {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
"""Types of values that are compared by value; other objects are the same if they are one object."""

OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""Attributes that are not compared: a look sets the mode itself, and tensors, modules and hooks are gone through."""


class Replay:
    """The graph of a look at a model, if it can have one."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        self._captures = 0 if device.type == "cuda" and _on_one_device(model, device) else CAPTURES
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: tuple[Tensor, ...] = ()
        self._conditions: _Conditions | None = None

    @property
    def may_capture(self) -> bool:
        """Whether a look may still be captured."""
        return self._captures < CAPTURES

    @property
    def is_ready(self) -> bool:
        """Whether there is a graph to replay."""
        return self._graph is not None

    def run(self) -> tuple[Tensor, ...] | None:
        """The tensors of a look, replayed; None where it has to be done."""
        if self._graph is None:
            return None
        if self._conditions is None or _Conditions(self._model).keys != self._conditions.keys:
            self.drop()
            return None
        self._graph.replay()
        return self._result

    def drop(self) -> None:
        """Forget the graph and free its memory."""
        self._graph, self._result, self._conditions = None, (), None

    def capture(self, work: Callable[[], tuple[Tensor, ...]], expected: tuple[Tensor, ...]) -> None:
        """Capture `work`, and run its graph once, which must give the `expected` tensors."""
        self._captures += 1
        graph = torch.cuda.CUDAGraph()
        conditions = _Conditions(self._model)
        reserved = torch.cuda.memory_reserved(self._device)
        with torch.cuda.device(self._device):
            try:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    result = work()
            except Exception:
                self._captures = CAPTURES
                _end_failed_capture()
                return
            held = torch.cuda.memory_reserved(self._device) - reserved
            graph.replay()
        is_same = all(
            torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-6, equal_nan=True)
            for a, b in zip(result, expected, strict=True)
        )
        if is_same and held <= HELD * torch.cuda.get_device_properties(self._device).total_memory:
            self._graph, self._result, self._conditions = graph, result, conditions
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


class _Conditions:
    """All that a captured look takes for granted."""

    def __init__(self, model: nn.Module) -> None:
        backends = torch.backends.cuda
        self.keys: list[Hashable] = [
            *((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu")),
            torch.get_float32_matmul_precision(), torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(), backends.flash_sdp_enabled(),
            backends.mem_efficient_sdp_enabled(), backends.math_sdp_enabled(), backends.cudnn_sdp_enabled(),
        ]  # fmt: skip
        self._objects: dict[int, object] = {}  # held, so that no other object gets the identity of one of them
        self.keys.append(has_hooks(model))
        for module in model.modules():
            self._add(module)
            for tensor in itertools.chain(module._parameters.values(), module._buffers.values()):
                self._add(tensor)
            for name, value in module.__dict__.items():
                if name not in OF_EVERY_MODULE:
                    self.keys.append(name)
                    if self._add(value):
                        self._add_contents(value)

    def _add(self, value: Any) -> bool:
        """Take a value down; False if it has no contents, or they are known."""
        if type(value) in PLAIN:
            self.keys.append((type(value), value))
            return False
        self.keys.append(id(value))
        if id(value) in self._objects:
            return False
        self._objects[id(value)] = value
        if isinstance(value, Tensor):
            self.keys.append((value.data_ptr(), value.dtype, value.shape, value.stride()))
        return True

    def _add_contents(self, value: Any) -> None:
        """What a container or a configuration holds, one level deep."""
        if isinstance(value, list | tuple | set):
            for item in value:
                self._add(item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._add(key)
                self._add(item)
        elif not isinstance(value, nn.Module | Tensor | type) and not callable(value):
            self._add_contents(getattr(value, "__dict__", ()))
