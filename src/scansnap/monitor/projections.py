"""W_QK: the product of the projections that make queries and keys, where a module shows them.

Head h has q = W_Q x + b_Q and k = W_K y + b_K with matrices (d, D), so that <q, k> is x' W_QK y with W_QK = W_Q' W_K,
up to the biases.  Its largest singular value σ bounds the logits: |<q, k>| <= σ |x| |y|.

W_QK is D x D and is not formed.  Its squared singular values are the eigenvalues of the d x d matrix M = A B, where
A = W_Q W_Q' and B = W_K W_K': if W_QK' W_QK y = σ² y, then W_K y is an eigenvector of M' = B A, and M has the same
eigenvalues.  M is self-adjoint for the product <u, v>_B = u' B v, so that power iteration v <- M v / |M v| ends with
the Rayleigh quotient <v, M v>_B / <v, v>_B, whose error is that of v squared.  `SQUARINGS` squarings of M make 2 to
that power steps of the iteration at once.

With rotary positions, or normalized queries and keys, the logits depend on more than W_QK; σ is then still that of the
projections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.monitor.calls import exact_products

SQUARINGS = 10

PAIRS = (
    ("q_proj", "k_proj"),
    ("query", "key"),
    ("q", "k"),
    ("q_lin", "k_lin"),
    ("to_q", "to_k"),
    ("wq", "wk"),
    ("w_q", "w_k"),
    ("query_proj", "key_proj"),
)
"""Names under which modules hold the projections of queries and of keys."""

FUSED = ("c_attn", "qkv", "qkv_proj", "in_proj", "Wqkv", "wqkv", "to_qkv", "query_key_value")
"""Names under which modules hold one projection of queries, keys and values."""

BY_HEAD = ("query_key_value",)
"""Of these, the rows of each head are together, and not all queries first."""


@dataclass(frozen=True)
class Projections:
    """What makes the queries and keys of a layer's heads."""

    query: Tensor  # (..., H, d, D)
    key: Tensor  # (..., G, d, D), G dividing H


def find_projections(module: nn.Module, heads: int, key_heads: int, width: int) -> Projections | None:
    """The projections of a module that attends with so many heads of so many channels; None if it shows none."""
    rows, key_rows = heads * width, key_heads * width
    matrices: tuple[Tensor, Tensor] | None = None
    if isinstance(module, nn.MultiheadAttention):
        matrices = (
            (module.q_proj_weight, module.k_proj_weight)
            if module.in_proj_weight is None
            else (module.in_proj_weight[:rows], module.in_proj_weight[rows : rows + key_rows])
        )
    for query_name, key_name in PAIRS:
        query, key = (
            _matrix(getattr(module, query_name, None), rows),
            _matrix(getattr(module, key_name, None), key_rows),
        )
        if query is not None and key is not None:
            matrices = query, key
    for name in FUSED:
        fused = _matrix(getattr(module, name, None), rows + 2 * key_rows)
        if fused is not None and name in BY_HEAD and heads == key_heads:
            query, key, _ = fused.view(heads, 3, width, -1).unbind(1)
            return Projections(query, key)
        if fused is not None and name not in BY_HEAD:
            matrices = fused[:rows], fused[rows : rows + key_rows]
    if matrices is None or matrices[0].shape[0] != rows or matrices[1].shape[0] != key_rows:
        return None
    return Projections(matrices[0].unflatten(0, (heads, width)), matrices[1].unflatten(0, (key_heads, width)))


def largest_singular_values(projections: Projections) -> Tensor:
    """The largest singular value of each head's W_QK (..., H)."""
    query, key = projections.query.detach().float(), projections.key.detach().float()
    with exact_products():
        a, b = query @ query.mT, key @ key.mT
        b = b.repeat_interleave(a.shape[-3] // b.shape[-3], -3)
        m = a @ b
        power, tiny = m, torch.finfo(m.dtype).tiny  # W_QK may be 0, as where training starts with W_Q = 0
        for _ in range(SQUARINGS):
            power = power / torch.linalg.matrix_norm(power, keepdim=True).clamp(min=tiny)
            power = power @ power
        longest = power.square().sum(-2, keepdim=True).argmax(-1, keepdim=True)
        v = power.take_along_dim(longest, -1)  # all columns lie along the eigenvector; the longest is 0 if M is
        squared = (v.mT @ (b @ (m @ v))) / (v.mT @ (b @ v)).clamp(min=tiny)
    return squared[..., 0, 0].clamp(min=0).sqrt()


def _matrix(part: object, rows: int) -> Tensor | None:
    """The weight (rows, D) of a linear layer; Conv1D of Hugging Face has it transposed."""
    base = getattr(part, "base_layer", part)
    plain = getattr(base, "weight", None)
    if not isinstance(plain, Tensor) or type(plain) not in (Tensor, nn.Parameter) or plain.ndim != 2 or plain.is_meta:
        return None
    weight = plain if base is part else _adapted(part, plain)
    if weight is not None and type(base).__name__ == "Conv1D":
        weight = weight.T
    return weight if weight is not None and weight.shape[0] == rows else None


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
