"""Drawing sequences, and drawing their token counts without drawing the sequences.

The model does not see the order of contextual tokens (Assumption 1a), so a sequence is known by how often each token of
its class occurs: Multinomial(T-1, P(.|n)).

- Up to `COUNTING_LIMIT` contextual tokens, each is drawn by inverting the class's cumulative probabilities with 32
  random bits (probabilities are resolved to 2^-32).  The counts follow without forming the sequence: the number of
  draws below each threshold, then differences.  Counts and sequences come from the same draws and agree exactly.
- Longer sequences are counted by one binomial per token, given the tokens before it, at a cost that does not depend on
  T.  The distribution is the same; the draws are not those of `sample_sequences`.

Which one is used depends on the sequence length alone, so that a seed means the same data everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numba import int32, njit, uint32, uint64
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.source_stamp import source_stamp
from scansnap.data.binomial import binomial
from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.random_stream import sequence_key, uniform, word
from scansnap.data.sequence_classes import SequenceClasses

COUNTING_LIMIT = 1279
"""Contextual tokens up to which counting thresholds is used; beyond, binomials cost less (`benchmarks/scaling.py`)."""

WIDE = 256
"""Tokens in a class, or classes, from which a binary search per draw beats counting against every threshold."""

BLOCK = 64
"""Draws are counted in blocks of a fixed size, padded, so that the compiler unrolls the loop over whole registers."""

NEVER = np.int32(2**31 - 1)
"""A padding draw: below no threshold."""


@dataclass(frozen=True)
class SamplingTables:
    """What the samplers look up, one row per class; rows are padded to the widest class."""

    size: NDArray[np.int32]  # (K,) tokens in each class
    thresholds: NDArray[np.int32]  # (K, W) cumulative P(l|n) as 32 bits, offset by -2^31 to compare as signed
    conditional: NDArray[np.float64]  # (K, W) P(token w | not one of the tokens before it)
    class_thresholds: NDArray[np.float64]  # (K,) cumulative P(n)

    @classmethod
    def of(cls, classes: SequenceClasses) -> SamplingTables:
        size = np.diff(classes.offsets).astype(np.int32)
        thresholds = np.full((classes.num_classes, size.max()), NEVER, dtype=np.int32)
        conditional = np.ones(thresholds.shape)
        for i in range(classes.num_classes):
            p = classes.support_probs(i)
            cumulative = np.cumsum(p) / p.sum()
            bits = np.minimum(np.round(cumulative * 2.0**32), 2.0**32 - 1)
            thresholds[i, : size[i]] = (bits - 2.0**31).astype(np.int32)
            tail = np.cumsum(p[::-1])[::-1]
            conditional[i, : size[i]] = p / tail
        class_thresholds = np.cumsum(classes.weights)
        return cls(size, thresholds, conditional, class_thresholds / class_thresholds[-1])


@njit(forceinline=True)
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


@njit(forceinline=True)
def draw_class(key, class_thresholds):
    """The class of the sequence with this key (word 0 of its stream)."""
    u = uniform(key, 0)
    last = class_thresholds.shape[0] - 1
    if last > WIDE:
        return find(class_thresholds, last, u)
    n = 0  # the same count without branches that cannot be foreseen
    for k in range(last):
        n += 1 if class_thresholds[k] <= u else 0
    return n


@njit(forceinline=True)
def fill_draws(key, length, draws):
    """32 random bits for each contextual token, two to a word: the first half from low bits, the second from high."""
    half = draws.shape[0] // 2
    for j in range(half):
        bits = word(key, j + 1)
        draws[j] = int32(uint32(bits) ^ uint32(0x80000000))
        draws[half + j] = int32(uint32(bits >> uint64(32)) ^ uint32(0x80000000))
    for j in range(length, draws.shape[0]):
        draws[j] = NEVER


@njit(forceinline=True)
def padded_length(length):
    """The number of draws made for `length` tokens: whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


@njit(forceinline=True)
def count_by_thresholds(draws, length, table, n, size, counts):
    """counts[w] = draws that fall between thresholds w-1 and w."""
    for w in range(size):
        counts[w] = 0
    for start in range(0, draws.shape[0], BLOCK):
        block = draws[start : start + BLOCK]
        for w in range(size - 1):
            threshold = table[n, w]
            below = int32(0)
            for j in range(BLOCK):
                below += int32(block[j] < threshold)
            counts[w] += below  # so far cumulative
    counts[size - 1] = length
    for w in range(size - 1, 0, -1):
        counts[w] -= counts[w - 1]


@njit(forceinline=True)
def count_by_search(draws, length, thresholds, size, counts):
    """The same counts, one binary search per draw: cheaper for classes of many tokens."""
    for w in range(size):
        counts[w] = 0
    for j in range(length):
        counts[find(thresholds, size - 1, draws[j])] += 1


@njit(forceinline=True)
def count_by_binomials(key, length, conditional, size, counts):
    """Multinomial counts as one binomial per token given the tokens before it."""
    counter = 1
    left = length
    for w in range(size):
        value, counter = binomial(left, conditional[w], key, counter)
        counts[w] = value
        left -= value


@njit(forceinline=True)
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


def _compile(stamp: int):
    """The two functions kept on disk; `stamp` makes the cache notice changes in what they call."""

    @njit(cache=True)
    def draw_batches(
        seeds, step, length, each_class_once, size, thresholds, conditional, class_thresholds, class_index, counts
    ):
        """Fill class_index (R, B) and counts (R, B, W) with the sequences of update `step` for every run's seed.

        With `each_class_once` sequence b belongs to class b.  With a length of 0 only the classes are drawn.
        """
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            draws = np.empty(padded_length(min(length, COUNTING_LIMIT)), np.int32)
            for b in range(class_index.shape[1]):
                key = sequence_key(seeds[r], step, b)
                n = b if each_class_once else draw_class(key, class_thresholds)
                class_index[r, b] = n
                counts[r, b, size[n] :] = 0
                if length > 0:
                    draw_counts(key, length, thresholds, conditional, n, size[n], draws, counts[r, b])

    @njit(cache=True)
    def draw_sequences(seed, length, size, thresholds, class_thresholds, offsets, tokens, class_index, sequences):
        if stamp < 0:
            return
        draws = np.empty(padded_length(length), np.int32)
        for b in range(class_index.shape[0]):
            key = sequence_key(seed, 0, b)
            n = draw_class(key, class_thresholds)
            class_index[b] = n
            fill_draws(key, length, draws)
            for j in range(length):
                sequences[b, j] = tokens[offsets[n] + find(thresholds[n], size[n] - 1, draws[j])]

    return draw_batches, draw_sequences


draw_batches, _draw_sequences = _compile(source_stamp("data.random_stream", "data.binomial"))


def contextual_length(seq_len: float) -> int:
    """T - 1, the contextual tokens of a sequence of finite length T, checked."""
    real = isinstance(seq_len, Real) and not isinstance(seq_len, bool)
    if not real or not math.isfinite(seq_len) or seq_len != int(seq_len) or not 2 <= seq_len < 2**31:
        raise InputError(
            f"seq_len is {seq_len}: give a whole number from 2 (one contextual token and the query) to 2^31."
        )
    return int(seq_len) - 1


def _check_request(num: int, seed: int) -> None:
    for name, value, most in (("num", num, 10**9), ("seed", seed, 2**63 - 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= most:
            raise InputError(f"{name} is {value!r}: give a whole number from 0 to {most:,}.")


def sample_sequences(
    classes: SequenceClasses, *, num: int, seq_len: int, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`num` sequences x_1 ... x_T with the query last (num x T), and the class of each (num)."""
    length = contextual_length(seq_len)
    _check_request(num, seed)
    if isinstance(classes, PositionedClasses):
        from scansnap.data.position_sampling import sample_positions

        return sample_positions(classes, num=num, seq_len=seq_len, seed=seed)
    tables = SamplingTables.of(classes)
    class_index = np.empty(num, np.int64)
    sequences = np.empty((num, length + 1), np.int64)
    _draw_sequences(
        np.uint64(seed), length, tables.size, tables.thresholds, tables.class_thresholds,
        classes.offsets, classes.tokens, class_index, sequences,
    )  # fmt: skip
    sequences[:, -1] = classes.query[class_index]
    return sequences, class_index


def sample_counts(
    classes: SequenceClasses, *, num: int, seq_len: int, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each token occurs before the query in `num` sequences (num x M), and the class of each (num)."""
    length = contextual_length(seq_len)
    _check_request(num, seed)
    if isinstance(classes, PositionedClasses):
        sequences, owner = sample_sequences(classes, num=num, seq_len=seq_len, seed=seed)
        found = np.zeros((num, classes.vocab_size), np.int64)
        np.add.at(found, (np.arange(num)[:, None], sequences[:, :-1]), 1)
        return found, owner
    tables = SamplingTables.of(classes)
    class_index = np.empty((1, num), np.int64)
    counts = np.empty((1, num, tables.thresholds.shape[1]), np.int32)
    draw_batches(
        np.array([seed], np.uint64), 0, length, False, tables.size, tables.thresholds, tables.conditional,
        tables.class_thresholds, class_index, counts,
    )  # fmt: skip
    dense = np.zeros((num, classes.vocab_size), np.int64)
    for n in range(classes.num_classes):
        rows = np.flatnonzero(class_index[0] == n)
        dense[np.ix_(rows, classes.support(n))] = counts[0][rows, : tables.size[n]]
    return dense, class_index[0]
