"""Compiled functions that draw a sequence's class and count its tokens; `data/sampling.py` says how."""

from __future__ import annotations

from llvmlite import ir
from numba import int32, types, uint32, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from scansnap.base.inner_function import inner
from scansnap.data import sampling_tables
from scansnap.data.binomial import binomial
from scansnap.data.random_stream import uniform, word
from scansnap.data.sampling_tables import BLOCK, COUNTING_LIMIT, NEVER, ROW, WIDE

padded_length = inner(forceinline=True)(sampling_tables.padded_length)


@inner(forceinline=True)
def find(table, stop, value):
    """How many of the increasing table[0 .. stop-1] are at most `value`: a searchsorted without its checks."""
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        if table[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@inner(forceinline=True)
def draw_class(key, class_thresholds):
    """The class of the sequence with this key (word 0 of its stream)."""
    u = uniform(key, 0)
    last = class_thresholds.shape[0] - 1
    if last > WIDE:
        return find(class_thresholds, last, u)
    n = 0  # the same count without unpredictable branches
    for k in range(last):
        n += 1 if class_thresholds[k] <= u else 0
    return n


@inner(forceinline=True)
def fill_draws(key, length, draws):
    """32 random bits for each contextual token, two to a word: the first half from low bits, the second from high."""
    half = draws.shape[0] // 2
    for j in range(half):
        bits = word(key, j + 1)
        draws[j] = int32(uint32(bits) ^ uint32(0x80000000))
        draws[half + j] = int32(uint32(bits >> uint64(32)) ^ uint32(0x80000000))
    for j in range(length, draws.shape[0]):
        draws[j] = NEVER


@inner(forceinline=True)
def count_by_thresholds(draws, length, table, n, size, counts):
    """counts[w] = draws that fall between thresholds w-1 and w."""
    for w in range(size):
        counts[w] = 0
    for start in range(0, draws.shape[0], BLOCK):
        for w in range(size - 1):
            counts[w] += _below(draws, start, table[n, w])  # cumulative until here
    counts[size - 1] = length
    for w in range(size - 1, 0, -1):
        counts[w] -= counts[w - 1]


@inner(forceinline=True)
def count_by_search(draws, length, thresholds, size, counts):
    """The same counts, one binary search per draw: cheaper for classes of many tokens."""
    for w in range(size):
        counts[w] = 0
    for j in range(length):
        counts[find(thresholds, size - 1, draws[j])] += 1


@inner(forceinline=True)
def count_by_binomials(key, length, conditional, size, counts):
    """Multinomial counts as one binomial per token given the tokens before it."""
    counter = 1
    left = length
    for w in range(size):
        value, counter = binomial(left, conditional[w], key, counter)
        counts[w] = value
        left -= value


@inner(forceinline=True)
def draw_counts(key, length, thresholds, conditional, n, size, draws, counts):
    """The token counts of the sequence of class n with this key; `draws` is scratch of `padded_length(length)`."""
    if length > COUNTING_LIMIT:
        count_by_binomials(key, length, conditional[n], size, counts)
        return
    fill_draws(key, length, draws)
    if size > WIDE:
        count_by_search(draws, length, thresholds[n], size, counts)
    else:
        count_by_thresholds(draws, length, thresholds, n, size, counts)


@inner(forceinline=True)
def draw_places(key, bucket, thresholds, n, size, places):
    """Which of the tokens of class n is at each distance d from the query: word d against the row of d's bucket.

    thresholds (K, G, whole `ROW`s) is padded with `NEVER`.
    """
    for d in range(bucket.shape[0]):
        places[d] = int32(uint32(word(key, d + 1)) ^ uint32(0x80000000))
    for d in range(bucket.shape[0]):
        draw, g = places[d], bucket[d]
        if size > WIDE:
            places[d] = find(thresholds[n, g], size - 1, draw)
            continue
        below = 0
        for first in range(0, size, ROW):
            below += _at_most(thresholds, n, g, first, draw)
        places[d] = min(below, size - 1)


@intrinsic
def _at_most(typing, table, n, g, first, value):
    """How many of the `ROW` numbers table[n, g, first : first + ROW] are at most `value`."""

    def generate(context, builder, signature, args):
        return _count(context, builder, table, args[0], args[1:4], ROW, "<=", args[4])

    return types.int64(table, types.intp, types.intp, types.intp, types.int32), generate


@intrinsic
def _below(typing, draws, start, value):
    """How many of the `BLOCK` numbers draws[start : start + BLOCK] are below `value`."""

    def generate(context, builder, signature, args):
        return _count(context, builder, draws, args[0], args[1:2], BLOCK, "<", args[2])

    return types.int64(draws, types.intp, types.int32), generate


def _count(context, builder, array_type, array, place, length, relation, value):
    """How many of the `length` numbers from a place on stand in this relation to `value`.

    A comparison of vectors gives a bit for each, and machines count bits: several times faster than adding them up.
    """
    struct = context.make_array(array_type)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, array_type, struct, place, wraparound=False)
    vector = ir.VectorType(ir.IntType(32), length)
    numbers = builder.load(builder.bitcast(pointer, vector.as_pointer()))
    numbers.align = 4
    empty = ir.Constant(vector, ir.Undefined)
    lane = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    values = builder.shuffle_vector(lane, empty, ir.Constant(vector, None))
    bits = builder.bitcast(builder.icmp_signed(relation, numbers, values), ir.IntType(length))
    return builder.zext(builder.ctpop(bits), ir.IntType(64)) if length < 64 else builder.ctpop(bits)
