"""One attention that a model computes, and its exact weights for some of its rows.

Row t of a head with query q_t and keys k_s has the logits

    z_ts = modify(scale · <q_t, k_s>) + bias_ts,        -inf where a mask hides key s,

and the weights p_ts = exp z_ts / (Σ_s' exp z_ts' + exp a), where a is the logit of a learned sink that is no key, for
models that have one.  Queries and keys are taken as the model computed them and multiplied in float32, or in float64 if
they are.  In bfloat16 the weights are therefore exact for the rounded queries and keys that the model's kernel read.
Attention that a model computes itself is read from its softmax instead, with all that the model adds to the logits.

The T x T weights of a head are never formed: rows are computed in chunks of at most `MAX_WEIGHTS` numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

MAX_WEIGHTS = {"cpu": 1 << 22, "cuda": 1 << 25}
"""Attention weights that are computed at once.  About five arrays of this size are held (logits, weights, a mask and
what a quantity makes of them), 20 bytes for each weight: 80 MiB on a CPU, 640 MiB on a GPU."""

HIDDEN = -9000.0
"""A number at most this, added to a logit, hides a key as -inf does: e^-9000 is zero in every format."""

AttentionKind = Literal["self", "causal", "cross"]


def every_row(windows: int, length: int, device: torch.device) -> Tensor:
    """The positions (B, T) of all rows of all windows."""
    return torch.arange(length, device=device).expand(windows, -1)


def take_rows(tensor: Tensor, positions: Tensor) -> Tensor:
    """The rows (B, r) of a tensor that broadcasts to (B, H, T, ...)."""
    return tensor if tensor.shape[2] == 1 else tensor.take_along_dim(positions[:, None, :, None], 2)


def put_rows(tensor: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
    """A tensor (B, H, T, e) with other rows (B, H, r, e) at the positions (B, r); rows that are NaN are left alone."""
    before = take_rows(tensor, positions)
    index = positions[:, None, :, None].expand_as(before)
    return tensor.scatter(2, index, torch.where(before.isnan(), before, rows.to(tensor.dtype)))


class AttentionCall(ABC):
    """One attention of B windows and H heads, with T queries and S keys."""

    is_cross: bool
    sink: Tensor | None  # (H,): the logit of a learned sink
    hidden: Tensor | None  # (B, T, D): what the attending module was given, where that is known

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""

    @property
    def width(self) -> int:
        """The channels of a query, where they are known, or 0."""
        return 0

    @abstractmethod
    def logits(self, positions: Tensor) -> Tensor:
        """Logits (B, H, r, S) of the rows (B, r), -inf where a key is hidden."""

    def vectors(self, positions: Tensor) -> dict[str, Any]:
        """What `Rows` hold of the rows (B, r) besides logits and weights, as far as the attention shows it."""
        return {"hidden": self.hidden}

    @abstractmethod
    def first_window(self) -> AttentionCall:
        """The attention of the first window alone."""

    def weights(self, logits: Tensor) -> Tensor:
        """Attention weights (B, H, r, S) from logits; NaN where all keys are hidden."""
        if self.sink is None:
            return logits.softmax(3)
        total = torch.logaddexp(logits.logsumexp(3, keepdim=True), precise(self.sink)[:, None, None])
        return (logits - total).exp_()

    def weights_of(self, positions: Tensor) -> Tensor:
        """Attention weights (B, H, r, S) of the rows (B, r); zero where all keys are hidden."""
        logits = self.logits(positions)
        return self.weights(logits).masked_fill_((visible_keys(logits) == 0)[..., None], 0.0)

    def chunks(self, positions: Tensor) -> Iterator[Tensor]:
        """The rows (B, r) in chunks of at most `MAX_WEIGHTS` weights each."""
        windows, heads, _, keys = self.sizes
        most = MAX_WEIGHTS.get(positions.device.type, MAX_WEIGHTS["cuda"])
        yield from positions.split(max(1, most // max(1, windows * heads * keys)), 1)

    def kind(self, positions: Tensor) -> AttentionKind:
        """Whether keys come from elsewhere, or from the same tokens up to the query, or from all of them."""
        _, _, queries, keys = self.sizes
        if self.is_cross and queries != keys:
            return "cross"
        later = _later_keys(keys, positions)
        if bool(later.any()) and bool((self.logits(positions).isneginf() | ~later).all()):
            return "causal"  # also in a module that attends to other tokens in another call
        return "self" if queries == keys and not self.is_cross else "cross"


@dataclass(frozen=True)
class ProductCall(AttentionCall):
    """Attention by products of queries and keys, of which there are G heads, where G divides H."""

    query: Tensor  # (B, H, T, d)
    key: Tensor  # (B, G, S, d)
    value: Tensor | None  # (B, G, S, e)
    scale: float
    mask: Tensor | None = None  # broadcasts to (B, H, T, S): True where a key is visible, or added to the logits
    is_causal: bool = False  # query t sees keys 0 ... t
    modify: Callable[[Tensor, Tensor], Tensor] | None = None  # of logits (B, H, r, S) and rows (B, r)
    is_cross: bool = False
    sink: None = None
    hidden: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return *self.query.shape[:3], self.key.shape[2]

    @property
    def width(self) -> int:
        return self.query.shape[3]

    def logits(self, positions: Tensor) -> Tensor:
        windows, heads, _, keys = self.sizes
        pairs = windows * self.key.shape[1]
        query = precise(take_rows(self.query, positions)).reshape(pairs, -1, self.width)
        key = precise(self.key).reshape(pairs, keys, -1)
        with exact_products():
            products = torch.baddbmm(query.new_zeros((1, 1, 1)), query, key.mT, beta=0, alpha=self.scale)
        logits = products.view(windows, heads, -1, keys)
        if self.modify is not None:
            logits = self.modify(logits, positions)
        if self.is_causal:
            logits.masked_fill_(_later_keys(keys, positions), -math.inf)
        return logits if self.mask is None else _masked(logits, take_rows(self.mask, positions))

    def vectors(self, positions: Tensor) -> dict[str, Any]:
        query = take_rows(self.query, positions)
        return {"hidden": self.hidden, "query": query, "key": self.key, "value": self.value, "scale": self.scale}

    def output(self, positions: Tensor) -> Tensor:
        """The output of the rows, (B, H, r, e)."""
        assert self.value is not None
        windows, groups, keys, width = self.value.shape
        value = precise(self.value)
        with exact_products():
            parts = [
                self.weights_of(chunk).reshape(windows, groups, -1, keys) @ value for chunk in self.chunks(positions)
            ]
        return torch.cat([part.view(windows, self.sizes[1], -1, width) for part in parts], 2)

    def first_window(self) -> ProductCall:
        mask = None if self.mask is None else self.mask[:1]
        return replace(self, query=self.query[:1], key=self.key[:1], value=None, mask=mask)


@dataclass(frozen=True)
class ScoredCall(AttentionCall):
    """Attention whose logits the model computed itself, before its softmax."""

    scores: Tensor  # (B, H, T, S)
    is_cross: bool = False
    sink: Tensor | None = None
    hidden: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        windows, heads, queries, keys = self.scores.shape
        return windows, heads, queries, keys

    def logits(self, positions: Tensor) -> Tensor:
        logits = precise(take_rows(self.scores, positions))
        return logits.masked_fill(logits <= HIDDEN, -math.inf)

    def first_window(self) -> ScoredCall:
        return replace(self, scores=self.scores[:1])


def visible_keys(logits: Tensor) -> Tensor:
    """The number of keys that are not hidden from each row (B, H, r); a logit that is NaN is not hidden."""
    return (logits != -math.inf).sum(3)


def _later_keys(keys: int, positions: Tensor) -> Tensor:
    """Which keys come after each row."""
    return torch.arange(keys, device=positions.device) > positions[:, None, :, None]


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return logits.masked_fill_(~mask, -math.inf)
    return (logits + mask).masked_fill_(mask <= HIDDEN, -math.inf)


def precise(tensor: Tensor) -> Tensor:
    """In float32, or float64 if it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


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
