"""Where texts and labeled rows come from: files, folders, and tables in memory.  `corpus` and `shortcuts` share it.

- Plain text: .txt, .text, .tokens, .raw, .md.
- Tables: .csv, .tsv, .jsonl, .ndjson, .json (one object per line), .parquet, .pq, .arrow (as `datasets` saves them).
- Text files and text tables may be compressed (.gz, .zst, .bz2).  Their encoding is the one you state, else the one
  that a byte order mark shows (UTF-8, UTF-16), else UTF-8.
- A folder is read recursively, in order of the files' paths.  Hidden files are not read; files of other formats are
  listed in `skipped`.
- In memory: pandas, Polars and Arrow tables, Hugging Face data sets, a dict of lists, a list of dicts.

CSV and JSON lines are parsed by Python's own modules: they name the line of a malformed row, which Arrow's do not.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from scansnap.runtime.errors import InputError, brief, count_items, printable, unknown
from scansnap.validation.checks import expand_user

FORMATS = {
    **dict.fromkeys((".txt", ".text", ".tokens", ".raw", ".md"), "text"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".arrow": "arrow",
}
COMPRESSED = (".gz", ".zst", ".bz2")
BINARY = (".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt", ".pptx", ".pdf", ".zip", ".tar", ".pkl", ".npy")
"""Files that are never read as plain text; those with other unknown endings are."""

TABLES = ("csv", "json", "parquet", "arrow")
BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

DELIMITERS = ",\t;|"
LONGEST_FIELD = 2**22
"""Characters in a field of a CSV file; a longer one has a quotation mark that is never closed."""

PIECE = 2**18
"""The longest piece of text in memory at once, in characters."""

MOST_MALFORMED = 0.01
"""The largest share of malformed rows with which a table is still read."""

LISTED = 5
"""Rows that a report names for each reason."""

NAMED_BY = 1000
"""The first rows of JSON lines or a list of dicts, whose names are its columns."""

METADATA = ("dataset_info.json", "dataset_dict.json", "state.json", "manifest.json")
"""Files that Hugging Face `datasets` and this package write beside the data."""


class Malformed(NamedTuple):
    """A row that its format does not allow, and the lines that it takes."""

    reason: str
    lines: int = 1


class Row(NamedTuple):
    """Where a row is, and its values."""

    place: str
    values: tuple[Any, ...] | Malformed


@dataclass
class RowReport:
    """How many rows were used, and which were left out or used with a doubt, by reason."""

    used: int = 0
    malformed: int = 0
    left_out: dict[str, list[Any]] = field(default_factory=dict)  # reason: [count, first places]
    noted: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def num_left_out(self) -> int:
        """Rows that are not used."""
        return sum(count for count, _ in self.left_out.values())

    def leave_out(self, row: Row, reason: str) -> None:
        """Count a row that is not used."""
        lines = 1
        if isinstance(row.values, Malformed):
            lines = row.values.lines
            self.malformed += lines
        _note(self.left_out, reason, row.place, lines)

    def note(self, row: Row, remark: str) -> None:
        """Count a row that is used with a doubt."""
        _note(self.noted, remark, row.place, 1)

    def sentences(self) -> list[str]:
        """One sentence for each reason."""
        said = []
        for reasons, verdict in ((self.left_out, "left out"), (self.noted, "used all the same")):
            for reason, (count, places) in reasons.items():
                listed = "; ".join(places) + ("; ..." if count > len(places) else "")
                said.append(f"{count_items(count, 'row')} {verdict}: {reason} ({listed}).")
        return said

    def refuse_malformed(self, name: str) -> None:
        """Raise an `InputError` if too many rows are malformed."""
        total = self.used + self.num_left_out
        if self.malformed > MOST_MALFORMED * total:
            raise InputError(
                f"{self.malformed:,} of {total:,} rows of {name} are malformed, more than {MOST_MALFORMED:.0%}: repair "
                f"or remove them. {' '.join(self.sentences())}"
            )


def _note(reasons: dict[str, list[Any]], reason: str, place: str, count: int) -> None:
    entry = reasons.setdefault(reason, [0, []])
    entry[0] += count
    if len(entry[1]) < LISTED:
        entry[1].append(place)


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
            return _names(row.values[0] for row in self._json_rows(()))
        return [] if self.format == "text" else list(self._arrow_schema().names)

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Its rows, with the values of these columns; a name such as review.body leads into nested objects."""
        if self.format == "json":
            return self._json_rows(columns)
        return self._csv_rows(columns) if self.format == "csv" else self._arrow_rows(columns)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse names that are not among the columns."""
        names = self.columns()
        if not names and self.format != "json":
            raise InputError(f"{self.path} has no columns: give a table with {' and '.join(columns)}.")
        _check_columns(self.path, names, columns, is_nested=self.format != "csv")

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
        if self.path.suffix.lower() in COMPRESSED:
            import pyarrow as pa

            return pa.input_stream(str(self.path), compression="detect")
        return self.path.open("rb")

    def _csv_columns(self, heading: str) -> tuple[str, list[str]]:
        """The delimiter that separates most names in the first line, and the names."""
        delimiter = max(DELIMITERS, key=heading.count)
        names = next(csv.reader([heading.rstrip("\r\n")], delimiter=delimiter), [])
        return delimiter, [name.strip() for name in names]

    def _csv_rows(self, columns: Sequence[str]) -> Iterator[Row]:
        with self._text() as file:
            delimiter, names = self._csv_columns(file.readline())
            chosen = [names.index(column) for column in columns]
            before = csv.field_size_limit(LONGEST_FIELD)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                while True:
                    first = reader.line_num
                    try:
                        values = next(reader)
                    except StopIteration:
                        return
                    except csv.Error as error:
                        why: tuple[Any, ...] | Malformed = Malformed(f"not CSV ({error})", reader.line_num - first)
                    else:
                        if not values:  # a blank line is no row
                            continue
                        why = (
                            tuple(values[i] for i in chosen)
                            if len(values) == len(names)
                            else Malformed(f"not {len(names)} fields", reader.line_num - first)
                        )
                    yield Row(self._place("line", first + 2), why)
            finally:
                csv.field_size_limit(before)

    def _json_rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The values of columns, or the whole objects if there are none."""
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
                values: tuple[Any, ...] | Malformed = Malformed("not a JSON object")
                if isinstance(record, dict):
                    values = _values(record, columns) if columns else (record,)
                yield Row(self._place("line", number), values)

    # --- Arrow and Parquet --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _arrow(self) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            if self.format == "parquet":
                with parquet.ParquetFile(self.path) as file:
                    yield file
            else:
                with pa.memory_map(str(self.path)) as source:
                    yield pa.ipc.open_stream(source)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"cannot read {self.path} as {self.format} ({brief(error)}): give another file.") from None

    def _arrow_schema(self) -> Any:
        with self._arrow() as file:
            return file.schema_arrow if self.format == "parquet" else file.schema

    def _arrow_rows(self, columns: Sequence[str]) -> Iterator[Row]:
        schema = self._arrow_schema()
        tops = _top_columns(schema.names, columns)
        names_of = _label_names(schema.metadata or {})
        number = 0
        with self._arrow() as file:
            for batch in file.iter_batches(2**12, columns=tops) if self.format == "parquet" else file:
                for record in batch.select(tops).to_pylist():
                    number += 1
                    yield Row(self._place("row", number), _values(record, columns, names_of))


def _label_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The names of class labels that Hugging Face stores in the metadata of a table, by column."""
    info = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {})
    features = info.get("features", {})
    return {name: about["names"] for name, about in features.items() if isinstance(about, dict) and "names" in about}


def _values(
    record: Mapping[str, Any], columns: Sequence[str], names_of: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> tuple[Any, ...]:
    """The values of columns in a record; class labels by their names, and None for -1, which means no label."""
    values = [field_of(record, column) for column in columns]
    for i, column in enumerate(columns):
        if column in names_of and isinstance(values[i], int):
            names = names_of[column]
            values[i] = names[values[i]] if 0 <= values[i] < len(names) else None
    return tuple(values)


def _top_columns(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns to read for some columns, which may be fields of nested objects."""
    return list(dict.fromkeys(name if name in names else name.partition(".")[0] for name in columns))


def field_of(record: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of a field of a nested object; None if there is none."""
    if path in record:
        return record[path]
    first, dot, rest = path.partition(".")
    inner = record.get(first)
    return field_of(inner, rest) if dot and isinstance(inner, Mapping) else None


def _names(records: Iterable[Any]) -> list[str]:
    """The names in the first records that are objects, in their order."""
    first = (record for record in islice(records, NAMED_BY) if isinstance(record, Mapping))
    return list(dict.fromkeys(name for record in first for name in record))


def _check_columns(where: object, names: Sequence[str], columns: Sequence[str], *, is_nested: bool = True) -> None:
    for column in columns if names else ():  # without names there are no rows, or malformed ones: told later
        if column not in names and not (is_nested and column.partition(".")[0] in names):
            raise unknown(f"column of {where}", column, names)


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory: a table of pandas, Polars or Arrow, a data set, a dict of lists, or an iterable of dicts."""

    content: Any
    names: list[str]
    is_table: bool
    """Whether the content has columns; otherwise each of its rows has names."""

    @classmethod
    def of(cls, content: Any, split: str | None = None) -> MemoryRows:
        """The rows of some content, or of one of its splits."""
        columns = content.values() if isinstance(content, Mapping) else ()
        if not all(isinstance(column, list | tuple | np.ndarray) for column in columns):
            if split is None and len(content) > 1:
                raise InputError(f"the rows have the splits {', '.join(map(str, content))}: choose one of them.")
            if split is not None and split not in content:
                raise unknown("split", split, [str(key) for key in content])
            content = content[split] if split is not None else next(iter(content.values()))
        elif split is not None:
            raise InputError(f"split is '{split}' but the rows have no splits: leave it out.")
        names = list(content) if isinstance(content, Mapping) else getattr(content, "column_names", None)
        names = names if names is not None else getattr(content, "columns", None)
        if names is not None:
            return cls(content, [str(name) for name in names], True)
        if isinstance(content, Iterator | bytes | range | np.ndarray) or not isinstance(content, Iterable):
            why = ", which cannot be read twice" if isinstance(content, Iterator) else ""
            raise InputError(f"the rows are {type(content).__name__}{why}: give a list of dicts, a table, or a file.")
        return cls(content, _names(content), False)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse names that are not among the columns."""
        if not self.names and next(iter(self.content), None) is not None:
            kind = type(self.content).__name__
            raise InputError(f"the rows are {kind}, without columns: give a table with {' and '.join(columns)}.")
        _check_columns("the rows", self.names, columns)

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Its rows, with the values of these columns."""
        features = getattr(self.content, "features", None) or {}
        names_of = {name: feature.names for name, feature in features.items() if hasattr(feature, "names")}
        for number, record in enumerate(self._records(columns) if self.is_table else self.content, 1):
            is_row = isinstance(record, Mapping)
            yield Row(f"row {number:,}", _values(record, columns, names_of) if is_row else Malformed("not a dict"))

    def _records(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        tops = _top_columns(self.names, columns)
        for values in zip(*(self.content[top] for top in tops), strict=True):
            plain = (value.as_py() if hasattr(value, "as_py") else value for value in values)
            yield dict(zip(tops, plain, strict=True))


@dataclass(frozen=True)
class FoundFiles:
    """The files of a folder that are read, and the names of those that are not."""

    files: tuple[DataFile, ...]
    skipped: tuple[str, ...] = ()

    def sentence(self) -> str:
        """How many files were read and skipped."""
        said = f"{count_items(len(self.files), 'file')} read"
        if self.skipped:
            listed = ", ".join(printable(name, 60) for name in self.skipped[:LISTED])
            said += f", {len(self.skipped):,} skipped ({listed}{', ...' * (len(self.skipped) > LISTED)})"
        return said


def find_files(path: Path, formats: Sequence[str], encoding: str | None = None) -> FoundFiles:
    """A file, or the files of some formats in a folder and its subfolders."""
    if path.is_file():
        file_format = _format_of(path) or ("text" if "text" in formats and path.suffix.lower() not in BINARY else None)
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
    stem = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return FORMATS.get(stem.suffix.lower())


@dataclass(frozen=True)
class Table:
    """Rows with named columns, which can be read repeatedly, always in the same order."""

    name: str
    columns: tuple[str, ...]
    sources: tuple[DataFile | MemoryRows, ...]
    found: FoundFiles | None = None

    def rows(self) -> Iterator[Row]:
        """Every row, from the first."""
        return chain.from_iterable(source.rows(self.columns) for source in self.sources)


def open_table(
    source: object, columns: Sequence[str], *, split: str | None = None, encoding: str | None = None
) -> Table:
    """The rows of a file, of the files of a folder, or in memory."""
    if isinstance(source, str | Path):
        path = expand_user("source", source)
        if not path.exists():
            raise InputError(f"there is no file at {path}: give a file or a folder of {', '.join(FORMATS)}.")
        found = find_files(path, TABLES, encoding)
        if split is not None:
            found = FoundFiles(
                tuple(file for file in found.files if split in file.words_of_path(path.parent)), found.skipped
            )
            if not found.files:
                raise InputError(f"split is '{split}', but no file of {path} is named so: leave it out.")
        if not found.files:
            raise InputError(f"{path} contains no table: give files that end in {', '.join(FORMATS)}.")
        table = Table(path.resolve().name, tuple(columns), found.files, found)
    else:
        table = Table(f"a {type(source).__name__}", tuple(columns), (MemoryRows.of(source, split),))
    for own in table.sources:
        own.check_columns(columns)
    return table
