"""Drawing sequences, and drawing their token counts without drawing the sequences.

The model does not see the order of contextual tokens (Assumption 1a), so a sequence is described by how often each
token of its class occurs: Multinomial(T-1, P(.|n)).

- Up to `COUNTING_LIMIT` contextual tokens, each is drawn by inverting the class's cumulative probabilities with 32
  random bits (probabilities are resolved to 2^-32).  The counts follow without forming the sequence: the number of
  draws below each threshold, then differences.  Counts and sequences come from the same draws and agree exactly.
- Longer sequences are counted by one binomial per token, given the tokens before it, at a cost independent of T.  The
  distribution is the same; the draws are not those of `sample_sequences`.

Only the sequence length decides which method is used, so a seed means the same data everywhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.data.compiled_draws import draw_class, draw_counts, fill_draws, find, padded_length
from scansnap.data.random_stream import sequence_key
from scansnap.data.sampling_tables import COUNTING_LIMIT, SamplingTables
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource, Draw
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import gibibytes, physical_memory
from scansnap.runtime.source_stamp import source_stamp
from scansnap.validation import checks
from scansnap.validation.argument_types import Seed
from scansnap.validation.checks import contextual_length
from scansnap.validation.validate import validated


def _compile(stamp: int):
    """The two functions cached on disk; `stamp` makes the cache notice changes in what they call."""

    @njit(cache=True)
    def draw_batches(
        seeds, step, length, each_class_once, size, thresholds, conditional, class_thresholds, class_index, counts
    ):
        """Fill class_index (R, B) and counts (R, B, W) with the sequences of update `step` for every run's seed.

        With `each_class_once` sequence b belongs to class b.  A length of 0 draws only the classes.
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


draw_batches, _draw_sequences = _compile(source_stamp(__name__))


def draw_independent(
    classes: SequenceClasses, seeds: NDArray[np.uint64], step: int, num_sequences: int | None, length: int
) -> Draw:
    """Token counts of the sequences of an update; a length of 0 draws only the classes."""
    tables = SamplingTables.of(classes)
    class_index = np.empty((len(seeds), num_sequences or classes.num_classes), np.int64)
    counts = np.empty((*class_index.shape, tables.thresholds.shape[1]), np.int32)
    draw_batches(
        seeds,
        step,
        length,
        num_sequences is None,
        tables.size,
        tables.thresholds,
        tables.conditional,
        tables.class_thresholds,
        class_index,
        counts,
    )
    return Draw(class_index, counts)


def sequences_of_seed(
    classes: SequenceClasses, num: int, length: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sequences that `sample_sequences` gives for independent tokens."""
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


@validated
def sample_sequences(
    source: DataSource, *, num: int, seq_len: int, seed: Seed = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`num` sequences x_1 ... x_T with the query last (num x T), and the class of each (num).

    >>> sequences, index = ss.sample_sequences(ss.syn_small(), num=3, seq_len=8)
    >>> sequences.shape, index.shape
    ((3, 8), (3,))
    """
    request = _checked(num, seq_len, seed)
    _check_room(num, request["length"])
    return source.sample_sequences(**request)


@validated
def sample_counts(
    source: DataSource, *, num: int, seq_len: int, seed: Seed = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each token occurs before the query in `num` sequences (num x M), and the class of each (num).

    >>> counts, index = ss.sample_counts(ss.syn_small(), num=3, seq_len=8)
    >>> counts.sum(1)
    array([7, 7, 7])
    """
    request = _checked(num, seq_len, seed)
    _check_room(num, source.classes.vocab_size)
    source.check_length(seq_len)
    draw = source.draw(seeds=np.array([seed], np.uint64), step=0, num_sequences=num, length=request["length"])
    class_index, counts = draw.class_index[0], draw.counts[0]
    if counts.ndim == 3:  # by bucket of positions
        counts = counts.sum(1)
    dense = np.zeros((num, source.classes.vocab_size), np.int64)
    for n in range(source.classes.num_classes):
        rows, tokens = np.flatnonzero(class_index == n), source.classes.support(n)
        dense[np.ix_(rows, tokens)] = counts[rows, : len(tokens)]
    return dense, class_index


def _checked(num: int, seq_len: int, seed: int) -> dict[str, int]:
    return {
        "num": checks.integer("num", num, least=1),
        "length": contextual_length(seq_len),
        "seed": checks.integer("seed", seed, most=2**63 - 1),
    }


def _check_room(num: int, width: int) -> None:
    """Refuse sequences or counts that do not fit in memory."""
    needed = 8 * num * width
    if needed > physical_memory():
        raise InputError(
            f"num is {num:,}: that takes {gibibytes(needed)} of the {gibibytes(physical_memory())} of memory here."
        )
