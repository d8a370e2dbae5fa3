"""One attention that a model computed, and its exact weights for some of its rows.

Row t of a head with query q_t and keys k_s has the logits

    z_ts = modify(cap · tanh(scale · <q_t, k_s> / cap)) + bias_ts,        -inf where a mask hides key s,

and the weights p_ts = exp z_ts / (Σ_s' exp z_ts' + exp a), where a is the logit of a sink that is no key, for models
that have one.  Without soft-capping, modification, bias or sink their terms are absent.  Queries and keys are taken as
the model computed them and multiplied in float32, so that in bfloat16 the weights are exact for the rounded queries and
keys that the model's kernel read.

The T x T weights of a head are never formed: rows are computed in pieces of at most `AT_ONCE` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 25}
"""Attention weights that a look computes at once.  It holds about five arrays of this size: logits, weights, a mask and
what a quantity makes of them, 20 bytes for each weight: 40 MiB on a CPU, 640 MiB on a GPU."""

Kind = Literal["self", "causal", "cross"]


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of one attention: B windows, H heads, T queries, S keys; G heads of keys, where G divides H."""

    query: Tensor  # (B, H, T, d)
    key: Tensor  # (B, G, S, d)
    value: Tensor | None  # (B, G, S, e)
    scale: float
    mask: Tensor | None = None  # broadcasts to (B, H, T, S): True where a key is seen, or added to the logits
    is_causal: bool = False  # query t sees keys 0 ... t
    softcap: float | None = None
    sink: Tensor | None = None  # (H,)
    modify: Callable[[Tensor, Tensor], Tensor] | None = None  # of logits and rows (B, r), before the mask
    is_cross: bool = False

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""
        return *self.query.shape[:3], self.key.shape[2]

    def pieces(self, rows: Tensor) -> Iterator[Tensor]:
        """The rows (B, r) in pieces of at most `AT_ONCE` weights each."""
        windows, heads, _, keys = self.sizes
        at_once = AT_ONCE.get(rows.device.type, AT_ONCE["cuda"])
        yield from rows.split(max(1, at_once // max(1, windows * heads * keys)), 1)

    def logits(self, rows: Tensor) -> Tensor:
        """Logits (B, H, r, S) of the rows (B, r) in float32, -inf where a key is hidden."""
        windows, heads, _, keys = self.sizes
        index = rows[:, None, :, None]
        query = self.query.take_along_dim(index, 2).float() * self.scale
        groups = self.key.shape[1]
        with exact_products():
            logits = query.reshape(windows, groups, -1, query.shape[-1]) @ self.key.float().transpose(2, 3)
        logits = logits.view(windows, heads, -1, keys)
        if self.softcap is not None:
            logits = (logits / self.softcap).tanh_() * self.softcap
        if self.modify is not None:
            logits = self.modify(logits, rows)
        if self.is_causal:
            positions = torch.arange(keys, device=rows.device)
            logits.masked_fill_(positions > index, -math.inf)
        if self.mask is not None:
            mask = self.mask
            if mask.shape[2] > 1:
                mask = mask.expand(windows, -1, -1, -1).take_along_dim(index, 2)
            logits = hide(logits, mask)
        return logits

    def weights(self, logits: Tensor) -> Tensor:
        """Attention weights (B, H, r, S) from logits; zero where no key is seen."""
        total = logits.logsumexp(3, keepdim=True)
        if self.sink is not None:
            total = torch.logaddexp(total, self.sink.float()[:, None, None])
        return (logits - total).exp_().nan_to_num_(0.0, posinf=0.0) if self._can_be_empty else (logits - total).exp_()

    @property
    def _can_be_empty(self) -> bool:
        return self.mask is not None or self.modify is not None

    def output(self, rows: Tensor) -> Tensor:
        """What the rows read, (B, H, r, e) in float32."""
        assert self.value is not None
        windows, groups, _, width = self.value.shape
        with exact_products():
            parts = [
                self.weights(self.logits(piece)).reshape(windows, groups, -1, self.sizes[3]) @ self.value.float()
                for piece in self.pieces(rows)
            ]
        return torch.cat([part.view(windows, self.sizes[1], -1, width) for part in parts], 2)

    def kind(self, logits: Tensor, rows: Tensor) -> Kind:
        """Whether keys come from elsewhere, or from the same tokens up to the query, or from all of them."""
        _, _, queries, keys = self.sizes
        if self.is_cross:
            return "cross"
        later = torch.arange(keys, device=rows.device) > rows[:, None, :, None]
        if queries > 1 and bool((logits.isneginf() | ~later).all()) and bool(later.any()):
            return "causal"
        return "self" if queries == keys else "cross"


def hide(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits with a mask: -inf where it is False, or with what it adds.

    Masks that add the most negative number of their type mean -inf; half of it is far beyond any bias.
    """
    if mask.dtype == torch.bool:
        return logits.masked_fill_(~mask, -math.inf)
    return (logits + mask).masked_fill_(mask < torch.finfo(mask.dtype).min / 2, -math.inf)


@contextmanager
def exact_products() -> Iterator[None]:
    """Products of float32 without TF32 and without autocast."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
