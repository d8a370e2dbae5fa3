"""Counting labeled rows: how many texts of each label and each fold have each word, and the same with shuffled labels.

The words of a text are words and signs in lower case, so that punctuation can be a shortcut too.  A text is the *set*
of its words: how often a word is repeated does not matter.

Rows are read twice.  The first pass finds the labels, the rows that can be used, copies, and the sample for training;
the second counts words.  Each text belongs to one of `FOLDS` folds by a hash of the text itself, so that copies of a
text are never on both sides of a split.  The first `HELD_OUT` folds are the held-out rows.

**Copies.**  A test takes texts for independent, and a text that was copied a hundred times for a hundred texts.  So
rows that repeat an earlier row's text and label are counted once more by themselves: what is left without them are the
different texts.  Texts are compared by hashes of 64 bits: among N different texts two are mistaken for one with the
chance N²/2⁶⁵, 3·10⁻⁶ for ten million.

**The shuffled control** gives every text the label of another one: a uniformly random permutation of all labels.

**Large data sets.**  Words are counted in pieces of `PIECE_ROWS` rows.  Each piece ends in a sorted table
(`corpus/tables.py`), which is kept in the cache folder; an interrupted count goes on after the last piece.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.corpus.tables import CountRows, Table, add_up, join_rows, merge, read_table, write_tables
from scansnap.corpus.tokenizers import words_and_signs
from scansnap.runtime.errors import InputError, StoreError
from scansnap.runtime.progress import progress_bar
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.rows import Remarks, RowReader, RowSource, field_of
from scansnap.storage.cache import cache_folder
from scansnap.storage.folder import STAGED, CheckedFolder, StoreLock, empty_folder, is_intact

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FOLDS, HELD_OUT = 16, 4
MOST_LABELS = 200
BLOCK_ROWS = 2048
PIECE_ROWS = 2**19
"""Rows after which a piece is written to the cache: about half a minute of work."""

BUFFERED_KEYS = 2**20
"""Pairs (word, cell) in memory before they are added up."""

BATCH_ROWS = 2**16
FORMAT = 3
"""Changes when unfinished work of another version cannot be continued."""

CELL_TABLE = Table(("word",), "cell")


@dataclass(frozen=True)
class SampledText:
    """A text that attention is trained on, or tested on."""

    label: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class LabelCounts:
    """How many texts have each word; F folds, K labels, V words."""

    labels: tuple[str, ...]
    rows: IntArray  # (F, K) texts
    words: list[str]  # those in enough texts
    counts: sparse.csr_array  # (V, F K) texts with each word
    shuffled: sparse.csr_array  # (V, K) the same after a permutation of the labels
    copied: sparse.csr_array  # (V, K) the same, of rows that are copies alone
    copied_rows: IntArray  # (K,) rows that are copies
    num_texts: int  # different texts
    num_ambiguous: int  # those of them that have several labels
    occurrences: IntArray  # (K,) words of all texts of a label, added up
    num_words: int  # different words, also of those in few texts
    sample: list[SampledText]
    held_out_sample: list[SampledText]
    remarks: Remarks

    @cached_property
    def by_label(self) -> IntArray:
        """(V, K) texts with each word."""
        return self.in_folds(range(FOLDS))

    @cached_property
    def once(self) -> IntArray:
        """(V, K) different texts with each word."""
        return self.by_label - np.asarray(self.copied.todense())

    def in_folds(self, folds: range) -> IntArray:
        """(V, K) texts of some folds with each word."""
        num_labels = len(self.labels)
        cells = [fold * num_labels + k for fold in folds for k in range(num_labels)]
        gather = sparse.csr_array(
            (np.ones(len(cells), np.int64), (cells, np.tile(np.arange(num_labels), len(folds)))),
            shape=(self.counts.shape[1], num_labels),
        )
        return np.asarray((self.counts @ gather).todense())


def words_of(text: str) -> set[str]:
    """The words of a text; at least one, unless it is all white space."""
    return set(words_and_signs(text.lower()))


def text_hash(text: str, salt: bytes = b"") -> int:
    """64 bits of a text, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, salt=salt).digest(), "little")


def count_rows(
    source: RowSource, reader: RowReader, options: ShortcutOptions, progress: bool | None = None
) -> LabelCounts:
    """Count the rows of a source; started again after an interruption, it goes on."""
    rows = _read_rows(source, reader, options, progress)
    num_labels = len(rows.labels)
    is_copy, num_texts, num_ambiguous = rows.find_copies()
    cells = rows.cells(is_copy, options.seed)
    with _work_folder(source, reader, options) as folder:
        vocabulary, tables = _count_words(source, reader, cells, folder, progress)
        kept, occurrences = _add_up_words(tables, num_labels, options.least)
    words = np.array(list(vocabulary), object)
    ids = np.unique(kept.keys)
    ids = ids[np.argsort(words[ids], kind="stable")]
    place = np.empty(len(words), np.int64)
    place[ids] = np.arange(len(ids))
    counts = sparse.csr_array((kept.counts, (place[kept.keys], kept.items)), (len(ids), (FOLDS + 2) * num_labels))
    fold_cells, shuffled_cells = FOLDS * num_labels, (FOLDS + 1) * num_labels
    return LabelCounts(
        labels=rows.labels,
        rows=np.bincount(cells[:, 0], minlength=fold_cells).reshape(FOLDS, num_labels),
        words=words[ids].tolist(),
        counts=counts[:, :fold_cells],
        shuffled=counts[:, fold_cells:shuffled_cells],
        copied=counts[:, shuffled_cells:],
        copied_rows=np.bincount(rows.label[is_copy], minlength=num_labels),
        num_texts=num_texts,
        num_ambiguous=num_ambiguous,
        occurrences=occurrences,
        num_words=len(words),
        sample=rows.sample,
        held_out_sample=rows.held_out_sample,
        remarks=rows.remarks,
    )


# --- the first pass ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _UsableRows:
    """The rows that can be used, N of them, without their texts."""

    labels: tuple[str, ...]
    label: NDArray[np.uint8]  # (N,)
    fold: NDArray[np.uint8]  # (N,)
    hashes: NDArray[np.uint64]  # (N,) of the texts
    sample: list[SampledText]
    held_out_sample: list[SampledText]
    remarks: Remarks

    def find_copies(self) -> tuple[NDArray[np.bool_], int, int]:
        """Which rows repeat the text and label of an earlier one, and the numbers of texts and of ambiguous ones."""
        order = np.lexsort((self.label, self.hashes))  # stable: the first row of each text and label stays the first
        hashes, label = self.hashes[order], self.label[order]
        is_new_text = np.append(True, hashes[1:] != hashes[:-1])
        is_new_pair = is_new_text | np.append(True, label[1:] != label[:-1])
        is_copy = np.empty(len(order), np.bool_)
        is_copy[order] = ~is_new_pair
        return is_copy, int(is_new_text.sum()), len(np.unique(hashes[is_new_pair & ~is_new_text]))

    def cells(self, is_copy: NDArray[np.bool_], seed: int) -> NDArray[np.int16]:
        """(N, 3) the cells that a row's words count in: its fold and label, its shuffled label, its label as a copy.

        A row that is no copy has −1 there.
        """
        num_labels = len(self.labels)
        rng, left = np.random.default_rng(seed), np.bincount(self.label, minlength=num_labels)
        shuffled: list[NDArray[np.int16]] = []
        while left.any():  # a permutation, drawn block by block
            drawn = rng.multivariate_hypergeometric(left, min(BLOCK_ROWS, int(left.sum())), method="marginals")
            left -= drawn
            shuffled.append(np.repeat(np.arange(num_labels, dtype=np.int16), drawn))
            rng.shuffle(shuffled[-1])
        label = self.label.astype(np.int16)
        as_copy = np.where(is_copy, (FOLDS + 1) * num_labels + label, -1)
        return np.stack(
            [self.fold * np.int16(num_labels) + label, FOLDS * num_labels + np.concatenate(shuffled), as_copy], 1
        )


class _Sample:
    """The texts with the smallest hashes: the same in any order of the rows."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, int, int, str]] = []

    def add(self, value: int, number: int, label: int, text: str) -> None:
        """Take a text into account."""
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, (-value, number, label, text))
        elif -value > self._heap[0][0]:
            heapq.heapreplace(self._heap, (-value, number, label, text))

    def texts(self, labels: NDArray[np.uint8]) -> list[SampledText]:
        """The sample in order of the rows, with new numbers for the labels."""
        ordered = sorted(self._heap, key=lambda entry: entry[1])
        return [SampledText(int(labels[label]), tuple(sorted(words_of(text)))) for _, _, label, text in ordered]


def _read_rows(source: RowSource, reader: RowReader, options: ShortcutOptions, progress: bool | None) -> _UsableRows:
    remarks = Remarks(unit=source.unit)
    numbers: dict[str, int] = {}  # labels as they come
    label, fold, hashes = array("B"), array("B"), array("Q")
    sample, held_out = _Sample(options.sample), _Sample(max(2, options.sample // 4))
    salt = options.seed.to_bytes(8, "little")
    number, columns = 0, ""
    absent = {reader.text, reader.label}
    with progress_bar(f"reading {source.name}", 1.0, progress) as show:
        for number, record in enumerate(source.records(), 1):
            row = reader.read(record, source.place(number), remarks)
            if row is not None:
                k = numbers.setdefault(row.label, len(numbers))
                if len(numbers) > MOST_LABELS:
                    raise InputError(
                        f"'{reader.label}' has more than {MOST_LABELS:,} different values in {source.name}: give a "
                        "column of labels, each of which many rows have."
                    )
                salted = text_hash(row.text, salt)
                (held_out if salted % FOLDS < HELD_OUT else sample).add(salted, len(label), k, row.text)
                label.append(k)
                fold.append(salted % FOLDS)
                hashes.append(text_hash(row.text))
                absent.clear()
            elif absent and isinstance(record, Mapping):
                columns = columns or ", ".join(map(str, record)) or "none"
                absent -= {name for name in absent if field_of(record, name) is not None}
            if number % BLOCK_ROWS == 0:
                show(source.share)
    if number == 0:
        raise InputError(f"{source.name} has no rows: give rows of text and label.")
    sentences = " ".join(remarks.sentences())
    if not numbers:
        none = f" '{min(absent)}' is in none of them; the first has the fields {columns}." if absent and columns else ""
        raise InputError(f"no row of {source.name} can be used: {sentences}{none}")
    if len(numbers) == 1:
        raise InputError(
            f"all {len(label):,} rows of {source.name} that can be used have the same label, "
            f"'{next(iter(numbers))}': give rows with at least two labels.{f' {sentences}' if remarks.left_out else ''}"
        )
    labels = tuple(sorted(numbers))
    rank = np.array([labels.index(name) for name in numbers], np.uint8)
    return _UsableRows(
        labels,
        rank[np.frombuffer(label, np.uint8)],
        np.frombuffer(fold, np.uint8),
        np.frombuffer(hashes, np.uint64),
        sample.texts(rank),
        held_out.texts(rank),
        remarks,
    )


# --- the second pass --------------------------------------------------------------------------------------------------


class _Vocabulary(dict[str, int]):
    """Numbers words as they come."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def _count_words(
    source: RowSource, reader: RowReader, cells: NDArray[np.int16], folder: CheckedFolder | None, progress: bool | None
) -> tuple[_Vocabulary, list[Iterator[CountRows]]]:
    """All words with their numbers, and a table (word, cell) of each piece."""
    vocabulary = _Vocabulary()
    tables: list[Iterator[CountRows]] = []
    usable = (reader.read(record, 0, Remarks()) for record in source.records())
    texts = (row.text for row in usable if row is not None)
    with progress_bar("counting words", len(cells), progress) as show:
        for piece, first in enumerate(range(0, len(cells), PIECE_ROWS)):
            own_cells = cells[first : first + PIECE_ROWS]
            own_texts = islice(texts, len(own_cells))
            table, words = f"counts-{piece:05d}.parquet", f"words-{piece:05d}.txt"
            if folder is not None and folder.has(table):
                for word in (folder.read(words) or b"").decode().split("\n"):
                    vocabulary[word]  # gives it the same number as before
                for _ in own_texts:
                    pass
            else:
                num_known = len(vocabulary)
                rows = _count_piece(_shown(own_texts, first, show), own_cells, vocabulary)
                if folder is None or first + PIECE_ROWS >= len(cells):
                    tables.append(iter([rows]))
                    continue
                write_tables({"": folder.root / f"{table}{STAGED}"}, {"": CELL_TABLE}, [("", rows)])
                folder.adopt(table)
                folder.write(words, "\n".join(islice(vocabulary, num_known, None)).encode())
                folder.commit()
            tables.append(read_table(folder, table, CELL_TABLE, BATCH_ROWS))
    return vocabulary, tables


def _shown(texts: Iterable[str], first: int, show: Callable[[float], None]) -> Iterator[str]:
    """The texts, with the progress that they make; `first` were counted before."""
    for number, text in enumerate(texts, first):
        if number % BLOCK_ROWS == 0:
            show(number)
        yield text


def _count_piece(texts: Iterable[str], cells: NDArray[np.int16], vocabulary: _Vocabulary) -> CountRows:
    """How many of these texts have each word, by cell."""
    num_cells = int(cells.max()) + 1
    texts, waiting, size = iter(texts), [], 0
    for first in range(0, len(cells), BLOCK_ROWS):
        words = [words_of(text) for text in islice(texts, BLOCK_ROWS)]
        ids = np.array([i for own in words for i in map(vocabulary.__getitem__, own)], np.int64)
        of_word = np.repeat(cells[first : first + BLOCK_ROWS], [len(own) for own in words], axis=0)
        counts_in = of_word >= 0
        keys = np.broadcast_to(ids[:, None], of_word.shape)[counts_in]
        waiting.append(CountRows(keys, of_word[counts_in].astype(np.int32), np.ones(len(keys), np.int64)))
        size += len(keys)
        if size > BUFFERED_KEYS:
            waiting, size = [add_up(join_rows(waiting), num_cells)], 0
    return add_up(join_rows(waiting), num_cells)


def _add_up_words(tables: list[Iterator[CountRows]], num_labels: int, least: int) -> tuple[CountRows, IntArray]:
    """The rows of words in at least `least` texts, and the words of all texts of each label, added up (K,)."""
    occurrences = np.zeros(num_labels, np.int64)
    kept = [CountRows(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))]
    for rows in merge(tables, (FOLDS + 2) * num_labels):
        texts = np.where(rows.items < FOLDS * num_labels, rows.counts, 0)
        np.add.at(occurrences, rows.items % num_labels, texts)
        first = np.flatnonzero(np.diff(rows.keys, prepend=-1))
        is_frequent = np.add.reduceat(texts, first) >= least
        kept.append(rows.part(np.repeat(is_frequent, np.diff(first, append=len(texts)))))
    return join_rows(kept), occurrences


@contextmanager
def _work_folder(source: RowSource, reader: RowReader, options: ShortcutOptions) -> Iterator[CheckedFolder | None]:
    """Where unfinished work on these rows with these options waits, for one process at a time.

    None for rows that cannot be recognized, for a process beside the one that has the folder, and without pyarrow: then
    everything is in memory, and interrupted work begins anew.
    """
    if source.fingerprint is None or find_spec("pyarrow") is None:
        yield None
        return
    key = json.dumps([source.fingerprint, reader.text, reader.label, FORMAT, options.seed, options.least])
    root = cache_folder() / "shortcuts" / hashlib.sha256(key.encode()).hexdigest()[:16]
    lock = StoreLock(root)
    try:
        lock.acquire()
    except StoreError:  # also if the cache cannot be written
        yield None
        return
    try:
        if not is_intact(root):
            empty_folder(root)
        yield CheckedFolder(root)
        shutil.rmtree(root, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"cannot write unfinished work to {root}: {error.strerror or error}.") from None
    finally:
        lock.release()
