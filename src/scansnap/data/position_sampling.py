"""Drawing sequences whose tokens depend on their position.

The class comes from word 0 of the sequence's stream, as for all sequences, and the token at distance d from the query
from word d, by inverting the cumulative probabilities of its bucket with 32 random bits.
"""

from __future__ import annotations

import math

import numpy as np
from numba import int32, njit, uint32
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.source_stamp import source_stamp
from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.random_stream import sequence_key, word
from scansnap.data.sampling import NEVER, draw_class, find


def position_thresholds(classes: PositionedClasses) -> NDArray[np.int32]:
    """Cumulative P_g(l|n) over the tokens of each class (G, K, W) as 32 bits, offset to compare as signed."""
    width = int(np.diff(classes.offsets).max())
    found = np.full((classes.num_buckets, classes.num_classes, width), NEVER, np.int32)
    for n in range(classes.num_classes):
        rows = slice(classes.offsets[n], classes.offsets[n + 1])
        cumulative = np.cumsum(classes.part_probs[rows], axis=0)
        bits = np.minimum(np.round(cumulative / cumulative[-1] * 2.0**32), 2.0**32 - 1)
        found[:, n, : bits.shape[0]] = (bits - 2.0**31).astype(np.int32).T
    return found


def check_length(classes: PositionedClasses, seq_len: float) -> None:
    """Refuse a length that is not that of the buckets together."""
    own = int(classes.sizes.sum()) + 1
    if seq_len not in (own, math.inf):
        raise InputError(f"seq_len is {seq_len} but these classes have {own - 1} positions: give {own}, or math.inf.")


def _compile(stamp: int):  # type: ignore[no-untyped-def]
    """The function kept on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True)
    def draw_positions(seeds, step, bucket, size, thresholds, class_thresholds, class_index, places):  # type: ignore[no-untyped-def]
        """Fill class_index (R, B) and places (R, B, T-1): which of its class's tokens is at each distance."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            for b in range(class_index.shape[1]):
                key = sequence_key(seeds[r], step, b)
                n = draw_class(key, class_thresholds)
                class_index[r, b] = n
                for d in range(bucket.shape[0]):
                    draw = int32(uint32(word(key, d + 1)) ^ uint32(0x80000000))
                    places[r, b, d] = find(thresholds[bucket[d], n], size[n] - 1, draw)

    return draw_positions


draw_positions = _compile(source_stamp("data.random_stream", "data.sampling"))


def bucket_of(classes: PositionedClasses) -> NDArray[np.int64]:
    """The bucket of each distance 1, 2, ..., T-1."""
    return np.repeat(np.arange(classes.num_buckets), classes.sizes)


def sample_positions(
    classes: PositionedClasses, *, num: int, seq_len: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `sample_sequences` gives for such classes: the token next to the query comes last but one."""
    check_length(classes, seq_len)
    cumulative = np.cumsum(classes.weights)
    class_index = np.empty((1, num), np.int64)
    places = np.empty((1, num, int(classes.sizes.sum())), np.int64)
    draw_positions(
        np.array([seed], np.uint64), 0, bucket_of(classes), np.diff(classes.offsets), position_thresholds(classes),
        cumulative / cumulative[-1], class_index, places,
    )  # fmt: skip
    tokens = classes.tokens[classes.offsets[class_index[0]][:, None] + places[0]]  # by distance
    return np.concatenate([tokens[:, ::-1], classes.query[class_index[0]][:, None]], axis=1), class_index[0]
