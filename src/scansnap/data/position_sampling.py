"""Drawing sequences whose tokens depend on their position.

The class comes from word 0 of the sequence's stream, as for all sequences, and the token at distance d from the query
from word d, by inverting the cumulative probabilities of its bucket with 32 random bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.data.compiled_draws import draw_class, fill_words, find_places_of_one
from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.random_stream import sequence_key
from scansnap.data.sampling_tables import ROW, bucket_of, thresholds_by_distance
from scansnap.data.source import Draw
from scansnap.runtime.source_stamp import source_stamp


def _compile(stamp: int):  # type: ignore[no-untyped-def]
    """The functions cached on disk; `stamp` makes the cache notice changes in what they call."""

    @njit(cache=True)
    def draw_positions(seeds, step, rows, size, thresholds, class_thresholds, class_index, places):  # type: ignore[no-untyped-def]
        """Fill class_index (R, B) and places (R, B, whole rows): which of its class's tokens is at each distance."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            for b in range(class_index.shape[1]):
                key = sequence_key(seeds[r], step, b)
                n = draw_class(key, class_thresholds)
                class_index[r, b] = n
                fill_words(key, places[r], b)
                find_places_of_one(thresholds, rows, n, size[n], places[r], b)

    @njit(cache=True)
    def count_places(places, bucket, counts):  # type: ignore[no-untyped-def]
        """Add to counts (R, B, G, W) how often each token is in each bucket."""
        for r in range(places.shape[0]):
            for b in range(places.shape[1]):
                for d in range(bucket.shape[0]):
                    counts[r, b, bucket[d], places[r, b, d]] += 1

    return draw_positions, count_places


draw_positions, count_places = _compile(source_stamp(__name__))


def _places(
    classes: PositionedClasses, seeds: NDArray[np.uint64], step: int, num: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The class of each sequence (R, B), and which of its class's tokens is at each distance (R, B, T-1)."""
    thresholds, rows = thresholds_by_distance(classes)
    cumulative = np.cumsum(classes.weights)
    class_index = np.empty((len(seeds), num), np.int64)
    places = np.empty((len(seeds), num, ROW * len(rows)), np.int32)
    draw_positions(
        seeds, step, rows, np.diff(classes.offsets), thresholds, cumulative / cumulative[-1], class_index, places
    )
    return class_index, places[:, :, : int(classes.sizes.sum())]


def draw_positioned(classes: PositionedClasses, seeds: NDArray[np.uint64], step: int, num: int) -> Draw:
    """Token counts by bucket of the sequences of an update."""
    class_index, places = _places(classes, seeds, step, num)
    counts = np.zeros((*class_index.shape, classes.num_buckets, int(np.diff(classes.offsets).max())), np.int32)
    count_places(places, bucket_of(classes), counts)
    return Draw(class_index, counts)


def positioned_sequences(
    classes: PositionedClasses, num: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What `sample_sequences` gives for such classes: the token next to the query is second to last."""
    class_index, places = _places(classes, np.array([seed], np.uint64), 0, num)
    tokens = classes.tokens[classes.offsets[class_index[0]][:, None] + places[0]]  # by distance
    return np.concatenate([tokens[:, ::-1], classes.query[class_index[0]][:, None]], axis=1), class_index[0]
