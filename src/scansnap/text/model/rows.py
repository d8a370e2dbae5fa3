"""Rows of a large table, whose gradient is summed in a fixed order, so that repeated runs give identical numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def rows(table: Tensor, ids: Tensor) -> Tensor:
    """table[ids] for `ids` (B, T).

    On a CPU the gradient is added to `table.grad` in place: a new array of the table's size for each batch, zero except
    for a few hundred rows, would cost more than the rows.
    """
    return _Rows.apply(table, ids) if table.device.type == "cpu" else functional.embedding(ids, table)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.table = table
        ctx.save_for_backward(ids)
        return table[ids]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        (ids,) = ctx.saved_tensors
        if ctx.table.grad is None:
            ctx.table.grad = torch.zeros_like(ctx.table)
        ctx.table.grad.index_add_(0, ids.flatten(), gradient.flatten(0, 1))
        return None, None
