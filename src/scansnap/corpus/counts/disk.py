"""How much disk the counts of a text take, before they are made.

Nearly all of it is triples, at `TRIPLE_BYTES` each with what belongs to them in the other tables.  A text of N tokens
has E = N(w − 1) events and so at most E triples; with a least count, at most E over that.  Where the disk has no room
for these, a sample of the text says more: the share of its events that are distinct falls like a power of N, and ever
faster, so that the power between a sample and its first quarter, followed to N, bounds it from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.corpus import Corpus
from scansnap.corpus.counts.plan import Plan, take
from scansnap.storage.files import check_disk_space, free_space

TRIPLE_BYTES = 3.0
SAMPLE_EVENTS = 2**19
SLICES = 64
"""Places of a text that a sample is taken from."""

FACTORS = np.array([[0x9E3779B97F4A7C15], [0xC2B2AE3D27D4EB4F], [0x165667B19E3779F9]], np.uint64)
"""Three odd numbers: distinct triples of a sample meet in a sum of multiples, modulo 2^64, once in 2^22 samples."""


def check_disk(plan: Plan, corpus: Corpus, output: Path) -> None:
    """Refuse a text whose counts the disk has no room for."""
    base = sum(path.stat().st_size for path in output.rglob("*.parquet")) if plan.counted else 0
    if base + _needed(plan, lambda text: lambda tokens: 1.0) > free_space(output):
        shares = [distinct_share(corpus.splits[text.split], plan.window) for text in plan.texts]
        advice = "count less text, with a smaller window, or elsewhere"
        check_disk_space(output, base + _needed(plan, shares.__getitem__), "the counts take", advice)


def _needed(plan: Plan, shares: Callable[[int], Callable[[int], float]]) -> float:
    """Bytes of the tables of all chunks, from the share of distinct events in so many tokens of each text."""
    most = 1.0 if len(plan.chunks) > 1 or plan.counted else 1 / plan.least
    return sum(
        TRIPLE_BYTES * tokens * (plan.window - 1) * min(shares(chunk.text)(tokens), most)
        for chunk in plan.chunks
        for tokens in [chunk.stop - chunk.first]
    )


def distinct_share(ids: NDArray[np.int32], window: int) -> Callable[[int], float]:
    """About which share of the events in so many tokens are distinct triples."""
    size = min(len(ids), max(SAMPLE_EVENTS // max(window - 1, 1), 4 * SLICES))
    sample = _sample(ids, size, window)
    whole, quarter = (len(np.unique(part)) / max(part.size, 1) for part in (sample, sample[: len(sample) // 4]))
    power = math.log(max(quarter / whole, 1.0), 4) if whole else 0.0
    return lambda tokens: min(whole * (size / tokens) ** power, 1.0)


def _sample(ids: NDArray[np.int32], size: int, window: int) -> NDArray[np.uint64]:
    """A number for every event of slices of the text, in a drawn order of the slices."""
    length = max(size // SLICES, 2)
    starts = np.random.default_rng(0).permutation(np.linspace(0, len(ids) - length, SLICES).astype(int))
    events = []
    for start in starts.tolist():
        first = max(start - window + 1, 0)
        piece = take(ids, first, start + length).astype(np.uint64)
        query = np.arange(max(start - first, 1), len(piece) - 1)
        before = query[:, None] - np.arange(1, window)
        numbers = FACTORS[0] * piece[query][:, None] + FACTORS[1] * piece[query + 1][:, None]
        events.append((numbers + FACTORS[2] * piece[before])[before >= 0])
    return np.concatenate(events)
