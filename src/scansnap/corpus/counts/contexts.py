"""The quantities of the theory for one query token m in text: what precedes it, and what follows it.

From the counts c(l, n) of contextual and next tokens (`events.py` says what is counted):

    P(l|m) = c(l) / Σ_l' c(l')               how often l occurs beside m
    P(n|m) = c(n) / (number of occurrences)  what follows m
    D(l|m) = Σ_n P(n|l, m) log(P(n|l, m) / P(n|m)),  P(n|l, m) = c(l, n) / c(l)

D, in nats, is how much a contextual token says about the next token.  It is 0 for a token that occurs with all next
tokens in proportion and −log P(n|m) for one that is distinct to n.  Small counts alone make it positive: shuffled
occurrences show how large it is when next tokens are unrelated to their contexts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.corpus.counts.events import Occurrences, Rows, count_events
from scansnap.runtime.errors import InputError
from scansnap.validation.checks import integer

BLOCK_ROWS = 2**18
"""Counts in memory beside their sum."""


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Counts of the contextual and next tokens of one query token."""

    query: int
    window: int
    counts: sparse.csr_array
    """c(l, n), (vocab_size, vocab_size) of int64."""
    token_counts: NDArray[np.int64]
    """c(l): how often each token is a contextual token, (vocab_size,)."""
    next_counts: NDArray[np.int64]
    """c(n): how often each token is the next token, (vocab_size,)."""

    @classmethod
    def from_rows(cls, query: int, window: int, vocab_size: int, blocks: Iterable[tuple[str, Rows]]) -> ContextCounts:
        """From the query's rows of the tables `triples`, `pairs` and `bigrams`."""
        margins = {"pairs": np.zeros(vocab_size, np.int64), "bigrams": np.zeros(vocab_size, np.int64)}
        triples = [(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))]
        for table, rows in blocks:
            if table == "triples":
                triples.append((rows.items.copy(), rows.keys[1].copy(), rows.counts.copy()))
            else:
                margins[table][rows.items] += rows.counts
        tokens, next_tokens, counts = map(np.concatenate, zip(*triples, strict=True))
        matrix = sparse.coo_array((counts, (tokens, next_tokens)), (vocab_size, vocab_size)).tocsr()
        return cls(query, window, matrix, margins["pairs"], margins["bigrams"])

    @property
    def num_occurrences(self) -> int:
        """How often the query token occurs with a next token."""
        return int(self.next_counts.sum())

    @cached_property
    def cooccurrence(self) -> NDArray[np.float64]:
        """P(l|m), (vocab_size,)."""
        return self.token_counts / max(1, self.token_counts.sum())

    @cached_property
    def distinctness(self) -> NDArray[np.float64]:
        """D(l|m) in nats, (vocab_size,); NaN for tokens that never precede the query or lack their rare triples."""
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        next_probs = self.counts.data / self.token_counts[rows]  # P(n|l, m)
        overall = self.next_counts[self.counts.indices] / self.num_occurrences  # P(n|m)
        divergence = np.bincount(rows, next_probs * np.log(next_probs / overall), minlength=self.counts.shape[0])
        complete = (self.token_counts > 0) & (self.counts.sum(axis=1) == self.token_counts)
        # a divergence is never negative, but rounding can make it so
        return np.where(complete, np.maximum(divergence, 0.0), np.nan)


@dataclass(frozen=True, eq=False)
class QueryOccurrences:
    """Where a query token occurs in a text, and what follows it there; `occurrences_of` makes it."""

    query: int
    window: int
    vocab_size: int
    ids: NDArray[np.integer]
    positions: NDArray[np.int64]
    next_tokens: NDArray[np.integer]

    def count(self) -> ContextCounts:
        """The counts of the windows that end there."""
        queries = np.full(len(self.positions), self.query, np.int32)
        occurrences = Occurrences.sorted(self.positions, queries, self.next_tokens.astype(np.int32), self.vocab_size)
        blocks = count_events(
            np.asarray(self.ids, np.int32),
            occurrences,
            window=self.window,
            least=1,
            vocab_size=self.vocab_size,
            capacity=BLOCK_ROWS,
        )
        return ContextCounts.from_rows(self.query, self.window, self.vocab_size, blocks)

    def shuffled(self, rng: np.random.Generator) -> QueryOccurrences:
        """The same windows with the next tokens permuted over them."""
        return replace(self, next_tokens=rng.permutation(self.next_tokens))


def occurrences_of(
    ids: NDArray[np.integer], query: int, window: int, *, vocab_size: int | None = None
) -> QueryOccurrences:
    """The occurrences of a query token, for windows of `window` tokens that end with it.

    `vocab_size` is by default one more than the largest id.
    """
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or ids.size < 2:
        raise InputError(f"ids has shape {ids.shape} and type {ids.dtype}: give a list of at least two whole numbers.")
    window = integer("window", window, least=2)  # the query and at least one token before it
    largest = int(ids.max())
    vocab_size = largest + 1 if vocab_size is None else vocab_size
    if largest >= vocab_size or ids.min() < 0:
        raise InputError(f"ids range from {ids.min()} to {largest}: give ids from 0 to below vocab_size, {vocab_size}.")
    positions = np.flatnonzero(ids[:-1] == query)
    if not positions.size:
        raise InputError(f"token {query} never occurs before another token: give a query token that does.")
    return QueryOccurrences(query, window, vocab_size, ids, positions, np.asarray(ids[positions + 1]))
