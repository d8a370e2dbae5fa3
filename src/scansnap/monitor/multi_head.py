"""What `nn.MultiheadAttention` attends with.

Its function takes inputs (T, B, E) and projects them itself: q = x W_Q' + b_Q, and so on, from one matrix (3E, E) or
three.  A learned key `bias_k` and a key of zeros, where the module has them, come after the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scansnap.monitor.calls import ProductCall
from scansnap.monitor.chosen_rows import ChosenRows


def multi_head_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[ProductCall, Callable[[ChosenRows], Tensor]]:
    """The call that arguments of `multi_head_attention_forward` make, and what it then returns for rows (B, r)."""
    is_cross = query is not key and (query.shape != key.shape or query.data_ptr() != key.data_ptr())
    if query.ndim == 2:
        query, key, value = (t[:, None] for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    windows = query.shape[1]
    weights: tuple[Tensor | None, ...] = (q_proj_weight, k_proj_weight, v_proj_weight)
    if in_proj_weight is not None and not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)
    biases: tuple[Tensor | None, ...] = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)

    def project(i: int, x: Tensor, extra: Tensor | None, static: Tensor | None) -> Tensor:
        """Queries, keys or values (B, H, T, d)."""
        if static is not None:
            heads = static.unflatten(0, (windows, num_heads))
        else:
            weight = weights[i]
            assert weight is not None
            x = functional.linear(x, weight, biases[i])
            if extra is not None:
                x = torch.cat([x, extra.expand(1, windows, -1)])
            heads = x.unflatten(2, (num_heads, -1)).permute(1, 2, 0, 3)
        return functional.pad(heads, (0, 0, 0, 1)) if add_zero_attn and i else heads

    keys = project(1, key, bias_k, static_k)
    more = keys.shape[2] - (key.shape[0] if static_k is None else static_k.shape[1])
    by_hint = is_causal and key_padding_mask is None and not need_weights  # torch then takes the mask to be causal
    mask = None if by_hint else _seen(attn_mask, windows, more)
    padding = None if key_padding_mask is None else _seen(key_padding_mask[:, None, None], windows, more)
    call = ProductCall(
        query=project(0, query, None, None),
        key=keys,
        value=None,
        scale=(query.shape[-1] // num_heads) ** -0.5,
        mask=mask,
        bias=padding,
        is_causal=by_hint,
        is_cross=is_cross,
    )

    def expected(rows: ChosenRows) -> Tensor:
        mixed = replace(call, value=project(2, value, bias_v, static_v)).output(rows)
        dtype = out_proj_weight.dtype
        return functional.linear(mixed.transpose(1, 2).flatten(2).to(dtype), out_proj_weight, out_proj_bias)

    return call, expected


def multi_head_rows(result: Any, rows: ChosenRows) -> Tensor:
    """What `multi_head_attention_forward` returned for rows (B, r)."""
    output = result[0]
    output = output[:, None] if output.ndim == 2 else output
    return rows.of(output.transpose(0, 1)[:, None])[:, 0]


def _seen(mask: Tensor | None, windows: int, more: int) -> Tensor | None:
    """A mask of torch's layers, where True hides a key, as one (B, H, T, S) where True shows it; for `more` keys."""
    if mask is None:
        return None
    is_shown = mask.dtype == torch.bool
    mask = functional.pad(~mask if is_shown else mask, (0, more), value=is_shown)
    if mask.ndim == 3:
        return mask.unflatten(0, (windows, -1))
    return mask[(None,) * (4 - mask.ndim)]
