"""What is counted, and how.

A text is a sequence of tokens x_0, ..., x_{N−1}.  A position t < N − 1 is an occurrence of the query m = x_t with the
next token n = x_{t+1}.  Its contextual tokens are the w − 1 tokens before it in the window of w tokens that it ends:

    c(m, n)    = number of t with x_t = m and x_{t+1} = n
    c(l, m, n) = number of (t, j) with x_t = m, x_{t+1} = n, x_j = l and max(0, t − w + 1) ≤ j < t
    c(l, m)    = Σ_n c(l, m, n)

So a contextual token counts as often as it occurs, the query at the window's end is not a contextual token of itself,
an earlier occurrence of the same token is one, and at the start of a text windows are shorter.  Windows do not reach
from one text into another.  Ends of lines are tokens like others, as they are in training.

There are N (w − 1) events, and each must be looked at.  But they need not be sorted: the N occurrences are, by m and n
(two counting sorts).  Then the windows of one pair (m, n) follow each other, its sums fit into the cache, and they come
out in order (`accumulator.py`).  An event costs a read and an addition there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.corpus.counts.accumulator import add, drain, drain_into, new_accumulator
from scansnap.runtime.source_stamp import source_stamp


class Rows(NamedTuple):
    """Room for rows of a table: keys (number of key columns, rows), items and their counts, in order."""

    keys: NDArray[np.int32]
    items: NDArray[np.int32]
    counts: NDArray[np.int64]


def room_for_rows(capacity: int, num_keys: int) -> Rows:
    """Rows not yet filled."""
    return Rows(np.empty((num_keys, capacity), np.int32), np.empty(capacity, np.int32), np.empty(capacity, np.int64))


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Where queries occur, in order of query and next token."""

    positions: NDArray[np.int64]
    queries: NDArray[np.int32]
    next_tokens: NDArray[np.int32]

    @classmethod
    def sorted(
        cls, positions: NDArray[np.int64], queries: NDArray[np.int32], next_tokens: NDArray[np.int32], vocab_size: int
    ) -> Occurrences:
        """From any order."""
        order = stable_order(next_tokens, vocab_size)
        order = order[stable_order(queries[order], vocab_size)]
        return cls(positions[order], queries[order], next_tokens[order])


def count_events(
    ids: NDArray[np.int32], occurrences: Occurrences, *, window: int, least: int, vocab_size: int, capacity: int
) -> Iterator[tuple[str, Rows]]:
    """The counts of some occurrences as sorted rows of the tables `triples`, `pairs` and `bigrams`, in blocks.

    A block is valid until the next is asked for.  `least` drops rarer triples, `capacity` is the size of a block.
    """
    capacity = max(capacity, 2 * vocab_size)  # so that whatever lacks room for a group is at least half full
    tables = {
        name: room_for_rows(capacity, num_keys) for name, num_keys in (("triples", 2), ("pairs", 1), ("bigrams", 1))
    }
    filled = np.zeros(3, np.int64)
    state = np.zeros(2, np.int64)
    sums = new_accumulator(vocab_size), new_accumulator(vocab_size)
    done = False
    while not done:
        done = count_groups(
            ids,
            occurrences.positions,
            occurrences.queries,
            occurrences.next_tokens,
            window,
            least,
            *sums,
            tables["triples"],
            tables["pairs"],
            tables["bigrams"],
            filled,
            state,
        )
        for place, (name, rows) in enumerate(tables.items()):
            size = int(filled[place])
            if size and (done or 2 * size >= capacity):
                yield name, Rows(rows.keys[:, :size], rows.items[:size], rows.counts[:size])
                filled[place] = 0


def find_occurrences(ids: NDArray[np.int32], first: int, stop: int, queries: range, vocab_size: int) -> Occurrences:
    """The occurrences of a range of queries at positions first .. stop-1, each of which has a next token."""
    positions = find_positions(ids, first, stop, queries.start, queries.stop)
    return Occurrences.sorted(positions, ids[positions], ids[positions + 1], vocab_size)


def _compile(stamp: int):
    """The functions cached on disk; `stamp` makes the cache notice changes in what they call."""

    @njit(cache=True, nogil=True)
    def find_positions(ids, first, stop, low, high):
        """The positions from `first` up to `stop` of tokens from `low` up to `high`."""
        size = 0
        for t in range(first, stop):
            size += (ids[t] >= low) & (ids[t] < high)
        positions = np.empty(size, np.int64)
        place = 0
        for t in range(first, stop):
            if place < size:
                positions[place] = t  # stays if the token is one of them
            place += (ids[t] >= low) & (ids[t] < high)
        return positions

    @njit(cache=True, nogil=True)
    def stable_order(keys, vocab_size):
        """The permutation that sorts keys below `vocab_size` and leaves equal ones in their order."""
        starts = np.zeros(vocab_size + 1, np.int64)
        for key in keys:
            starts[key + 1] += 1
        for key in range(vocab_size):
            starts[key + 1] += starts[key]
        order = np.empty(len(keys), np.int64)
        for i in range(len(keys)):
            order[starts[keys[i]]] = i
            starts[keys[i]] += 1
        return order

    @njit(cache=True, nogil=True)
    def count_groups(
        ids,
        positions,
        queries,
        next_tokens,
        window,
        least,
        triple_sums,
        pair_sums,
        triples,
        pairs,
        bigrams,
        filled,
        state,
    ):
        """Count groups of equal (m, n) from state[0] on until room runs out; returns whether all are counted.

        state[1] is 1 while `pair_sums` holds sums of the query before state[0].
        """
        if stamp < 0:
            return True
        vocab_size = len(triple_sums.sums)
        while state[0] < len(positions) or state[1] > 0:
            first = state[0]
            ends_query = first == len(positions) or (first > 0 and queries[first] != queries[first - 1])
            if state[1] > 0 and ends_query:  # c(l, m) is complete
                if filled[1] + vocab_size > len(pairs.items):
                    return False
                start = filled[1]
                filled[1] = drain(pair_sums, pairs.items, pairs.counts, start)
                pairs.keys[0, start : filled[1]] = queries[first - 1]
                state[1] = 0
                continue
            query, next_token = queries[first], next_tokens[first]
            stop = first + 1
            while stop < len(positions) and queries[stop] == query and next_tokens[stop] == next_token:
                stop += 1
            start = filled[0]
            most = start + min((stop - first) * (window - 1), vocab_size)
            if most > len(triples.items) or filled[2] == len(bigrams.items):
                return False
            for i in range(first, stop):
                for j in range(max(0, positions[i] - window + 1), positions[i]):
                    add(triple_sums, ids[j], 1)
            place = drain_into(triple_sums, pair_sums, triples.items, triples.counts, start)
            if least > 1:
                place = _drop_rare(triples, start, place, least)
            triples.keys[0, start:place] = query
            triples.keys[1, start:place] = next_token
            filled[0] = place
            bigrams.keys[0, filled[2]], bigrams.items[filled[2]] = query, next_token
            bigrams.counts[filled[2]] = stop - first
            filled[2] += 1
            state[0] = stop
            state[1] = 1
        return True

    return find_positions, stable_order, count_groups


@njit
def _drop_rare(rows, start, stop, least):
    """Keep the rows from `start` up to `stop` that count at least `least`; returns where they end."""
    place = start
    for i in range(start, stop):
        if rows.counts[i] >= least:
            rows.items[place], rows.counts[place] = rows.items[i], rows.counts[i]
            place += 1
    return place


find_positions, stable_order, count_groups = _compile(source_stamp(__name__))
