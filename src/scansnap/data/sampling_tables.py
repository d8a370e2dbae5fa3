"""What samplers look up, and the sizes that they work with; `sampling.py` and `position_sampling.py` say how."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses

if TYPE_CHECKING:
    from scansnap.data.positioned_classes import PositionedClasses

COUNTING_LIMIT = 1279
"""Up to this many contextual tokens thresholds are counted; beyond, binomials cost less (`benchmarks/scaling.py`)."""

WIDE = 256
"""From this many tokens in a class, or classes, a binary search per draw beats counting against every threshold."""

ROW = 8
"""Positions whose draws are compared with their thresholds at once: whole registers."""

BLOCK = 64
"""Draws are counted in blocks of a fixed size, padded: as many as a word has bits."""

NEVER = np.int32(2**31 - 1)
"""A padding draw, which is below no threshold."""


def padded_length(length: int) -> int:
    """The number of draws made for `length` tokens: whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK


@dataclass(frozen=True)
class SamplingTables:
    """What the samplers look up, one row per class; rows are padded to the widest class."""

    size: NDArray[np.int32]  # (K,) tokens in each class
    thresholds: NDArray[np.int32]  # (K, W) cumulative P(l|n) as 32 bits, offset by -2^31 to compare as signed
    conditional: NDArray[np.float64]  # (K, W) P(token w | not one of the tokens before it)
    class_thresholds: NDArray[np.float64]  # (K,) cumulative P(n)

    @classmethod
    @lru_cache(maxsize=32)
    def of(cls, classes: SequenceClasses) -> SamplingTables:
        """The tables of these classes, computed once."""
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


@lru_cache(maxsize=32)
def position_thresholds(classes: PositionedClasses) -> NDArray[np.int32]:
    """Cumulative P_g(l|n) over the tokens of each class (K, G, W) as 32 bits, to compare as signed."""
    width = int(np.diff(classes.offsets).max())
    thresholds = np.full((classes.num_classes, classes.num_buckets, width), NEVER, np.int32)
    for n in range(classes.num_classes):
        rows = slice(classes.offsets[n], classes.offsets[n + 1])
        cumulative = np.cumsum(classes.part_probs[rows], axis=0)
        bits = np.minimum(np.round(cumulative / cumulative[-1] * 2.0**32), 2.0**32 - 1)
        thresholds[n, :, : bits.shape[0]] = (bits - 2.0**31).astype(np.int32).T
    return thresholds


@lru_cache(maxsize=32)
def thresholds_by_distance(classes: PositionedClasses) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The same, token by token for each `ROW` distances (K, D, W, ROW), and which of the D each row of distances has.

    Rows of distances that are in the same buckets have one entry, so that D is at most some two for each bucket.
    """
    bucket = bucket_of(classes)
    rows = np.pad(bucket, (0, -len(bucket) % ROW), mode="edge").reshape(-1, ROW)
    different, row_of = np.unique(rows, axis=0, return_inverse=True)
    return position_thresholds(classes)[:, different].swapaxes(2, 3).copy(), row_of.reshape(-1)


def bucket_of(classes: SequenceClasses) -> NDArray[np.int64]:
    """The bucket of each distance 1, 2, ..., T-1."""
    return np.repeat(np.arange(classes.num_buckets), classes.sizes)
