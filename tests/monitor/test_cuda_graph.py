"""Replayed snapshots measure what snapshots done afresh measure, and take nothing for granted that has changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import scansnap as ss
from scansnap.monitor import cuda_graph
from scansnap.monitor.cuda_graph import ReplayConditions
from scansnap.monitor.isolation import isolated
from tests.monitor.small_models import GPT


class Configuration:
    def __init__(self) -> None:
        self.gain = 1.0


class Attention(nn.Module):
    """Attention with dropout, a buffer, an attribute and a configuration that its logits depend on.

    `reads` makes the host wait for a number in every pass, which no graph can hold.  `passes` counts forward passes in
    Python, which a replay has none of.
    """

    passes = 0
    offset: Tensor

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.project, self.out, self.reads = nn.Linear(16, 48), nn.Linear(16, 16), reads
        self.temperature, self.config, self.gains = 1.0, Configuration(), [1.0]
        self.register_buffer("offset", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        Attention.passes += 1
        if self.reads and float(x.detach().abs().amax()) > 1e9:
            x = x / 2
        query, key, value = self.project(x + self.offset).unflatten(2, (6, 8)).transpose(1, 2).chunk(3, 1)
        scale = self.config.gain * self.gains[0] / self.temperature
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        return functional.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)


def make(reads: bool = False) -> Any:
    """Two layers of such attention."""
    torch.manual_seed(0)
    model: Any = GPT()
    for block in model.blocks:
        block.attn = Attention(reads)
    return model


def _attention(model: Any) -> Any:
    return model.blocks[1].attn


def _replace_data(model: nn.Module) -> None:
    weight = _attention(model).project.weight
    weight.data = 3 * weight.data


CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "an attribute": lambda model: setattr(_attention(model), "temperature", 0.2),
    "a number in a list": lambda model: _attention(model).gains.__setitem__(0, 4.0),
    "a configuration": lambda model: setattr(_attention(model).config, "gain", 5.0),
    "a parameter's data": _replace_data,
    "a buffer": lambda model: setattr(_attention(model), "offset", torch.full_like(_attention(model).offset, 0.7)),
    "a module": lambda model: setattr(
        _attention(model), "project", nn.Linear(16, 48).to(_attention(model).offset.device)
    ),
    "a hook": lambda model: _attention(model).project.register_forward_hook(lambda *given: 2 * given[-1]),
}
"""What a user may do to a model between two snapshots."""


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_a_graph_would_not_see_is_noticed(change: Callable[[nn.Module], Any]) -> None:
    model = make()
    before = ReplayConditions(model)
    with torch.no_grad():
        model.embedding.weight.add_(1.0)  # what an optimizer does
    model.eval()
    assert before.hold()
    change(model)
    assert not before.hold()


def test_autocast_is_a_condition() -> None:
    model = make()
    before = ReplayConditions(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert not before.hold()
    assert before.hold()


TRACES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda attention: attention(torch.zeros(1, 3, 16)),
    "a buffer": lambda attention: attention.offset.add_(1),
    "an attribute": lambda attention: setattr(attention, "temperature", 2.0),
    "a number in a list": lambda attention: attention.gains.append(2.0),
    "the random state": lambda attention: torch.rand(()),
}
"""What a forward pass may do besides computing."""


@pytest.mark.parametrize("trace", TRACES)
def test_a_pass_says_whether_it_would_have_left_a_trace(trace: str) -> None:
    attention = Attention()
    with isolated(attention) as effects:
        TRACES[trace](attention)
    assert effects.any == (trace != "nothing")
    assert (attention.temperature, attention.gains, float(attention.offset.sum())) == (1.0, [1.0], 0.0)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
    ids = torch.randint(0, 11, (8, 21), device=device)  # drawn on the GPU: a capture may not disturb its generator
    loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _train(model: nn.Module, steps: int, device: str, after: Callable[[int], None] = lambda step: None) -> None:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(steps):
        _step(model, optimizer, device)
        after(step)


def _is_replayed(watch: ss.Watch) -> bool:
    """Take a step with a snapshot, and return whether it was a replay."""
    before = Attention.passes
    watch.step()
    return Attention.passes == before


@pytest.mark.gpu
@pytest.mark.parametrize("reads", [False, True])
def test_replayed_snapshots_are_snapshots_and_leave_the_training_alone(
    reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(reads).cuda()
    twin = copy.deepcopy(model)
    probe = torch.randint(0, 11, (4, 20), device="cuda")
    watch = ss.watch(model, probe=probe, every=1, rows=None, errors="raise")
    monkeypatch.setattr(cuda_graph, "MAX_CAPTURES", 0)
    afresh = ss.watch(model, probe=probe, every=1, rows=None, errors="raise")
    replays: list[bool] = []

    def snapshot(step: int) -> None:
        replays.append(_is_replayed(watch))
        assert not _is_replayed(afresh)

    _train(model, 8, "cuda", snapshot)
    _train(twin, 8, "cuda")
    assert replays[-1] == (not reads)
    for name, measured in watch.dataset.data_vars.items():
        if measured.dtype.kind == "f":
            np.testing.assert_allclose(measured, afresh.dataset[name], atol=1e-5, err_msg=str(name))
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_model_is_measured_afresh(change: Callable[[nn.Module], Any]) -> None:
    model, probe = make().cuda(), torch.randint(0, 11, (4, 20), device="cuda")
    watch = ss.watch(model, probe=probe, every=1, rows=None, errors="raise")
    watch.step()
    assert _is_replayed(watch)
    change(model)
    assert not _is_replayed(watch)
    now = ss.watch(model, probe=probe, every=1, rows=None, errors="raise")
    now.step()
    changed, expected = watch.dataset.entropy.isel(step=-1), now.dataset.entropy.isel(step=-1)
    assert abs(changed - expected).max() < 1e-6
    assert abs(changed - watch.dataset.entropy.isel(step=-2)).max() > 1e-3
