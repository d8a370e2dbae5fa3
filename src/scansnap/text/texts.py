"""A text by its path or name, and its splits.

A folder with train and valid files (`train.txt`, `wiki.valid.tokens`, `validation.txt`, ...), and perhaps test files,
has these splits.  Of any other text the last twentieth is held out for validation, unless you say otherwise.  The cut
is at the line end nearest to there, or at white space inside a long line.

Text is read in pieces, so that files can be larger than memory: a piece is a line, or part of a very long line.  It
ends in a newline exactly where a line ends.  A row of a table is a text of its own and ends a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scansnap.runtime.errors import InputError, brief, printable, unknown
from scansnap.runtime.machine import import_optional
from scansnap.storage.cache import cached_folder
from scansnap.text.example import example_stories
from scansnap.text.sources import (
    FORMATS,
    TABLE_FORMATS,
    DataFile,
    FoundFiles,
    MemoryTable,
    RowReport,
    find_files,
)
from scansnap.validation.checks import expand_user

SPLIT_WORDS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
}
"""The splits, and the words in a file's name that assign it to one."""

WIKITEXT_REPOSITORY = "Salesforce/wikitext"

WIKITEXT = {"wikitext-2": "wikitext-2-v1", "wikitext-103": "wikitext-103-v1"}
"""Configurations by name: the word-level texts, in which rare words are `<unk>`, as in the published runs."""

EXAMPLE = "example"
NAMES = (EXAMPLE, *WIKITEXT)
HELD_OUT_PART = 20
"""One part in this many of a text without splits is held out for validation."""


class SplitText:
    """A text and its splits, each as files or rows in reading order, which was read once.

    `hold_out` cuts `valid` off the end of `train`.
    """

    def __init__(
        self,
        name: str,
        sources: Mapping[str, tuple[DataFile | MemoryTable, ...]],
        found: FoundFiles,
        column: str | None = None,
        hold_out: bool = False,
    ) -> None:
        """Read everything once: sizes, a hash of the content, and rows that cannot be used."""
        self.name, self.found = name, found
        self._sources, self._column, self._hold_out = sources, column, hold_out
        self.report = RowReport()
        self.sizes = dict.fromkeys(sources, 0)
        """The characters of each split in lines that are not blank."""
        content = hashlib.blake2b(digest_size=16)
        for split in sources:
            content.update(f"{split} {hold_out}\n".encode())
            for piece in self._pieces(split, self.report):
                content.update(piece.encode("utf-8", "surrogatepass"))
                self.sizes[split] += _weight(piece)
        self.digest = content.hexdigest()
        self.report.refuse_malformed(name)
        for split, size in self.sizes.items():
            if not size:
                if len(self.sizes) > 1:
                    raise InputError(f"the {split} split of {name} contains no text: fill its files, or remove them.")
                raise InputError(f"{name} contains no text: give a file with words in it, or a folder of such files.")

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(dict.fromkeys(("train", "valid", *self.sizes))) if self._hold_out else tuple(self.sizes)

    def pieces(self, split: str) -> Iterator[str]:
        """The text of a split, in pieces."""
        if not self._hold_out or split not in ("train", "valid"):
            return self._pieces(split, RowReport())
        return self._part(self._pieces("train", RowReport()), self.sizes["train"], split == "valid")

    def _pieces(self, split: str, report: RowReport) -> Iterator[str]:
        for source in self._sources[split]:
            if self._column is None:
                assert isinstance(source, DataFile)
                yield from source.pieces()
                continue
            for row in source.rows(self._column):
                if piece := report.text_of(row, self._column):
                    yield piece

    def _part(self, pieces: Iterator[str], size: int, is_valid: bool) -> Iterator[str]:
        """The pieces before the cut, or those from the cut on."""
        target = size - max(1, size // HELD_OUT_PART)
        start = 0
        for piece in pieces:
            stop = start + _weight(piece)
            cut = len(piece) if stop <= target else 0
            if start <= target < stop:
                cut = self._cut(piece, target - start, start, size)
            part = piece[cut:] if is_valid else piece[:cut]
            if part:
                yield part
            start = stop

    def _cut(self, piece: str, target: int, start: int, size: int) -> int:
        """Where to cut the piece that contains the target: at its ends if it is short, else at white space."""
        ends = [end for end in (len(piece), 0) if 0 < start + end < size]
        nearest = min(ends, key=lambda end: abs(end - target), default=None)
        if nearest is not None and abs(nearest - target) <= size // (2 * HELD_OUT_PART):
            return nearest
        text = piece.rstrip()
        spaces = [match.start() for match in re.finditer(r"\s", text) if text[: match.start()].strip()]
        if spaces:
            return min(spaces, key=lambda place: abs(place - target))
        if nearest is None:
            raise InputError(
                f"{self.name} contains a single word: give enough text to hold part of it out for validation."
            )
        return nearest


def _weight(piece: str) -> int:
    """The characters of a piece, which do not count if it is blank."""
    return 0 if piece.isspace() else len(piece)


def find_text(
    source: object, *, column: str | None = None, encoding: str | None = None, hold_out: bool = True
) -> SplitText:
    """The text with a name in `NAMES`, at a path, or in memory; a local folder called `example` is `./example`.

    `column` names the texts of a table.
    """
    if not isinstance(source, str | Path):
        return _text_in_memory(source, column, hold_out)
    if source == EXAMPLE and isinstance(source, str):
        stories = {split: (MemoryTable.of({"text": texts}),) for split, texts in example_stories().items()}
        return SplitText(EXAMPLE, stories, FoundFiles(()), "text")
    if isinstance(source, str) and source in WIKITEXT:
        folder = cached_folder("text", source, lambda folder: _fetch_wikitext(source, folder))
        return _text_at(folder, source, None, None, hold_out)
    path = expand_user("the text", source)
    try:
        if str(source) and (path.is_file() or path.is_dir()):
            name = path.resolve().name if path.is_dir() else path.name.split(".")[0] or path.name
            return _text_at(path, name, column, encoding, hold_out)
        exists = path.exists() and bool(str(source))
    except OSError as error:
        raise InputError(
            f"cannot read {printable(str(path), 300)} ({error.strerror or error}): give a readable file or folder."
        ) from None
    if exists:
        raise InputError(f"{path} is neither a file nor a folder: give a text file or a folder of them.")
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"there is no text at {source}: give a file, a folder of files, or one of {', '.join(NAMES)}.")
    raise unknown("text", source, [*NAMES, "a path"])


def _text_in_memory(source: Any, column: str | None, hold_out: bool) -> SplitText:
    """A column of a table, or strings."""
    rows = MemoryTable.of(source)
    if column is None and rows.names:
        raise InputError(f"the text is a table: name the column of its texts (text), one of {', '.join(rows.names)}.")
    if column is None:
        rows, column = MemoryTable.of({"text": list(source)}), "text"
    rows.check_column(column)
    split = "train" if hold_out else "all"
    return SplitText(f"a {type(source).__name__}", {split: (rows,)}, FoundFiles(()), column, hold_out)


def _fetch_wikitext(name: str, folder: Path) -> None:
    """Write train.txt, validation.txt and test.txt."""
    datasets = import_optional(
        "datasets",
        what=f"the download of {name}",
        package="Hugging Face datasets",
        extra="text",
        instead="give the path of a folder with it",
    )
    try:
        content = datasets.load_dataset(WIKITEXT_REPOSITORY, WIKITEXT[name])
    except Exception as error:  # of many types: no network, no such dataset, no space
        raise InputError(f"{name} cannot be downloaded ({brief(error)}): give the path of a folder with it.") from None
    for split in ("train", "validation", "test"):
        with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
            for rows in content[split].iter(batch_size=1000):
                # a row is a line with its newline, except that a blank line is an empty row
                file.writelines(row.rstrip("\n") + "\n" for row in rows["text"])


def _text_at(path: Path, name: str, column: str | None, encoding: str | None, hold_out: bool) -> SplitText:
    found = find_files(path, ("text",) if column is None else TABLE_FORMATS, encoding)
    if column is None and (table := _table_among(path, found)) is not None:
        raise InputError(
            f"{table.path} is a table: name the column of its texts (--text), one of {', '.join(table.columns())}."
        )
    if not found.files:
        raise InputError(f"{path} contains no text: give one with files that end in {', '.join(FORMATS)}.")
    for file in found.files:
        if column is not None:
            file.check_column(column)
    by_split: dict[str, list[DataFile]] = {}
    for file in found.files:
        words = file.words_of_path(path) if path.is_dir() else set()
        split = next((split for split, names in SPLIT_WORDS.items() if set(names) & words), "")
        by_split.setdefault(split, []).append(file)
    splits = {split: tuple(by_split[split]) for split in SPLIT_WORDS if split in by_split}
    if "train" not in splits or len(splits) == 1:
        return SplitText(name, {"train" if hold_out else "all": found.files}, found, column, hold_out)
    others = tuple(str(file.path.relative_to(path)) for file in by_split.get("", ()))
    found = FoundFiles(tuple(file for files in splits.values() for file in files), found.skipped + others)
    return SplitText(name, splits, found, column, hold_out and "valid" not in splits)


def _table_among(path: Path, found: FoundFiles) -> DataFile | None:
    """A table where text was expected: the file itself, or one of a folder without text."""
    files = found.files if path.is_file() else () if found.files else find_files(path, TABLE_FORMATS).files
    return next((file for file in files if file.format in TABLE_FORMATS), None)
