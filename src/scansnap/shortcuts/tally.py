"""How many texts of each kind have each word, in bounded memory, and resumable.

Every (text, word) is a key word · C + cell, where the cell says what kind of text it is.  Keys wait in a buffer and are
added up when it is full.  When there are too many different ones, or many texts were read since, they are written to
disk as a *run*, and the tally starts over: so a run is also a place to go on from.  Runs are divided by a hash of the
word.  In the end one division after another is added up over all runs, and words below a threshold are left out after
their exact totals are known.  Memory holds one division of all words at a time, and the words that are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.storage.files import sync

MOST_KEYS = 2**22
"""Different (word, cell) in memory before a run is written: 16 bytes each, and as much again while adding up."""

MOST_WORDS = 2**20
"""Different words in memory before a run is written: some 100 bytes each."""

BUFFER = 2**20
"""Keys that wait to be added up."""

DIVISIONS = 16


class Part(NamedTuple):
    """Words, and counts of keys that number them from 0."""

    words: list[str]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]


class _Ids(dict[str, int]):
    """Numbers words as they come."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class WordTally:
    """Adds up texts, block by block."""

    def __init__(self, num_cells: int) -> None:
        self._num_cells = num_cells
        self._start()

    def _start(self) -> None:
        self._ids = _Ids()
        self._waiting: list[NDArray[np.int64]] = []
        self._num_waiting = 0
        self._keys, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, texts: list[set[str]], cells: NDArray[np.int64]) -> None:
        """Add a block of texts; `cells` (texts, n) are the cells that each of them counts in."""
        lengths = np.array([len(words) for words in texts])
        ids = np.array([i for words in texts for i in map(self._ids.__getitem__, words)], np.int64)
        keys = ids[:, None] * self._num_cells + np.repeat(cells, lengths, axis=0)
        self._waiting.append(keys.ravel())
        self._num_waiting += keys.size
        if self._num_waiting >= BUFFER:
            self._add_up()

    def _add_up(self) -> None:
        new, counts = np.unique(np.concatenate([self._keys[:0], *self._waiting]), return_counts=True)
        self._keys, self._counts = _summed(
            np.concatenate([self._keys, new]), np.concatenate([self._counts, counts.astype(np.int64)])
        )
        self._waiting, self._num_waiting = [], 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to write a run."""
        return len(self._keys) + self._num_waiting > MOST_KEYS or len(self._ids) > MOST_WORDS

    def part(self) -> Part:
        """Everything that was added since the last run."""
        self._add_up()
        return Part(list(self._ids), self._keys, self._counts)

    def write_run(self, path: Path) -> None:
        """Write a run, all of it or nothing, and start over."""
        words, keys, counts = self.part()
        encoded = [word.encode() for word in words]
        division = np.array([zlib.crc32(word) % DIVISIONS for word in encoded], np.int64)
        word_of_key = keys // self._num_cells
        arrays: dict[str, NDArray[np.generic]] = {}
        for d in range(DIVISIONS):
            own = np.flatnonzero(division == d)
            place = np.zeros(len(words), np.int64)
            place[own] = np.arange(len(own))
            chosen = division[word_of_key] == d
            arrays[f"words_{d}"] = np.frombuffer(b"\n".join(encoded[i] for i in own), np.uint8)
            arrays[f"keys_{d}"] = place[word_of_key[chosen]] * self._num_cells + keys[chosen] % self._num_cells
            arrays[f"counts_{d}"] = counts[chosen]
        draft = path.with_name(f"{path.name}.draft.npz")
        np.savez_compressed(draft, **arrays)  # type: ignore[arg-type]  # NumPy's stub mistakes names for a switch
        sync([draft])
        draft.replace(path)
        self._start()


def total(
    runs: Iterable[Path], last: Part, num_cells: int, counted: slice, least: int
) -> tuple[list[str], sparse.csr_array, int]:
    """The words whose counts in the cells `counted` add up to `least`, their counts, and how many words there were.

    Counts (words, cells) are of all runs and of the part that was not written.
    """
    runs = list(runs)
    words: list[str] = []
    blocks: list[sparse.csr_array] = []
    num_words = 0
    for d in range(DIVISIONS if runs else 1):
        parts = [_read(run, d) for run in runs]
        if runs:
            place = [i for i, word in enumerate(last.words) if zlib.crc32(word.encode()) % DIVISIONS == d]
            parts.append(_only(last, place, num_cells))
        else:
            parts.append(last)
        names, counts = _merged(parts, num_cells)
        num_words += len(names)
        chosen = np.flatnonzero(np.asarray(counts[:, counted].sum(axis=1)).ravel() >= least)
        words += [names[i] for i in chosen]
        blocks.append(counts[chosen])
    return words, sparse.csr_array(sparse.vstack(blocks)), num_words


def _only(part: Part, words: list[int], num_cells: int) -> Part:
    """Some of the words of a part."""
    place = np.full(len(part.words), -1)
    place[words] = np.arange(len(words))
    new = place[part.keys // num_cells]
    chosen = new >= 0
    keys = new[chosen] * num_cells + part.keys[chosen] % num_cells
    return Part([part.words[i] for i in words], keys, part.counts[chosen])


def _read(run: Path, division: int) -> Part:
    with np.load(run) as arrays:
        joined = arrays[f"words_{division}"].tobytes().decode()
        return Part(joined.split("\n") if joined else [], arrays[f"keys_{division}"], arrays[f"counts_{division}"])


def _merged(parts: list[Part], num_cells: int) -> tuple[list[str], sparse.csr_array]:
    """All words of several parts, and their counts."""
    ids = _Ids()
    keys, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in parts:
        place = np.array([ids[word] for word in part.words], np.int64)
        if len(part.keys):
            keys.append(place[part.keys // num_cells] * num_cells + part.keys % num_cells)
            counts.append(part.counts)
    summed, amounts = _summed(np.concatenate(keys), np.concatenate(counts))
    where = (summed // num_cells, summed % num_cells)
    return list(ids), sparse.csr_array((amounts, where), shape=(len(ids), num_cells))


def _summed(keys: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each key once, with all its counts."""
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.append(True, np.diff(keys) > 0))
    return keys[first], np.add.reduceat(counts, first)
