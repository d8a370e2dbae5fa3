"""Labeled rows as different texts: what can be used, copies and near copies, and their features.

A test takes texts for independent.  So texts that are equal but for case and white space count once for each label,
and so do near copies: texts that share at least `SIMILAR` of their pairs of adjacent words (Jaccard's index).
Candidates come from MinHash: each of `BANDS` bands is the minima of `HASHES` random hashes over a text's pairs, and
texts with an equal band are compared.  Two texts with index s have one with the chance 1 − (1 − s^HASHES)^BANDS.

Of more than `options.texts` different texts, those with the smallest hashes are kept: a random choice that does not
depend on the order of the rows, with all copies of each.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from scansnap.corpus.sources import Malformed, Row, RowReport, Table
from scansnap.runtime.errors import InputError
from scansnap.runtime.progress import progress_bar
from scansnap.shortcuts.features import Feature, FeatureTable, IntArray, feature_table, shapes_of, words_of
from scansnap.shortcuts.options import ShortcutOptions

MOST_LABELS = 200
SIMILAR = 0.6
BANDS, HASHES = 12, 5
SHOWN_EVERY = 2048
KEPT = 2000
"""Characters of a text that are kept, to cut an example from."""

NO_TEXT, NO_LABEL = "no text", "no label"
NOT_TEXT, NOT_LABEL = "the text is a list or an object", "the label is a list or an object"
NUMBER_AS_TEXT = "the text is a number"


@dataclass
class Collected:
    """The different texts of one or two sources, as they are read."""

    labels: dict[str, int] = field(default_factory=dict)
    vocabulary: dict[str, int] = field(default_factory=dict)
    rows: list[Counter[str]] = field(default_factory=list)  # rows of each label, by source
    reports: list[RowReport] = field(default_factory=list)
    limit: int = 2**64
    texts: dict[tuple[int, int, int], Text] = field(default_factory=dict)  # by source, label and hash

    def read(self, table: Table, options: ShortcutOptions, progress: bool | None) -> None:
        """Read the rows of one more source."""
        part, report, rows = len(self.rows), RowReport(), Counter[str]()
        self.rows.append(rows)
        self.reports.append(report)
        salt = options.seed.to_bytes(8, "little")
        with progress_bar(f"reading {table.name}", None, progress) as show:
            for number, row in enumerate(table.rows()):
                if number % SHOWN_EVERY == 0:
                    show(number)
                usable = read_row(row, report)
                if usable is None:
                    continue
                text, label = usable
                rows[label] += 1
                k = self.labels.setdefault(label, len(self.labels))
                if len(self.labels) > MOST_LABELS:
                    raise InputError(
                        f"'{table.columns[1]}' has more than {MOST_LABELS:,} different values in {table.name}: give a "
                        "column of labels, each of which many rows have."
                    )
                plain = " ".join(text.lower().split())
                value = int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8, salt=salt).digest(), "little")
                if value >= self.limit:
                    continue
                known = self.texts.get((part, k, value))
                if known is not None:
                    known.copies += 1
                    continue
                ids = array("i", (self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words_of(text)))
                kept = " ".join(text[:KEPT].split())
                self.texts[part, k, value] = Text(ids, list(shapes_of(text)), row.place, kept)
                if len(self.texts) > 1.25 * options.texts:
                    self._draw(options.texts)
        self._draw(options.texts)
        self._check(table, rows, report)

    def _draw(self, most: int) -> None:
        """Keep at most this many texts, those with the smallest hashes."""
        if len(self.texts) > most:
            self.limit = sorted(value for _, _, value in self.texts)[most]
            self.texts = {key: text for key, text in self.texts.items() if key[2] < self.limit}

    def _check(self, table: Table, rows: Counter[str], report: RowReport) -> None:
        report.refuse_malformed(table.name)
        sentences = " ".join(report.sentences())
        if not report.used and not report.left_out:
            raise InputError(f"{table.name} has no rows: give rows of text and label.")
        if not rows:
            raise InputError(f"no row of {table.name} can be used: {sentences}")
        if len(self.labels) == 1:
            raise InputError(
                f"all {report.used:,} rows of {table.name} that can be used have the same label, "
                f"'{next(iter(rows))}': give rows with at least two labels. {sentences}".rstrip()
            )


@dataclass
class Text:
    """A text that was read."""

    ids: array[int]
    shapes: list[Feature]
    place: str
    beginning: str
    copies: int = 1


def read_row(row: Row, report: RowReport) -> tuple[str, str] | None:
    """The text and the label of a row, or None after a remark."""
    if isinstance(row.values, Malformed):
        report.leave_out(row, row.values.reason)
        return None
    text, label = (_plain_text(value) for value in row.values)
    for value, plain, missing, wrong in (
        (row.values[1], label, NO_LABEL, NOT_LABEL),
        (row.values[0], text, NO_TEXT, NOT_TEXT),
    ):
        if plain is None or not plain.strip():
            is_there = plain is None and value is not None and not (isinstance(value, float) and math.isnan(value))
            report.leave_out(row, wrong if is_there else missing)
            return None
    if not isinstance(row.values[0], str | bytes):
        report.note(row, NUMBER_AS_TEXT)
    report.used += 1
    return str(text), str(label).strip()


def _plain_text(value: Any) -> str | None:
    """A value as text: whole numbers without a decimal point, so that 1, 1.0 and "1" are one label."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # a number of NumPy
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float) or value != value:
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


@dataclass(frozen=True)
class LabeledTexts:
    """Different texts, one for each group of near copies, label and source: n texts, K labels, V features."""

    labels: tuple[str, ...]
    label: IntArray  # (n,)
    is_test: NDArray[np.bool_]  # (n,) texts of the second source
    is_shared: NDArray[np.bool_]  # (n,) texts of which the other source has a copy
    copies: IntArray  # (n,) rows that are copies of each, with itself
    length: IntArray  # (n,) words
    beginnings: list[tuple[str, str]]  # where each is, and its first characters
    table: FeatureTable
    num_texts: int  # different texts of the first source before near copies are grouped
    num_ambiguous: int  # groups of the first source that have several labels

    def counts(self, weight: IntArray | NDArray[np.bool_], label: IntArray | None = None) -> tuple[IntArray, IntArray]:
        """Texts of each label with each feature (V, K) and texts of each label (K,), each counted `weight` times.

        `label` replaces the labels.
        """
        label, weight = self.label if label is None else label, weight.astype(np.int64)
        by_label = sparse.csr_array((weight, (np.arange(len(label)), label)), (len(label), len(self.labels)))
        with_feature = np.asarray((self.table.has.T @ by_label).todense()).astype(np.int64)
        return with_feature, np.bincount(label, weight, len(self.labels)).astype(np.int64)


def label_texts(collected: Collected, options: ShortcutOptions) -> LabeledTexts:
    """The different texts with their features; near copies of a text count once."""
    labels = tuple(sorted(collected.labels))
    rank = np.array([labels.index(name) for name in collected.labels], np.int64)
    keys, texts = list(collected.texts), list(collected.texts.values())
    part, label, value = (np.array(column) for column in zip(*keys, strict=True))
    label = rank[label.astype(np.int64)]
    tokens = np.concatenate([np.frombuffer(text.ids, np.int32) for text in texts])
    ends = np.cumsum([len(text.ids) for text in texts])
    _, same = np.unique(value, return_inverse=True)
    group = near_copies(tokens, ends, same)
    identity = (group * len(labels) + label) * 2 + part.astype(np.int64)
    _, first, member = np.unique(identity, return_index=True, return_inverse=True)
    copies = np.bincount(member, [text.copies for text in texts]).astype(np.int64)
    order = np.argsort(first)
    kept, copies = first[order], copies[order]
    is_test = part[kept] == 1
    parts_of = [np.isin(group[kept], group[part == p]) for p in (0, 1)]
    lengths = np.diff(ends, prepend=0)[kept]
    table = feature_table(
        np.concatenate([np.frombuffer(texts[at].ids, np.int32) for at in kept]),
        np.cumsum(lengths),
        list(collected.vocabulary),
        [(i, shape) for i, at in enumerate(kept) for shape in texts[at].shapes],
        copies * ~is_test,
        least=options.least,
        pairs=options.pairs,
    )
    return LabeledTexts(
        labels,
        label[kept],
        is_test,
        np.where(is_test, parts_of[0], parts_of[1]),
        copies,
        lengths,
        [(texts[at].place, texts[at].beginning) for at in kept],
        table,
        num_texts=len(np.unique(value[part == 0])),
        num_ambiguous=int((np.bincount(group[kept][~is_test]) > 1).sum()),
    )


def near_copies(tokens: NDArray[np.int32], ends: IntArray, same: IntArray) -> IntArray:
    """(n,) the group of each text; texts with equal numbers in `same` are in one group from the start."""
    n = len(ends)
    starts = np.append(0, ends[:-1])
    has_pairs = np.flatnonzero(ends - starts > 1)
    left = np.delete(np.arange(len(tokens)), ends - 1)  # every token but the last of its text
    text = np.repeat(np.arange(n), np.maximum(ends - starts - 1, 0))
    size = int(tokens.max(initial=0)) + 1
    _, pair = np.unique(tokens[left].astype(np.int64) * size + tokens[left + 1], return_inverse=True)
    first = np.searchsorted(text, has_pairs)
    rng = np.random.default_rng(0)
    links = [np.stack([np.arange(n), _first_of(same)[same]])]
    shingles = sparse.csr_array((np.ones(len(pair), np.int32), (text, pair)), (n, int(pair.max(initial=0)) + 1))
    shingles.data[:] = 1
    sizes = np.diff(shingles.indptr)
    for _ in range(BANDS if len(first) else 0):
        band = np.zeros(len(first), np.uint64)
        for _ in range(HASHES):
            hashes = rng.integers(0, 2**63, int(pair.max()) + 1, dtype=np.uint64)
            band = band * np.uint64(0x9E3779B97F4A7C15) + np.minimum.reduceat(hashes[pair], first)
        _, bucket = np.unique(band, return_inverse=True)
        one, other = has_pairs, has_pairs[_first_of(bucket)[bucket]]
        differ = same[one] != same[other]
        one, other = one[differ], other[differ]
        shared = shingles[one].multiply(shingles[other]).sum(axis=1)
        is_similar = shared >= SIMILAR * (sizes[one] + sizes[other] - shared)
        links.append(np.stack([one[is_similar], other[is_similar]]))
    one, other = np.concatenate(links, axis=1)
    graph = sparse.coo_array((np.ones(len(one), np.int8), (one, other)), (n, n))
    return csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _first_of(numbers: IntArray) -> IntArray:
    """The first place of each number, for numbers 0, 1, ..."""
    return np.unique(numbers, return_index=True)[1]
