"""Labeled rows: where they come from, and what is wrong with rows that cannot be used.

Rows come from CSV, JSON lines, Parquet, Hugging Face data sets or objects in memory.  A source can be read several
times, always in the same order, and holds few rows in memory at once.

A row that cannot be used is left out, counted under its reason, and reported with its number, or the line of its file;
a row that can be used with a doubt is used and noted.  Nothing is dropped in silence.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from scansnap.runtime.errors import InputError, brief, unknown
from scansnap.shortcuts.example import example_rows
from scansnap.validation import checks

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Escaped bytes, and halves of characters that JSON can hold: no Unicode."""

LISTED = 5
"""Rows that a report names for each reason."""

NO_TEXT, NO_LABEL = "no text", "no label"
NESTED_TEXT, NESTED_LABEL = "the text is a list or an object", "the label is a list or an object"
NUMBER_AS_TEXT = "the text is a number"
NOT_UNICODE = "bytes that are not of the encoding, read as � (you can state another encoding)"


class Row(NamedTuple):
    """A text with its label."""

    text: str
    label: str


class Unreadable(NamedTuple):
    """A row that the file's format does not allow."""

    reason: str


Record = Mapping[str, Any] | Unreadable
"""A row as its file has it."""


@dataclass
class Places:
    """How many rows a remark is about, and the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """One more row."""
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append(number)


@dataclass
class Remarks:
    """What there is to say about rows: why some are left out, and what to know of others."""

    left_out: dict[str, Places] = field(default_factory=dict)
    noted: dict[str, Places] = field(default_factory=dict)
    unit: str = "row"
    """What places are numbers of: rows, or lines of a file."""

    @property
    def num_left_out(self) -> int:
        """Rows that are not used."""
        return sum(places.count for places in self.left_out.values())

    def sentences(self) -> list[str]:
        """One for each reason."""
        return [f"{self._rows(places)} left out: {reason}." for reason, places in self.left_out.items()] + [
            f"{self._rows(places)} used all the same: {remark}." for remark, places in self.noted.items()
        ]

    def _rows(self, places: Places) -> str:
        more = ", ..." if places.count > len(places.first) else ""
        listed = f"{', '.join(f'{number:,}' for number in places.first)}{more}"
        unit = f"{self.unit}{'s' * (len(places.first) > 1)}"
        return f"{places.count:,} row{'s' * (places.count > 1)} ({unit} {listed})"

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        remarks = {
            name: {reason: {"rows": places.count, "first": places.first} for reason, places in remarks.items()}
            for name, remarks in (("left_out", self.left_out), ("noted", self.noted))
        }
        return {**remarks, "unit": self.unit}


@dataclass(frozen=True)
class RowReader:
    """Takes the text and the label out of records; the names may be paths into objects, as review.body."""

    text: str
    label: str

    def read(self, record: Record, place: int, remarks: Remarks) -> Row | None:
        """The row, or None after a remark."""
        row, notes = self._read(record)
        if isinstance(row, str):
            remarks.left_out.setdefault(row, Places()).add(place)
            return None
        for note in notes:
            remarks.noted.setdefault(note, Places()).add(place)
        return row

    def _read(self, record: Record) -> tuple[Row | str, list[str]]:
        """The row, or why there is none; and notes."""
        if isinstance(record, Unreadable):
            return record.reason, []
        label, text = field_of(record, self.label), field_of(record, self.text)
        words, name = _plain_text(text), _plain_text(label)
        notes = []
        if name is None:
            return NO_LABEL if _is_missing(label) else NESTED_LABEL, []
        if words is None:
            return NO_TEXT if _is_missing(text) else NESTED_TEXT, []
        if not isinstance(text, str | bytes):
            notes.append(NUMBER_AS_TEXT)
        if not (words.isascii() and name.isascii()) and _SURROGATE.search(words + name):
            words, name = _SURROGATE.sub("�", words), _SURROGATE.sub("�", name)
            notes.append(NOT_UNICODE)
        name = name.strip()
        if not name:
            return NO_LABEL, []
        if not words.strip():
            return NO_TEXT, []
        return Row(words, name), notes


def field_of(record: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of a field of a nested object; None if there is none."""
    if path in record:
        return record[path]
    first, dot, rest = path.partition(".")
    inner = record.get(first)
    return field_of(inner, rest) if dot and isinstance(inner, Mapping) else None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain_text(value: Any) -> str | None:
    """A value as text: whole numbers without a decimal point, so that 1, 1.0 and "1" are one label."""
    if isinstance(value, str):
        return value
    if hasattr(value, "item"):  # a number of NumPy
        value = value.item() if getattr(value, "ndim", 0) == 0 else None
    if _is_missing(value) or not isinstance(value, bytes | bool | int | float):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


EXAMPLE = "example"
"""The name of the data set that the package makes up."""

DELIMITERS = (",", "\t", ";", "|")
LONGEST_FIELD = 2**22
"""Characters in a field of a CSV file; more must be a quotation mark that is never closed."""

ROWS_AT_ONCE = 1024
FORMATS = (
    "CSV (.csv, .tsv), JSON lines (.jsonl), either compressed (.gz), Parquet (.parquet), or a Hugging Face data set"
)
PARQUET, JSON_LINES, CSV = (".parquet", ".pq"), (".jsonl", ".ndjson", ".json"), (".csv", ".tsv", ".txt")
UNMARKED: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}
"""Where the zeros of two letters of ASCII are."""

BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


class RowSource(ABC):
    """Rows that can be read again and again."""

    name: str
    """What reports call it."""

    fingerprint: str | None = None
    """Equal for equal rows; None if that is not known, and unfinished work on them cannot be continued."""

    share: float = 0.0
    """How much of the source has been read, if that is known."""

    unit: str = "row"
    """What `place` counts."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Every row, from the first."""

    def place(self, number: int) -> int:
        """Where the row of this number, the last that was read, is found."""
        return number


def open_rows(
    source: object, columns: tuple[str, str], *, split: str | None = None, encoding: str | None = None
) -> RowSource:
    """The rows of a file, of a folder that Hugging Face `datasets` saved, or of an object in memory.

    `columns` names the fields of text and label.
    """
    if not isinstance(source, str | Path):
        return _in_memory(source, columns, split)
    path = checks.expand_user("source", checks.path("source", source))
    if source == EXAMPLE and not path.exists():
        return Mappings(example_rows(), EXAMPLE)
    if path.is_dir():
        return _saved_data_set(path, columns, split)
    if not path.is_file():
        raise InputError(f"there is no file at {path}: give {FORMATS}.")
    if split is not None:
        raise InputError(f"split is '{split}' but {path} is a file, which has no splits: leave it out.")
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    suffix = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if suffix in PARQUET:
        return ParquetRows(path, columns)
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty: give a file with rows of text and label.")
    if suffix in JSON_LINES:
        return JsonRows(path, encoding)
    if suffix in CSV:
        return CsvRows(path, columns, encoding)
    raise InputError(f"{path} has a format that cannot be read: give {FORMATS}.")


class FileRows(RowSource):
    """Rows of a text file, plain or compressed, which are found by the lines that they begin on."""

    unit = "line"
    _line = 0

    def place(self, number: int) -> int:
        return self._line

    def __init__(self, path: Path, encoding: str | None) -> None:
        self.path, self.name = path, path.name
        state = path.stat()
        self._size = max(1, state.st_size)
        self.fingerprint = f"{path.resolve()} {state.st_size} {state.st_mtime_ns} {encoding}"
        self._encoding = encoding or self._marked()

    def _marked(self) -> str:
        """The encoding that the file's first bytes state, or show by their zeros; else UTF-8."""
        with self._open() as raw, self._bytes(raw) as file:
            first = _first_bytes(file)
        marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if first.startswith(mark)), None)
        return marked or UNMARKED.get(tuple(byte == 0 for byte in first), "utf-8")

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror or error}.") from None

    def _bytes(self, raw: IO[bytes]) -> IO[bytes]:
        return gzip.open(raw) if self.path.suffix.lower() == ".gz" else raw  # type: ignore[return-value]

    def _lines(self) -> Iterator[str]:
        """Lines with their ends; bytes that are not of the encoding are escaped."""
        errors = "surrogateescape" if self._encoding.startswith("utf-8") else "replace"
        raw = self._open()
        with raw, self._bytes(raw) as file:
            try:
                text = io.TextIOWrapper(file, encoding=self._encoding, errors=errors, newline="")
            except LookupError:
                raise InputError(
                    f"the encoding is '{self._encoding}', which is not known: give one such as utf-8 or latin-1."
                ) from None
            for number, line in enumerate(text):
                if number % ROWS_AT_ONCE == 0:
                    self.share = raw.tell() / self._size
                yield line
        self.share = 1.0

    def records(self) -> Iterator[Record]:
        try:
            yield from self._records(self._lines())
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            yield Unreadable(f"the compressed file breaks off here ({brief(error)})")

    @abstractmethod
    def _records(self, lines: Iterator[str]) -> Iterator[Record]:
        """The rows that lines hold."""


def _first_bytes(file: IO[bytes]) -> bytes:
    try:
        return file.read(4)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return b""


class CsvRows(FileRows):
    """Rows of a CSV file whose first line names the columns; the delimiter is the one that separates these names."""

    def __init__(self, path: Path, columns: tuple[str, str], encoding: str | None) -> None:
        super().__init__(path, encoding)
        try:
            heading = next(self._lines(), "")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path} cannot be decompressed ({brief(error)}): give {FORMATS}.") from None
        names = {delimiter: _split(heading, delimiter) for delimiter in DELIMITERS}
        wanted = {column.partition(".")[0] for column in columns} | set(columns)
        self._delimiter = max(
            DELIMITERS, key=lambda delimiter: (len(wanted & set(names[delimiter])), len(names[delimiter]))
        )
        self._columns = names[self._delimiter]
        check_columns(path, self._columns, columns)

    def _records(self, lines: Iterator[str]) -> Iterator[Record]:
        """A bad row of several lines has a quotation mark that is not closed: only its first line is left out."""
        next(lines, None)
        num_read = 1
        width = len(self._columns)
        again: deque[str] = deque()  # lines to be read once more
        own: list[str] = []  # the lines of the present row

        def next_lines() -> Iterator[str]:
            nonlocal num_read
            while True:
                line = again.popleft() if again else next(lines, None)
                if line is None:
                    return
                num_read += 1
                own.append(line)
                yield line

        reader = csv.reader(next_lines(), delimiter=self._delimiter)
        while True:
            own.clear()
            self._line = num_read + 1
            try:
                fields = _next_row(reader)
                reason = "" if len(fields) in (0, width) else f"not the {width} fields that the first line names"
            except StopIteration:
                return
            except csv.Error as error:
                reason = f"not CSV ({brief(error)})"
            if reason:
                yield Unreadable(reason)
                again.extendleft(reversed(own[1:]))
                num_read = self._line
                reader = csv.reader(next_lines(), delimiter=self._delimiter)
            elif fields:  # a blank line is no row
                yield dict(zip(self._columns, fields, strict=True))


def _split(line: str, delimiter: str) -> list[str]:
    """The names in the first line of a CSV file."""
    return [field.strip() for field in _next_row(csv.reader([line.rstrip("\r\n")], delimiter=delimiter))]


def _next_row(reader: Iterator[list[str]]) -> list[str]:
    """The next row, whose fields may be as long as `LONGEST_FIELD`; the limit of the program's own readers stays."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(before)


class JsonRows(FileRows):
    """Rows of a file with one JSON object on each line."""

    def __init__(self, path: Path, encoding: str | None) -> None:
        super().__init__(path, encoding)
        if next(self._lines(), "").lstrip().startswith("["):
            raise InputError(f"{path} is one list of objects: give JSON lines, one object on each line.")

    def _records(self, lines: Iterator[str]) -> Iterator[Record]:
        for self._line, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                yield Unreadable("not JSON")
                continue
            yield record if isinstance(record, dict) else Unreadable("JSON, but no object with fields")


class ParquetRows(RowSource):
    """Rows of a Parquet file."""

    def __init__(self, path: Path, columns: tuple[str, str]) -> None:
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise InputError(f"{path} needs pyarrow, which is not installed: pip install 'scansnap[text]'.") from None
        self.name = path.name
        try:
            self._file = parquet.ParquetFile(path)
        except Exception as error:  # pyarrow raises many types
            raise InputError(f"cannot read {path} as Parquet ({brief(error)}): give {FORMATS}.") from None
        state = path.stat()
        self.fingerprint = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
        names = self._file.schema_arrow.names
        check_columns(path, names, columns)
        self._columns = [column if column in names else column.partition(".")[0] for column in columns]

    def records(self) -> Iterator[Record]:
        read, rows = 0, max(1, self._file.metadata.num_rows)
        for batch in self._file.iter_batches(ROWS_AT_ONCE, columns=list(dict.fromkeys(self._columns))):
            yield from batch.to_pylist()
            read += batch.num_rows
            self.share = read / rows


class Columns(RowSource):
    """Rows of an object with named columns: a Hugging Face data set, or a table of pandas, Polars or Arrow."""

    def __init__(self, table: Any, columns: tuple[str, str], name: str, fingerprint: str | None) -> None:
        names = [str(column) for column in (getattr(table, "column_names", None) or table.columns)]
        check_columns(name, names, columns)
        self.name, self.fingerprint, self._table = name, fingerprint, table
        self._columns = [column if column in names else column.partition(".")[0] for column in columns]
        feature = (getattr(table, "features", None) or {}).get(columns[1])
        self._label_names: list[str] | None = getattr(feature, "names", None)

    def records(self) -> Iterator[Record]:
        text, label = self._columns
        rows = max(1, len(self._table))
        for number, (words, value) in enumerate(zip(self._table[text], self._table[label], strict=True)):
            if number % ROWS_AT_ONCE == 0:
                self.share = number / rows
            words, value = (item.as_py() if hasattr(item, "as_py") else item for item in (words, value))
            if self._label_names is not None and isinstance(value, int):
                value = self._label_names[value] if 0 <= value < len(self._label_names) else None
            yield {text: words, label: value}


class Mappings(RowSource):
    """Rows that are mappings in memory."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], name: str) -> None:
        self.name, self._rows = name, rows

    def records(self) -> Iterator[Record]:
        for row in self._rows:
            yield row if isinstance(row, Mapping) else Unreadable("no mapping from columns to values")


def check_columns(where: object, names: list[str], columns: tuple[str, str]) -> None:
    """Refuse columns that are not there."""
    for column in columns:
        if column not in names and column.partition(".")[0] not in names:
            raise unknown(f"column of {where}", column, names)


def _in_memory(source: Any, columns: tuple[str, str], split: str | None) -> RowSource:
    name = type(source).__name__
    if isinstance(source, Mapping):  # a DatasetDict
        source = _choose_split(source, split, name)
    elif split is not None:
        raise InputError(f"split is '{split}' but the rows have no splits: leave it out.")
    if getattr(source, "column_names", None) or hasattr(source, "columns"):
        return Columns(source, columns, f"a {name}", None)
    if isinstance(source, Iterator | bytes | range | np.ndarray) or not isinstance(source, Iterable):
        why = ", which cannot be read twice" if isinstance(source, Iterator) else ""
        raise InputError(f"the rows are {name}{why}: give a list of mappings, a table, or a file ({FORMATS}).")
    return Mappings(source, f"a {name}")


def _saved_data_set(folder: Path, columns: tuple[str, str], split: str | None) -> RowSource:
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"{folder} is a folder, and Hugging Face datasets, which reads it, is not installed: "
            "pip install 'scansnap[text]', or give a file."
        ) from None
    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # the package raises many types
        raise InputError(
            f"cannot read {folder} as a Hugging Face data set ({brief(error)}): give a folder that save_to_disk wrote."
        ) from None
    if isinstance(loaded, Mapping):
        loaded = _choose_split(loaded, split, str(folder))
    elif split is not None:
        raise InputError(f"split is '{split}' but {folder} holds a single data set: leave it out.")
    return Columns(loaded, columns, folder.name, f"{folder.resolve()} {loaded._fingerprint}")


def _choose_split(splits: Mapping[str, Any], split: str | None, where: str) -> Any:
    names = [str(name) for name in splits]
    if split is None and len(names) == 1:
        return next(iter(splits.values()))
    if split is None:
        raise InputError(f"{where} has the splits {', '.join(names)}: choose one with split.")
    if split not in splits:
        raise unknown("split", split, names)
    return splits[split]
