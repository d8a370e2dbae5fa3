"""The paper's own model on text: Y and Z over the whole vocabulary, with the gradient in closed form.

In a window x_1 ... x_T every position t > 1 is a query m = x_t whose contextual tokens are the tokens before it in the
window, and whose next token is n = x_{t+1}.  With one row for each query t and one column for each key s < t:

    b_ts = softmax_s Z[x_t, x_s]                                                                               (Eq. 1)
    c_l = sum of b_ts over x_s = l,    f = c / |c|_2                                                        (Eqs. 1, 5)

A token that occurs twice has one entry of c, so |c_t|^2 = b_t E b_t with E_ss' = 1[x_s = x_s'], and with
A_ts = b_ts / |c_t| the vector f_t has the entry F_ts = (A E)_ts at the token of key s.  Then, with W the rows
Y[x_1] ... Y[x_T], read once,

    logits = A W,    r_t = e_n - softmax(logits_t)                                                             (Eq. 2)
    dY[x_s] += sum_t A_ts r_t                                                                                  (Eq. 3)
    G = r W^T,    dZ[x_t, x_s] += A_ts (G_ts - F_ts (f_t . G_t)),    f_t . G_t = sum_s A_ts G_ts                (Eq. 4)

because c_l dJ/dc_l = sum over the keys of token l of A_ts (...).  With the residual connection the decoder reads
v = (f + e_m)/L with L^2 = |f + e_m|^2 = 2 + 2 f_m: logits = (A W + Y[x_t])/L, and G is first carried back through this
normalization, G' = (G - v (v . G))/L (Section 7).  All gradients are of J, the mean log-likelihood of the predictions
of a batch; parameters move along them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scansnap.text.options import YZShape

LOGITS_AT_ONCE = {"cpu": 3_000_000, "cuda": 100_000_000}
"""Logits in memory at once: on a CPU about as many as its cache holds, with the rows of Y that give them."""


class WindowAttention(NamedTuple):
    """Attention b of each position t of windows (B, T) on the keys s before it; the first position has none.

    With E_ss' = 1[x_s = x_s'], |c_t|^2 = b_t E b_t.  A_ts = b_ts/|c_t|, and f_t has the entry F_ts = (A E)_ts at the
    token of key s.  All are (B, T, T).
    """

    attention: Tensor  # b
    unit: Tensor  # A
    entry: Tensor  # F
    same: Tensor  # E

    @classmethod
    def read(cls, ids: Tensor, logits: Tensor) -> WindowAttention:
        """From tokens (B, T), and the attention logit of each key for each position (B, T, T)."""
        later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).triu()
        attention = logits.masked_fill(later, -torch.inf).softmax(2)
        attention[:, 0] = 0.0
        same = (ids[:, :, None] == ids[:, None]).to(logits.dtype)
        entry = attention @ same
        norm = (attention * entry).sum(2, keepdim=True).sqrt()
        norm[:, 0] = 1.0
        return cls(attention, attention / norm, entry / norm, same)


class YZText(nn.Module):
    """Y and Z of all tokens, both zero at the start."""

    def __init__(self, shape: YZShape) -> None:
        super().__init__()
        self.shape = shape
        self.decoder = nn.Parameter(_zeros(shape), requires_grad=False)  # Y
        self.attention_logits = nn.Parameter(_zeros(shape), requires_grad=False)  # Z

    def forward(self, ids: Tensor) -> Tensor:
        """The weights (B, T, T) with which the logits of each position but the first read the rows of Y."""
        return self._mix(self._read(ids))[0]

    def logits(self, ids: Tensor) -> Tensor:
        """Logits (B, T - 1, M) of the next tokens of all positions but the first."""
        return (self(ids) @ self.decoder[ids])[:, 1:]

    def attention(self, ids: Tensor) -> list[Tensor]:
        """The weights (B, 1, T, T) of queries, on the second-last axis, on keys; the first query has none."""
        return [self._read(ids).attention[:, None]]

    def logits_between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Attention logits (1, Q, K) between tokens: entries of Z."""
        return self.attention_logits[queries[:, None], keys][None]

    def loss(self, ids: Tensor, next_tokens: Tensor) -> Tensor:
        """The mean loss of the predictions in windows (B, T)."""
        total = torch.zeros((), dtype=torch.float64, device=ids.device)
        for part in self._parts(ids):
            logits = self.logits(ids[part])
            total += nn.functional.cross_entropy(logits.flatten(0, 1), next_tokens[part, 1:].flatten(), reduction="sum")
        return total / next_tokens[:, 1:].numel()

    @torch.no_grad()
    def step(self, ids: Tensor, next_tokens: Tensor, *, lr_y: float, lr_z: float) -> Tensor:
        """One step of SGD on windows (B, T); the mean loss before it."""
        share = 1.0 / next_tokens[:, 1:].numel()
        read = self._read(ids)
        mix, length = self._mix(read)
        rows = self.decoder.new_empty(*ids.shape, self.shape.vocab_size)
        g = torch.empty_like(mix)
        total = torch.zeros((), dtype=torch.float64, device=ids.device)
        for part in self._parts(ids):
            total += self._differentiate(ids[part], next_tokens[part], mix[part], rows[part], g[part], lr_y * share)
        _add(self.decoder, ids.flatten(), rows.flatten(0, 1))
        query, key = torch.tril_indices(ids.shape[1], ids.shape[1], offset=-1, device=ids.device)
        pairs = ids[:, query] * self.shape.vocab_size + ids[:, key]
        if length is not None:
            v = (read.entry + read.same) / length
            g = (g - v * (mix * g).sum(2, keepdim=True)) / length
        gradient = read.unit * (g - read.entry * (read.unit * g).sum(2, keepdim=True))
        entries = -lr_z * share * gradient[:, query, key]
        _add(self.attention_logits.view(-1), pairs.flatten(), entries.flatten())
        return total * share

    def _differentiate(
        self, ids: Tensor, next_tokens: Tensor, mix: Tensor, rows: Tensor, g: Tensor, rate: float
    ) -> Tensor:
        """The loss of windows (B, T), summed; fills -G, and the steps of their rows of Y at this rate."""
        decoder = torch.index_select(self.decoder, 0, ids.flatten(), out=rows.flatten(0, 1)).view_as(rows)  # W
        target = next_tokens[:, 1:, None]
        log_probs = (mix[:, 1:] @ decoder).log_softmax(2)
        loss = -log_probs.gather(2, target).sum(dtype=torch.float64)
        error = log_probs.exp_().scatter_add_(2, target, -torch.ones_like(target, dtype=rows.dtype))  # -r
        g[:, 0] = 0.0
        torch.bmm(error, decoder.mT, out=g[:, 1:])
        torch.bmm(-rate * mix[:, 1:].mT, error, out=rows)  # in place of W
        return loss

    def _read(self, ids: Tensor) -> WindowAttention:
        return WindowAttention.read(ids, self.attention_logits[ids[:, :, None], ids[:, None]])

    def _mix(self, read: WindowAttention) -> tuple[Tensor, Tensor | None]:
        """The weights by which logits read the rows of Y: A, or with the residual connection (A + I)/L, and L."""
        if not self.shape.residual:
            return read.unit, None
        length = (2 + 2 * torch.diagonal(read.entry, dim1=1, dim2=2)[..., None]).sqrt()  # of f_m
        return (read.unit + torch.eye(read.unit.shape[1], dtype=length.dtype, device=length.device)) / length, length

    def _parts(self, ids: Tensor) -> Iterator[slice]:
        at_once = max(1, LOGITS_AT_ONCE[ids.device.type] // (ids.shape[1] * self.decoder.shape[1]))
        return (slice(first, first + at_once) for first in range(0, len(ids), at_once))


def _zeros(shape: YZShape) -> Tensor:
    """An M x M matrix of zeros; a CPU gives it memory where it is first written: none if a checkpoint replaces it."""
    size = (shape.vocab_size, shape.vocab_size)
    if torch.get_default_device().type == "cpu":
        return torch.from_numpy(np.zeros(size, shape.dtype))
    return torch.zeros(size, dtype=getattr(torch, shape.dtype))


def _add(table: Tensor, index: Tensor, values: Tensor) -> None:
    """table[index] += values, where equal indices are added in a fixed order.

    On a CPU `index_put_` adds from several threads in any order, on a GPU `index_add_` does.
    """
    if table.device.type == "cpu":
        table.index_add_(0, index, values)
    else:
        table.index_put_((index,), values, accumulate=True)
