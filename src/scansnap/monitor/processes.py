"""Several processes that train one model.

Where each holds a copy (DDP), the first looks alone.  Where each holds a shard (FSDP), a forward pass gathers the
parameters from all, so that all must take part in every look, and all must agree whether it failed.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import distributed, nn

WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.")
"""What wrappers add to the names of modules."""


def is_first() -> bool:
    """Whether this process records."""
    return not _are_several() or distributed.get_rank() == 0


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds only a part of the parameters."""
    return _are_several() and any(_is_shard(module) for module in model.modules())


def any_failed(failed: bool, device: torch.device) -> bool:
    """Whether this happened in any process."""
    flag = torch.tensor(failed, dtype=torch.int32, device=device)
    distributed.all_reduce(flag)
    return bool(flag)


def of_first(number: int, device: torch.device) -> int:
    """The number that the first process has."""
    shared = torch.tensor(number, device=device)
    distributed.broadcast(shared, 0)
    return int(shared)


def free_gathered(model: nn.Module) -> None:
    """Give up what a forward pass has gathered; a pass without a backward pass keeps the outermost parameters, which
    would be out of date after the next update."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()
        elif isinstance(module, fsdp.FullyShardedDataParallel) and module._handle is not None:
            module._handle.reshard(free_unsharded_flat_param=True)
            module._handle.post_reshard()


def plain_name(name: str) -> str:
    """The name of a module without those of its wrappers."""
    for wrapper in WRAPPERS:
        name = f"{name}.".replace(wrapper, "").removesuffix(".")
    return name


def _are_several() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _is_shard(module: Any) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule | fsdp.FullyShardedDataParallel)
