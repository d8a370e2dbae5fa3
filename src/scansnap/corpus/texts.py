"""Where text comes from: a file, a folder, or a name.

A folder with train and valid files (`train.txt`, `wiki.valid.tokens`, `validation.txt`, ...), and perhaps test files,
has these splits.  The files of any other folder, or a single file, are read in order of their names, and the last
twentieth by bytes is held out for validation.  The cut is at the line end nearest to there, or else at the nearest
whitespace.

Text is read in pieces, so that files can be larger than memory: a piece is a line, or part of a line longer than
`PIECE_BYTES`.  It ends in a newline exactly where a line ends; the end of a file also ends a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scansnap.corpus.example import EXAMPLE_VERSION, write_example
from scansnap.runtime.errors import InputError, brief, printable, unknown
from scansnap.storage.cache import cached_folder
from scansnap.validation.checks import expand_user

SPLITS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
}
"""The splits, and the words in a file's name that assign it to one."""

SUFFIXES = (".txt", ".text", ".tokens", ".raw", ".md")
WIKITEXT_REPOSITORY = "Salesforce/wikitext"

WIKITEXT = {"wikitext-2": "wikitext-2-v1", "wikitext-103": "wikitext-103-v1"}
"""Configurations by name: the word-level texts, in which rare words are `<unk>`, as in the published runs."""

WIKITEXT_SPLITS = {"train": "train", "validation": "valid", "test": "test"}

EXAMPLE = "example"
NAMES = (EXAMPLE, *WIKITEXT)
HELD_OUT = 20
"""One part in this many of a text without splits is held out for validation."""

PIECE_BYTES = 2**18
"""The longest piece of text in memory at once; at least 4, to fit any character."""

SEARCH_BYTES = 2**16
"""How far from its target a cut may be."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
FOREIGN = {
    b"\x1f\x8b": ("compressed", "unpack it (gunzip)"),
    b"PK\x03": ("compressed, or a document of an office program", "unpack it, or save it as plain text"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("text in UTF-16", "save it in UTF-8 (iconv -f utf-16 -t utf-8)")),
}
"""The first bytes of files in other formats, what these are, and what to do."""

SPACES = b" \t\n\r\v\f"


@dataclass(frozen=True)
class Section:
    """The bytes of a file from `start` up to `stop`."""

    path: Path
    start: int
    stop: int

    def pieces(self) -> Iterator[str]:
        """The text in pieces."""
        for raw in _raw_pieces(self):
            if b"\0" in raw:
                raise InputError(f"{self.path} contains null bytes: give a text file in UTF-8.")
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self.path} is not text in UTF-8 ({error.reason}): convert it, or give another file."
                ) from None


@dataclass(frozen=True)
class TextFiles:
    """Text and its splits: `train`, `valid` and perhaps `test`, each as sections of files in reading order."""

    name: str
    splits: Mapping[str, tuple[Section, ...]]

    def pieces(self, split: str) -> Iterator[str]:
        """The text of a split, in pieces."""
        for section in self.splits[split]:
            yield from section.pieces()

    def num_bytes(self, split: str) -> int:
        """The size of a split."""
        return _size(self.splits[split])

    def digest(self) -> str:
        """A hash of the content: the bytes, the split that they are in, and where files end."""
        content = hashlib.blake2b(digest_size=16)
        for split, sections in self.splits.items():
            content.update(f"{split} {len(sections)}\n".encode())
            for section in sections:
                content.update(f"{section.stop - section.start}\n".encode())
                for block in _blocks(section, 0, section.stop - section.start):
                    content.update(block)
        return content.hexdigest()


def find_text(source: str | Path) -> TextFiles:
    """The text with a name in `NAMES`, or at a path; a local folder called `example` is `./example`."""
    if isinstance(source, str) and source in NAMES:
        return _text_named(source)
    path = expand_user("the text", source)
    try:
        if path.is_dir() and str(source):
            return _text_in(path, path.resolve().name)
        if path.is_file():
            return TextFiles(path.stem, _hold_out([_whole_file(path)], path))
        exists = path.exists() and bool(str(source))
    except OSError as error:
        raise _unreadable(path, error) from None
    if exists:
        raise InputError(f"{path} is neither a file nor a folder: give a text file or a folder of them.")
    if path.suffix or len(path.parts) > 1:
        raise InputError(
            f"there is no text at {source}: give a text file, a folder of text files, or one of {', '.join(NAMES)}."
        )
    raise unknown("text", source, [*NAMES, "a path"])


def _text_named(name: str) -> TextFiles:
    if name == EXAMPLE:
        return _text_in(cached_folder("text", f"{name}-{EXAMPLE_VERSION}", write_example), name)
    return _text_in(cached_folder("text", name, lambda folder: _fetch_wikitext(name, folder)), name)


def _fetch_wikitext(name: str, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"{name} is downloaded with Hugging Face datasets, which is not installed: pip install 'scansnap[text]', "
            "or give the path of a folder with it."
        ) from None
    try:
        content = load_dataset(WIKITEXT_REPOSITORY, WIKITEXT[name])
    except Exception as error:  # of many types: no network, no such dataset, no space
        raise InputError(f"{name} cannot be downloaded ({brief(error)}): give the path of a folder with it.") from None
    for split, name_here in WIKITEXT_SPLITS.items():
        with (folder / f"{name_here}.txt").open("w", encoding="utf-8", newline="\n") as file:
            for rows in content[split].iter(batch_size=1000):
                # a row is a line with its newline, except that a blank line is an empty row
                file.writelines(row.rstrip("\n") + "\n" for row in rows["text"])


def _text_in(path: Path, name: str) -> TextFiles:
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )
    if not files:
        raise InputError(
            f"{path} contains no text (its own folders are not read): give one with files that end in "
            f"{', '.join(SUFFIXES)}."
        )
    splits = {
        split: [_whole_file(file) for file in files if _split_of(file) == split]
        for split in SPLITS
        if any(_split_of(file) == split for file in files)
    }
    if "train" not in splits or len(splits) == 1:
        return TextFiles(name, _hold_out([_whole_file(file) for file in files], path))
    for split, sections in splits.items():
        if _first_nonspace(sections) is None:
            raise InputError(f"the {split} files in {path} contain no text: fill them, or remove them.")
    if "valid" not in splits:
        return TextFiles(name, _hold_out(splits["train"], path) | {"test": tuple(splits["test"])})
    return TextFiles(name, {split: tuple(sections) for split, sections in splits.items()})


def _split_of(file: Path) -> str | None:
    words = re.split(r"[._-]", file.name.lower())
    return next((split for split, names in SPLITS.items() if set(names) & set(words)), None)


def _whole_file(path: Path) -> Section:
    try:
        with path.open("rb") as file:
            first = file.read(len(BYTE_ORDER_MARK))
            for mark, (what, remedy) in FOREIGN.items():
                if first.startswith(mark):
                    raise InputError(f"{path} is {what}, not text in UTF-8: {remedy}.")
            return Section(path, len(first) if first == BYTE_ORDER_MARK else 0, file.seek(0, 2))
    except OSError as error:
        raise _unreadable(path, error) from None


def _hold_out(sections: list[Section], source: Path) -> dict[str, tuple[Section, ...]]:
    """Cut sections into training text and, from the end, validation text."""
    first, last = _first_nonspace(sections), _last_nonspace(sections)
    if first is None or last is None:
        raise InputError(f"{source} contains no text: give a text file with words in it, or a folder of such files.")
    cut = _best_cut(sections, first, last, source)
    ends = np.cumsum([section.stop - section.start for section in sections]).tolist()
    train, valid = [], []
    for section, end in zip(sections, ends, strict=True):
        middle = min(max(section.stop - (end - cut), section.start), section.stop)
        train.append(Section(section.path, section.start, middle))
        valid.append(Section(section.path, middle, section.stop))
    return {
        "train": tuple(part for part in train if part.start < part.stop),
        "valid": tuple(part for part in valid if part.start < part.stop),
    }


def _best_cut(sections: list[Section], first: int, last: int, source: Path) -> int:
    """The position of the cut; `first` and `last` are the positions of the first and the last character of text.

    Positions count the bytes of all sections.
    """
    size = last + 1 - first
    target = last + 1 - max(1, size // HELD_OUT)
    low, high = max(first + 1, target - SEARCH_BYTES), min(last + 1, target + SEARCH_BYTES)  # candidates: [low, high)
    window = np.frombuffer(b"".join(_read(sections, low - 1, high)), np.uint8)
    if not window.all():
        raise InputError(f"{source} contains null bytes: give a text file in UTF-8.")
    before, after = window[:-1], window[1:]  # before[i] and after[i] are the bytes on either side of position low + i
    ends = np.cumsum([section.stop - section.start for section in sections])
    is_file_end = np.isin(np.arange(low, high), ends)

    line_ends = low + np.flatnonzero((before == ord("\n")) | is_file_end)
    near = line_ends[np.abs(line_ends - target) <= size // (2 * HELD_OUT)]
    spaces = low + np.flatnonzero(np.isin(after, np.frombuffer(SPACES, np.uint8)) | is_file_end)
    characters = low + np.flatnonzero((after & 0xC0) != 0x80)
    is_complete = low == first + 1 and high == last + 1  # all of the text was searched
    for candidates in (near, spaces) if is_complete else (near, spaces, characters):
        if candidates.size:
            return int(candidates[np.argmin(np.abs(candidates - target))])
    raise InputError(f"{source} contains a single word: give enough text to hold part of it out for validation.")


def _first_nonspace(sections: Iterable[Section]) -> int | None:
    """The position of the first byte that is not whitespace."""
    done = 0
    for block in _all_blocks(sections):
        if stripped := block.lstrip(SPACES):
            return done + len(block) - len(stripped)
        done += len(block)
    return None


def _last_nonspace(sections: list[Section]) -> int | None:
    """The position of the last byte that is not whitespace."""
    stop = _size(sections)
    while stop > 0:
        start = max(0, stop - PIECE_BYTES)
        if stripped := b"".join(_read(sections, start, stop)).rstrip(SPACES):
            return start + len(stripped) - 1
        stop = start
    return None


def _size(sections: Iterable[Section]) -> int:
    return sum(section.stop - section.start for section in sections)


def _read(sections: Iterable[Section], start: int, stop: int) -> Iterator[bytes]:
    """The bytes from position `start` up to `stop`; positions count the bytes of all sections."""
    done = 0
    for section in sections:
        size = section.stop - section.start
        yield from _blocks(section, max(start - done, 0), min(stop - done, size))
        done += size


def _all_blocks(sections: Iterable[Section]) -> Iterator[bytes]:
    for section in sections:
        yield from _blocks(section, 0, section.stop - section.start)


def _blocks(section: Section, start: int, stop: int) -> Iterator[bytes]:
    """The bytes of a section from `start` up to `stop`, at most `PIECE_BYTES` at a time."""
    if start >= stop:
        return
    try:
        with section.path.open("rb") as file:
            file.seek(section.start + start)
            left = stop - start
            while left and (block := file.read(min(left, PIECE_BYTES))):
                left -= len(block)
                yield block
    except OSError as error:
        raise _unreadable(section.path, error) from None


def _raw_pieces(section: Section) -> Iterator[bytes]:
    """Lines, and parts of overlong lines, which are cut before whitespace or else between characters."""
    try:
        with section.path.open("rb") as file:
            file.seek(section.start)
            left, carried = section.stop - section.start, b""
            while left:
                line = file.readline(min(left, PIECE_BYTES - len(carried)))
                left = left - len(line) if line else 0  # nothing left: the file was truncated meanwhile
                raw = carried + line
                cut = len(raw) if raw.endswith(b"\n") or not left else _last_cut(raw)
                raw, carried = raw[:cut], raw[cut:]
                if not left and not raw.endswith(b"\n") and not file.read(1):
                    raw += b"\n"
                yield raw[:-2] + b"\n" if raw.endswith(b"\r\n") else raw
    except OSError as error:
        raise _unreadable(section.path, error) from None


def _last_cut(raw: bytes) -> int:
    """The last place for a cut before whitespace, or else before a character; never at the start."""
    last_space = max(raw.rfind(space) for space in SPACES)
    if last_space > 0:
        return last_space
    lead = len(raw) - 1
    while lead > max(0, len(raw) - 4) and raw[lead] & 0xC0 == 0x80:
        lead -= 1
    return lead or len(raw)


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot read {printable(str(path), 300)} ({error.strerror or error}): give a readable text file or folder."
    )
