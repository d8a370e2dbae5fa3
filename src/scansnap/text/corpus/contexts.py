"""The quantities of the theory, counted in text: which tokens precede a query token, and which token follows it.

An occurrence is a position t with ids[t] = m, the query token, and a token n = ids[t + 1] after it.  Its contextual
tokens l are the w − 1 tokens before it in the window, ids[t − w + 1], ..., ids[t − 1] (fewer at the start of the text),
each counted as often as it occurs there.  From the counts c(l, n):

    P(l|m) = c(l) / Σ_l' c(l')               how often l occurs beside m
    P(n|m) = c(n) / (number of occurrences)  what follows m
    D(l|m) = Σ_n P(n|l, m) log(P(n|l, m) / P(n|m)),  P(n|l, m) = c(l, n) / c(l)

D, in nats, is how much a contextual token says about the next token.  It is 0 for a token that occurs with all next
tokens in proportion and −log P(n|m) for one that is distinct to n.  Small counts alone make it positive: `shuffled`
shows how large it is when next tokens are unrelated to their contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.base.checks import whole
from scansnap.base.errors import InputError

CHUNK_PAIRS = 2**21
"""Pairs (l, n) counted at once, about 100 MB."""


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Counts of the contextual and next tokens of one query token, as `count_contexts` makes them."""

    query: int
    window: int
    ids: NDArray[np.integer]
    positions: NDArray[np.int64]
    """Where the query token occurs with a next token."""
    next_tokens: NDArray[np.integer]
    """The next token of each occurrence."""
    counts: sparse.csr_array
    """c(l, n), (vocab_size, vocab_size) of int64."""

    @property
    def num_occurrences(self) -> int:
        """How often the query token occurs with a next token."""
        return len(self.positions)

    @cached_property
    def token_counts(self) -> NDArray[np.int64]:
        """c(l): how often each token is a contextual token, (vocab_size,)."""
        return self.counts.sum(axis=1)

    @cached_property
    def next_counts(self) -> NDArray[np.int64]:
        """c(n): how often each token is the next token, (vocab_size,)."""
        return np.bincount(self.next_tokens, minlength=self.counts.shape[1])

    @cached_property
    def cooccurrence(self) -> NDArray[np.float64]:
        """P(l|m), (vocab_size,)."""
        return self.token_counts / max(1, self.token_counts.sum())

    @cached_property
    def distinctness(self) -> NDArray[np.float64]:
        """D(l|m) in nats, (vocab_size,); NaN for tokens that are never contextual."""
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        next_probs = self.counts.data / self.token_counts[rows]  # P(n|l, m)
        overall = self.next_counts[self.counts.indices] / self.num_occurrences  # P(n|m)
        divergence = np.bincount(rows, next_probs * np.log(next_probs / overall), minlength=self.counts.shape[0])
        # a divergence is never negative, but rounding can make it so
        return np.where(self.token_counts > 0, np.maximum(divergence, 0.0), np.nan)

    def shuffled(self, rng: np.random.Generator) -> ContextCounts:
        """Counts of the same contexts with the next tokens permuted over the occurrences."""
        return _count(
            self.ids, self.query, self.window, self.positions, rng.permutation(self.next_tokens), self.counts.shape[0]
        )


def count_contexts(
    ids: NDArray[np.integer], query: int, window: int, *, vocab_size: int | None = None
) -> ContextCounts:
    """Count the contexts of a query token in windows of `window` tokens that end with the query.

    `vocab_size` is by default one more than the largest id.
    """
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or ids.size < 2:
        raise InputError(f"ids has shape {ids.shape} and type {ids.dtype}: give a list of at least two whole numbers.")
    window = whole("window", window, least=2)  # the query and at least one token before it
    largest = int(ids.max())
    vocab_size = largest + 1 if vocab_size is None else vocab_size
    if largest >= vocab_size or ids.min() < 0:
        raise InputError(f"ids range from {ids.min()} to {largest}: give ids from 0 to below vocab_size, {vocab_size}.")
    positions = np.flatnonzero(ids[:-1] == query)
    if not positions.size:
        raise InputError(f"token {query} never occurs before another token: give a query token that does.")
    return _count(ids, query, window, positions, np.asarray(ids[positions + 1]), vocab_size)


def _count(
    ids: NDArray[np.integer],
    query: int,
    window: int,
    positions: NDArray[np.int64],
    next_tokens: NDArray[np.integer],
    vocab_size: int,
) -> ContextCounts:
    shape = (vocab_size, vocab_size)
    counts = sparse.csr_array(shape, dtype=np.int64)
    chunk = max(1, CHUNK_PAIRS // (window - 1))
    back = np.arange(1 - window, 0)
    for first in range(0, len(positions), chunk):
        places = positions[first : first + chunk, None] + back  # (occurrences, window - 1)
        inside = places >= 0
        tokens = ids[places[inside]]
        following = np.broadcast_to(next_tokens[first : first + chunk, None], places.shape)[inside]
        pairs = sparse.coo_array((np.ones(tokens.size, np.int64), (tokens, following)), shape)
        counts = counts + pairs.tocsr()
    return ContextCounts(query, window, ids, positions, next_tokens, counts)
