"""Random numbers that depend only on their purpose.

Sequence number `index` of update `step` in the run with seed `seed` owns a stream of 64-bit words; word j is

    mix(key + (j + 1) GOLDEN),      key = mix(mix(mix(seed + GOLDEN) + (step + 1) GOLDEN) + (index + 1) GOLDEN)

with the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) for `mix`.  There is no state to carry: a run's
data are the same whatever runs beside it, however the work is divided, and wherever it resumes.  The arithmetic is
modulo 2^64, so any device gives the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from scansnap.runtime.inner_function import inner

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


@inner(forceinline=True)
def mix(x):
    """A bijection of 64-bit words whose output bits all depend on all input bits."""
    x = (x ^ (x >> uint64(30))) * MIX_1
    x = (x ^ (x >> uint64(27))) * MIX_2
    return x ^ (x >> uint64(31))


@inner(forceinline=True)
def sequence_key(seed, step, index):
    """The key of the stream that belongs to one sequence."""
    run = mix(uint64(seed) + GOLDEN)
    update = mix(run + (uint64(step) + uint64(1)) * GOLDEN)
    return mix(update + (uint64(index) + uint64(1)) * GOLDEN)


@inner(forceinline=True)
def word(key, j):
    """Word j of a stream."""
    return mix(key + (uint64(j) + uint64(1)) * GOLDEN)


@inner(forceinline=True)
def uniform(key, j):
    """Word j as a float64 strictly between 0 and 1 (53 bits, never 0: logarithms of it are safe)."""
    return (float(word(key, j) >> uint64(11)) + 0.5) * 2.0**-53
