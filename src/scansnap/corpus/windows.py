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
in order.  A group touches some tens of many tokens, so neither clearing nor searching all sums for each group is
affordable: the touched tokens are listed, and the list is sorted (`count_windows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.tables import CountRows, Table
from scansnap.storage.code_cache import njit

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


class Sums(NamedTuple):
    """One sum for each item, and the items whose sum is not 0."""

    values: NDArray[np.int64]
    touched: NDArray[np.int32]
    """In no order; the first `size[0]` count."""
    size: NDArray[np.int64]


def new_sums(num_items: int) -> Sums:
    """Zero for each item."""
    return Sums(np.zeros(num_items, np.int64), np.empty(num_items, np.int32), np.zeros(1, np.int64))


@njit(cache=True, nogil=True)
def count_windows(ids, positions, queries, groups, window, sums, query_sums, items, counts, query_items, query_counts):
    """Count the tokens before the positions of each group, and before those of each query.

    Group g has the positions groups[g - 1] .. groups[g] - 1, all of one query and one next token.  `sums` is zero
    before and after.  `query_sums` holds what was counted of a query whose last group is still to come.  Returns where
    the rows of each group end, and where those of its query do, which are written after the query's last group.
    """
    ends = np.zeros(len(groups), np.int64)
    query_ends = np.zeros(len(groups), np.int64)
    for g in range(1, len(groups)):
        stop = groups[g]
        for i in range(groups[g - 1], stop):
            for j in range(max(0, positions[i] - window + 1), positions[i]):
                _add(sums, ids[j], 1)
        ends[g] = _move(sums, items, counts, ends[g - 1])
        for row in range(ends[g - 1], ends[g]):
            _add(query_sums, items[row], counts[row])
        query_ends[g] = query_ends[g - 1]
        if stop == len(queries) or queries[stop] != queries[stop - 1]:
            query_ends[g] = _move(query_sums, query_items, query_counts, query_ends[g - 1])
    return ends, query_ends


@njit(cache=True, nogil=True)
def _add(sums, item, amount):
    """Add a positive amount to the sum of an item."""
    if sums.values[item] == 0:
        sums.touched[sums.size[0]] = item
        sums.size[0] += 1
    sums.values[item] += amount


@njit(cache=True, nogil=True)
def _move(sums, items, counts, start):
    """Move the touched items, in order, to items[start:] and their sums to counts[start:]; returns the end."""
    touched = sums.touched[: sums.size[0]]
    touched.sort()
    sums.size[0] = 0
    for i, item in enumerate(touched):
        items[start + i] = item
        counts[start + i] = sums.values[item]
        sums.values[item] = 0
    return start + len(touched)


def count_occurrences(
    ids: NDArray[np.int32], first: int, stop: int, queries: range, window: int, vocab_size: int, least: int, block: int
) -> Iterator[tuple[str, CountRows]]:
    """The rows of each table from a range of queries at positions first .. stop-1, each of which has a next token.

    They come in blocks of at most `block` and `vocab_size` rows.  Triples that occur fewer than `least` times are left
    out.  A block is valid until the next is asked for.
    """
    chosen = ids[first:stop]
    positions = first + np.flatnonzero((queries.start <= chosen) & (chosen < queries.stop))
    query, next_token = ids[positions], ids[positions + 1]
    order = np.lexsort((next_token, query))
    positions, query, next_token = positions[order], query[order], next_token[order]
    is_first = np.append(True, (np.diff(query) != 0) | (np.diff(next_token) != 0))[: len(query)]
    groups = np.append(np.flatnonzero(is_first), len(query))  # where each pair (m, n) begins
    rows_before = np.append(0, np.cumsum(np.minimum(np.diff(groups) * (window - 1), vocab_size)))  # at most
    sums, query_sums = new_sums(vocab_size), new_sums(vocab_size)
    size = max(block, vocab_size)
    items, counts = np.empty(size, np.int32), np.empty(size, np.int64)
    pair_items, pair_counts = np.empty(size + vocab_size, np.int32), np.empty(size + vocab_size, np.int64)
    begin = 0
    while begin < len(groups) - 1:
        end = int(np.searchsorted(rows_before, rows_before[begin] + size, side="right")) - 1
        own = groups[begin : end + 1]
        ends, pair_ends = count_windows(
            ids, positions, query, own, window, sums, query_sums, items, counts, pair_items, pair_counts
        )
        m, n = query[own[:-1]].astype(np.int64), next_token[own[:-1]]
        yield "bigrams", CountRows(m, n, np.diff(own))
        yield "pairs", _rows(m, pair_items, pair_counts, pair_ends)
        triples = _rows(m * vocab_size + n, items, counts, ends)
        yield "triples", triples if least == 1 else triples.part(triples.counts >= least)
        begin = end


def _rows(
    keys: NDArray[np.int64], items: NDArray[np.int32], counts: NDArray[np.int64], ends: NDArray[np.int64]
) -> CountRows:
    """Rows from the key of each group and where its items end."""
    return CountRows(np.repeat(keys, np.diff(ends)), items[: ends[-1]], counts[: ends[-1]])
