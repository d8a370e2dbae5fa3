"""The compiled loops of counting.

Both `count_windows` and `add_up_groups` add up counts by item, for one group after another, and write the sums of each
group in order of the items.  A group touches some tens of many items, so neither clearing nor searching all sums for
each group is affordable: the touched items are listed, and the list is sorted.

All compiled functions of counting are in this file: Numba compiles a cached function again when its own file changes,
but not when a function that it calls changes in another file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.storage.code_cache import njit


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
