"""How the work of counting is cut, so that it fits into memory and can stop anywhere.

A text is cut into *chunks* of consecutive positions, as many as the memory holds, and the queries into *parts*,
consecutive ids that occur about equally often.  A piece of work is one part of one chunk: it reads the chunk, with the
w − 1 tokens before it and the one after, and writes its counts as sorted tables.  Then the tables of all chunks, and
those that were there before, are added up part by part, at most `FAN_IN` at a time.  Every piece writes files that have
their names only when they are complete, so a plan that is started again does what is missing.  The counts are sums over
positions: how a text is cut cannot change them.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError
from scansnap.storage.files import sealed, unsealed

FAN_IN = 16
"""Tables added up at once."""

PART_EVENTS = 2**22
"""Events for which a part of its own is worth while."""

MOST_PARTS = 256
BATCH_ROWS = 2**16
"""Rows of each table in memory while tables are added up."""

BLOCK_ROWS = 2**19
"""Rows written at once, if the memory allows."""

ROW_BYTES = 200
"""Bytes of a worker for each row of a block: three tables, and what is being encoded."""

SCAN = 2**24
"""Tokens looked at at once while a plan is made."""


@dataclass(frozen=True)
class Text:
    """A text that is counted: where it comes from, and what identifies it."""

    name: str
    split: str
    tokens: int
    digest: str
    """A hash of its token ids."""


class Chunk(NamedTuple):
    """Positions first .. stop-1 of a text, as a place in the plan's list."""

    text: int
    first: int
    stop: int


@dataclass(frozen=True)
class Plan:
    """The whole work, decided before it begins and kept until it ends."""

    window: int
    least: int
    vocab_size: int
    tokenizer: str
    """The tokenizer's fingerprint."""
    texts: tuple[Text, ...]
    """New texts."""
    counted: tuple[Text, ...]
    """Texts whose counts are there already."""
    cuts: tuple[int, ...]
    """The first query of each part, and the number of queries."""
    chunks: tuple[Chunk, ...]

    @property
    def num_parts(self) -> int:
        """How many ranges of queries there are."""
        return len(self.cuts) - 1

    def queries(self, part: int) -> range:
        """The queries of a part."""
        return range(self.cuts[part], self.cuts[part + 1])

    def same_work(self, other: Plan) -> bool:
        """Whether both lead to the same counts, however they are cut."""
        return all(
            getattr(self, name) == getattr(other, name) for name in ("window", "least", "tokenizer", "texts", "counted")
        )

    def to_json(self) -> bytes:
        """The plan as the bytes of a file."""
        return sealed(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        """The inverse of `to_json`."""
        content = unsealed(data)
        for name in ("texts", "counted"):
            content[name] = tuple(Text(**entry) for entry in content[name])
        content["cuts"] = tuple(content["cuts"])
        content["chunks"] = tuple(Chunk(*entry) for entry in content["chunks"])
        return cls(**content)


def describe(ids: NDArray[np.int32], vocab_size: int) -> tuple[str, NDArray[np.int64]]:
    """A hash of the ids, and how often each token occurs."""
    digest = hashlib.blake2b(digest_size=16)
    frequency = np.zeros(vocab_size, np.int64)
    for first in range(0, len(ids), SCAN):
        piece = take(ids, first, first + SCAN)
        digest.update(piece.astype("<i4", copy=False).tobytes())
        if piece.min() < 0 or piece.max() >= vocab_size:
            raise InputError(
                f"a token id is {piece.min() if piece.min() < 0 else piece.max()}: give ids from 0 to {vocab_size - 1}."
            )
        frequency += np.bincount(piece, minlength=vocab_size)
    return digest.hexdigest(), frequency


def take(ids: NDArray[np.int32], first: int, stop: int) -> NDArray[np.int32]:
    """A copy of ids[first:stop]; a file's pages are given back, which would otherwise add up to the whole text."""
    piece = np.array(ids[first:stop], np.int32)
    if isinstance(ids, np.memmap) and ids.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        ids._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return piece


def margins(ids: NDArray[np.int32], frequency: NDArray[np.int64], window: int) -> NDArray[np.int64]:
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
    return tuple(
        Chunk(text, first, min(first + size, length - 1))
        for text, length in enumerate(lengths)
        for first in range(0, length - 1, size)
    )


def workers_and_block(memory: float, vocab_size: int, threads: int) -> tuple[int, int]:
    """How many workers the other half of the memory allows, and how many rows each may write at once."""
    share = memory / 2
    fewest = ROW_BYTES * 2 * vocab_size  # a block has room for two groups of every token
    workers = max(1, min(threads, int(share // fewest)))
    return workers, int(np.clip(share / workers / ROW_BYTES, 2**12, BLOCK_ROWS))
