"""What the attention functions of torch compute with: an `AttentionCall` from the arguments of each.

`scaled_dot_product_attention` takes queries, keys and values, whose leading axes may hold windows and heads together.

`multi_head_attention_forward` takes inputs (T, B, E) and projects them itself: q = x W_Q' + b_Q, and so on, from one
matrix (3E, E) or three.  A learned key `bias_k` and a key of zeros, where the module has them, come after the others.

`flex_attention` modifies the logit of each pair by a function score_mod(z, b, h, t, s), and shows only the pairs of a
block mask: all pairs of its full blocks, and those pairs of its partial blocks for which mask_mod(b, h, t, s) is true.
Both functions are made of operations on single numbers, so they are evaluated here for whole tensors of indices.
Uncompiled, torch forms all T x T logits; `flex_output` computes the same output in chunks.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from scansnap.monitor.attention import ProductCall, every_row, put_rows

FLEX: Any = torch.ops.higher_order.flex_attention
"""The operator that `flex_attention` calls in the end."""


def fused_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[ProductCall, float]:
    """A call of `scaled_dot_product_attention`, and its dropout."""
    causal = sys.modules.get("torch.nn.attention.bias")  # importing it takes seconds
    if causal is not None and isinstance(attn_mask, causal.CausalBias):
        shift = attn_mask.seq_len_kv - attn_mask.seq_len_q
        shape = attn_mask.seq_len_q, attn_mask.seq_len_kv
        is_lower_right = attn_mask.variant == causal.CausalVariant.LOWER_RIGHT
        attn_mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril(shift if is_lower_right else 0)
    if query.is_nested:
        (query, is_query), (key, is_key), (value, _) = map(padded, (query, key, value))
        attn_mask = (is_query[:, :, None] & is_key[:, None])[:, None]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    query, key, value = as_autocast(query, key, value)
    return ProductCall(query, key, value, scale, attn_mask, is_causal=is_causal), dropout_p


def padded(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A ragged tensor (B, H, T, d) filled up with zeros, and which of its tokens (B, T) are its own."""
    if not tensor.is_nested:
        return tensor, torch.ones(tensor.shape[0], tensor.shape[-2], dtype=torch.bool, device=tensor.device)
    windows = [window.transpose(0, 1) for window in tensor.unbind()]
    is_own = [torch.ones(len(window), dtype=torch.bool, device=tensor.device) for window in windows]
    return pad_sequence(windows, batch_first=True).transpose(1, 2), pad_sequence(is_own, batch_first=True)


def as_autocast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What autocast makes of the tensors that a fused kernel is given."""
    if not torch.is_autocast_enabled(query.device.type):
        return query, key, value
    dtype = torch.get_autocast_dtype(query.device.type)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def in_four_axes(call: ProductCall, windows: int) -> ProductCall:
    """A call with the axes window, head, token and channel."""
    mask, leading = call.mask, call.query.shape[:-2]
    if mask is not None and mask.ndim > 2 and len(leading) != 2:
        mask = split_heads(mask.expand(*leading, *mask.shape[-2:]), windows)
    elif mask is not None:
        mask = mask[(None,) * (4 - mask.ndim)]
    query, key = split_heads(call.query, windows), split_heads(call.key, windows)
    value = None if call.value is None else split_heads(call.value, windows)
    return replace(call, query=query, key=key, value=value, mask=mask)


def split_heads(tensor: Tensor, windows: int) -> Tensor:
    """A tensor with four axes, of which the first two are windows and heads.

    Of three axes the first holds windows and the heads of each, as older models have it, or windows alone; of more than
    four, all between the first and the last two are heads.
    """
    if tensor.ndim == 4:
        return tensor
    if tensor.ndim > 4:
        return tensor.flatten(1, -3)
    if tensor.ndim == 2:
        return tensor[None, None]
    heads, rest = divmod(tensor.shape[0], windows)
    return tensor.unflatten(0, (-1, max(heads, 1) if not rest else 1))


def multi_head_call(*args: Any, **kwargs: Any) -> tuple[ProductCall, Callable[[Tensor], Tensor]]:
    """The call that arguments of `multi_head_attention_forward` make, and what it then returns for rows (B, r)."""
    bound = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    query, key, value, padding = given.query, given.key, given.value, given.key_padding_mask
    is_cross = query is not key and (query.shape != key.shape or query.data_ptr() != key.data_ptr())
    if query.ndim == 2:
        query, key, value = (t[:, None] for t in (query, key, value))
        padding = None if padding is None else padding[None]
    windows, heads = query.shape[1], given.num_heads
    weights = given.q_proj_weight, given.k_proj_weight, given.v_proj_weight
    if given.in_proj_weight is not None and not given.use_separate_proj_weight:
        weights = given.in_proj_weight.chunk(3)
    biases = (None, None, None) if given.in_proj_bias is None else given.in_proj_bias.chunk(3)

    def project(i: int, x: Tensor, extra: Tensor | None, static: Tensor | None) -> Tensor:
        """Queries, keys or values (B, H, T, d)."""
        if static is not None:
            parts = static.unflatten(0, (windows, heads))
        else:
            x = functional.linear(x, weights[i], biases[i])
            if extra is not None:
                x = torch.cat([x, extra.expand(1, windows, -1)])
            parts = x.unflatten(2, (heads, -1)).permute(1, 2, 0, 3)
        return functional.pad(parts, (0, 0, 0, 1)) if given.add_zero_attn and i else parts

    keys = project(1, key, given.bias_k, given.static_k)
    more = keys.shape[2] - (key.shape[0] if given.static_k is None else given.static_k.shape[1])
    by_hint = given.is_causal and padding is None and not given.need_weights  # torch then takes the mask to be causal
    shown = (None if by_hint else given.attn_mask, None if padding is None else padding[:, None, None])
    masks = [_added(mask, windows, more) for mask in shown if mask is not None]
    call = ProductCall(
        query=project(0, query, None, None),
        key=keys,
        value=project(2, value, given.bias_v, given.static_v),
        scale=(query.shape[-1] // heads) ** -0.5,
        mask=sum(masks[1:], start=masks[0]) if masks else None,
        is_causal=by_hint,
        is_cross=is_cross,
    )

    def expected(rows: Tensor) -> Tensor:
        mixed = call.output(rows).transpose(1, 2).flatten(2)
        return functional.linear(mixed.to(given.out_proj_weight.dtype), given.out_proj_weight, given.out_proj_bias)

    return call, expected


def put_multi_head(result: Any, rows: Tensor, values: Tensor) -> Any:
    """What `multi_head_attention_forward` returned, with other values (B, r, E) in the rows (B, r)."""
    output, weights = result
    windows = (output[:, None] if output.ndim == 2 else output).transpose(0, 1)
    changed = put_rows(windows[:, None], rows, values[:, None])[:, 0].transpose(0, 1)
    return changed.reshape(output.shape), weights


def _added(mask: Tensor, windows: int, more: int) -> Tensor:
    """What a mask of torch's layers, where True hides a key, adds to the logits (B, H, T, S), with `more` keys."""
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf)
    mask = functional.pad(mask, (0, more))
    return mask.unflatten(0, (windows, -1)) if mask.ndim == 3 else mask[(None,) * (4 - mask.ndim)]


def flex_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_buffers: tuple[Tensor, ...] = (),
    mask_buffers: tuple[Tensor, ...] = (),
) -> ProductCall:
    """The call that the operator's arguments make."""
    _, _, partial, partial_keys, full, full_keys, *_, query_block, key_block, mask_mod = block_mask
    windows, heads = query.shape[:2]
    device = query.device
    shown_in_part = _blocks(partial, partial_keys)
    shown_in_full = None if full is None else _blocks(full, full_keys)

    def modify(logits: Tensor, rows: Tensor) -> Tensor:
        b = torch.arange(logits.shape[0], device=device)[:, None, None, None]
        h = torch.arange(heads, device=device)[:, None, None]
        t, s = rows[:, None, :, None], torch.arange(logits.shape[3], device=device)

        def of_blocks(blocks: Tensor) -> Tensor:
            return blocks[
                b.clamp(max=len(blocks) - 1), h.clamp(max=blocks.shape[1] - 1), t // query_block, s // key_block
            ]

        is_shown = of_blocks(shown_in_part) & mask_mod(b, h, t, s, *mask_buffers)
        if shown_in_full is not None:
            is_shown = is_shown | of_blocks(shown_in_full)
        return torch.where(is_shown, score_mod(logits, b, h, t, s, *score_buffers), -math.inf)

    key, value = (tensor.expand(windows, -1, -1, -1) for tensor in (key, value))
    return ProductCall(query, key, value, scale, modify=modify)


def flex_output(call: ProductCall) -> tuple[Tensor, ...]:
    """What the operator returns: the output, and the logarithm of each row's sum and its maximum in units of ln 2."""
    windows, _, length, _ = call.sizes
    rows = every_row(windows, length, call.query.device)
    logits = [(z.logsumexp(3), z.amax(3)) for z in map(call.logits, call.chunks(rows))]
    sums, largest = (torch.cat(parts, 2) / math.log(2) for parts in zip(*logits, strict=True))
    result = call.output(rows).to(call.query.dtype), sums, largest
    return result[: len(get_args(get_type_hints(type(FLEX).__call__)["return"]))]


def _blocks(count: Tensor, keys: Tensor) -> Tensor:
    """Which blocks (B, H, query block, key block) are listed: the first `count` of the indices `keys` of each row."""
    is_listed = torch.arange(keys.shape[-1], device=keys.device) < count[..., None]
    blocks = torch.zeros(*keys.shape[:-1], keys.shape[-1] + 1, dtype=torch.bool, device=keys.device)
    return blocks.scatter(-1, torch.where(is_listed, keys, keys.shape[-1]).long(), True)[..., :-1]
