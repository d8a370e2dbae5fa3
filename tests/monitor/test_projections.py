"""The largest singular value of W_QK, against that of the product formed and decomposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from scansnap.monitor.quantities import Projections, qk_singular_value
from tests.monitor.seeing import see
from tests.monitor.small_models import GPT, ids


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
    looks = ss.watch(model, probe=ids(), errors="raise").dataset["qk_singular_value"].values[0]
    for layer, block in enumerate(model.blocks):
        query, key, _ = block.attn.c_attn.weight.detach().view(3, 2, 8, 16)  # type: ignore[union-attr, operator]
        np.testing.assert_allclose(looks[layer], spectral(query, key), rtol=1e-5)
    for more in ({}, {"kdim": 16, "vdim": 6}):
        attention = nn.MultiheadAttention(16, 2, batch_first=True, **more)
        probe = (torch.randn(2, 5, 16), torch.randn(2, 5, 16), torch.randn(2, 5, more.get("vdim", 16)))
        looks = ss.watch(attention, probe=probe, errors="raise").dataset["qk_singular_value"].values[0]
        query, key = (
            (attention.q_proj_weight, attention.k_proj_weight) if more else attention.in_proj_weight.chunk(3)[:2]
        )
        exact = spectral(query.detach().view(2, 8, 16), key.detach().view(2, 8, 16))
        np.testing.assert_allclose(looks[0], exact, rtol=1e-5)


def test_a_layer_that_shows_no_projections_has_none() -> None:
    class Hidden(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    looks = ss.watch(Hidden(), probe=torch.randn(2, 2, 5, 4), errors="raise").dataset
    assert np.isnan(looks["qk_singular_value"].values).all()
    assert np.isnan(looks["prefix_matching"].values).all()


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
    looks = watch.dataset["qk_singular_value"][:, 0]
    for look, weight in enumerate([base.weight + adapted.get_delta_weight("default"), base.weight]):
        query, key, _ = weight.detach().view(3, 2, 8, 16)
        np.testing.assert_allclose(looks[look], spectral(query, key), rtol=1e-5)
    assert np.isnan(looks[2]).all()


def test_projections_with_adapters_of_peft() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    torch.manual_seed(0)
    model: Any = GPT()
    options = {"target_modules": ["c_attn"], "init_lora_weights": False, "lora_dropout": 0.5}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, **options))
    watch = ss.watch(adapted, probe=ids(), errors="raise")
    merged = ss.watch(adapted.merge_and_unload(), probe=ids(), errors="raise")
    for name in ("qk_singular_value", "entropy"):
        np.testing.assert_allclose(watch.dataset[name], merged.dataset[name], rtol=1e-4)
    not_a_sum = peft.get_peft_model(GPT(), peft.LoraConfig(r=2, use_dora=True, **options))
    assert np.isnan(ss.watch(not_a_sum, probe=ids()).dataset["qk_singular_value"]).all()


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "gpt_neox", "bert", "t5"])
def test_projections_of_hugging_face_models_make_the_queries(name: str) -> None:
    """Found projections, applied to the input of the attention module, give the queries and keys that are seen."""
    pytest.importorskip("transformers")
    from scansnap.monitor.quantities import find_projections

    from tests.monitor import test_hugging_face as models

    bert = models.of("BertConfig", "BertForMaskedLM", models.SIZES)
    maker = {"bert": bert, "t5": models.t5}.get(name) or models.DECODERS[name]
    model: Any = models.make(maker, "sdpa")
    inputs = {}
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("bias"):
            parameter.data.zero_()

    def keep(module: nn.Module, args: Any, kwargs: Any) -> None:
        inputs[names[id(module)]] = args[0] if args else kwargs["hidden_states"]

    names = {id(module): module_name for module_name, module in model.named_modules()}
    probe = {"input_ids": models.ids(), **({"decoder_input_ids": models.ids()} if name == "t5" else {})}
    seen = see(model, **probe)
    modules = dict(model.named_modules())
    handles = [modules[layer].register_forward_pre_hook(keep, with_kwargs=True) for layer in seen.calls]
    model.eval()(**probe)
    for handle in handles:
        handle.remove()
    first, call = next(iter(seen.calls.items()))
    shown = find_projections(modules[first], call.sizes[1], call.key_heads, call.width)
    assert shown is not None
    query = torch.einsum("btD,hdD->bhtd", inputs[first], shown.query)
    key = torch.einsum("btD,hdD->bhtd", inputs[first], shown.key)
    # The first token is not rotated, and rotation keeps lengths.
    torch.testing.assert_close(query[:, :, 0], call.query[:, :, 0], atol=1e-5, rtol=1e-4)  # type: ignore[attr-defined]
    torch.testing.assert_close(key[:, :, 0], call.key[:, :, 0], atol=1e-5, rtol=1e-4)  # type: ignore[attr-defined]
    torch.testing.assert_close(key.norm(dim=3), call.key.norm(dim=3), atol=1e-5, rtol=1e-4)  # type: ignore[attr-defined]
