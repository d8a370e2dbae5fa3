"""Two processes that train one model: all take part where they must, the first records, training stays the same."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from tests.monitor.small_models import GPT, LENGTH, Block, ids, train

STEPS = 3


class SplitAttention(nn.Module):
    """Attention whose heads tensor parallelism can share out."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(2, (-1, 4)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


def splittable() -> Any:
    """Two layers of four heads."""
    model: Any = GPT(dropout=0.0)
    for block in model.blocks:
        block.attn = SplitAttention()
    return model


def wrap(kind: str) -> nn.Module:
    torch.manual_seed(3)
    if kind == "tensor":
        return share_out(splittable())
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


def share_out(model: Any) -> nn.Module:
    """The model with the heads of each layer shared out to both processes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    columns = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj")}
    for block in model.blocks:
        parallelize_module(block.attn, mesh, columns | {"o_proj": RowwiseParallel()})
    return model


def local(tensors: list[Any]) -> list[Tensor]:
    return [t.to_local() if hasattr(t, "to_local") else t for t in tensors]


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def check_training(kind: str, store: Path) -> None:
    """The same weights with and without a watch; the first process alone tells and stores."""
    options: dict[str, Any] = {"ranks": "all"} if kind == "tensor" else {}
    alone = local(train(wrap(kind), STEPS))
    model, told = wrap(kind), list[int]()
    options |= {"sinks": [lambda step, _: told.append(step)]}
    with ss.watch(model, probe=ids(), every=1, errors="raise", store=store, **options) as watch:
        watched = local(train(model, STEPS, each=lambda step: watch.step()))
    assert same(alone, watched), f"{kind}: training changed"
    assert told == ([0, 1, 2, 3] if distributed.get_rank() == 0 else []), f"{kind}: not only the first tells"
    if distributed.get_rank() == 1 and kind == "ddp":
        with pytest.warns(UserWarning, match="this process takes no snapshots: the first process does"):
            assert watch.verdicts == []
    if distributed.get_rank() == 0:
        assert len(watch.seen) == 2


def check_between(kind: str, _: Path) -> None:
    """A snapshot between the backward pass and the update must not keep parameters that the update makes old."""

    def trained(is_watched: bool) -> list[Tensor]:
        model = wrap(kind)
        watch = ss.watch(model, probe=ids(), errors="raise") if is_watched else None
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for step in range(2):
            model(ids(seed=step)).square().sum().backward()
            if watch is not None:
                watch.snapshot()
            optimizer.step()
        return local(list(model.parameters()))

    assert same(trained(False), trained(True)), f"{kind}: a snapshot before the update changed it"


def check_heads(*_: object) -> None:
    """Heads that are shared out have the numbers of the whole model, in its order; one process alone is refused."""
    torch.manual_seed(3)
    whole = splittable()
    for parameter in whole.parameters():
        parameter.data.mul_(1.5)
    expected = ss.watch(whole, probe=ids(), every=1, rows=None, ranks="all", errors="raise")
    probe, model = ids(), share_out(whole)
    output = model(probe)
    with pytest.raises(ss.InputError, match=r'GPT is tensor-parallel.*give ranks="all" in every process'):
        ss.watch(model, probe=probe)
    watch = ss.watch(model, probe=probe, every=1, rows=None, ranks="all", errors="raise")
    watch.step()
    assert torch.equal(model(probe), output)  # collectives of a snapshot pair with each other alone
    assert watch.seen == expected.seen == ("blocks.0.attn", "blocks.1.attn")
    for name, values in expected.dataset.data_vars.items():
        if name != "qk_singular_value":  # its matrices are shared out
            np.testing.assert_allclose(watch.dataset[name][0], values[0], atol=1e-5, err_msg=str(name))


def check_pipeline(*_: object) -> None:
    """Each process has one layer, and sends what it computes to the next; both know the numbers of both."""
    torch.manual_seed(3)
    whole = splittable()
    expected = ss.watch(whole, probe=ids(), rows=None, record=("entropy", "top_1"), ranks="all").dataset
    rank = distributed.get_rank()
    stage = nn.ModuleDict({f"block{rank}": whole.blocks[rank]})

    def run(stage: nn.ModuleDict) -> None:
        x = whole.embedding(ids()) + whole.positions.weight[:LENGTH]
        if rank == 0:
            distributed.send(stage["block0"](x).detach(), 1)
        else:
            distributed.recv(x.data, 0)
            stage["block1"](x)

    found = ss.watch(stage, probe=run, rows=None, record=("entropy", "top_1"), ranks="all", errors="raise")
    assert found.seen == ("block0.attn", "block1.attn")
    for name in ("entropy", "top_1", "pattern"):
        np.testing.assert_allclose(found.dataset[name], expected[name], rtol=1e-6, err_msg=name)


Checks = tuple[Callable[[str, Path], None], ...]


def work(rank: int, port: int, folder: str, checks: Checks, kind: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        for check in checks:
            check(kind, Path(folder) / "a.zarr")
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("checks", "kind"),
    [
        ((check_heads, check_pipeline), "shared out"),  # the others take several seconds each
        *(pytest.param((check_training, check_between), k, marks=pytest.mark.slow) for k in ("ddp", "fsdp1", "fsdp2")),
        pytest.param((check_training,), "tensor", marks=pytest.mark.slow),
    ],
)
def test_two_processes(tmp_path: Path, checks: Checks, kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(work, (port, str(tmp_path), checks, kind), nprocs=2)
    if check_training in checks:
        snapshots = read_snapshots(tmp_path / "a.zarr")
        assert snapshots["step"].values.tolist() == [0, 1, 2, 3]
        assert set(snapshots["status"].values) == {"ok"}
