"""A pass over the probe that leaves no trace in the training.

Inside, the model is in evaluation mode, without gradients and uncompiled.  Afterwards everything that a forward pass
can change is as it was, bit for bit: the random state of torch on the CPU and on the model's devices, of numpy and of
Python; every attribute of every module, among them the buffers, also where the pass replaced them; the contents of
buffers and of other tensors that modules hold.  Parameters and their gradients are only read.

Of a model whose parameters are sharded, the wrapper's own attributes are left alone: buffers and flags are put back.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

UNTOUCHED = ("_parameters", "_modules")
"""Attributes of a module that are not put back: a forward pass does not change them."""

OF_SHARDS = ("training", "_buffers")
"""Attributes that are put back where a wrapper of sharded parameters keeps others for itself."""


def uncompiled(model: nn.Module) -> nn.Module:
    """The module that wrappers of torch.compile and of data-parallel training hold."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@dataclass
class Trace:
    """What a pass would have left, had it not been put back."""

    is_any: bool = False


@contextmanager
def undisturbed(model: nn.Module, is_sharded: bool = False) -> Iterator[Trace]:
    """Evaluation mode without gradients inside; all that a forward pass can change is put back after.

    After it, the trace says whether anything had changed.
    """
    trace = Trace()
    modules = list(model.modules())
    devices = {p.device for p in model.parameters()} | {b.device for b in model.buffers()}
    with ExitStack() as stack:
        stack.enter_context(_random_numbers(devices, trace))
        stack.enter_context(_attributes(modules, OF_SHARDS if is_sharded else None, trace))
        stack.enter_context(torch.no_grad())
        if "torch._dynamo" in sys.modules:  # nothing is compiled otherwise
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for kind in ({device.type for device in devices} | {"cpu"}) - {"meta"}:
            if torch.is_autocast_enabled(kind):  # in older versions its cache would hand on weights without gradients
                dtype = torch.get_autocast_dtype(kind)
                stack.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
        for module in modules:
            if isinstance(module, torch.jit.ScriptModule):  # its mode is not among its attributes
                stack.callback(setattr, module, "training", module.training)
            module.training = False
        yield trace


@contextmanager
def _random_numbers(devices: set[torch.device], trace: Trace) -> Iterator[None]:
    is_capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    accelerators = [d for d in devices if d.type not in ("cpu", "meta") and not is_capturing]  # unreadable then
    states = [(device, torch.get_device_module(device).get_rng_state(device)) for device in accelerators]
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        numpy_now: Any = np.random.get_state()  # noqa: NPY002
        trace.is_any |= not torch.equal(torch.get_rng_state(), torch_state)
        trace.is_any |= not all(map(np.array_equal, numpy_now, numpy_state)) or random.getstate() != python_state
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        for device, state in states:
            trace.is_any |= not torch.equal(torch.get_device_module(device).get_rng_state(device), state)
            torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def _attributes(modules: list[nn.Module], only: tuple[str, ...] | None, trace: Trace) -> Iterator[None]:
    states = [_ModuleState(module, only) for module in modules]
    tensors: dict[int, tuple[Tensor, int | None, Tensor]] = {}
    for module, state in zip(modules, states, strict=True):
        for value in (*module._buffers.values(), *state.attributes.values()):
            if isinstance(value, Tensor) and id(value) not in tensors:
                tensors[id(value)] = (value, _version(value), value.detach().clone())
    try:
        yield
    finally:
        for state in states:
            trace.is_any |= state.restore()
        with torch.no_grad():
            for tensor, version, copy in tensors.values():
                if version is None or tensor._version != version:
                    trace.is_any = True
                    with torch.inference_mode(version is None):
                        tensor.copy_(copy)


def _version(tensor: Tensor) -> int | None:
    """How often a tensor was changed; those made in inference mode do not know."""
    return None if tensor.is_inference() else tensor._version


class _ModuleState:
    """The attributes of a module, and what those hold that are lists, dictionaries or sets."""

    def __init__(self, module: nn.Module, only: tuple[str, ...] | None) -> None:
        self._state, self._only = module.__dict__, only
        self.attributes = {name: value for name, value in self._state.items() if self._is_ours(name)}
        self._contents = [
            (value, value.copy()) for value in self.attributes.values() if isinstance(value, list | dict | set)
        ]

    def _is_ours(self, name: str) -> bool:
        return name not in UNTOUCHED if self._only is None else name in self._only

    def restore(self) -> bool:
        """Put everything back, and say whether anything but the mode had changed."""
        state = self._state
        added = [name for name in state if name not in self.attributes and self._is_ours(name)]
        changed = [n for n, value in self.attributes.items() if n not in state or state[n] is not value]
        refilled = [(container, content) for container, content in self._contents if not _same(container, content)]
        for name in added:
            del state[name]
        for name in changed:
            state[name] = self.attributes[name]
        for container, content in refilled:
            _refill(container, content)
        return bool(added or refilled or set(changed) - {"training"})


def _same(container: Any, content: Any) -> bool:
    """Whether two containers hold the same objects; their equality is not asked, since tensors have none."""
    if len(container) != len(content):
        return False
    if isinstance(container, dict):
        pairs = zip(container.items(), content.items(), strict=True)
        return all(a == b and x is y for (a, x), (b, y) in pairs)
    if isinstance(container, set):
        return bool(container == content)
    return all(x is y for x, y in zip(container, content, strict=True))


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)
