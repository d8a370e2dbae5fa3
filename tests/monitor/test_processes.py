"""Two processes that train one model: all take part where they must, the first records, training stays the same."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing, nn

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from tests.monitor.small_models import GPT, Block, ids, train

STEPS = 3
KINDS = ("ddp", "fsdp1", "fsdp2")


def wrap(kind: str) -> nn.Module:
    torch.manual_seed(3)
    model: Any = GPT(dropout=0.0)
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    if kind == "fsdp1":
        return FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=True
        )
    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def check_tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    model = parallelize_module(GPT(), mesh, {"blocks.0.mlp.0": ColwiseParallel(), "head": ColwiseParallel()})
    with pytest.raises(ss.InputError, match="GPT is tensor-parallel"):
        ss.watch(model, probe=ids())


def local(tensors: list[Any]) -> list[torch.Tensor]:
    return [t.to_local() if hasattr(t, "to_local") else t for t in tensors]


def same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def work(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        for kind in KINDS:
            check_whole_steps(kind, Path(folder) / f"{kind}.zarr")
            check_between(kind)
            distributed.barrier()
        check_tensor_parallel()
    finally:
        distributed.destroy_process_group()


def check_whole_steps(kind: str, store: Path) -> None:
    alone = local(train(wrap(kind), STEPS))
    model, told = wrap(kind), list[int]()
    sinks = [lambda step, _: told.append(step)]
    with ss.watch(model, probe=ids(), every=1, errors="raise", store=store, sinks=sinks) as watch:
        watched = local(train(model, STEPS, each=lambda step: watch.step()))
    assert same(alone, watched), f"{kind}: training changed"
    assert told == ([0, 1, 2, 3] if distributed.get_rank() == 0 else []), f"{kind}: not only the first tells"
    if distributed.get_rank() == 1 and kind == "ddp":
        with pytest.warns(UserWarning, match="this process takes no snapshots: the first process does"):
            assert watch.verdicts == []
    if distributed.get_rank() == 0:
        assert watch.seen == ("blocks.0.attn", "blocks.1.attn")


def check_between(kind: str) -> None:
    """A look between the backward pass and the update must not keep parameters that the update makes old."""

    def trained(looks: bool) -> list[torch.Tensor]:
        model = wrap(kind)
        watch = ss.watch(model, probe=ids(), errors="raise") if looks else None
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for step in range(2):
            model(ids(seed=step)).square().sum().backward()
            if watch is not None:
                watch.snapshot()
            optimizer.step()
        return local(list(model.parameters()))

    assert same(trained(False), trained(True)), f"{kind}: a look before the update changed it"


def test_two_processes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (port, str(tmp_path)), nprocs=2)
    for kind in KINDS:
        looks = read_snapshots(tmp_path / f"{kind}.zarr")
        assert looks["step"].values.tolist() == [0, 1, 2, 3]
        assert set(looks["status"].values) == {"ok"}
