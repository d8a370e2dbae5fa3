"""Sorted tables added up: rows (key, item, count) of several sources, in order of key, as one sorted table.

The smallest key at the head of any source is next; all its rows, from every source, are added item by item
(`accumulator.py`) and come out in order of the items.  A block of rows of each source and one block of the sum are in
memory, whatever the tables' sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numba import njit

from scansnap.corpus.counts.accumulator import add, drain, new_accumulator
from scansnap.corpus.counts.events import Rows, room_for_rows
from scansnap.runtime.source_stamp import source_stamp

ENDED = -1
"""The head of a source that has no more rows."""


def merge(
    sources: Sequence[Iterator[Rows]], *, num_keys: int, least: int, vocab_size: int, batch: int, capacity: int
) -> Iterator[Rows]:
    """The sum of sources, whose blocks have at most `batch` rows, as blocks that are valid until the next is asked for.

    Rows that add up to less than `least` are left out.
    """
    capacity = max(capacity, 2 * vocab_size)
    waiting = np.empty((len(sources), batch), np.int64)  # both keys as one number
    items = np.empty((len(sources), batch), np.int32)
    counts = np.empty((len(sources), batch), np.int64)
    heads, sizes = np.zeros((2, len(sources)), np.int64)
    total = room_for_rows(capacity, num_keys)
    sums = new_accumulator(vocab_size)
    state = np.array([ENDED, 0], np.int64)  # the key that is being added up, and the rows of the total

    while True:
        for i in np.flatnonzero(heads == sizes).tolist():
            rows = next(sources[i], None)
            if rows is None:
                heads[i], sizes[i] = ENDED, 0
                continue
            size = len(rows.items)
            waiting[i, :size] = rows.keys[0]
            if num_keys == 2:
                waiting[i, :size] = waiting[i, :size] * vocab_size + rows.keys[1]
            items[i, :size], counts[i, :size] = rows.items, rows.counts
            heads[i], sizes[i] = 0, size
        done = add_up(waiting, items, counts, heads, sizes, least, sums, total, state)
        size = int(state[1])
        if size and (done or size + vocab_size > capacity):
            yield Rows(total.keys[:, :size], total.items[:size], total.counts[:size])
            state[1] = 0
        if done:
            return


def _compile(stamp: int):
    """The function cached on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True, nogil=True)
    def add_up(waiting, items, counts, heads, sizes, least, sums, total, state):
        """Add up until a source needs more rows or the total lacks room; returns whether all sources have ended."""
        if stamp < 0:
            return True
        vocab_size = len(sums.sums)
        while True:
            smallest, key = -1, np.int64(0)
            for i in range(len(heads)):
                if heads[i] == sizes[i]:
                    return False
                if heads[i] >= 0 and (smallest < 0 or waiting[i, heads[i]] < key):
                    smallest, key = i, waiting[i, heads[i]]
            if state[0] != ENDED and (smallest < 0 or key != state[0]):
                if state[1] + vocab_size > len(total.items):
                    return False
                _put(sums, total, state, least)
            if smallest < 0:
                return True
            state[0] = key
            head = heads[smallest]
            while head < sizes[smallest] and waiting[smallest, head] == key:
                add(sums, items[smallest, head], counts[smallest, head])
                head += 1
            heads[smallest] = head

    return add_up


@njit
def _put(sums, total, state, least):
    """Move the sums of the current key to the total."""
    start = state[1]
    place = start
    for i in range(start, drain(sums, total.items, total.counts, start)):
        if total.counts[i] >= least:
            total.items[place], total.counts[place] = total.items[i], total.counts[i]
            place += 1
    if total.keys.shape[0] == 2:
        total.keys[0, start:place] = state[0] // len(sums.sums)
        total.keys[1, start:place] = state[0] % len(sums.sums)
    else:
        total.keys[0, start:place] = state[0]
    state[0], state[1] = ENDED, place


add_up = _compile(source_stamp(__name__))
