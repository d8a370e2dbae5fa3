"""The text model against PyTorch's own layers, and its attention weights against the fused kernels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from scansnap.runtime.errors import InputError
from scansnap.text import transformer as text_transformer
from scansnap.text.options import TextShape
from scansnap.text.transformer import BUCKETS, RelativeBias, TextTransformer, alibi, buckets, drop, sinusoidal

pytestmark = pytest.mark.rounding

POSITIONS = ("none", "sinusoidal", "alibi", "t5")
SHAPE = {"vocab_size": 50, "window": 9, "width": 12, "feed_forward": 16, "dropout": 0.0}


def model(seed: int = 0, **options) -> TextTransformer:
    torch.manual_seed(seed)
    transformer = TextTransformer(TextShape(**{**SHAPE, **options})).double()
    with torch.no_grad():  # biases start at zero
        for parameter in transformer.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return transformer.eval()


def ids(batch: int = 3, length: int = 9) -> torch.Tensor:
    return torch.randint(50, (batch, length), generator=torch.Generator().manual_seed(1))


def pytorch_layer(block, norm: str) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(12, block.heads, 16, 0.0, batch_first=True, norm_first=norm == "pre").double()
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([block.query.weight, block.key.weight, block.value.weight]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([block.query.bias, block.key.bias, block.value.bias]))
        for theirs, ours in (
            (layer.self_attn.out_proj, block.output),
            (layer.linear1, block.inner),
            (layer.linear2, block.outer),
            (layer.norm1, block.norm_attention),
            (layer.norm2, block.norm_feed_forward),
        ):
            theirs.weight.copy_(ours.weight)
            theirs.bias.copy_(ours.bias)
    return layer


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("positions", POSITIONS)
def test_hidden_states_and_weights_are_those_of_pytorchs_layers(norm: str, heads: int, positions: str) -> None:
    """With their causal mask, of which a position bias is part: no query sees later tokens."""
    ours = model(norm=norm, heads=heads, layers=2, positions=positions)
    if ours.relative is not None:
        nn.init.normal_(ours.relative.table)
    bias = {"alibi": lambda: alibi(heads, 9), "t5": lambda: ours.relative()}.get(positions, lambda: torch.zeros(1))()
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64) + bias
    mask = mask.expand(3, heads, 9, 9).flatten(0, 1)
    x = ours.embedding[ids()] * math.sqrt(12) + (sinusoidal(9, 12) if positions == "sinusoidal" else 0.0)
    for weights, block in zip(ours.attention(ids()), ours.layers, strict=True):
        layer = pytorch_layer(block, norm)
        inner = layer.norm1(x) if norm == "pre" else x
        expected = layer.self_attn(inner, inner, inner, attn_mask=mask, average_attn_weights=False)[1]
        assert torch.allclose(weights, expected, atol=1e-12)
        x = layer(x, src_mask=mask)
    if norm == "pre":
        x = ours.final_norm(x)
    assert torch.allclose(ours(ids()), x, atol=1e-12)


@pytest.mark.parametrize("positions", POSITIONS)
def test_without_fused_kernels_the_model_is_the_same(monkeypatch: pytest.MonkeyPatch, positions: str) -> None:
    """Hidden states and gradients, as on a GPU with long windows."""
    ours = model(positions=positions, heads=2, layers=2)
    if ours.relative is not None:
        nn.init.normal_(ours.relative.table)
    results = []
    for fused in (True, False):
        monkeypatch.setattr(text_transformer, "_fused", lambda x, fused=fused: fused)
        ours.zero_grad()
        hidden = ours(ids())
        hidden.pow(3).sum().backward()
        results.append([hidden.detach(), *(p.grad.clone() for p in ours.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 20
    for fused_result, plain_result in zip(*results, strict=True):
        torch.testing.assert_close(fused_result, plain_result, rtol=1e-10, atol=1e-10)


def test_logits_between_tokens_give_the_attention() -> None:
    for norm in ("post", "pre"):
        ours = model(positions="none", norm=norm, heads=2)
        tokens = ids(1)[0]
        logits = ours.logits_between(tokens, tokens)
        later = torch.ones(9, 9, dtype=torch.bool).triu(1)
        expected = logits.masked_fill(later, -math.inf).softmax(-1)
        assert torch.allclose(ours.attention(ids(1))[0][0], expected, atol=1e-12)


def test_logits_between_tokens_are_means_over_positions() -> None:
    """Of the products of queries and keys with every pair of position codes."""
    ours, tokens = model(heads=2), ids(1)[0]
    x = ours.embedding[tokens, None] * math.sqrt(ours.shape.width) + ours.table  # (tokens, positions, d)
    query, key, _ = ours.layers[0].queries_and_keys(x, None)  # (tokens, H, positions, d/H)
    products = torch.einsum("ahpd,bhqd->habpq", query, key) / math.sqrt(query.shape[-1])
    assert torch.allclose(ours.logits_between(tokens, tokens), products.mean((3, 4)), atol=1e-12)
    with pytest.raises(InputError, match="positions is 'sinusoidal' and norm is 'pre'"):
        model(norm="pre").logits_between(tokens, tokens)


def test_sinusoidal_positions() -> None:
    table = sinusoidal(20, 6)
    assert table.shape == (20, 6)
    for t in (0, 7, 19):
        for j in range(3):
            angle = t / 10000 ** (2 * j / 6)
            assert float(table[t, 2 * j]) == pytest.approx(math.sin(angle), abs=1e-5)
            assert float(table[t, 2 * j + 1]) == pytest.approx(math.cos(angle), abs=1e-5)
    assert sinusoidal(4, 5).shape == (4, 5)  # odd widths have one more sine


def test_alibi_slopes() -> None:
    bias = alibi(8, 5)
    assert bias.shape == (8, 5, 5)
    assert float(bias[0, 4, 1]) == -1.5  # slope 1/2, three tokens back
    assert float(bias[7, 4, 0]) == -4 / 256
    assert float(bias[3, 2, 2]) == 0.0


def test_t5_buckets_are_exact_nearby_and_grow_with_distance() -> None:
    row = buckets(300)[299].flip(0)  # by distance
    assert row[:16].tolist() == list(range(16))
    assert (row[1:] >= row[:-1]).all()
    assert int(row[127]) == BUCKETS - 1
    assert int(row.max()) == BUCKETS - 1
    # distances 16 to 128 fill the upper 16 buckets geometrically: bucket 24 starts at 16 * 8^(8/16) = 45.3
    assert int(row[45]) == 23
    assert int(row[46]) == 24


def test_t5s_gradient_is_summed_in_a_fixed_order() -> None:
    """Two threads sum 65,536 numbers into 32: identical to the last bit each time."""
    bias, gradient = RelativeBias(1, 256), torch.randn(1, 256, 256)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        gradients = [torch.autograd.grad(bias(), bias.table, gradient)[0] for _ in range(20)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(repeated, gradients[0]) for repeated in gradients)


@torch.no_grad()
def test_it_starts_as_published() -> None:
    torch.manual_seed(0)
    transformer = TextTransformer(TextShape(vocab_size=1000))
    assert float(transformer.embedding.abs().max()) <= 0.1
    assert float(transformer.decoder.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.01)
    block = transformer.layers[0]
    assert float(block.query.weight.abs().max()) <= math.sqrt(6 / 800)
    assert float(block.query.weight.std()) == pytest.approx(math.sqrt(2 / 800), rel=0.02)
    assert not block.key.bias.any()


def test_the_bias_of_buckets_and_its_gradient_are_those_of_indexing() -> None:
    torch.manual_seed(0)
    bias, weights = RelativeBias(3, 90).double(), torch.randn(3, 90, 90, dtype=torch.float64)
    nn.init.normal_(bias.table)
    expected = bias.table[buckets(90)].permute(2, 0, 1)
    assert torch.equal(bias(), expected)
    ours, theirs = (torch.autograd.grad((values * weights).sum(), bias.table)[0] for values in (bias(), expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("share", [0.001, 0.2, 0.999])
def test_dropout_drops_its_share_and_preserves_the_mean(share: float, dtype: torch.dtype) -> None:
    """The share dropped of a million entries is within five standard deviations: one failure in a million seeds."""
    torch.manual_seed(0)
    x = torch.full((1_000_000,), 3.0, dtype=dtype, requires_grad=True)
    dropped = drop(x, share)
    zero_share = float((dropped == 0).float().mean())
    assert abs(zero_share - share) < 5 * (share * (1 - share) / 1e6) ** 0.5
    nonzero = dropped[dropped != 0]
    assert torch.equal(nonzero, torch.full_like(nonzero, 3.0) * (torch.ones(()) / (1 - share)).to(dtype))
    dropped.sum().backward()
    assert torch.equal(x.grad * 3.0, dropped.detach())  # dropped entries have no gradient
    before = torch.get_rng_state()
    assert drop(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), before)
