"""Between (Y, Z) and a regular transformer: one layer with a switch for each difference between the two.

A window x_1 ... x_T is read as (Y, Z) reads it: position t > 1 attends to the positions before it.  With rows u_l of an
embedding U, and its own matrix for each part that a switch turns on,

    z_ts = Z[x_t, x_s],    u_t . W u_s,    or  (W_Q u_t) . (W_K u_s)        attention "free", "bilinear", "factored"
    a_t  = LN(sum_s softmax_s(z_t)_s u_s)                                   what attention reads
    h_t  = a_t,                            or  LN(a_t + u_t)                residual
    h_t  = h_t,                            or  LN(h_t + W_2 relu(W_1 h_t))  feed_forward
    logits = h_t D

and LN(x) = x/|x|, or the standard LayerNorm with a gain and a bias (norm="layer").  With positions, the code of a
position is added to u wherever it stands.  Rows of U have length 1 in the mean at the start, as has the gain of LN and
the code of a position, and D = 0, W = 0.  If U were orthogonal, then U D = Y, U W U^T = Z and |U^T c| = |c|: the model
with l2 and no other switch would be (Y, Z) itself, and a wide one, whose rows are nearly orthogonal, is close to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Rung:
    """Where a model stands between (Y, Z) and a regular transformer."""

    width: int = 200  # of the embedding
    attention: Literal["free", "bilinear", "factored"] = "free"  # logits are Z itself, or made by W, or by W_Q and W_K
    norm: Literal["l2", "layer"] = "l2"  # division by the length, or LayerNorm with parameters
    residual: bool = False  # add the query's embedding to what attention reads
    feed_forward: bool = False  # a feed-forward part as wide as the model
    positions: bool = False  # add sinusoidal position codes to the embeddings
    lr_y: float = 30.0  # eta_Y
    shared: float = 1 / 30  # the rate of LayerNorm and feed-forward over eta_Y; without clipping they diverge at 1
    clip: float | None = None  # the largest norm of a gradient
    dropout: float = 0.0  # the share of the embeddings' and the last layer's entries that is dropped


def sinusoidal(window: int, width: int) -> Tensor:
    """Sines in the even and cosines in the odd columns (window, width), at wavelengths from 2 pi to 10000 * 2 pi."""
    angles = torch.arange(window)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]


class LayerNorm(nn.LayerNorm):
    """LayerNorm whose output has length 1 at the start."""

    def __init__(self, width: int) -> None:
        super().__init__(width)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / math.sqrt(x.shape[-1])


class LadderModel(nn.Module):
    """One layer on windows of tokens."""

    attention_logits: Tensor | None
    codes: Tensor

    def __init__(self, rung: Rung, *, vocab_size: int, window: int) -> None:
        super().__init__()
        self.rung, width = rung, rung.width
        self.embedding = nn.Parameter(torch.randn(vocab_size, width) / math.sqrt(width))  # U
        self.decoder = nn.Parameter(torch.zeros(width, vocab_size))  # D
        self.query = self.key = self.bilinear = None
        free = torch.zeros(vocab_size, vocab_size) if rung.attention == "free" else None
        self.register_buffer("attention_logits", free)  # Z, no parameter: its gradient has few entries
        if rung.attention == "bilinear":
            self.bilinear = nn.Parameter(torch.zeros(width, width))
        elif rung.attention == "factored":
            self.query, self.key = (nn.Parameter(torch.randn(width, width) / math.sqrt(width)) for _ in range(2))
        norms = 1 + rung.residual + rung.feed_forward
        norm: Callable[[], nn.Module] = (lambda: LayerNorm(width)) if rung.norm == "layer" else UnitLength
        self.norms = nn.ModuleList(norm() for _ in range(norms))
        self.inner = nn.Linear(width, width) if rung.feed_forward else None
        self.outer = nn.Linear(width, width) if rung.feed_forward else None
        codes = sinusoidal(window, width) / math.sqrt(width / 2) if rung.positions else torch.zeros(window, width)
        self.register_buffer("codes", codes, persistent=False)
        self._tables = [self.embedding, self.decoder]
        self._attention = [part for part in (self.bilinear, self.query, self.key) if part is not None]
        others = {id(part) for part in (*self._tables, *self._attention)}
        self._shared = [part for part in self.parameters() if id(part) not in others]

    def step(self, ids: Tensor, next_tokens: Tensor, *, lr_y: float, lr_z: float) -> Tensor:
        """One step of SGD on windows (B, T); the mean loss before it."""
        entries = None
        if self.attention_logits is not None:
            pairs = (ids[:, :, None].expand(-1, -1, ids.shape[1]), ids[:, None].expand(-1, ids.shape[1], -1))
            entries = self.attention_logits[pairs].requires_grad_()
        loss = functional.cross_entropy(self._logits(ids, entries).flatten(0, 1), next_tokens[:, 1:].flatten())
        loss.backward()
        if self.rung.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters(), self.rung.clip)
        shared = lr_y * self.rung.shared
        with torch.no_grad():
            for part, rate in ((self._tables, lr_y), (self._attention, lr_z), (self._shared, shared)):
                for parameter in part:
                    assert parameter.grad is not None
                    parameter.add_(parameter.grad, alpha=-rate)
                    parameter.grad = None
            if entries is not None and self.attention_logits is not None:
                assert entries.grad is not None
                self.attention_logits.index_put_(pairs, entries.grad.mul_(-lr_z), accumulate=True)
        return loss.detach()

    @torch.no_grad()
    def logits_between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Attention logits (1, Q, K) between tokens; with positions, their mean over pairs of positions."""
        if self.attention_logits is not None:
            return self.attention_logits[queries[:, None], keys][None]
        mean = self.codes.mean(0)
        return self._products(self.embedding[queries] + mean, self.embedding[keys] + mean)[None]

    def _products(self, asking: Tensor, read: Tensor) -> Tensor:
        """z for rows of embeddings (..., T, d)."""
        if self.bilinear is not None:
            return asking @ self.bilinear @ read.mT
        assert self.query is not None
        assert self.key is not None
        return (asking @ self.query) @ (read @ self.key).mT

    def _logits(self, ids: Tensor, entries: Tensor | None) -> Tensor:
        """Logits (B, T - 1, M) of the next tokens of all positions but the first."""
        u = functional.embedding(ids, self.embedding) + self.codes[: ids.shape[1]]
        u = functional.dropout(u, self.rung.dropout)
        z = self._products(u, u) if entries is None else entries
        length = ids.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu()[1:]
        h = self.norms[0](z[:, 1:].masked_fill(later, -math.inf).softmax(2) @ u)
        if self.rung.residual:
            h = self.norms[1](h + u[:, 1:])
        if self.inner is not None and self.outer is not None:
            h = self.norms[-1](h + self.outer(functional.relu(self.inner(h))))
        return functional.dropout(h, self.rung.dropout) @ self.decoder


class UnitLength(nn.Module):
    """x / |x|."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
