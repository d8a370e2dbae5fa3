"""Counting labeled rows: how many texts of each label and each fold have each word, and the same with shuffled labels.

Two passes.  The first finds the labels and the rows that can be used; the second counts words.  Each text belongs to
one of `FOLDS` folds by a hash of the text itself, so that copies of a text are never on both sides of a split.  The
first `HELD_OUT` folds are the held-out rows.  Rows that are copies are counted once more by themselves: what is left
without them are the different texts.

**The shuffled control** gives every text the label of another one: a permutation of all labels, drawn row by row.  The
first pass tells how often each label is left; to draw without replacement from these, by their numbers, is to draw a
uniformly random permutation one place at a time, in memory for one number per label.

The sample for training has the texts with the smallest hashes: it does not depend on the order of rows, nor on where
the work was interrupted.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.runtime.errors import InputError, StoreError
from scansnap.runtime.progress import progress_bar
from scansnap.shortcuts.copies import Copies, TextsSeen, text_hash
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.row_files import RowSource
from scansnap.shortcuts.rows import Remarks, Row, RowReader, field_of
from scansnap.shortcuts.tally import WordTally, total
from scansnap.shortcuts.words import words_of
from scansnap.storage.cache import cache_folder
from scansnap.storage.files import replace_file
from scansnap.storage.lock import WriterLock

FOLDS, HELD_OUT = 16, 4
MOST_LABELS = 200
ROWS_AT_ONCE = 2048
CHECKPOINT_ROWS = 2**19
"""Rows after which unfinished work is written down: about half a minute of it."""

FORMAT = 2
"""Changes when unfinished work of another version cannot be continued."""

STATE, SAMPLE = "state.json", "sample.json"


@dataclass(frozen=True)
class SampledText:
    """A text that attention is trained on, or tested on."""

    label: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class LabelCounts:
    """How many texts have each word; F folds, K labels, V words."""

    labels: tuple[str, ...]
    rows: NDArray[np.int64]  # (F, K) texts
    words: list[str]  # those in enough texts
    counts: sparse.csr_array  # (V, F K) texts with each word
    shuffled: sparse.csr_array  # (V, K) the same after a permutation of the labels
    copied: sparse.csr_array  # (V, K) the same, of rows that are copies alone
    copied_rows: NDArray[np.int64]  # (K,) rows that are copies
    num_texts: int  # different texts
    num_ambiguous: int  # those of them that have several labels
    occurrences: NDArray[np.int64]  # (K,) words of all texts of a label, added up
    num_words: int  # different words, also of those in few texts
    sample: list[SampledText]
    held_out_sample: list[SampledText]
    remarks: Remarks

    @cached_property
    def by_label(self) -> NDArray[np.int64]:
        """(V, K) texts with each word."""
        return self.in_folds(range(FOLDS))

    @cached_property
    def once(self) -> NDArray[np.int64]:
        """(V, K) different texts with each word."""
        return self.by_label - np.asarray(self.copied.todense())

    def in_folds(self, folds: range) -> NDArray[np.int64]:
        """(V, K) texts of some folds with each word."""
        num_labels = len(self.labels)
        cells = [fold * num_labels + k for fold in folds for k in range(num_labels)]
        gather = sparse.csr_array(
            (np.ones(len(cells), np.int64), (cells, np.tile(np.arange(num_labels), len(folds)))),
            shape=(self.counts.shape[1], num_labels),
        )
        return np.asarray((self.counts @ gather).todense())


def count_rows(
    source: RowSource, reader: RowReader, options: ShortcutOptions, progress: bool | None = None
) -> LabelCounts:
    """Count the rows of a source; started again after an interruption, it goes on."""
    label_rows, copies = _count_labels(source, reader, progress)
    with _work_folder(source, reader, options) as folder:
        work = _Work(label_rows, copies, Remarks(unit=source.unit), options, folder)
        work.resume()
        with progress_bar("counting words", int(label_rows.total()), progress) as show:
            for last, block in _blocks(source, reader, work):
                work.add(block)
                work.next_row = last
                show(work.rows_done)
                work.save_if_due()
        return work.finish()


def _count_labels(source: RowSource, reader: RowReader, progress: bool | None) -> tuple[Counter[str], Copies]:
    """How many rows that can be used have each label, and which of them are copies."""
    remarks, seen = Remarks(unit=source.unit), TextsSeen()
    labels: Counter[str] = Counter()
    number, columns = 0, ""
    absent = {reader.text, reader.label}
    with progress_bar(f"reading {source.name}", 1.0, progress) as show:
        for number, record in enumerate(source.records(), 1):
            row = reader.read(record, source.place(number), remarks)
            if row is not None:
                labels[row.label] += 1
                if len(labels) > MOST_LABELS:
                    raise InputError(
                        f"'{reader.label}' has more than {MOST_LABELS:,} different values in {source.name}: give a "
                        "column of labels, each of which many rows have."
                    )
                seen.add(row.text, row.label)
                absent.clear()
            elif absent and isinstance(record, Mapping):
                columns = columns or ", ".join(map(str, record)) or "none"
                absent -= {name for name in absent if field_of(record, name) is not None}
            if number % ROWS_AT_ONCE == 0:
                show(source.share)
    if number == 0:
        raise InputError(f"{source.name} has no rows: give rows of text and label.")
    if not labels:
        said = " ".join(remarks.sentences())
        none = f" '{min(absent)}' is in none of them; the first has the fields {columns}." if absent and columns else ""
        raise InputError(f"no row of {source.name} can be used: {said}{none}")
    if len(labels) == 1:
        said = f" {' '.join(remarks.sentences())}" if remarks.left_out else ""
        raise InputError(
            f"all {labels.total():,} rows of {source.name} that can be used have the same label, "
            f"'{next(iter(labels))}': give rows with at least two labels.{said}"
        )
    return labels, seen.copies()


def _blocks(source: RowSource, reader: RowReader, work: _Work) -> Iterator[tuple[int, list[Row]]]:
    """Usable rows that were not counted before, many at a time, and the number of the last record among them."""
    block: list[Row] = []
    number = 0
    for number, record in enumerate(source.records(), 1):
        if number <= work.next_row:
            continue
        row = reader.read(record, source.place(number), work.remarks)
        if row is not None:
            block.append(row)
        if len(block) >= ROWS_AT_ONCE:
            yield number, block
            block = []
    if block or number > work.next_row:
        yield number, block


class _Work:
    """Counting as far as it has come."""

    def __init__(
        self, label_rows: Counter[str], copies: Copies, remarks: Remarks, options: ShortcutOptions, folder: Path
    ) -> None:
        self.labels = tuple(sorted(label_rows))
        self._index = {label: k for k, label in enumerate(self.labels)}
        self._options, self._folder, self._copies = options, folder, copies
        self.remarks = remarks
        self.next_row = self.rows_done = self._saved_at = self._num_runs = 0
        num_labels = len(self.labels)
        self._left = np.array([label_rows[label] for label in self.labels], np.int64)  # labels still to be shuffled out
        self._rng = np.random.default_rng(options.seed)
        self._salt = options.seed.to_bytes(8, "little")
        self._rows = np.zeros((FOLDS, num_labels), np.int64)
        self._occurrences = np.zeros(num_labels, np.int64)
        self._copied_rows = np.zeros(num_labels, np.int64)
        self._num_cells = (FOLDS + 2) * num_labels  # the last 2 K are those of the shuffled labels, and of copies
        self._tally = WordTally(self._num_cells)
        self._samples: dict[bool, list[tuple[int, int, int, tuple[str, ...]]]] = {False: [], True: []}

    def add(self, block: list[Row]) -> None:
        """Count some rows."""
        if not block:
            return
        num_labels = len(self.labels)
        texts = [words_of(row.text) for row in block]
        labels = np.array([self._index[row.label] for row in block])
        hashes = [text_hash(row.text, self._salt) for row in block]
        folds = np.array([value % FOLDS for value in hashes])
        shuffled = np.repeat(np.arange(num_labels), self._draw(len(block)))
        self._rng.shuffle(shuffled)
        cells = np.stack([folds * num_labels + labels, FOLDS * num_labels + shuffled], 1)
        self._tally.add(texts, cells)
        if len(copies := np.flatnonzero(self._copies.is_copy[self.rows_done : self.rows_done + len(block)])):
            self._tally.add([texts[i] for i in copies], (FOLDS + 1) * num_labels + labels[copies, None])
            np.add.at(self._copied_rows, labels[copies], 1)
        np.add.at(self._rows, (folds, labels), 1)
        np.add.at(self._occurrences, labels, [len(words) for words in texts])
        for value, label, words in zip(hashes, labels.tolist(), texts, strict=True):
            self._sample(value, label, words)
            self.rows_done += 1

    def _draw(self, size: int) -> NDArray[np.int64]:
        """How many of each label the next `size` texts of the permutation have."""
        drawn = self._rng.multivariate_hypergeometric(self._left, size, method="marginals")
        self._left -= drawn
        return drawn

    def _sample(self, value: int, label: int, words: set[str]) -> None:
        is_held_out = value % FOLDS < HELD_OUT
        heap = self._samples[is_held_out]
        size = max(2, self._options.sample // 4) if is_held_out else self._options.sample
        if len(heap) < size:
            heapq.heappush(heap, (-value, self.rows_done, label, tuple(sorted(words))))
        elif -value > heap[0][0]:
            heapq.heapreplace(heap, (-value, self.rows_done, label, tuple(sorted(words))))

    # --- interrupted work ---------------------------------------------------------------------------------------------

    def save_if_due(self) -> None:
        """Write a run, if there is much to lose or no memory left."""
        if self.rows_done - self._saved_at < CHECKPOINT_ROWS and not self._tally.is_full:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tally.write_run(self._folder / f"run-{self._num_runs:05d}.npz")
            self._num_runs += 1
            self._saved_at = self.rows_done
            sample = {str(held_out): heap for held_out, heap in self._samples.items()}
            replace_file(self._folder / SAMPLE, json.dumps(sample).encode())
            replace_file(self._folder / STATE, json.dumps(self._state()).encode())  # last: what it names is there
        except OSError as error:
            raise StoreError(f"cannot write unfinished work to {self._folder}: {error.strerror or error}.") from None

    def _state(self) -> dict[str, Any]:
        return {
            "labels": self.labels,
            "next_row": self.next_row,
            "rows_done": self.rows_done,
            "runs": self._num_runs,
            "left": self._left.tolist(),
            "rng": self._rng.bit_generator.state,
            "rows": self._rows.tolist(),
            "occurrences": self._occurrences.tolist(),
            "copied_rows": self._copied_rows.tolist(),
            "remarks": self.remarks.plain(),
        }

    def resume(self) -> None:
        """Go on from the last run, if there is one."""
        if not (self._folder / STATE).is_file():
            return
        state = json.loads((self._folder / STATE).read_text(encoding="utf-8"))
        sample = json.loads((self._folder / SAMPLE).read_text(encoding="utf-8"))
        if tuple(state["labels"]) != self.labels:
            return
        self.next_row, self.rows_done, self._num_runs = state["next_row"], state["rows_done"], state["runs"]
        self._saved_at = self.rows_done
        self._left, self._rows = np.array(state["left"]), np.array(state["rows"])
        self._occurrences, self._copied_rows = np.array(state["occurrences"]), np.array(state["copied_rows"])
        self._rng.bit_generator.state = state["rng"]
        self.remarks = Remarks.read(state["remarks"])
        for held_out in (False, True):
            self._samples[held_out] = [(*entry[:3], tuple(entry[3])) for entry in sample[str(held_out)]]

    def finish(self) -> LabelCounts:
        """The counts, after the last row."""
        num_labels = len(self.labels)
        cells = FOLDS * num_labels
        runs = [self._folder / f"run-{i:05d}.npz" for i in range(self._num_runs)]
        words, counts, num_words = total(
            runs, self._tally.part(), self._num_cells, slice(0, cells), self._options.least
        )
        order = np.argsort(np.array(words, object), kind="stable")
        shutil.rmtree(self._folder, ignore_errors=True)
        samples = {
            held_out: [SampledText(label, words) for _, _, label, words in sorted(heap, key=lambda entry: entry[1])]
            for held_out, heap in self._samples.items()
        }
        return LabelCounts(
            self.labels,
            self._rows,
            [words[i] for i in order],
            counts[order, :cells],
            counts[order, cells : cells + num_labels],
            counts[order, cells + num_labels :],
            self._copied_rows,
            self._copies.num_texts,
            self._copies.num_ambiguous,
            self._occurrences,
            num_words,
            samples[False],
            samples[True],
            self.remarks,
        )


@contextmanager
def _work_folder(source: RowSource, reader: RowReader, options: ShortcutOptions) -> Iterator[Path]:
    """Where unfinished work on these rows with these options waits, for one process at a time.

    Rows that cannot be recognized begin anew, and so does a process beside the one that has the folder.
    """
    if source.fingerprint is not None:
        settings = [FORMAT, options.seed, options.least, options.sample]
        key = json.dumps([source.fingerprint, reader.text, reader.label, settings])
        folder = cache_folder() / "shortcuts" / hashlib.sha256(key.encode()).hexdigest()[:16]
        lock = WriterLock(folder)
        try:
            lock.acquire()
        except StoreError:  # or the cache cannot be written
            pass
        else:
            try:
                yield folder
            finally:
                lock.release()
            return
    with tempfile.TemporaryDirectory(prefix="scansnap-shortcuts-") as passing:
        yield Path(passing)
