"""Expected gradients of a text at a given attention, which is uniform at the start.

At Z = 0 all contextual tokens of an occurrence t of query m with next token n have the same attention.  If token l is
k_l times among them, then (Eqs. 1 to 4, as in `text/yz.py`)

    f_l = k_l / |k|_2,    dY = f (e_n - alpha)^T,    dz_m(l) = f_l (g_l - f_l (f . g)),    g_l = Y[l, n] - (Y alpha)_l

with alpha the prediction.  The expectations over all occurrences are

    E[dY] = C - s alpha^T,         C[l, n] = E[f_l 1(x_{T+1} = n)],    s_l = E[f_l]
    E[dz_m(l)] for some queries m  (`attention_drive`)

if alpha is the same everywhere, as it is at the start.  So C, which one pass over the text gives, is all that there is
to know about Y, and a second pass gives the drive of Z at any Y.

Later on k_l is k_l exp(z_m(l)) in all of this: each function takes the rows z_m of the predicted queries,
(Q, M), or None for uniform attention; that of other queries is uniform.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from scansnap.corpus.counts import Counts
    from scansnap.corpus.predictors import TrainingPlan
    from scansnap.corpus.windows import TableName

WINDOWS_AT_ONCE = 2048


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


def logits_gradient(unit: Tensor, entry: Tensor, g: Tensor) -> Tensor:
    """The gradient of attention logits (..., T) from G: A (G - F (f . G)), with f . G the sum of A G over keys."""
    return unit * (g - entry * (unit * g).sum(-1, keepdim=True))


class Reading(ABC):
    """A text, and its expected gradients.

    >>> class Frequent:
    ...     def gains(self, reading: ss.Reading):
    ...         return reading.pair_counts()
    >>> ss.predict("example", queries=("the",), least=50, method=Frequent()).sizes["query"]
    1
    """

    next_shares: Tensor
    """(M,) P(n), how often a token is the next token."""

    occurrences: int
    """The number of occurrences of a query and a next token."""

    def __init__(self, vocab_size: int, queries: NDArray[np.int64], device: str, plan: TrainingPlan) -> None:
        self.vocab_size = vocab_size
        self.plan = plan
        """The training that is predicted."""
        self.queries = torch.as_tensor(queries, device=device)
        """(Q,) the query tokens whose attention is predicted."""
        self._slots = torch.full((vocab_size,), -1, device=device)  # the place of each token among the queries, or -1
        self._slots[self.queries] = torch.arange(len(queries), device=device)

    @abstractmethod
    def decoder_drive(self, logits: Tensor | None = None) -> Tensor:
        """C (M, M)."""

    @abstractmethod
    def mean_squares(self, logits: Tensor | None = None) -> Tensor:
        """E[f_l^2] (M,)."""

    @abstractmethod
    def attention_drive(self, decoder: Tensor, alpha: Tensor, logits: Tensor | None = None) -> Tensor:
        """E[dz_m(l)] (Q, M) at Y = `decoder` if the prediction is `alpha` (M,) everywhere."""

    @abstractmethod
    def pair_counts(self) -> Tensor:
        """c(l, m) (Q, M), whole numbers: how often a token precedes a query."""

    @abstractmethod
    def class_shares(self) -> Tensor:
        """P(m, n) (Q,) for the most frequent next token n of each query m."""


class WindowReading(Reading):
    """Windows (N, T + 1) of tokens, exactly as training reads them: each position but the first is an occurrence."""

    def __init__(
        self,
        windows: NDArray[np.int64],
        *,
        vocab_size: int,
        queries: NDArray[np.int64],
        device: str,
        plan: TrainingPlan,
    ) -> None:
        super().__init__(vocab_size, queries, device, plan)
        self._ids, self._next_tokens = (torch.from_numpy(part).to(device) for part in (windows[:, :-1], windows[:, 1:]))
        self.occurrences = len(windows) * (windows.shape[1] - 2)
        self.next_shares = self._next_tokens[:, 1:].flatten().bincount(minlength=vocab_size) / self.occurrences

    def shuffled(self, seed: int) -> WindowReading:
        """The same windows, with the next tokens of each query permuted over its occurrences."""
        ids, next_tokens = (part[:, 1:].cpu().numpy() for part in (self._ids, self._next_tokens))
        queries = ids.ravel()
        order = np.argsort(queries, kind="stable")
        drawn = np.lexsort((np.random.default_rng(seed).random(len(queries)), queries))
        permuted = np.empty_like(queries)
        permuted[order] = next_tokens.ravel()[drawn]
        result = copy.copy(self)
        result._next_tokens = self._next_tokens.clone()
        result._next_tokens[:, 1:] = torch.from_numpy(permuted.reshape(ids.shape))
        return result

    def decoder_drive(self, logits: Tensor | None = None) -> Tensor:
        drive = torch.zeros(self.vocab_size**2, device=self._ids.device)
        for ids, next_tokens in self._parts():
            unit, _ = self._read(ids, logits)
            places = ids[:, None] * self.vocab_size + next_tokens[:, :, None]
            drive.index_add_(0, places.flatten(), unit.flatten())
        return drive.view(self.vocab_size, -1).div_(self.occurrences)

    def mean_squares(self, logits: Tensor | None = None) -> Tensor:
        squares = torch.zeros(self.vocab_size, device=self._ids.device)
        for ids, _ in self._parts():
            unit, entry = self._read(ids, logits)
            squares.index_add_(0, ids.flatten(), (unit * entry).sum(1).flatten())
        return squares / self.occurrences

    def attention_drive(self, decoder: Tensor, alpha: Tensor, logits: Tensor | None = None) -> Tensor:
        expected = decoder @ alpha  # (M,)
        drive = torch.zeros(len(self.queries) * self.vocab_size, device=decoder.device)
        for ids, next_tokens in self._parts():
            unit, entry = self._read(ids, logits)
            slot, window, position = self._query_occurrences(ids)
            tokens, unit, entry = ids[window], unit[window, position], entry[window, position]  # (R, T)
            g = decoder[tokens, next_tokens[window, position, None]] - expected[tokens]
            gain = logits_gradient(unit, entry, g)
            drive.index_add_(0, (slot[:, None] * self.vocab_size + tokens).flatten(), gain.flatten())
        return drive.view(len(self.queries), -1) / self.occurrences

    def pair_counts(self) -> Tensor:
        counts = self._no_counts()
        for ids, _ in self._parts():
            slot, window, position = self._query_occurrences(ids)
            before = torch.arange(ids.shape[1], device=ids.device) < position[:, None]
            places = (slot[:, None] * self.vocab_size + ids[window])[before]
            counts += places.bincount(minlength=len(counts))
        return counts.view(len(self.queries), -1)

    def class_shares(self) -> Tensor:
        counts = self._no_counts()
        for ids, next_tokens in self._parts():
            slot, window, position = self._query_occurrences(ids)
            counts += (slot * self.vocab_size + next_tokens[window, position]).bincount(minlength=len(counts))
        return counts.view(len(self.queries), -1).amax(1) / self.occurrences

    def _no_counts(self) -> Tensor:
        """(Q M,) zeros to add counts to, of int64: float32 is exact up to 2^24 only."""
        size = len(self.queries) * self.vocab_size
        return torch.zeros(size, dtype=torch.int64, device=self._ids.device)

    def _parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(self._ids.split(WINDOWS_AT_ONCE), self._next_tokens.split(WINDOWS_AT_ONCE), strict=True)

    def _query_occurrences(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where the queries occur: the number of the query, the window and the position of each occurrence."""
        slot = self._slots[ids]
        slot[:, 0] = -1
        window, position = (slot >= 0).nonzero(as_tuple=True)
        return slot[window, position], window, position

    def _read(self, ids: Tensor, logits: Tensor | None) -> tuple[Tensor, Tensor]:
        """A and F (B, T, T) of windows (B, T); attention is uniform for queries that are not predicted."""
        if logits is None:
            z = torch.zeros(*ids.shape, ids.shape[1], device=ids.device)
        else:
            uniform = logits.new_zeros(1, logits.shape[1])
            z = torch.cat([logits, uniform])[self._slots[ids][:, :, None], ids[:, None]]  # slot -1 is the last row
        read = WindowAttention.read(ids, z)
        return read.unit, read.entry


class CountReading(Reading):
    """Counts c(l, m, n), which say which tokens precede an occurrence, but not which of them come together.

    So |k| is taken to be the same at all occurrences of a query, the root of its mean square if each token comes once:
    sqrt(w - 1) at uniform attention, where each of the w - 1 contextual tokens adds 1.  The other tokens of an
    occurrence of (m, n) are taken to be those that usually precede it: f . g is replaced by its mean over the
    occurrences of (m, n).
    """

    def __init__(self, counts: Counts, *, queries: NDArray[np.int64], device: str, plan: TrainingPlan) -> None:
        super().__init__(counts.vocab_size, queries, device, plan)
        self._counts, self._device = counts, device
        self._tokens = counts.window - 1
        shares = counts.vocabulary["next_count"].values
        self.occurrences = int(shares.sum())
        self.next_shares = torch.as_tensor(shares / self.occurrences, dtype=torch.float32, device=device)

    def decoder_drive(self, logits: Tensor | None = None) -> Tensor:
        drive = torch.zeros(self.vocab_size**2, device=self._device)
        weights = self._weights(logits)
        for queries, next_tokens, tokens, counts in self._rows("triples"):
            f = counts * weights[self._slots[queries], tokens]
            drive.index_add_(0, tokens * self.vocab_size + next_tokens, f)
        return drive.view(self.vocab_size, -1).div_(self.occurrences)

    def mean_squares(self, logits: Tensor | None = None) -> Tensor:
        squares = torch.zeros(self.vocab_size, device=self._device)
        weights = self._weights(logits)
        for queries, tokens, counts in self._rows("pairs"):
            squares.index_add_(0, tokens, counts * weights[self._slots[queries], tokens] ** 2)
        return squares / self.occurrences

    def attention_drive(self, decoder: Tensor, alpha: Tensor, logits: Tensor | None = None) -> Tensor:
        expected = decoder @ alpha
        drives = []
        weights_of = self._weights(logits)
        for slot, query in enumerate(self.queries.tolist()):
            weights = weights_of[slot]
            context = self._counts.of(query)
            entries = context.counts.tocoo()
            tokens, next_tokens, counts = (
                torch.as_tensor(values, device=self._device)
                for values in (entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data)
            )
            f = counts * weights[tokens]
            g = decoder[tokens, next_tokens] - expected[tokens]
            times = torch.as_tensor(np.maximum(context.next_counts, 1), device=self._device)
            mean = torch.zeros_like(alpha).index_add_(0, next_tokens, (f * g).to(alpha)) / times  # f . g of (m, n)
            drive = f * (g - mean[next_tokens] * weights[tokens])
            drives.append(torch.zeros_like(alpha).index_add_(0, tokens, drive.to(alpha)))
        return torch.stack(drives) / self.occurrences

    def pair_counts(self) -> Tensor:
        rows = [self._counts.of(query).token_counts for query in self.queries.tolist()]
        return torch.as_tensor(np.array(rows, np.int64), device=self._device)

    def class_shares(self) -> Tensor:
        largest = [self._counts.of(query).next_counts.max() for query in self.queries.tolist()]
        return torch.tensor(largest, device=self._device) / self.occurrences

    def _weights(self, logits: Tensor | None) -> Tensor:
        """exp(z)/|k| (Q + 1, M) of the queries, and of all others: |k|^2 is the mean of exp(2 z) times w - 1."""
        weights_of = torch.full((len(self.queries) + 1, self.vocab_size), self._tokens**-0.5, device=self._device)
        if logits is None:
            return weights_of
        weights = (logits - logits.amax(1, keepdim=True)).exp()
        counts = self.pair_counts()
        weights_of[:-1] *= weights * ((counts * weights**2).sum(1) / counts.sum(1)).rsqrt()[:, None]
        return weights_of

    def _rows(self, table: TableName) -> Iterator[tuple[Tensor, ...]]:
        """The keys, tokens and counts of a table, in blocks."""
        for *columns, counts in self._counts.columns(table):
            ids = (torch.from_numpy(column.astype(np.int64)).to(self._device) for column in columns)
            yield *ids, torch.from_numpy(counts.astype(np.float32)).to(self._device)
