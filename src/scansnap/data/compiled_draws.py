"""Compiled functions that draw a sequence's class and count its tokens; `data/sampling.py` says how."""

from __future__ import annotations

from llvmlite import ir
from numba import int32, types, uint32, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from scansnap.data import sampling_tables
from scansnap.data.binomial import binomial
from scansnap.data.random_stream import uniform, word
from scansnap.data.sampling_tables import BLOCK, COUNTING_LIMIT, NEVER, ROW, WIDE
from scansnap.runtime.inner_function import GENERAL, inner

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
    if GENERAL and length > COUNTING_LIMIT:
        count_by_binomials(key, length, conditional[n], size, counts)
        return
    fill_draws(key, length, draws)
    if GENERAL and size > WIDE:
        count_by_search(draws, length, thresholds[n], size, counts)
    else:
        count_by_thresholds(draws, length, thresholds, n, size, counts)


@inner(forceinline=True)
def fill_words(key, draws, b):
    """draws[b, d - 1] <- 32 random bits for the token at distance d from the query: word d."""
    for d in range(draws.shape[1]):
        draws[b, d] = int32(uint32(word(key, d + 1)) ^ uint32(0x80000000))


def _find_places_of(count):
    """A function for `count` sequences of one class, which share the loads of their thresholds."""

    @inner(forceinline=True)
    def find_places(thresholds, rows, n, size, draws, first):
        """draws[first + i] <- which of the tokens of class n is at each distance, by its thresholds.

        `draws` has whole rows of distances; thresholds (K, D, W, ROW) and `rows` are those of `thresholds_by_distance`.
        """
        for k in range(rows.shape[0]):
            if size <= WIDE:
                find_row(thresholds, n, rows[k], size - 1, draws, first, k * ROW)
                continue
            for i in range(count):
                for lane in range(ROW):
                    d = k * ROW + lane
                    draws[first + i, d] = find(thresholds[n, rows[k], :, lane], size - 1, draws[first + i, d])

    @intrinsic
    def find_row(typing, table, n, row, stop, draws, first, start):
        """draws[first + i, start : start + ROW] <- how many of table[n, row, : stop] are at most each of them."""

        def generate(context, builder, signature, args):
            thresholds, n, row, stop, array, first, start = args
            zero = ir.Constant(ir.IntType(64), 0)
            table_row = _pointer(context, builder, table, thresholds, [n, row, zero, zero], ROW)
            sequences = [builder.add(first, ir.Constant(ir.IntType(64), i)) for i in range(count)]
            pointers = [_pointer(context, builder, draws, array, [b, start], ROW) for b in sequences]
            values = [builder.load(pointer, align=4) for pointer in pointers]
            places = [cgutils.alloca_once_value(builder, _spread(builder, stop, ROW)) for _ in values]
            with cgutils.for_range(builder, stop) as loop:
                limits = builder.load(builder.gep(table_row, [loop.index]), align=4)
                for value, place in zip(values, places, strict=True):
                    is_below = builder.sext(builder.icmp_signed(">", limits, value), value.type)  # -1 or 0
                    builder.store(builder.add(builder.load(place), is_below), place)
            for place, pointer in zip(places, pointers, strict=True):
                builder.store(builder.load(place), pointer, align=4)
            return context.get_dummy_value()

        whole = types.intp
        return types.void(table, whole, whole, types.int32, draws, whole, whole), generate

    return find_places


find_places_of_one, find_places_of_four = map(_find_places_of, (1, 4))


@intrinsic
def _below(typing, draws, start, value):
    """How many of the `BLOCK` numbers draws[start : start + BLOCK] are below `value`.

    A comparison of vectors gives a bit for each, and machines count bits: several times faster than adding them up.
    """

    def generate(context, builder, signature, args):
        numbers = builder.load(_pointer(context, builder, draws, args[0], args[1:2], BLOCK), align=4)
        values = _spread(builder, args[2], BLOCK)
        return builder.ctpop(builder.bitcast(builder.icmp_signed("<", numbers, values), ir.IntType(BLOCK)))

    return types.int64(draws, types.intp, types.int32), generate


def _spread(builder, number, length):
    """The number `length` times."""
    vector = ir.VectorType(number.type, length)
    empty = ir.Constant(vector, ir.Undefined)
    lane = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(lane, empty, ir.Constant(vector, None))


def _pointer(context, builder, array_type, array, place, length):
    """Where the `length` numbers from a place on are."""
    struct = context.make_array(array_type)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, array_type, struct, place, wraparound=False)
    return builder.bitcast(pointer, ir.VectorType(ir.IntType(32), length).as_pointer())
