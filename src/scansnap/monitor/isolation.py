"""Forward passes without side effects on the training, also where several processes train one model.

Inside `isolated`, the model is in evaluation mode, without gradients and uncompiled.  Afterwards everything that a
forward pass can change is as it was, bit for bit: the random state of torch on the CPU and on the model's devices, of
numpy and of Python; every attribute of every module, among them the buffers, also where the pass replaced them; the
contents of buffers and of other tensors that modules hold.  Parameters and their gradients are only read.

Where each process holds a copy of the model (DDP), the first takes snapshots alone.  Where each holds a shard (FSDP), a
forward pass gathers the parameters from all, so all must take part in every snapshot and agree whether it failed.  The
attributes that a wrapper of sharded parameters keeps for itself are left alone: buffers and flags are restored.  Where
processes hold different heads (tensor parallelism) or different layers (pipelines), all take part too, and what each
has measured is gathered.
"""

from __future__ import annotations

import operator
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

Result = TypeVar("Result")

EXCLUDED_ATTRIBUTES = ("_parameters", "_modules")
"""Attributes of a module that are not restored: a forward pass does not change them."""

SHARD_ATTRIBUTES = ("training", "_buffers")
"""Attributes that are restored where a wrapper of sharded parameters keeps others for itself."""

WRAPPER_PREFIXES = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.")
"""What wrappers add to the names of modules."""


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside of the wrappers of torch.compile and of data-parallel training."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules by their names without those of wrappers; the model itself has the name of its class."""
    modules: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        for wrapper in WRAPPER_PREFIXES:
            name = f"{name}.".replace(wrapper, "").removesuffix(".")
        modules[name or type(module).__name__] = module
    return modules


@dataclass
class SideEffects:
    """What a pass would have left behind if it had not been restored."""

    any: bool = False


@contextmanager
def isolated(model: nn.Module, is_sharded: bool = False) -> Iterator[SideEffects]:
    """Evaluation mode without gradients inside; all that a forward pass can change is restored at the end.

    Afterwards `any` of the result is true if anything had changed.
    """
    effects = SideEffects()
    modules = list(model.modules())
    devices = {p.device for p in model.parameters()} | {b.device for b in model.buffers()}
    with ExitStack() as stack:
        stack.enter_context(_random_states(devices, effects))
        stack.enter_context(_attributes(modules, is_sharded, effects))
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
        yield effects


@contextmanager
def _random_states(devices: set[torch.device], effects: SideEffects) -> Iterator[None]:
    is_capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    accelerators = [d for d in devices if d.type not in ("cpu", "meta") and not is_capturing]  # unreadable then
    states = [(device, torch.get_device_module(device).get_rng_state(device)) for device in accelerators]
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        numpy_now: Any = np.random.get_state()  # noqa: NPY002
        effects.any |= not torch.equal(torch.get_rng_state(), torch_state)
        effects.any |= not all(map(np.array_equal, numpy_now, numpy_state)) or random.getstate() != python_state
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        for device, state in states:
            effects.any |= not torch.equal(torch.get_device_module(device).get_rng_state(device), state)
            torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def _attributes(modules: list[nn.Module], is_sharded: bool, effects: SideEffects) -> Iterator[None]:
    state = ModuleAttributes(
        modules, (lambda n: n in SHARD_ATTRIBUTES) if is_sharded else (lambda n: n not in EXCLUDED_ATTRIBUTES)
    )
    held = [value for module in modules for value in module._buffers.values()] + state.values()
    tensors = {id(value): value for value in held if isinstance(value, Tensor)}.values()
    copies = [(tensor, _version(tensor), tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        effects.any |= state.restore()
        with torch.no_grad():
            for tensor, version, copy in copies:
                if version is None or tensor._version != version:
                    effects.any = True
                    with torch.inference_mode(version is None):
                        tensor.copy_(copy)


def _version(tensor: Tensor) -> int | None:
    """How often a tensor was changed; None for those made in inference mode, which do not count."""
    return None if tensor.is_inference() else tensor._version


def _container(value: Any) -> Any:
    return value if isinstance(value, list | dict | set) else None


class ModuleAttributes:
    """The attributes of modules whose names `covers` accepts, and the contents of those that are containers.

    `contents` returns the container behind an attribute, or None.  The objects are kept, so that no other object gets
    the identity of one.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        covers: Callable[[str], bool] = lambda name: True,
        contents: Callable[[Any], Any] = _container,
    ) -> None:
        self._covers = covers
        self._modules = [(vars(m), {name: v for name, v in vars(m).items() if covers(name)}) for m in modules]
        containers = {id(held): held for held in map(contents, self.values()) if held is not None}.values()
        self._contents = [(container, container.copy()) for container in containers]

    def values(self) -> list[Any]:
        """All attributes."""
        return [value for _, attributes in self._modules for value in attributes.values()]

    def are_same(self) -> bool:
        """Whether nothing has changed but the mode; where all attributes are covered."""
        return all(_is_same(container, content) for container, content in self._contents) and all(
            len(now) == len(before)
            and all(now.get(name) is value or name == "training" for name, value in before.items())
            for now, before in self._modules
        )

    def restore(self) -> bool:
        """Restore everything; returns whether anything but the mode had changed."""
        changes: set[str] = set()
        for now, before in self._modules:
            for name in [name for name in now if name not in before and self._covers(name)]:
                changes.add(name)
                del now[name]
            for name, value in before.items():
                if name not in now or now[name] is not value:
                    changes.add(name)
                    now[name] = value
        refilled = [pair for pair in self._contents if not _is_same(*pair)]
        for container, content in refilled:
            if isinstance(container, list):
                container[:] = content
            else:
                container.clear()
                container.update(content)
        return bool(refilled or changes - {"training"})


def _is_same(container: Any, content: Any) -> bool:
    """Whether two containers hold the same objects; their equality is not asked, since tensors have none."""
    if len(container) != len(content):
        return False
    if isinstance(container, dict):
        return all(map(operator.is_, container.values(), content.values())) and container.keys() == content.keys()
    return container == content if isinstance(container, set) else all(map(operator.is_, container, content))


def is_first_process() -> bool:
    """Whether this process records."""
    return not is_distributed() or distributed.get_rank() == 0


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds only a part of the parameters."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    shards = () if fsdp is None else (fsdp.FSDPModule, fsdp.FullyShardedDataParallel)
    return is_distributed() and any(isinstance(module, shards) for module in model.modules())


def is_tensor_parallel(model: nn.Module) -> bool:
    """Whether processes hold parts of parameters that they compute with together; FSDP alone gathers them."""
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None or not is_distributed():
        return False
    own_axes = int(is_sharded(model))  # the axis of the mesh that FSDP shards
    sharded = [p for p in model.parameters() if isinstance(p, tensor.DTensor)]
    return any(sum(isinstance(place, tensor.Shard) for place in p.placements) > own_axes for p in sharded)


def head_shard(module: nn.Module) -> tuple[int, int]:
    """(rank, world size) of the tensor-parallel group that splits this module's heads."""
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:
        return 0, 1
    for parameter in module.parameters():
        if isinstance(parameter, tensor.DTensor) and any(isinstance(p, tensor.Shard) for p in parameter.placements):
            mesh = parameter.device_mesh
            return mesh.get_local_rank(mesh.ndim - 1), mesh.size(mesh.ndim - 1)
    return 0, 1


def gather(value: Result) -> list[Result]:
    """What each process has, in the order of processes."""
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def sum_of_processes(number: int, device: torch.device) -> int:
    """The sum of the numbers that processes have."""
    total = torch.tensor(number, dtype=torch.int64, device=device)
    distributed.all_reduce(total)
    return int(total)


def free_gathered(model: nn.Module) -> None:
    """Free what a forward pass has gathered.

    A pass without a backward pass keeps the outermost parameters, which would be out of date after the next update.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()
        elif isinstance(module, fsdp.FullyShardedDataParallel) and module._handle is not None:
            module._handle.reshard(free_unsharded_flat_param=True)
            module._handle.post_reshard()


def is_distributed() -> bool:
    """Whether several processes train together."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
