"""Every language model of the installed transformers: its attention is captured exactly, or refused in a sentence."""

from __future__ import annotations

import copy
import inspect
import itertools
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import scansnap as ss

transformers = pytest.importorskip("transformers")

SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "model_dim", "embedding_size"), 32),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size", "src_vocab_size", "tgt_vocab_size"), 97),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads"), 4),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 48),
    **dict.fromkeys(("hidden_dim", "mlp_dim", "decoder_intermediate_size", "moe_intermediate_size"), 48),
    **dict.fromkeys(("shared_expert_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size"), 48),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "v_head_dim", "qk_nope_head_dim", "attention_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "linear_key_head_dim", "linear_value_head_dim", "index_head_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_selected_experts", "top_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "n_shared_experts"), 1),
    **dict.fromkeys(("bos_token_id", "decoder_start_token_id"), 1),
    "eos_token_id": 2,
    "pad_token_id": 0,
    "sliding_window": 5,
    "attn_logit_softcapping": 2.0,
    "dropout": 0.0,
    "type_vocab_size": 2,
    "rotary_dim": 8,
    "block_size": 4,
    "layer_types": None,
    "mlp_layer_types": None,
}
"""Small sizes under the names that configurations have for them."""

ALWAYS = ("head_dim", "v_head_dim", "layer_types", "num_key_value_heads")
"""Sizes that are given also where the default is None."""

OF_THEIR_OWN: dict[str, dict[str, Any]] = {
    "EsmConfig": {"vocab_size": 97},
    "FunnelConfig": {"block_sizes": [1, 1], "num_hidden_layers": None},
    "GPTNeoConfig": {"attention_types": [[["global", "local"], 1]]},
    "LukeConfig": {"entity_vocab_size": 9},
    "PerceiverConfig": {"num_latents": 6, "d_latents": 32, "num_self_attends_per_block": 2},
    "ReformerConfig": {"axial_pos_embds": False, "is_decoder": True},
    "XmodConfig": {"languages": ["en_XX"]},
}
"""What single configurations need besides."""

MAX_PARAMETERS = 20_000_000


def classes() -> Iterator[str]:
    from transformers.models.auto import modeling_auto as auto

    names = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    for mapping in (*names, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES):
        for found in mapping.values():
            yield from (found,) if isinstance(found, str) else found


def small(kind: type, **more: Any) -> Any:
    """A small configuration of a class, and of the configurations inside of it.

    Sizes that the class refuses are left out one after the other.
    """
    taken, plain = inspect.signature(kind.__init__).parameters, kind()
    sizes = {
        name: value
        for name, value in {**SIZES, **more}.items()
        if name in taken and (name in ALWAYS or vars(plain).get(name) is not None) and not hasattr(value, "keys")
    }
    if "kv_lora_rank" in sizes:
        sizes["num_key_value_heads"] = 4
    parts = {name: getattr(plain, name, None) for name in getattr(kind, "sub_configs", {})}
    inner = {name: small(type(part), **more) for name, part in parts.items() if part is not None}
    while True:
        try:
            return kind(**(sizes | inner | OF_THEIR_OWN.get(kind.__name__, {})))
        except Exception as error:
            named = [name for name in sizes if re.search(rf"\b{name}\b", str(error))]
            if not named:
                raise
            del sizes[named[0]]


def build(name: str, dtype: torch.dtype, **more: Any) -> Any:
    """A small model of a class with attention that is not nearly uniform; an error if it is not small."""
    kind = getattr(transformers, name)
    configuration = small(kind.config_class, **more)
    with torch.device("meta"):
        size = sum(p.numel() for p in kind(configuration).parameters())
    assert size < MAX_PARAMETERS, f"it has {size:,} parameters"
    torch.manual_seed(0)
    model = kind(configuration)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(2.0 if dtype == torch.float64 else 1.5)
    model.config.use_cache = False
    if hasattr(model, "set_default_language"):
        model.set_default_language("en_XX")
    return model.to(dtype).eval()


def inputs(model: Any) -> dict[str, Tensor]:
    """Two windows, one of them padded."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 97, (2, 13), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    probe = {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        probe["decoder_input_ids"] = torch.randint(3, 97, (2, 11), generator=generator)
    return probe


def returned(model: Any, probe: dict[str, Tensor]) -> tuple[list[Tensor], float]:
    """The attention (B, H, T, S) that the same model returns of each layer if it is eager, and its rounding.

    Some models return logits.  Fused and eager attention round differently in float32, which some models use inside,
    for norms and softmax, also where their parameters are float64.  Where the outputs of the two then differ by more
    than 3e-7 (4.3e-7 in Gemma4Unified, at most 1.3e-7 in eight others that were tried), 2e-6 are allowed as in float32.
    """
    configuration = copy.deepcopy(model.config)
    configuration._attn_implementation = "eager"
    eager = type(model)(configuration).to(model.dtype).eval()
    eager.load_state_dict(model.state_dict())
    if hasattr(eager, "set_default_language"):
        eager.set_default_language("en_XX")
    with torch.no_grad():
        output = eager(**probe, output_attentions=True, return_dict=True)
        difference = float((output.logits - model(**probe).logits).abs().max())
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    layers = [layer for name in names for layer in output.get(name) or ()]
    weights = [layer for layer in layers if isinstance(layer, Tensor) and layer.ndim == 4]
    weights = [layer.softmax(-1) if (layer < -1e-6).any() else layer for layer in weights]
    return weights, 1e-6 if model.dtype == torch.float64 and difference <= 3e-7 else 2e-6


def tried(name: str) -> tuple[Any, dict[str, Tensor]]:
    """A small model that runs, and what it is run on; skips what cannot be built without more than sizes."""
    reason = ""
    sizes = ({}, {"num_hidden_layers": 4, "num_layers": 4}, {"hidden_size": 64, "head_dim": 16})
    for more, dtype in itertools.product(sizes, (torch.float64, torch.float32)):  # some experts have no float64
        try:
            model = build(name, dtype, **more)
            probe = inputs(model)
            with torch.no_grad():
                assert model(**probe).logits.isfinite().all(), "its logits are not finite"
            return model, probe
        except (Exception, AssertionError) as error:
            reason = reason or f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    pytest.skip(f"cannot be built: {reason}")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(classes())))
def test_every_class(name: str) -> None:
    """Each captured layer is one that the model returns, and each that it returns is captured or said to be missing."""
    model, probe = tried(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            watch = ss.watch(model, probe=probe, rows=None, record=("entropy",), errors="raise")
            seen = watch.seen
        except ss.InputError as refusal:
            if re.search("no attention was captured|does not give what the model computes", str(refusal)):
                pytest.skip(f"refused: {refusal}")
            raise
    try:
        exact, rounding = returned(model, probe)
    except Exception as error:
        pytest.skip(f"returns no attention ({type(error).__name__}: {str(error)[:80]}); {watch.coverage}")
    if not exact:
        pytest.skip(f"returns no attention; {watch.coverage}")
    patterns = watch.dataset["pattern"].values[0]
    is_close = np.array([[close(pattern, layer[0], rounding) for layer in exact] for pattern in patterns])
    wrong = [module for module, fits in zip(seen, is_close.any(1), strict=True) if not fits]
    assert not wrong, f"unlike all attention that the model returns: {wrong}"
    assert is_close.any(0).all() or "not captured" in watch.coverage, "some layers are left out without a word"


def close(pattern: Any, exact: Tensor, rounding: float) -> bool:
    """Whether weights (H, T, S), filled up with NaN, are these to rounding, or have them as a corner.

    Models may leave out a prompt that they put before the tokens, and return two kinds of keys separately.
    """
    heads, rows, keys = (
        np.isfinite(pattern).any((1, 2)).sum(),
        *(np.isfinite(pattern).any((0, i)).sum() for i in (2, 1)),
    )
    if heads != exact.shape[0] or rows < exact.shape[1] or keys < exact.shape[2]:
        return False
    corners = (pattern[:heads, : exact.shape[1], : exact.shape[2]],)
    corners += (pattern[:heads, rows - exact.shape[1] : rows, keys - exact.shape[2] : keys],)
    return any(bool(np.abs(corner - exact.numpy()).max() <= rounding) for corner in corners)
