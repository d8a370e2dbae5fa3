"""Drawing sequences, and drawing their token counts without drawing the sequences.

The model does not see the order of contextual tokens (Assumption 1a), so a sequence is described by how often each
token of its class occurs: Multinomial(T-1, P(.|n)).

- Up to `COUNTING_LIMIT` contextual tokens, each is drawn by inverting the class's cumulative probabilities with 32
  random bits (probabilities are resolved to 2^-32).  The counts follow without forming the sequence: the number of
  draws below each threshold, then differences.  Counts and sequences come from the same draws and agree exactly.
- Longer sequences are counted by one binomial per token, given the tokens before it, at a cost independent of T.  The
  distribution is the same; the draws are not those of `sample_sequences`.

Tokens that depend on their position are drawn one by one: the class from word 0 of the sequence's stream, as for all
sequences, and the token at distance d from the query from word d, by inverting the probabilities of its bucket.

Only the sequence length decides which method is used, so a seed means the same data everywhere.

Random numbers
--------------
Sequence number `index` of update `step` in the run with seed `seed` owns a stream of 64-bit words; word j is

    mix(key + (j + 1) GOLDEN),      key = mix(mix(mix(seed + GOLDEN) + (step + 1) GOLDEN) + (index + 1) GOLDEN)

with the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) for `mix`.  There is no state to carry: a run's
data are the same whatever runs beside it, however the work is divided, and wherever it resumes.  The arithmetic is
modulo 2^64, so any device gives the same bits.

Binomial variates come from the same streams, at a cost that does not grow with the number of trials.  Small means are
inverted term by term; larger ones use the transformed rejection of Hörmann, "The generation of binomial random
variates" (1993), algorithm BTRS.  Both are exact up to float64 arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numba import int32, uint32, uint64
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource, Draw
from scansnap.runtime.machine import check_memory
from scansnap.storage.code_cache import njit
from scansnap.validation.argument_types import IntegerType, Seed
from scansnap.validation.checks import contextual_length
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    from scansnap.data.positioned_classes import PositionedClasses

Number = Annotated[int, IntegerType({"least": 1})]

COUNTING_LIMIT = 1279
"""Up to this many contextual tokens thresholds are counted; beyond, binomials cost less (`benchmarks/scaling.py`)."""

BINARY_SEARCH_SIZE = 256
"""From this many tokens in a class, a binary search per draw beats counting against every threshold."""

BLOCK = 64
"""The number of draws is rounded up to a multiple of this: two draws share a word, at a distance of half the draws."""

NEVER = np.int32(2**31 - 1)
"""The largest draw: it is below no threshold."""


@dataclass(frozen=True)
class SamplingTables:
    """What the samplers look up, one row per class; rows are padded to the widest class."""

    size: NDArray[np.int32]  # (K,) tokens in each class
    thresholds: NDArray[np.int32]  # (K, W) cumulative P(l|n) as 32 bits, offset by -2^31 to compare as signed
    conditional: NDArray[np.float64]  # (K, W) P(token w | not one of the tokens before it)
    class_thresholds: NDArray[np.float64]  # (1, K) cumulative P(n)

    @classmethod
    @lru_cache(maxsize=32)
    def of(cls, classes: SequenceClasses) -> SamplingTables:
        """The tables of these classes, computed once."""
        size = np.diff(classes.offsets).astype(np.int32)
        thresholds = np.full((classes.num_classes, size.max()), NEVER, dtype=np.int32)
        conditional = np.ones(thresholds.shape)
        for i in range(classes.num_classes):
            p = classes.support_probs(i)
            thresholds[i, : size[i]] = _as_thresholds(np.cumsum(p) / p.sum())
            conditional[i, : size[i]] = p / np.cumsum(p[::-1])[::-1]
        class_thresholds = np.cumsum(classes.weights)
        return cls(size, thresholds, conditional, (class_thresholds / class_thresholds[-1])[None])


@lru_cache(maxsize=32)
def position_thresholds(classes: PositionedClasses) -> NDArray[np.int32]:
    """Cumulative P_g(l|n) over the tokens of each class (K, G, W) as 32 bits, to compare as signed."""
    width = int(np.diff(classes.offsets).max())
    thresholds = np.full((classes.num_classes, classes.num_buckets, width), NEVER, np.int32)
    for n in range(classes.num_classes):
        rows = slice(classes.offsets[n], classes.offsets[n + 1])
        cumulative = np.cumsum(classes.part_probs[rows], axis=0)
        thresholds[n, :, : len(cumulative)] = _as_thresholds(cumulative / cumulative[-1]).T
    return thresholds


def _as_thresholds(cumulative: NDArray[np.float64]) -> NDArray[np.int32]:
    """Cumulative probabilities as 32 bits, offset by -2^31."""
    bits = np.minimum(np.round(cumulative * 2.0**32), 2.0**32 - 1)
    return (bits - 2.0**31).astype(np.int32)


def bucket_of(classes: SequenceClasses) -> NDArray[np.int64]:
    """The bucket of each distance 1, 2, ..., T-1."""
    return np.repeat(np.arange(classes.num_buckets), classes.sizes)


# --- random numbers, compiled -------------------------------------------------------------------------------------

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)

INVERSION_MEAN = 10.0
"""Below this mean, inversion is cheaper and BTRS is not valid."""


@njit(error_model="numpy")
def mix(x):
    """A bijection of 64-bit words whose output bits all depend on all input bits."""
    x = (x ^ (x >> uint64(30))) * MIX_1
    x = (x ^ (x >> uint64(27))) * MIX_2
    return x ^ (x >> uint64(31))


@njit(error_model="numpy")
def sequence_key(seed, step, index):
    """The key of the stream that belongs to one sequence."""
    run = mix(uint64(seed) + GOLDEN)
    update = mix(run + (uint64(step) + uint64(1)) * GOLDEN)
    return mix(update + (uint64(index) + uint64(1)) * GOLDEN)


@njit(error_model="numpy")
def word(key, j):
    """Word j of a stream."""
    return mix(key + (uint64(j) + uint64(1)) * GOLDEN)


@njit(error_model="numpy")
def uniform(key, j):
    """Word j as a float64 strictly between 0 and 1 (53 bits, never 0: logarithms of it are safe)."""
    return (float(word(key, j) >> uint64(11)) + 0.5) * 2.0**-53


@njit(error_model="numpy")
def binomial(trials, p, key, counter):
    """One Binomial(trials, p) variate and the counter after the words it used."""
    if trials <= 0 or p <= 0.0:
        return 0, counter
    if p >= 1.0:
        return trials, counter
    if p > 0.5:
        value, counter = binomial_half(trials, 1.0 - p, key, counter)
        return trials - value, counter
    return binomial_half(trials, p, key, counter)


@njit(error_model="numpy")
def binomial_half(trials, p, key, counter):
    """The same for 0 < p <= 1/2."""
    if trials * p < INVERSION_MEAN:
        return _invert(trials, p, key, counter)
    return _reject(trials, p, key, counter)


@njit(error_model="numpy")
def _invert(trials, p, key, counter):
    odds = p / (1.0 - p)
    none = math.exp(trials * math.log1p(-p))
    while True:
        u = uniform(key, counter)
        counter += 1
        term = none
        value = 0
        while u > term:
            u -= term
            value += 1
            if value > trials:
                break  # rounding left a remainder beyond the last term: draw again
            term *= odds * (trials - value + 1) / value
        if value <= trials:
            return value, counter


@njit(error_model="numpy")
def _reject(trials, p, key, counter):
    spread = math.sqrt(trials * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = trials * p + 0.5
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    log_odds = math.log(p / (1.0 - p))
    mode = math.floor((trials + 1) * p)
    log_mode = math.lgamma(mode + 1) + math.lgamma(trials - mode + 1)
    while True:
        u = uniform(key, counter) - 0.5
        v = uniform(key, counter + 1)
        counter += 2
        us = 0.5 - abs(u)
        value = math.floor((2.0 * a / us + b) * u + c)
        if value < 0 or value > trials:
            continue
        if us >= 0.07 and v <= v_r:
            return int(value), counter
        v = math.log(v * alpha / (a / (us * us) + b))
        if v <= log_mode - math.lgamma(value + 1) - math.lgamma(trials - value + 1) + (value - mode) * log_odds:
            return int(value), counter


# --- sequences, compiled ------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def padded_length(length):
    """The number of draws made for `length` tokens: whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


@njit(error_model="numpy")
def find(table, n, stop, value):
    """How many of the increasing table[n, 0 .. stop-1] are at most `value`."""
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        if table[n, middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(error_model="numpy")
def draw_class(key, class_thresholds):
    """The class of the sequence with this key (word 0 of its stream)."""
    return find(class_thresholds, 0, class_thresholds.shape[1] - 1, uniform(key, 0))


@njit(error_model="numpy")
def fill_draws(key, draws):
    """32 random bits for each contextual token, two to a word: the first half from low bits, the second from high."""
    half = draws.shape[0] // 2
    for j in range(half):
        bits = word(key, j + 1)
        draws[j] = int32(uint32(bits) ^ uint32(0x80000000))
        draws[half + j] = int32(uint32(bits >> uint64(32)) ^ uint32(0x80000000))


@njit(cache=True, nogil=True, error_model="numpy")
def draw_batches(seed, first_step, length, each_class_once, size, thresholds, class_thresholds, class_index, counts):
    """Fill class_index (n, B) and counts (n, B, W) with the sequences of n updates from `first_step` on.

    With `each_class_once` sequence b belongs to class b.  A length of 0 draws only the classes.
    """
    draws = np.empty(padded_length(length), np.int32)
    for s in range(class_index.shape[0]):
        for b in range(class_index.shape[1]):
            key = sequence_key(seed, first_step + s, b)
            n = b if each_class_once else draw_class(key, class_thresholds)
            class_index[s, b] = n
            last = size[n] - 1
            for w in range(counts.shape[2]):
                counts[s, b, w] = 0
            if length == 0:
                continue
            fill_draws(key, draws)
            if last >= BINARY_SEARCH_SIZE:
                for j in range(length):
                    counts[s, b, find(thresholds, n, last, draws[j])] += 1
                continue
            before = int32(0)
            for w in range(last):  # how many draws fall between thresholds w-1 and w
                below, threshold = int32(0), thresholds[n, w]
                for j in range(length):
                    below += int32(draws[j] < threshold)
                counts[s, b, w] = below - before
                before = below
            counts[s, b, last] = length - before


@njit(cache=True, nogil=True, error_model="numpy")
def draw_long_batches(
    seed, first_step, length, each_class_once, size, conditional, class_thresholds, class_index, counts
):
    """The same for long sequences: one binomial per token given the tokens before it."""
    for s in range(class_index.shape[0]):
        for b in range(class_index.shape[1]):
            key = sequence_key(seed, first_step + s, b)
            n = b if each_class_once else draw_class(key, class_thresholds)
            class_index[s, b] = n
            counter, left = 1, length
            for w in range(counts.shape[2]):
                value = 0
                if w < size[n]:
                    value, counter = binomial(left, conditional[n, w], key, counter)
                counts[s, b, w] = value
                left -= value


@njit(cache=True, error_model="numpy")
def _draw_sequences(seed, length, size, thresholds, class_thresholds, offsets, tokens, class_index, sequences):
    draws = np.empty(padded_length(length), np.int32)
    for b in range(class_index.shape[0]):
        key = sequence_key(seed, 0, b)
        n = draw_class(key, class_thresholds)
        class_index[b] = n
        fill_draws(key, draws)
        for j in range(length):
            sequences[b, j] = tokens[offsets[n] + find(thresholds, n, size[n] - 1, draws[j])]


@njit(cache=True, nogil=True, error_model="numpy")
def draw_places(seed, first_step, bucket, size, thresholds, class_thresholds, class_index, places):
    """Fill class_index (n, B) and places (n, B, T-1): which of its class's tokens is at each distance."""
    for s in range(class_index.shape[0]):
        for b in range(class_index.shape[1]):
            key = sequence_key(seed, first_step + s, b)
            n = draw_class(key, class_thresholds)
            class_index[s, b] = n
            for d in range(bucket.shape[0]):
                bits = int32(uint32(word(key, d + 1)) ^ uint32(0x80000000))
                place, g = int32(0), bucket[d]
                for w in range(size[n] - 1):  # a count without branches, faster than a search
                    place += int32(thresholds[n, g, w] <= bits)
                places[s, b, d] = place


@njit(cache=True, nogil=True, error_model="numpy")
def _count_places(places, bucket, counts):
    """Add to counts (n, B, G, W) how often each token is in each bucket."""
    for s in range(places.shape[0]):
        for b in range(places.shape[1]):
            for d in range(bucket.shape[0]):
                counts[s, b, bucket[d], places[s, b, d]] += 1


# --- other numbers of a run, compiled -----------------------------------------------------------------------------

CHOICE_STREAM = 2**62
"""Step numbers that no update has: the random stream for choosing from a fixed set begins here."""


@njit(cache=True)
def uniform_entries(seeds, stream, first, bound, columns, out):
    """out[r, i, columns[j]] uniform in +-bound, from word j of the stream of row first + i."""
    for r in range(seeds.shape[0]):
        for i in range(out.shape[1]):
            key = sequence_key(seeds[r], stream, first + i)
            for j in range(columns.shape[0]):
                out[r, i, columns[j]] = bound * (2.0 * uniform(key, j) - 1.0)


@njit(cache=True)
def uniform_means(seeds, stream, first, count, bound, columns, out):
    """out[r, columns[j]]: the mean over `count` such rows from `first` on."""
    for r in range(seeds.shape[0]):
        total = np.zeros(columns.shape[0])
        for i in range(count):
            key = sequence_key(seeds[r], stream, first + i)
            for j in range(columns.shape[0]):
                total[j] += bound * (2.0 * uniform(key, j) - 1.0)
        for j in range(columns.shape[0]):
            out[r, columns[j]] = total[j] / count


@njit(cache=True, nogil=True)
def choose(seed, first_step, count, out):
    """out[s, b] uniform over 0 .. count - 1, for n updates from `first_step` on."""
    for s in range(out.shape[0]):
        for b in range(out.shape[1]):
            out[s, b] = int(uniform(sequence_key(seed, first_step + s, b), 0) * count)


# --- draws of a seed ----------------------------------------------------------------------------------------------


def draw_independent(
    classes: SequenceClasses, seed: int, first_step: int, num_steps: int, num_sequences: int | None, length: int
) -> Draw:
    """The token counts of sequences whose tokens are independent; a length of 0 draws only the classes."""
    tables = SamplingTables.of(classes)
    class_index = np.empty((num_steps, num_sequences or classes.num_classes), np.int64)
    counts = np.empty((*class_index.shape, tables.thresholds.shape[1]), np.int32)
    draw, table = (
        (draw_batches, tables.thresholds) if length <= COUNTING_LIMIT else (draw_long_batches, tables.conditional)
    )
    draw(
        np.uint64(seed),
        first_step,
        length,
        num_sequences is None,
        tables.size,
        table,
        tables.class_thresholds,
        class_index,
        counts,
    )
    return Draw(class_index, counts)


def draw_positioned(classes: PositionedClasses, seed: int, first_step: int, num_steps: int, num_sequences: int) -> Draw:
    """The token counts, by bucket, of sequences whose tokens depend on their position."""
    class_index, places = _places(classes, seed, first_step, num_steps, num_sequences)
    counts = np.zeros((*class_index.shape, classes.num_buckets, int(np.diff(classes.offsets).max())), np.int32)
    _count_places(places, bucket_of(classes), counts)
    return Draw(class_index, counts)


def _places(
    classes: PositionedClasses, seed: int, first_step: int, num_steps: int, num_sequences: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    tables, bucket = SamplingTables.of(classes), bucket_of(classes)
    class_index = np.empty((num_steps, num_sequences), np.int64)
    places = np.empty((num_steps, num_sequences, len(bucket)), np.int32)
    draw_places(
        np.uint64(seed),
        first_step,
        bucket,
        tables.size,
        position_thresholds(classes),
        tables.class_thresholds,
        class_index,
        places,
    )
    return class_index, places


def independent_sequences(
    classes: SequenceClasses, num: int, length: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `sample_sequences` gives for independent tokens."""
    tables = SamplingTables.of(classes)
    class_index = np.empty(num, np.int64)
    sequences = np.empty((num, length + 1), np.int64)
    _draw_sequences(
        np.uint64(seed),
        length,
        tables.size,
        tables.thresholds,
        tables.class_thresholds,
        classes.offsets,
        classes.tokens,
        class_index,
        sequences,
    )
    sequences[:, -1] = classes.query[class_index]
    return sequences, class_index


def positioned_sequences(
    classes: PositionedClasses, num: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `sample_sequences` gives for tokens that depend on their position; the nearest is second to last."""
    (class_index,), (places,) = _places(classes, seed, 0, 1, num)
    tokens = classes.tokens[classes.offsets[class_index][:, None] + places]  # by distance
    return np.concatenate([tokens[:, ::-1], classes.query[class_index][:, None]], axis=1), class_index


# --- public -------------------------------------------------------------------------------------------------------


@validated
def sample_sequences(
    source: DataSource, *, num: Number, seq_len: int, seed: Seed = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`num` sequences x_1 ... x_T with the query last (num x T), and the class of each (num).

    >>> sequences, index = ss.sample_sequences(ss.syn_small(), num=3, seq_len=8)
    >>> sequences.shape, index.shape
    ((3, 8), (3,))
    """
    length = contextual_length(seq_len)
    check_memory(f"{num:,} sequences need", 8 * num * length, "draw fewer of them")
    return source.sample_sequences(num=num, length=length, seed=seed)


@validated
def sample_counts(
    source: DataSource, *, num: Number, seq_len: int, seed: Seed = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each token occurs before the query in `num` sequences (num x M), and the class of each (num).

    >>> counts, index = ss.sample_counts(ss.syn_small(), num=3, seq_len=8)
    >>> counts.sum(1)
    array([7, 7, 7])
    """
    length = contextual_length(seq_len)
    check_memory(f"the counts of {num:,} sequences need", 8 * num * source.classes.vocab_size, "draw fewer of them")
    source.check_length(seq_len)
    draw = source.draw(seeds=np.array([seed], np.uint64), step=0, num_sequences=num, length=length)
    class_index, counts = draw.class_index[0], draw.counts[0]
    if counts.ndim == 3:  # by bucket of positions
        counts = counts.sum(1)
    dense = np.zeros((num, source.classes.vocab_size), np.int64)
    for n in range(source.classes.num_classes):
        rows, tokens = np.flatnonzero(class_index == n), source.classes.support(n)
        dense[np.ix_(rows, tokens)] = counts[rows, : len(tokens)]
    return dense, class_index
