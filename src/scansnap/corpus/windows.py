"""What is counted: the tokens before a query and the token after it.

A text is a sequence of tokens x_0, ..., x_{N−1}.  A position t < N − 1 is an occurrence of the query m = x_t with the
next token n = x_{t+1}.  Its contextual tokens are the w − 1 tokens before it in the window of w tokens that it ends:

    c(m, n)    = number of t with x_t = m and x_{t+1} = n
    c(l, m, n) = number of (t, j) with x_t = m, x_{t+1} = n, x_j = l and max(0, t − w + 1) ≤ j < t
    c(l, m)    = Σ_n c(l, m, n)

So a contextual token counts as often as it occurs, the query at the window's end is not a contextual token of itself,
an earlier occurrence of the same token is one, and at the start of a text windows are shorter.  Windows do not reach
from one text into another.  Ends of lines are tokens like others, as they are in training.

There are N (w − 1) events, and each must be read.  But they need not be sorted: the N occurrences are, by m and n.
Then the windows of one pair (m, n) follow each other, its sums fit into the cache, and they come out
in order (`loops.py`).

From the counts of one query m follow the quantities of the theory:

    P(l|m) = c(l, m) / Σ_l' c(l', m)         how often l occurs before m
    P(n|m) = c(m, n) / (number of occurrences)
    D(l|m) = Σ_n P(n|l, m) log(P(n|l, m) / P(n|m)),  P(n|l, m) = c(l, m, n) / c(l, m)

D, in nats, is how much a contextual token says about the next token.  It is 0 for a token that occurs with all next
tokens in proportion and −log P(n|m) for one that is distinct to n.  Small counts alone make it positive: shuffled
occurrences show how large it is when next tokens are unrelated to their contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.corpus.loops import count_windows, new_sums
from scansnap.corpus.tables import CountRows, Table

TableName = Literal["bigrams", "pairs", "triples"]
TABLES: tuple[TableName, ...] = get_args(TableName)
"""c(m, n), c(l, m) and c(l, m, n)."""


def count_tables(vocab_size: int) -> dict[str, Table]:
    """The columns of each table."""
    return {
        "bigrams": Table(("query",), "next_token"),
        "pairs": Table(("query",), "token"),
        "triples": Table(("query", "next_token"), "token", vocab_size),
    }


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Where queries occur, in order of query and next token."""

    positions: NDArray[np.int64]
    queries: NDArray[np.int32]
    next_tokens: NDArray[np.int32]

    @classmethod
    def find(cls, ids: NDArray[np.int32], first: int, stop: int, queries: range) -> Occurrences:
        """The occurrences of a range of queries at positions first .. stop-1, each of which has a next token."""
        chosen = ids[first:stop]
        positions = first + np.flatnonzero((queries.start <= chosen) & (chosen < queries.stop))
        found, next_tokens = ids[positions], ids[positions + 1]
        order = np.lexsort((next_tokens, found))
        return cls(positions[order], found[order], next_tokens[order])

    def count(
        self, ids: NDArray[np.int32], *, window: int, vocab_size: int, least: int = 1, block: int = 2**18
    ) -> Iterator[tuple[str, CountRows]]:
        """The rows of each table, in blocks of at most `block` and `vocab_size` rows.

        Triples that occur fewer than `least` times are left out.  A block is valid until the next is asked for.
        """
        queries, next_tokens = self.queries, self.next_tokens
        is_first = np.append(True, (np.diff(queries) != 0) | (np.diff(next_tokens) != 0))[: len(queries)]
        groups = np.append(np.flatnonzero(is_first), len(queries))  # where each pair (m, n) begins
        rows_before = np.append(0, np.cumsum(np.minimum(np.diff(groups) * (window - 1), vocab_size)))  # at most
        sums, query_sums = new_sums(vocab_size), new_sums(vocab_size)
        size = max(block, vocab_size)
        items, counts = np.empty(size, np.int32), np.empty(size, np.int64)
        pair_items, pair_counts = np.empty(size + vocab_size, np.int32), np.empty(size + vocab_size, np.int64)
        first = 0
        while first < len(groups) - 1:
            stop = int(np.searchsorted(rows_before, rows_before[first] + size, side="right")) - 1
            own = groups[first : stop + 1]
            ends, pair_ends = count_windows(
                ids, self.positions, queries, own, window, sums, query_sums, items, counts, pair_items, pair_counts
            )
            query, next_token = queries[own[:-1]].astype(np.int64), next_tokens[own[:-1]]
            yield "bigrams", CountRows(query, next_token, np.diff(own))
            yield "pairs", _rows(query, pair_items, pair_counts, pair_ends)
            triples = _rows(query * vocab_size + next_token, items, counts, ends)
            yield "triples", triples if least == 1 else triples.part(triples.counts >= least)
            first = stop


def _rows(
    keys: NDArray[np.int64], items: NDArray[np.int32], counts: NDArray[np.int64], ends: NDArray[np.int64]
) -> CountRows:
    """Rows from the key of each group and where its items end."""
    return CountRows(np.repeat(keys, np.diff(ends)), items[: ends[-1]], counts[: ends[-1]])


def largest(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The places of the largest counts above 0, at most `most`, from the largest on."""
    order = np.argsort(-counts, kind="stable")[:most]
    return order[counts[order] > 0]


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Counts of the contextual and next tokens of one query token."""

    query: int
    window: int
    counts: sparse.csr_array = field(repr=False)
    """c(l, n), (vocab_size, vocab_size) of int64."""
    token_counts: NDArray[np.int64] = field(repr=False)
    """c(l): how often each token is a contextual token, (vocab_size,)."""
    next_counts: NDArray[np.int64] = field(repr=False)
    """c(n): how often each token is the next token, (vocab_size,)."""

    @classmethod
    def from_rows(
        cls, query: int, window: int, vocab_size: int, blocks: Iterable[tuple[str, CountRows]]
    ) -> ContextCounts:
        """The counts in the query's rows of all tables."""
        margins = {"pairs": np.zeros(vocab_size, np.int64), "bigrams": np.zeros(vocab_size, np.int64)}
        triples = [(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))]
        for table, rows in blocks:
            if table == "triples":
                triples.append((rows.items.copy(), rows.keys % vocab_size, rows.counts.copy()))
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
