"""Where texts come from: files, folders, and tables in memory.

- Plain text: .txt, .text, .tokens, .raw, .md.
- A column of a table: .csv, .tsv, .jsonl, .ndjson, .json (one object per line), .parquet, .pq, .arrow (as `datasets`
  saves them).
- Text files, CSV and JSON lines may be compressed (.gz, .bz2, .zst).  Their encoding is the one you state, else the one
  that a byte order mark shows (UTF-8, UTF-16), else UTF-8.
- A folder is read recursively, in order of the files' paths.  Hidden files are not read; files of other formats are
  listed in `skipped`.
- In memory: pandas, Polars and Arrow tables, Hugging Face data sets, a dict of lists, a list of dicts.

CSV and JSON lines are parsed by Python's own modules, which need no package and name the line of a malformed row.
Parquet, Arrow and .zst need pyarrow, which is imported when such a file is read.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scansnap.runtime.errors import InputError, brief, count_items, printable, unknown
from scansnap.runtime.machine import import_optional

FORMATS = {
    **dict.fromkeys((".txt", ".text", ".tokens", ".raw", ".md"), "text"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".arrow": "arrow",
}
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst")
BINARY_SUFFIXES = (".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt", ".pptx", ".pdf", ".zip", ".tar", ".pkl", ".npy")
"""Files that are never read as plain text; those with other unknown endings are."""

TABLE_FORMATS = ("csv", "json", "parquet", "arrow")
BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

DELIMITERS = ",\t;|"
FIELD_CHARACTERS = 2**22
"""The most characters in a field of a CSV file; a longer one has a quotation mark that is never closed."""

PIECE = 2**18
"""The longest piece of text in memory at once, in characters."""

MALFORMED_SHARE = 0.01
"""The largest share of malformed rows with which a table is still read."""

REPORTED_PLACES = 5
"""Rows that a report names for each reason."""

HEADING_ROWS = 1000
"""The first rows of JSON lines or a list of dicts, whose names are its columns."""

METADATA = ("dataset_info.json", "dataset_dict.json", "state.json", "manifest.json")
"""Files that Hugging Face `datasets` and this package write beside the data."""


class Row(NamedTuple):
    """A row of a table: where it is, and the value of one column, or why its format does not allow it."""

    place: str
    value: Any
    problem: str = ""
    lines: int = 1
    """How many lines a malformed row takes."""


@dataclass
class RowReport:
    """How many rows were used, and which were skipped, by reason."""

    used: int = 0
    malformed: int = 0
    skipped: dict[str, list[Any]] = field(default_factory=dict)  # reason: [count, first places]

    def text_of(self, row: Row, column: str) -> str:
        """The row's text, ending in one newline; empty, with the reason noted, if the row has none."""
        if not row.problem and isinstance(row.value, str) and row.value.strip():
            self.used += 1
            return row.value.replace("\r\n", "\n").rstrip("\n") + "\n"
        self.malformed += row.lines if row.problem else 0
        entry = self.skipped.setdefault(row.problem or f"no text in '{column}'", [0, []])
        entry[0] += row.lines
        if len(entry[1]) < REPORTED_PLACES:
            entry[1].append(row.place)
        return ""

    def sentences(self) -> list[str]:
        """One sentence for each reason."""
        return [
            f"{count_items(count, 'row')} left out: {reason} "
            f"({'; '.join(places) + ('; ...' if count > len(places) else '')})."
            for reason, (count, places) in self.skipped.items()
        ]

    def refuse_malformed(self, name: str) -> None:
        """Raise an `InputError` if too many rows are malformed."""
        total = self.used + sum(count for count, _ in self.skipped.values())
        if self.malformed > MALFORMED_SHARE * total:
            raise InputError(
                f"{self.malformed:,} of {total:,} rows of {name} are malformed, more than {MALFORMED_SHARE:.0%}: "
                f"repair or remove them. {' '.join(self.sentences())}"
            )


@dataclass(frozen=True)
class DataFile:
    """A file of text or of rows."""

    path: Path
    format: str
    encoding: str | None = None

    def pieces(self) -> Iterator[str]:
        """Its text in lines, or in parts of long lines; the end of the file also ends a line."""
        with self._text(newline=None) as file:
            rest, line = "", "\n"
            while piece := file.readline(PIECE):
                line = piece
                if "\0" in line:
                    raise InputError(f"{self.path} contains null bytes: give a text file, or state its encoding.")
                rest += line
                if rest.endswith("\n"):
                    yield rest
                    rest = ""
                elif len(rest) >= PIECE:  # a long line: cut before its last word
                    words = rest.rstrip().rsplit(maxsplit=1)
                    cut = len(words[0]) if len(words) == 2 else len(rest)
                    yield rest[:cut]
                    rest = rest[cut:]
            if not line.endswith("\n"):
                yield f"{rest}\n"

    def columns(self) -> list[str]:
        """The names of its columns; plain text has none."""
        if self.format == "csv":
            with self._text() as file:
                return self._csv_columns(file.readline())[1]
        if self.format == "json":
            return _names(row.value for row in self._json_records())
        if self.format == "text":
            return []
        with self._arrow() as file:
            return list((file.schema_arrow if self.format == "parquet" else file.schema).names)

    def rows(self, column: str) -> Iterator[Row]:
        """Its rows, with the values of a column; a name such as review.body leads into nested objects."""
        if self.format == "csv":
            return self._csv_rows(column)
        if self.format == "json":
            return (
                row if row.problem else row._replace(value=_field(row.value, column)) for row in self._json_records()
            )
        return self._arrow_rows(column)

    def check_column(self, column: str) -> None:
        """Refuse a name that is not among the columns."""
        names = self.columns()
        if not names and self.format != "json":
            raise InputError(f"{self.path} has no columns: give a table with a column {column}.")
        _check_column(self.path, names, column, is_nested=self.format != "csv")

    def words_of_path(self, root: Path) -> set[str]:
        """The words in the names of the file and of its folders below `root`."""
        return {word for part in self.path.relative_to(root).parts for word in re.split(r"[._-]", part.lower())}

    def _place(self, unit: str, number: int) -> str:
        return f"{self.path.name} {unit} {number:,}"

    # --- text ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _text(self, newline: str | None = "") -> Iterator[io.TextIOWrapper]:
        """The file, decompressed and decoded."""
        encoding = self.encoding
        try:
            if encoding is None:
                with self._bytes() as file:
                    first = file.read(4)
                encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if first.startswith(mark)), "utf-8")
                if encoding == "utf-8" and b"\0" in first:
                    raise InputError(f"{self.path} begins with null bytes: give --encoding, such as utf-16-le.")
            codecs.lookup(encoding)
            with self._bytes() as file, io.TextIOWrapper(file, encoding=encoding, newline=newline) as text:
                yield text
        except LookupError:
            raise InputError(f"the encoding is '{encoding}', which is unknown: give one such as latin-1.") from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path} is not text in {encoding} ({error.reason}): give --encoding (encoding=...), such as "
                "cp1252 (Windows) or latin-1."
            ) from None
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot read {printable(str(self.path), 300)} ({brief(error)}).") from None

    def _bytes(self) -> Any:
        suffix = self.path.suffix.lower()
        if suffix == ".zst":
            return _pyarrow(f"{self.path.name} (.zst)").input_stream(str(self.path), compression="zstd")
        if suffix == ".gz":
            return gzip.open(self.path)
        return bz2.open(self.path) if suffix == ".bz2" else self.path.open("rb")

    def _csv_columns(self, heading: str) -> tuple[str, list[str]]:
        """The delimiter that separates most names in the first line, and the names."""
        delimiter = max(DELIMITERS, key=heading.count)
        names = next(csv.reader([heading.rstrip("\r\n")], delimiter=delimiter), [])
        return delimiter, [name.strip() for name in names]

    def _csv_rows(self, column: str) -> Iterator[Row]:
        with self._text() as file:
            delimiter, names = self._csv_columns(file.readline())
            chosen = names.index(column)
            before = csv.field_size_limit(FIELD_CHARACTERS)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                while True:
                    first = reader.line_num
                    problem, values = "", []
                    try:
                        values = next(reader)
                    except StopIteration:
                        return
                    except csv.Error as error:
                        problem = f"not CSV ({error})"
                    else:
                        if not values:  # a blank line is no row
                            continue
                        if len(values) != len(names):
                            problem = f"not {len(names)} fields"
                    value = None if problem else values[chosen]
                    yield Row(self._place("line", first + 2), value, problem, reader.line_num - first)
            finally:
                csv.field_size_limit(before)

    def _json_records(self) -> Iterator[Row]:
        """Whole objects."""
        with self._text() as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                if number == 1 and line.lstrip().startswith("["):
                    raise InputError(f"{self.path} is one list of objects: give JSON lines, one object on each line.")
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    record = None
                problem = "" if isinstance(record, dict) else "not a JSON object"
                yield Row(self._place("line", number), record, problem)

    # --- Arrow and Parquet --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _arrow(self) -> Iterator[Any]:
        pa = _pyarrow(f"{self.path.name} (.{self.format})")
        try:
            if self.format == "parquet":
                from pyarrow import parquet

                with parquet.ParquetFile(self.path) as file:
                    yield file
            else:
                with pa.memory_map(str(self.path)) as source:
                    yield pa.ipc.open_stream(source)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"cannot read {self.path} as {self.format} ({brief(error)}): give another file.") from None

    def _arrow_rows(self, column: str) -> Iterator[Row]:
        top = _top(column, self.columns())
        number = 0
        with self._arrow() as file:
            for batch in file.iter_batches(2**12, columns=[top]) if self.format == "parquet" else file:
                for record in batch.select([top]).to_pylist():
                    number += 1
                    yield Row(self._place("row", number), _field(record, column))


def _pyarrow(what: str) -> Any:
    return import_optional("pyarrow", what=what, package="pyarrow", extra="text", instead="give plain text")


def _top(column: str, names: Iterable[str]) -> str:
    """The column to read for a column, which may be a field of nested objects."""
    return column if column in names else column.partition(".")[0]


def _field(record: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of a field of a nested object; None if there is none."""
    if path in record:
        return record[path]
    first, dot, rest = path.partition(".")
    inner = record.get(first)
    return _field(inner, rest) if dot and isinstance(inner, Mapping) else None


def _names(records: Iterable[Any]) -> list[str]:
    """The names in the first records that are objects, in their order."""
    first = (record for record in islice(records, HEADING_ROWS) if isinstance(record, Mapping))
    return list(dict.fromkeys(name for record in first for name in record))


def _check_column(where: object, names: list[str], column: str, *, is_nested: bool = True) -> None:
    # without names there are no rows, or malformed ones, which are reported later
    if names and column not in names and not (is_nested and column.partition(".")[0] in names):
        raise unknown(f"column of {where}", column, names)


@dataclass(frozen=True)
class MemoryTable:
    """A table in memory: of pandas, Polars or Arrow, a data set, a dict of lists, or an iterable of dicts."""

    content: Any
    names: list[str]
    has_columns: bool
    """Whether the content has columns; otherwise each of its rows has names."""

    @classmethod
    def of(cls, content: Any) -> MemoryTable:
        """The rows of some content."""
        if isinstance(content, Mapping) and not all(
            isinstance(column, list | tuple | np.ndarray) for column in content.values()
        ):
            if len(content) > 1:
                raise InputError(f"the rows have the splits {', '.join(map(str, content))}: choose one of them.")
            (content,) = content.values()
        names = list(content) if isinstance(content, Mapping) else getattr(content, "column_names", None)
        names = names if names is not None else getattr(content, "columns", None)
        if names is not None:
            return cls(content, [str(name) for name in names], True)
        if isinstance(content, Iterator | bytes | range | np.ndarray) or not isinstance(content, Iterable):
            why = ", which cannot be read twice" if isinstance(content, Iterator) else ""
            raise InputError(f"the rows are {type(content).__name__}{why}: give a list of dicts, a table, or a file.")
        return cls(content, _names(content), False)

    def check_column(self, column: str) -> None:
        """Refuse a name that is not among the columns."""
        if not self.names and next(iter(self.content), None) is not None:
            kind = type(self.content).__name__
            raise InputError(f"the rows are {kind}, without columns: give a table with a column {column}.")
        _check_column("the rows", self.names, column)

    def rows(self, column: str) -> Iterator[Row]:
        """Its rows, with the values of a column."""
        top = _top(column, self.names)
        values = self.content[top] if self.has_columns else self.content
        for number, value in enumerate(values, 1):
            plain = value.as_py() if hasattr(value, "as_py") else value
            record = {top: plain} if self.has_columns else plain
            problem = "" if isinstance(record, Mapping) else "not a dict"
            yield Row(f"row {number:,}", None if problem else _field(record, column), problem)


@dataclass(frozen=True)
class FoundFiles:
    """The files of a folder that are read, and the names of those that are not."""

    files: tuple[DataFile, ...]
    skipped: tuple[str, ...] = ()

    def sentence(self) -> str:
        """How many files were read and skipped."""
        sentence = f"{count_items(len(self.files), 'file')} read"
        if self.skipped:
            names = ", ".join(printable(name, 60) for name in self.skipped[:REPORTED_PLACES])
            more = ", ..." * (len(self.skipped) > REPORTED_PLACES)
            sentence += f", {len(self.skipped):,} skipped ({names}{more})"
        return sentence


def find_files(path: Path, formats: Sequence[str], encoding: str | None = None) -> FoundFiles:
    """A file, or the files of some formats in a folder and its subfolders."""
    if path.is_file():
        file_format = _format_of(path) or (
            "text" if "text" in formats and path.suffix.lower() not in BINARY_SUFFIXES else None
        )
        if file_format is None:
            raise InputError(f"{path} has a format that cannot be read: give {', '.join(FORMATS)}.")
        return FoundFiles((DataFile(path, file_format, encoding),))
    files, skipped = [], []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if any(part.startswith(".") for part in name.parts) or not file.is_file() or file.name in METADATA:
            continue
        if (file_format := _format_of(file)) in formats:
            files.append(DataFile(file, str(file_format), encoding))
        else:
            skipped.append(str(name))
    return FoundFiles(tuple(files), tuple(skipped))


def _format_of(path: Path) -> str | None:
    stem = path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path
    return FORMATS.get(stem.suffix.lower())
