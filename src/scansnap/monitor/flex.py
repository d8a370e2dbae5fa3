"""What `torch.nn.attention.flex_attention` attends with.

It modifies the logit of each pair by a function score_mod(z, b, h, t, s), and shows only the pairs of a block mask: all
pairs of its full blocks, and those pairs of its partial blocks for which mask_mod(b, h, t, s) is true.  Both functions
are made of operations on single numbers, so they are evaluated here for whole tensors of indices.

Uncompiled, torch forms all T x T logits.  During a look the same output is computed in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention as _operator

from scansnap.monitor.calls import ProductCall
from scansnap.monitor.chosen_rows import ChosenRows

FLEX: Any = _operator
"""The operator that `flex_attention` calls in the end."""


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


def flex_result(call: ProductCall) -> tuple[Tensor, ...]:
    """What the operator returns: the output, and the logarithm of each row's sum and its maximum in units of ln 2."""
    windows, _, length, _ = call.sizes
    rows = ChosenRows.all(windows, length, call.query.device)
    logits = [(z.logsumexp(3), z.amax(3)) for z in map(call.logits, call.pieces(rows))]
    sums, largest = (torch.cat(parts, 2) / math.log(2) for parts in zip(*logits, strict=True))
    result = call.output(rows).to(call.query.dtype), sums, largest
    return result[: len(get_args(get_type_hints(type(FLEX).__call__)["return"]))]


def _blocks(count: Tensor, keys: Tensor) -> Tensor:
    """Which blocks (B, H, query block, key block) are listed: the first `count` of the indices `keys` of each row."""
    is_listed = torch.arange(keys.shape[-1], device=keys.device) < count[..., None]
    blocks = torch.zeros(*keys.shape[:-1], keys.shape[-1] + 1, dtype=torch.bool, device=keys.device)
    return blocks.scatter(-1, torch.where(is_listed, keys, keys.shape[-1]).long(), True)[..., :-1]
