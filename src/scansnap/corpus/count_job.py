"""How the work of counting is cut, so that it fits into memory and can stop anywhere.

A text is cut into *chunks* of consecutive positions, as many as the memory holds, and the queries into *parts*,
consecutive ids that occur about equally often.  A piece of work is one part of one chunk: it reads the chunk, with the
w − 1 tokens before it and the one after, and writes its counts as sorted tables.  Then the tables of all chunks, and
those of earlier texts, are added up part by part.  The counts are sums over positions: how a text is cut cannot change
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.counts import CountedText
from scansnap.runtime.errors import InputError

PART_EVENTS = 2**22
"""Events for which a part of its own pays off."""

MOST_PARTS, MOST_CHUNKS = 256, 256
BLOCK_ROWS = 2**19
"""Rows written at once, if the memory allows."""

ROW_BYTES = 200
"""Bytes of a worker for each row of a block: three tables, and what is being encoded."""

SCAN_TOKENS = 2**24
"""Tokens read at once while a job is made."""


class Chunk(NamedTuple):
    """Positions first .. stop-1 of a text, given as its place in the job's list."""

    text: int
    first: int
    stop: int


@dataclass(frozen=True)
class CountJob:
    """The whole work, decided before it begins and kept until it ends."""

    window: int
    least: int
    vocab_size: int
    tokenizer: str
    """The tokenizer's fingerprint."""
    texts: tuple[CountedText, ...]
    """New texts."""
    counted: tuple[CountedText, ...]
    """Texts that were counted before."""
    cuts: tuple[int, ...]
    """The first query of each part, and the number of queries."""
    chunks: tuple[Chunk, ...]

    @property
    def num_parts(self) -> int:
        """The number of ranges of queries."""
        return len(self.cuts) - 1

    def queries(self, part: int) -> range:
        """The queries of a part."""
        return range(self.cuts[part], self.cuts[part + 1])

    def plain(self) -> dict[str, Any]:
        """The job as JSON gives it back."""
        content: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return content


def hash_and_count(ids: NDArray[np.int32], vocab_size: int) -> tuple[str, NDArray[np.int64]]:
    """A hash of the ids, and how often each token occurs."""
    digest = hashlib.blake2b(digest_size=16)
    frequency = np.zeros(vocab_size, np.int64)
    for first in range(0, len(ids), SCAN_TOKENS):
        piece = np.array(ids[first : first + SCAN_TOKENS], np.int32)
        digest.update(piece.astype("<i4", copy=False).tobytes())
        frequency += np.bincount(piece, minlength=vocab_size)
    return digest.hexdigest(), frequency


def count_margins(ids: NDArray[np.int32], frequency: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """c(m), c(n) and c(l) as rows: how often each token is a query, a next token and a contextual one.

    Every position is a query but the last, and a next token but the first.  Position j is a contextual token of the
    w − 1 positions after it, or of as many as are queries: N − 2 − j at the end, and none for the last.
    """
    counts = np.stack([frequency, frequency, (window - 1) * frequency])
    counts[0, ids[-1]] -= 1
    counts[1, ids[0]] -= 1
    after = len(ids) - 2 - np.arange(max(0, len(ids) - 1 - window), len(ids))
    np.subtract.at(counts[2], ids[-len(after) :], window - 1 - np.clip(after, 0, window - 1))
    return counts


def cut_queries(frequency: NDArray[np.int64], window: int) -> tuple[int, ...]:
    """Where parts begin, such that they have about equally many occurrences."""
    events = int(frequency.sum()) * (window - 1)
    parts = int(np.clip(events // PART_EVENTS, 1, MOST_PARTS))
    shares = np.cumsum(frequency) / frequency.sum()
    inner = np.searchsorted(shares, np.arange(1, parts) / parts) + 1
    return tuple(np.unique([0, *inner, len(frequency)]).tolist())


def cut_texts(lengths: Sequence[int], memory: float, window: int) -> tuple[Chunk, ...]:
    """Chunks whose ids take half of the memory, in bytes."""
    size = max(int(memory / 2) // 4 - window, 1)
    chunks = tuple(
        Chunk(text, first, min(first + size, length - 1))
        for text, length in enumerate(lengths)
        for first in range(0, length - 1, size)
    )
    if len(chunks) > MOST_CHUNKS:
        needed = 8 * (sum(lengths) / (MOST_CHUNKS - len(lengths)) + window) / 2**30
        raise InputError(
            f"with this memory the text is cut into {len(chunks):,} chunks, more than {MOST_CHUNKS}: give a memory of "
            f"{needed:.1g} GiB or more."
        )
    return chunks


def share_memory(memory: float, vocab_size: int, threads: int) -> tuple[int, int]:
    """How many workers the other half of the memory allows, and how many rows each may write at once."""
    share = memory / 2
    fewest = ROW_BYTES * 2 * vocab_size  # for two groups of every token
    workers = max(1, min(threads, int(share // fewest)))
    return workers, int(np.clip(share / workers / ROW_BYTES, 2**12, BLOCK_ROWS))
