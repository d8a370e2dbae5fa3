"""The matrices that make the queries and keys of a module's heads, under the names that modules have for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PAIR_NAMES = (
    ("q_proj", "k_proj"),
    ("query", "key"),
    ("q", "k"),
    ("q_lin", "k_lin"),
    ("to_q", "to_k"),
    ("wq", "wk"),
    ("w_q", "w_k"),
    ("query_proj", "key_proj"),
    ("q_proj_weight", "k_proj_weight"),
)
"""Names under which modules hold the projections of queries and of keys."""

FUSED_NAMES = ("in_proj_weight", "c_attn", "qkv", "qkv_proj", "in_proj", "Wqkv", "wqkv", "to_qkv", "query_key_value")
"""Names under which modules hold one projection of queries, keys and values."""

PER_HEAD_NAMES = ("query_key_value",)
"""Of these, the rows of each head are together, and not all queries first."""


def shows_projections(module: nn.Module) -> bool:
    """Whether a module projects to queries and keys, by the names of what it holds."""
    names = (*PAIR_NAMES, *((name,) for name in FUSED_NAMES if name != "in_proj"))  # which other layers have too
    return any(all(isinstance(getattr(module, name, None), nn.Module) for name in group) for group in names)


@dataclass(frozen=True)
class Projections:
    """What makes the queries and keys of a layer's heads, or the gradients of that."""

    query: Tensor  # (..., H, d, D)
    key: Tensor  # (..., G, d, D), G dividing H


def find_projections(module: nn.Module, heads: int, width: int, attribute: str = "data") -> Projections | None:
    """The projections of a module with this many heads; None if it shows none.

    Queries have `width` channels, or 0 if that is not known.  Several heads may share their keys.  The `attribute`
    of each parameter is read, "data" or "grad".
    """
    width = width or int(getattr(module, "head_dim", 0) or 0)
    for names in PAIR_NAMES:
        pair = [_matrix(getattr(module, name, None), attribute) for name in names]
        if pair[0] is not None and pair[1] is not None:
            return _by_head(pair[0], pair[1], heads, width)
    for name in FUSED_NAMES:
        fused = _matrix(getattr(module, name, None), attribute)
        if fused is None:
            continue
        width = width or len(fused) // (3 * heads)
        groups, rest = divmod(len(fused) - heads * width, 2 * width)
        if rest or (name in PER_HEAD_NAMES and groups != heads):
            return None
        if name in PER_HEAD_NAMES:
            query, key, _ = fused.view(heads, 3, width, -1).unbind(1)
            return Projections(query, key)
        return _by_head(fused[: heads * width], fused[heads * width :][: groups * width], heads, width)
    return None


def _by_head(query: Tensor, key: Tensor, heads: int, width: int) -> Projections | None:
    """The matrices (rows, D) of queries and keys cut into heads; None if their sizes do not fit."""
    width = width or len(query) // heads
    if len(query) != heads * width or len(key) % width or heads % max(1, len(key) // width):
        return None
    return Projections(query.unflatten(0, (-1, width)), key.unflatten(0, (-1, width)))


def _matrix(part: object, attribute: str) -> Tensor | None:
    """What is read of a parameter or of the weight (rows, D) of a linear layer; Hugging Face's Conv1D is transposed."""
    base = getattr(part, "base_layer", part)
    plain = base if isinstance(base, Tensor) else getattr(base, "weight", None)
    if not isinstance(plain, Tensor) or type(plain) not in (Tensor, nn.Parameter) or plain.ndim != 2 or plain.is_meta:
        return None
    weight = plain if base is part else _adapted(part, plain)
    weight = None if weight is None else getattr(weight, attribute)
    if weight is not None and type(base).__name__ == "Conv1D":
        weight = weight.T
    return weight


def _adapted(part: Any, weight: Tensor) -> Tensor | None:
    """The weight of a layer with PEFT's adapters, which are added to it while they are not merged; None for others."""
    if getattr(part, "merged", False) or getattr(part, "disable_adapters", False):
        return weight
    if not hasattr(part, "lora_A"):
        return None
    names = [name for name in part.active_adapters if name in part.lora_A]
    if any(getattr(part, kind, {}).get(name) for kind in ("lora_variant", "use_dora") for name in names):
        return None  # not a sum
    with torch.no_grad():
        return sum((part.get_delta_weight(name) for name in names), start=weight.detach())
