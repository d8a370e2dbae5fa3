"""Labeled rows: a text and its label, and what is wrong with rows that have no such thing.

A row that cannot be used is left out, counted under its reason, and reported with its number, or the line of its file;
a row that can be used with a doubt is used and noted.  Nothing is dropped in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
            kind: {reason: {"rows": places.count, "first": places.first} for reason, places in remarks.items()}
            for kind, remarks in (("left_out", self.left_out), ("noted", self.noted))
        }
        return {**remarks, "unit": self.unit}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Remarks:
        """The inverse of `plain`."""
        return cls(
            **{
                kind: {reason: Places(places["rows"], list(places["first"])) for reason, places in plain[kind].items()}
                for kind in ("left_out", "noted")
            },
            unit=plain["unit"],
        )


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
