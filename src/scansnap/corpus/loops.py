"""The compiled loops of counting.

Both `count_windows` and `add_up_groups` add up counts by item, for one group after another, and write the sums of each
group in order of the items.  A group touches some tens of many items, so neither clearing nor searching all sums for
each group is affordable.  A bit in `marks` is set for each item that was touched, and a bit in `marked_words` for each
word of 64 such bits.  The set bits, read from low to high, give the items in order.

All compiled functions of counting are in this file: Numba compiles a cached function again when its own file changes,
but not when a function that it calls changes in another file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from scansnap.storage.code_cache import njit

DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
"""The 64 runs of six bits in this number are all different, so that run i tells i."""

BIT_OF_RUN = np.empty(64, np.int64)
for _bit in range(64):
    BIT_OF_RUN[(int(DE_BRUIJN) << _bit & (2**64 - 1)) >> 58] = _bit


class Sums(NamedTuple):
    """One sum for each item, and which items were touched."""

    values: NDArray[np.int64]
    marks: NDArray[np.uint64]
    """Bit i of word j: item 64 j + i was touched."""
    marked_words: NDArray[np.uint64]
    """Bit i of word j: word 64 j + i of `marks` is not 0."""


def new_sums(num_items: int) -> Sums:
    """Zero for each item."""
    words = (num_items + 63) // 64
    return Sums(np.zeros(num_items, np.int64), np.zeros(words, np.uint64), np.zeros((words + 63) // 64, np.uint64))


@njit(cache=True, nogil=True)
def find_positions(ids, first, stop, low, high):
    """The positions from `first` up to `stop` of tokens from `low` up to `high`."""
    size = 0
    for t in range(first, stop):
        size += low <= ids[t] < high
    positions = np.empty(size, np.int64)
    size = 0
    for t in range(first, stop):
        if low <= ids[t] < high:
            positions[size] = t
            size += 1
    return positions


@njit(cache=True, nogil=True)
def stable_order(keys, num_keys):
    """The permutation that sorts keys below `num_keys` and leaves equal ones in their order (a counting sort)."""
    starts = np.zeros(num_keys + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for key in range(num_keys):
        starts[key + 1] += starts[key]
    order = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        order[starts[keys[i]]] = i
        starts[keys[i]] += 1
    return order


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
def add_up_groups(keys, items, counts, sums, total_keys, total_items, total_counts):
    """Add up rows with equal keys, which follow each other, item by item; returns how many rows the total has."""
    size = 0
    for i in range(len(keys)):
        _add(sums, items[i], counts[i])
        if i + 1 == len(keys) or keys[i + 1] != keys[i]:
            stop = _move(sums, total_items, total_counts, size)
            total_keys[size:stop] = keys[i]
            size = stop
    return size


@njit(cache=True, nogil=True)
def _add(sums, item, amount):
    """Add to the sum of an item."""
    sums.values[item] += amount
    sums.marks[item >> 6] |= uint64(1) << uint64(item & 63)
    sums.marked_words[item >> 12] |= uint64(1) << uint64((item >> 6) & 63)


@njit(cache=True, nogil=True)
def _move(sums, items, counts, start):
    """Move the touched items, in order, to items[start:] and their sums to counts[start:]; returns the end."""
    place = start
    for j in range(len(sums.marked_words)):
        words = sums.marked_words[j]
        sums.marked_words[j] = 0
        while words:
            word = (j << 6) + _lowest_bit(words)
            words &= words - uint64(1)
            marks = sums.marks[word]
            sums.marks[word] = 0
            while marks:
                item = (word << 6) + _lowest_bit(marks)
                marks &= marks - uint64(1)
                items[place] = item
                counts[place] = sums.values[item]
                sums.values[item] = 0
                place += 1
    return place


@njit(cache=True, nogil=True)
def _lowest_bit(word):
    """The place of the lowest bit that is set in a word other than 0."""
    lowest = word & (~word + uint64(1))
    return BIT_OF_RUN[(lowest * DE_BRUIJN) >> uint64(58)]
