"""Random numbers of a run besides its batches: entries of its start, and choices from a fixed set."""

from __future__ import annotations

import numpy as np
from numba import njit

from scansnap.data.random_stream import sequence_key, uniform
from scansnap.runtime.source_stamp import source_stamp

CHOICE_STREAM = 2**62
"""Step numbers that no update has: the random stream for choosing from a fixed set begins here."""


def _compile(stamp: int):
    """The functions cached on disk; `stamp` makes the cache notice changes in what they call."""

    @njit(cache=True)
    def uniform_entries(seeds, stream, first, bound, columns, out):
        """out[r, i, columns[j]] uniform in +-bound, from word j of the stream of row first + i."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            for i in range(out.shape[1]):
                key = sequence_key(seeds[r], stream, first + i)
                for j in range(columns.shape[0]):
                    out[r, i, columns[j]] = bound * (2.0 * uniform(key, j) - 1.0)

    @njit(cache=True)
    def uniform_means(seeds, stream, first, count, bound, columns, out):
        """out[r, columns[j]]: the mean over `count` such rows from `first` on."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            total = np.zeros(columns.shape[0])
            for i in range(count):
                key = sequence_key(seeds[r], stream, first + i)
                for j in range(columns.shape[0]):
                    total[j] += bound * (2.0 * uniform(key, j) - 1.0)
            for j in range(columns.shape[0]):
                out[r, columns[j]] = total[j] / count

    @njit(cache=True)
    def choose(seeds, step, count, out):
        """out[r, b] uniform over 0 .. count - 1."""
        if stamp < 0:
            return
        for r in range(out.shape[0]):
            for b in range(out.shape[1]):
                out[r, b] = int(uniform(sequence_key(seeds[r], step, b), 0) * count)

    return uniform_entries, uniform_means, choose


uniform_entries, uniform_means, choose = _compile(source_stamp(__name__))
