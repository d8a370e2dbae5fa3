"""Training with and without a watch is the same, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import scansnap as ss
from tests.monitor.small_models import GPT, Restless, ids, train

STEPS = 4


def make(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind().train()


def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "kind", [GPT, lambda: GPT(checkpoints=True), Restless], ids=["dropout", "recompute", "buffers"]
)
def test_training_is_the_same_bit_for_bit(kind: Callable[[], nn.Module], inside: bool, autocast: bool) -> None:
    plain, model = make(kind), make(kind)
    for each in (plain, model):
        each.blocks[0].eval()  # type: ignore[index, operator]
    alone = train(plain, STEPS, autocast=autocast, inside=inside)
    buffers = {name: id(buffer) for name, buffer in model.named_buffers()}  # others may hold the same objects
    watch = ss.watch(model, probe=ids(), every=1, errors="raise")
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == buffers
    watched = train(model, STEPS, autocast=autocast, inside=inside, each=lambda step: watch.step())
    assert equal(alone, watched)
    assert watch.dataset.sizes["step"] == STEPS + 1
    assert [module.training for module in model.modules()] == [module.training for module in plain.modules()]
    assert vars(model).keys() == vars(plain).keys()


def test_compiled_training_is_the_same_and_is_not_compiled_again() -> None:
    def compiled() -> tuple[nn.Module, Callable[[], int]]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        return torch.compile(make(GPT), backend="aot_eager"), lambda: torch._dynamo.utils.counters["frames"]["total"]

    model, frames = compiled()
    alone = train(model, STEPS)
    count = frames()
    assert count > 0
    model, frames = compiled()
    watch = ss.watch(model, probe=ids(), every=1, errors="raise")
    assert equal(alone, train(model, STEPS, each=lambda step: watch.step()))
    assert frames() == count
    assert watch.seen == ("blocks.0.attn", "blocks.1.attn")


def test_everything_is_restored_after_an_error() -> None:
    model: Any = make(Restless)
    model.head = nn.Linear(1, 1)  # at the end of a pass
    with pytest.raises(ss.InputError, match="cannot be run on the probe"):
        ss.watch(model, probe=ids())
    assert model.training
    assert (model.passes, model.seen, float(model.count), float(model.last.sum())) == (0, [], 0, 0)


def test_no_hooks_and_no_gradients_are_left() -> None:
    model = make(GPT)
    watch = ss.watch(model, probe=ids(), errors="raise")
    watch.snapshot()
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    assert not any(getattr(module, name) for module in model.modules() for name in hooks)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not torch.overrides._get_current_function_mode_stack()


def test_numbers_do_not_depend_on_the_default_type() -> None:
    """Which scripts set to bfloat16 before they make their model."""
    model = make(lambda: GPT(dropout=0.0))
    options: dict[str, Any] = {"probe": ids(), "record": tuple(ss.HEAD_QUANTITIES), "errors": "raise"}
    expected = ss.watch(model, **options).dataset
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = ss.watch(model, **options).dataset
    finally:
        torch.set_default_dtype(torch.float32)
    xr.testing.assert_equal(found, expected)


def test_tf32_and_autocast_are_as_they_were() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            ss.watch(make(GPT), probe=ids(), errors="raise")
            assert torch.is_autocast_enabled("cpu")
            assert torch.is_autocast_cache_enabled()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
