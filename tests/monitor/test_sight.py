"""What is seen of attention, however a model writes it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from scansnap.monitor.attention import every_row
from scansnap.monitor.capture import AnnouncedModule
from tests.monitor.seeing import see

T, S = 7, 9
CAUSAL = torch.ones(T, T).tril().bool()


class Fused(nn.Module):
    """Calls the fused function with what it is given."""

    def __init__(self, function: Any = functional.scaled_dot_product_attention) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.function(*args, **kwargs)


def tensors(*shape: int, count: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [2 * torch.randn(shape, generator=generator) for _ in range(count)]


def exact(query: Tensor, key: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Weights in float64 from their definition; `bias` is added, or boolean and True where a key is seen."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    logits = torch.einsum("bhtd,bhsd->bhts", query.double(), key.double()) * (scale or query.shape[-1] ** -0.5)
    if bias is not None:
        logits = logits.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else logits + bias
    return (logits.exp() / logits.exp().sum(-1, keepdim=True)).float()


def test_fused_attention_however_called() -> None:
    q, k, v = tensors(2, 3, T, 4)
    boolean = torch.rand(2, 1, T, T, generator=torch.Generator().manual_seed(2)) > 0.3
    boolean[..., 0] = True
    added = torch.randn(3, T, T)
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Tensor]] = [
        ((q, k, v), {}, exact(q, k)),
        ((q, k, v, None, 0.0, True), {}, exact(q, k, CAUSAL)),
        ((), {"query": q, "key": k, "value": v, "is_causal": True, "scale": 0.7}, exact(q, k, CAUSAL, 0.7)),
        ((q, k, v, boolean), {}, exact(q, k, boolean)),
        ((q, k, v), {"attn_mask": added}, exact(q, k, added)),
        ((q, k, v), {"attn_mask": CAUSAL[3:4]}, exact(q, k, CAUSAL[3:4])),
        ((q, k[:, :1], v[:, :1]), {"enable_gqa": True}, exact(q, k[:, :1])),
        ((q, k, v), {"attn_mask": causal_lower_right(T, T)}, exact(q, k, CAUSAL)),
    ]
    for args, kwargs, weights in calls:
        seen = see(Fused(), *args, **kwargs)
        torch.testing.assert_close(seen.weights["Fused"], weights, atol=1e-6, rtol=0)
        assert seen.errors["Fused"] < 2e-6


def test_grouped_heads() -> None:
    q, k, v = tensors(2, 6, T, 4)
    for groups in (1, 2, 3):
        seen = see(Fused(), q, k[:, :groups], v[:, :groups], enable_gqa=True)
        torch.testing.assert_close(seen.weights["Fused"], exact(q, k[:, :groups]), atol=1e-6, rtol=0)


def test_heads_that_share_an_axis_with_windows() -> None:
    q, k, v = tensors(6, T, 4)
    seen = see(Fused(), q, k, v, is_causal=True)  # two windows
    query, key = q.view(2, 3, T, 4), k.view(2, 3, T, 4)
    torch.testing.assert_close(seen.weights["Fused"], exact(query, key, CAUSAL), atol=1e-6, rtol=0)
    mask = torch.rand(6, T, T) > 0.2
    mask[..., 0] = True
    seen = see(Fused(), q, k, v, mask)
    torch.testing.assert_close(seen.weights["Fused"], exact(query, key, mask.view(2, 3, T, T)), atol=1e-6, rtol=0)


def test_a_row_that_sees_no_key_has_no_weights() -> None:
    q, k, v = tensors(2, 3, T, 4)
    mask = CAUSAL.clone()
    mask[2] = False
    seen = see(Fused(), q, k, v, mask)
    assert not seen.weights["Fused"][:, :, 2].any()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 5, "vdim": 6}])
@pytest.mark.parametrize("masked", ["none", "padding", "boolean", "added", "each head", "causal"])
def test_multi_head_attention(need_weights: bool, batch_first: bool, more: dict[str, Any], masked: str) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=batch_first, **more)
    nn.init.normal_(attention.in_proj_bias)
    query, key, value = (
        torch.randn(2, T, 8),
        torch.randn(2, S, more.get("kdim", 8)),
        torch.randn(2, S, more.get("vdim", 8)),
    )
    masks: dict[str, dict[str, Any]] = {
        "none": {},
        "padding": {"key_padding_mask": torch.arange(S) > torch.tensor([[5], [8]])},
        "boolean": {"attn_mask": torch.ones(T, S).triu(3).bool()},
        "added": {"attn_mask": torch.randn(T, S)},
        "each head": {"attn_mask": torch.randn(4, T, S), "key_padding_mask": torch.randn(2, S)},
        "causal": {"attn_mask": torch.ones(T, S).triu(1).bool(), "is_causal": True},
    }
    args = (query, key, value) if batch_first else tuple(t.transpose(0, 1) for t in (query, key, value))
    kwargs = masks[masked]
    with torch.no_grad():
        _, expected = attention(*args, **kwargs, need_weights=True, average_attn_weights=False)
    seen = see(attention, *args, **kwargs, need_weights=need_weights)
    if not (more.get("add_bias_kv") and masked == "causal" and not need_weights):  # the hint hides the added keys too
        torch.testing.assert_close(seen.weights["MultiheadAttention"], expected, atol=2e-6, rtol=0)
    assert seen.errors["MultiheadAttention"] < 2e-6
    assert seen.calls["MultiheadAttention"].is_cross


def test_multi_head_attention_without_a_batch() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2)
    x = torch.randn(T, 8)
    mask = {"key_padding_mask": torch.arange(T) > 4, "attn_mask": torch.randn(T, T)}
    with torch.no_grad():
        _, expected = attention(x, x, x, **mask, average_attn_weights=False)
    seen = see(attention, x, x, x, **mask, windows=1)
    torch.testing.assert_close(seen.weights["MultiheadAttention"][0], expected, atol=2e-6, rtol=0)
    assert seen.errors["MultiheadAttention"] < 2e-6


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_transformers_are_seen_beside_their_fast_paths(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=batch_first)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, T, 8) if batch_first else torch.randn(T, 2, 8)
    padding = torch.arange(T) > torch.tensor([[4], [6]])
    seen = see(encoder, x, src_key_padding_mask=padding)
    assert list(seen.weights) == ["layers.0.self_attn", "layers.1.self_attn"]
    first = encoder.layers[0].self_attn
    with torch.no_grad():
        _, expected = first(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    torch.testing.assert_close(seen.weights["layers.0.self_attn"], expected, atol=2e-6, rtol=0)
    assert max(seen.errors.values()) < 2e-6

    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=batch_first)
    causal = nn.Transformer.generate_square_subsequent_mask(T)
    seen = see(model, x, x, tgt_mask=causal, tgt_is_causal=True)
    rows = every_row(2, T, torch.device("cpu"))
    kinds = {name: call.kind(rows) for name, call in seen.calls.items()}
    assert kinds == {
        "encoder.layers.0.self_attn": "self",
        "decoder.layers.0.self_attn": "causal",
        "decoder.layers.0.multihead_attn": "cross",
    }
    assert max(seen.errors.values()) < 2e-6


class Flexible(nn.Module):
    def __init__(self, compiled: bool) -> None:
        super().__init__()
        self.function = torch.compile(flex_attention) if compiled else flex_attention

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> Tensor:
        return self.function(q, k, v, **kwargs)


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention(compiled: bool) -> None:
    length = 256
    q, k, v = tensors(2, 4, length, 8)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    documents = torch.arange(length) // torch.tensor([[100], [60]])

    def near(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return score - slopes[h] * (t - s).abs()

    def same_document(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (documents[b, t] == documents[b, s]) & (t >= s)

    mask = create_block_mask(same_document, 2, None, length, length, device="cpu", BLOCK_SIZE=64)
    t, s = torch.arange(length)[:, None], torch.arange(length)
    shown = (documents[:, :, None] == documents[:, None]) & (t >= s)
    bias = -slopes[:, None, None] * (t - s).abs()
    bias = bias.masked_fill(~shown[:, None], -math.inf)
    model = Flexible(compiled)
    seen = see(model, q, k[:, :2], v[:, :2], score_mod=near, block_mask=mask, enable_gqa=True)
    weights = exact(q, k[:, :2], bias)
    torch.testing.assert_close(seen.weights["Flexible"], weights, atol=1e-6, rtol=0)
    with torch.no_grad():
        output = flex_attention(q, k[:, :2], v[:, :2], score_mod=near, block_mask=mask, enable_gqa=True)
    torch.testing.assert_close(weights @ v[:, :2].repeat_interleave(2, 1), output, atol=2e-5, rtol=0)
    torch.testing.assert_close(see(model, q, k, v).weights["Flexible"], exact(q, k), atol=1e-6, rtol=0)


def test_flex_attention_goes_on_with_the_same_output() -> None:
    q, k, v = tensors(2, 4, 32, 8)
    outputs = []

    class Kept(nn.Module):
        def forward(self) -> None:
            outputs.append(flex_attention(q, k, v, return_lse=True))

    see(Kept())
    Kept()()
    for ours, theirs in zip(*outputs, strict=True):
        torch.testing.assert_close(ours, theirs)


class ByHand(nn.Module):
    """Attention as nanoGPT writes it where it has no fused kernel."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.c_attn, self.heads, self.dropout = nn.Linear(width, 3 * width), heads, nn.Dropout(0.2)
        self.register_buffer("bias", torch.ones(64, 64).tril())

    def project(self, x: Tensor) -> list[Tensor]:
        return [t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, 2)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        logits = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        length = x.shape[1]
        logits = logits.masked_fill(self.bias[:length, :length] == 0, float("-inf"))
        return (self.dropout(functional.softmax(logits, dim=-1)) @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("way", ["softmax", "queries and keys"])
def test_attention_by_hand(way: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(ByHand(), ByHand())
    x = 3 * torch.randn(2, T, 12)
    if way == "softmax":
        announced = tuple(AnnouncedModule(module) for module in model)
    else:
        announced = tuple(
            AnnouncedModule(module, lambda module, x: module.project(x)[:2], is_causal=True) for module in model
        )
    assert not see(model, x).weights
    seen = see(model, x, announced=announced)
    assert list(seen.weights) == ["0", "1"]
    with torch.no_grad():
        q, k, _ = model[0].project(x)
    torch.testing.assert_close(seen.weights["0"], exact(q, k, CAUSAL), atol=1e-6, rtol=0)
    assert seen.calls["0"].kind(every_row(2, T, torch.device("cpu"))) == "causal"
    assert not any(module._forward_pre_hooks for module in model)


def test_a_module_that_attends_twice_has_two_layers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Fused()

        def forward(self, q: Tensor) -> Tensor:
            return self.inner(self.inner(q, q, q), q, q)

    assert list(see(Twice(), torch.randn(2, 1, T, 4)).weights) == ["inner", "inner (call 2)"]


def test_autocast_rounds_queries_and_keys_as_the_kernel_does() -> None:
    q, k, v = tensors(2, 3, T, 4)
    with torch.autocast("cpu", torch.bfloat16):
        seen = see(Fused(), q, k, v)
    torch.testing.assert_close(seen.weights["Fused"], exact(q.bfloat16(), k.bfloat16()), atol=1e-6, rtol=0)
    assert (seen.weights["Fused"] - exact(q, k)).abs().max() > 1e-4
