"""Sums by item, read back in increasing order of the items, for groups that touch few of many items.

A group, such as the windows of one pair (m, n), adds to some tens of the M sums.  Clearing or searching all M sums for
each group would cost more than the additions, and so would sorting what was touched.  So a bit marks each item that was
touched, and a bit of a second level marks each word of 64 such bits.  Reading the marks from low to high gives the
items in order, at a cost of one step per item and one per 4,096 items that there are; it leaves everything zero again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic
from numpy.typing import NDArray


class Accumulator(NamedTuple):
    """One sum for each item."""

    sums: NDArray[np.int64]
    marks: NDArray[np.uint64]
    """Bit i of word j: item 64 j + i was touched."""
    marked_words: NDArray[np.uint64]
    """Bit i of word j: a bit of word 64 j + i of `marks` is set."""


def new_accumulator(size: int) -> Accumulator:
    """Zero for the items 0, ..., size − 1."""
    words = (size + 63) // 64
    return Accumulator(np.zeros(size, np.int64), np.zeros(words, np.uint64), np.zeros((words + 63) // 64, np.uint64))


@intrinsic
def _lowest_bit(typing, word):
    """The place of the lowest bit that is set in a word other than 0."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@njit(forceinline=True)
def add(accumulator, item, amount):
    """Add to the sum of an item."""
    accumulator.sums[item] += amount
    accumulator.marks[item >> 6] |= uint64(1) << uint64(item & 63)
    accumulator.marked_words[item >> 12] |= uint64(1) << uint64((item >> 6) & 63)


@njit(forceinline=True)
def drain(accumulator, items, sums, start):
    """Move what was touched, in order of the items, to items[start:] and sums[start:]; returns where it ends."""
    return drain_into(accumulator, None, items, sums, start)


@njit(forceinline=True)
def drain_into(accumulator, total, items, sums, start):
    """`drain`, and add every sum to another accumulator, unless it is None; marks are taken over 64 at a time."""
    place = start
    for j in range(len(accumulator.marked_words)):
        words = accumulator.marked_words[j]
        accumulator.marked_words[j] = 0
        if total is not None:
            total.marked_words[j] |= words
        while words:
            word = (j << 6) + _lowest_bit(words)
            words &= words - uint64(1)
            marks = accumulator.marks[word]
            accumulator.marks[word] = 0
            if total is not None:
                total.marks[word] |= marks
            while marks:
                item = (word << 6) + _lowest_bit(marks)
                marks &= marks - uint64(1)
                items[place] = item
                sums[place] = accumulator.sums[item]
                if total is not None:
                    total.sums[item] += accumulator.sums[item]
                accumulator.sums[item] = 0
                place += 1
    return place
