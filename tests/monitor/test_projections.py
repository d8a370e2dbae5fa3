"""The largest singular value of W_QK, against that of the product formed and decomposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from scansnap.monitor.projections import Projections
from scansnap.monitor.quantities import qk_singular_value
from tests.monitor.small_models import GPT, ids
from tests.monitor.test_capture import ids as token_ids
from tests.monitor.test_capture import make


@pytest.mark.parametrize("shape", [(4, 4, 8, 32), (6, 2, 8, 32), (4, 1, 16, 24), (2, 2, 8, 4)])
def test_singular_values(shape: tuple[int, int, int, int]) -> None:
    heads, groups, width, channels = shape
    torch.manual_seed(0)
    query, key = torch.randn(3, heads, width, channels), torch.randn(3, groups, width, channels)
    product = query.mT @ key.repeat_interleave(heads // groups, 1)
    exact = torch.linalg.svdvals(product.double())[..., 0]
    torch.testing.assert_close(qk_singular_value.compute(Projections(query, key)).double(), exact, rtol=1e-5, atol=0)


def test_singular_values_that_lie_close() -> None:
    """Singular values 1 and 0.9999, and eigenvectors that no axis is near to."""
    torch.manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0] for _ in range(2))
    diagonal = torch.tensor([1.0, 0.9999, 0.5, 0.1, 1e-3, 1e-6, 0, 0], dtype=torch.float64)
    query, key = (u * diagonal.sqrt()).T, (v * diagonal.sqrt()).T  # query' key = u diagonal v'
    found = qk_singular_value.compute(Projections(query[None].float(), key[None].float()))
    np.testing.assert_allclose(found, 1.0, rtol=1e-4)


def test_zero_projections() -> None:
    """One of them is how training of zero-initialized queries starts."""
    zero, other = torch.zeros(2, 4, 8), torch.randn(2, 4, 8)
    for query, key in ((zero, zero), (zero, other), (other, zero)):
        assert qk_singular_value.compute(Projections(query, key)).tolist() == [0.0, 0.0]


def spectral(query: Tensor, key: Tensor) -> Tensor:
    return torch.linalg.svdvals(query.mT @ key)[..., 0]


def test_projections_of_torch_and_of_fused_layers() -> None:
    torch.manual_seed(0)
    model = GPT()
    snapshots = ss.watch(model, probe=ids(), errors="raise").dataset["qk_singular_value"].values[0]
    for layer, block in enumerate(model.blocks):
        query, key, _ = block.attn.c_attn.weight.detach().view(3, 2, 8, 16)  # type: ignore[union-attr, operator]
        np.testing.assert_allclose(snapshots[layer], spectral(query, key), rtol=1e-5)
    for more in ({}, {"kdim": 16, "vdim": 6}):
        attention = nn.MultiheadAttention(16, 2, batch_first=True, **more)
        probe = (torch.randn(2, 5, 16), torch.randn(2, 5, 16), torch.randn(2, 5, more.get("vdim", 16)))
        snapshots = ss.watch(attention, probe=probe, errors="raise").dataset["qk_singular_value"].values[0]
        query, key = (
            (attention.q_proj_weight, attention.k_proj_weight) if more else attention.in_proj_weight.chunk(3)[:2]
        )
        exact = spectral(query.detach().view(2, 8, 16), key.detach().view(2, 8, 16))
        np.testing.assert_allclose(snapshots[0], exact, rtol=1e-5)


class Adapted(nn.Module):
    """A linear layer with an adapter, as PEFT has it, whose `weight` is that of the layer alone."""

    def __init__(self, base_layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.ModuleDict({"default": nn.Linear(16, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, base_layer.out_features, bias=False)})
        self.active_adapters, self.merged, self.disable_adapters = ["default", "other"], False, False
        self.lora_variant: dict[str, object] = {}

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    def get_delta_weight(self, name: str) -> Tensor:
        return 0.5 * self.lora_B[name].weight @ self.lora_A[name].weight  # type: ignore[operator, no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight + self.get_delta_weight("default"), self.base_layer.bias)


def test_projections_with_adapters() -> None:
    """Adapters are added to the weight while they are on and not merged; what is not a sum is not known."""
    torch.manual_seed(0)
    model: Any = GPT(layers=1)
    base = model.blocks[0].attn.c_attn
    model.blocks[0].attn.c_attn = adapted = Adapted(base)
    watch = ss.watch(model, probe=ids(), every=1, errors="raise")
    adapted.merged = True
    watch.step()
    adapted.merged, adapted.lora_variant = False, {"default": object()}
    watch.step()
    snapshots = watch.dataset["qk_singular_value"][:, 0]
    for snapshot, weight in enumerate([base.weight + adapted.get_delta_weight("default"), base.weight]):
        query, key, _ = weight.detach().view(3, 2, 8, 16)
        np.testing.assert_allclose(snapshots[snapshot], spectral(query, key), rtol=1e-5)
    assert np.isnan(snapshots[2]).all()


FAMILIES = {
    "GPT2": lambda model: model.transformer.h[0].attn.c_attn.weight.T.view(3, 4, 8, 32)[:2],
    "Llama": lambda model: _pair(model.model.layers[0].self_attn, "q_proj", "k_proj"),
    "GPTNeoX": lambda model: (
        model.gpt_neox.layers[0].attention.query_key_value.weight.view(4, 3, 8, 32).transpose(0, 1)[:2]
    ),
    "Bert": lambda model: _pair(model.bert.encoder.layer[0].attention.self, "query", "key"),
    "T5": lambda model: _pair(model.encoder.block[0].layer[0].SelfAttention, "q", "k"),
}
"""Where models of Hugging Face hold the projections of queries and keys, (heads, width, channels)."""


def _pair(attention: nn.Module, *names: str) -> list[Tensor]:
    return [getattr(attention, name).weight.view(-1, 8, 32) for name in names]


@pytest.mark.parametrize("family", FAMILIES)
def test_projections_of_hugging_face_models(family: str) -> None:
    model = make(family)
    probe = {"input_ids": token_ids()} | ({"decoder_input_ids": token_ids()} if family == "T5" else {})
    found = ss.watch(model, probe=probe, errors="raise").dataset["qk_singular_value"].values[0, 0]
    query, key = FAMILIES[family](model)
    exact = spectral(query.detach(), key.detach().repeat_interleave(len(query) // len(key), 0))
    np.testing.assert_allclose(found, exact, rtol=1e-5)
