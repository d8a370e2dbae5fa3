"""Weights seen in Hugging Face models equal those that they return with eager attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.monitor.seeing import see

transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config)


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


def of(config: str, model: str, sizes: dict[str, Any], **more: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**sizes, **more))


DECODERS = {
    "gpt2": gpt2,
    "llama": of("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "mistral": of("MistralConfig", "MistralForCausalLM", GROUPED, sliding_window=5),
    "gemma2": of("Gemma2Config", "Gemma2ForCausalLM", GROUPED, sliding_window=5, attn_logit_softcapping=2.0),
    "qwen2": of("Qwen2Config", "Qwen2ForCausalLM", {k: v for k, v in GROUPED.items() if k != "head_dim"}),
    "qwen3": of("Qwen3Config", "Qwen3ForCausalLM", GROUPED),
    "gpt_neox": of("GPTNeoXConfig", "GPTNeoXForCausalLM", SIZES),
    "gpt_oss": of(
        "GptOssConfig", "GptOssForCausalLM", GROUPED, sliding_window=5, num_local_experts=2, num_experts_per_tok=1
    ),
}
IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention", "flash_attention_2")


def make(maker: Callable[[], nn.Module], implementation: str = "eager") -> Any:
    torch.manual_seed(0)
    model: Any = maker()
    for parameter in model.parameters():
        parameter.data.mul_(1.0 if maker is t5 else 3.0)  # attention that is not nearly uniform
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation_internal = implementation  # set_... refuses what is not installed
    return model.train()


def ids(length: int = 13) -> torch.Tensor:
    return torch.randint(3, 97, (2, length), generator=torch.Generator().manual_seed(1))


def eager_weights(maker: Callable[[], nn.Module], **inputs: Any) -> Any:
    model = make(maker).eval()
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name: str, implementation: str) -> None:
    expected = eager_weights(DECODERS[name], input_ids=ids()).attentions
    model = make(DECODERS[name], implementation)
    seen = see(model, input_ids=ids())
    assert len(seen.weights) == 2
    assert all("attn" in layer or "attention" in layer for layer in seen.weights)
    for weights, exact in zip(seen.weights.values(), expected, strict=True):
        torch.testing.assert_close(weights, exact, atol=1e-5, rtol=0)
    assert max(seen.errors.values()) < 1e-5
    assert {m.config._attn_implementation for m in model.modules() if hasattr(m, "config")} == {implementation}
    assert model.config.use_cache == make(DECODERS[name]).config.use_cache


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_padding_of_decoders(name: str, side: str) -> None:
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[1, -4:] = 0
    mask = mask if side == "right" else mask.flip(1)
    expected = eager_weights(DECODERS[name], input_ids=ids(), attention_mask=mask).attentions
    seen = see(make(DECODERS[name], "sdpa"), input_ids=ids(), attention_mask=mask)
    for weights, exact in zip(seen.weights.values(), expected, strict=True):
        is_real = mask[:, None, :, None].bool()  # what padding attends to is nobody's business
        torch.testing.assert_close(weights * is_real, exact * is_real, atol=1e-5, rtol=0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_bert_with_padding(implementation: str) -> None:
    maker = of("BertConfig", "BertForMaskedLM", SIZES)
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[1, 9:] = 0
    expected = eager_weights(maker, input_ids=ids(), attention_mask=mask).attentions
    seen = see(make(maker, implementation), input_ids=ids(), attention_mask=mask)
    for weights, exact in zip(seen.weights.values(), expected, strict=True):
        torch.testing.assert_close(weights, exact, atol=1e-5, rtol=0)
    assert list(seen.weights) == [f"bert.encoder.layer.{i}.attention.self" for i in range(2)]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_encoder_decoder_and_cross_attention(implementation: str) -> None:
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[1, 9:] = 0
    inputs = {"input_ids": ids(), "attention_mask": mask, "decoder_input_ids": ids(7)}
    expected = eager_weights(t5, **inputs)
    seen = see(make(t5, implementation), **inputs)
    exact = {
        "encoder.block.{}.layer.0.SelfAttention": expected.encoder_attentions,
        "decoder.block.{}.layer.0.SelfAttention": expected.decoder_attentions,
        "decoder.block.{}.layer.1.EncDecAttention": expected.cross_attentions,
    }
    for name, layers in exact.items():
        for i, weights in enumerate(layers):
            torch.testing.assert_close(seen.weights[name.format(i)], weights, atol=1e-5, rtol=0)
    assert len(seen.weights) == 6


def test_bfloat16_is_exact_for_the_rounded_queries_and_keys() -> None:
    model = make(DECODERS["llama"], "sdpa").to(torch.bfloat16)
    seen = see(model, input_ids=ids())
    for name, call in seen.calls.items():
        query, key = call.query.double(), call.key.double().repeat_interleave(2, 1)  # type: ignore[attr-defined]
        logits = query @ key.transpose(2, 3) * call.scale  # type: ignore[attr-defined]
        exact = logits.masked_fill(torch.ones(13, 13).triu(1).bool(), -torch.inf).softmax(3)
        torch.testing.assert_close(seen.weights[name].double(), exact, atol=1e-6, rtol=0)
