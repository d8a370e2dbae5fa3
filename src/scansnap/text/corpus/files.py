"""Where text comes from: a file, a folder, or a name.

A folder with train and valid files (`train.txt`, `wiki.valid.tokens`, `validation.txt`, ...), and perhaps test files,
has these splits.  Any other folder, or a single file, is read in order of its files' names, and its last twentieth by
bytes is kept for validation: cut at the line end nearest to there, or else at the nearest whitespace.

Text is read in pieces: lines, and parts of lines that are longer than `PIECE_BYTES`, so that files larger than memory
can be read.  A piece ends in a newline exactly where a line ends; the end of a file ends a line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scansnap.base.errors import InputError, unknown
from scansnap.base.source_stamp import source_stamp
from scansnap.text.corpus.cache import cached_folder
from scansnap.text.corpus.generated import write_example
from scansnap.text.corpus.wikitext import WIKITEXT, fetch_wikitext

SPLITS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
}
"""The splits, and the words in a file's name that say which it belongs to."""

SUFFIXES = (".txt", ".text", ".tokens", ".raw", ".md")
EXAMPLE = "example"
NAMES = (EXAMPLE, *WIKITEXT)
HELD_OUT = 20
"""Of text without splits, one part in so many is kept for validation."""

PIECE_BYTES = 2**18
"""The longest piece of text in memory at once; at least 4, so that it can hold any character."""

SEARCH_BYTES = 2**16
"""How far from the place for a cut a line end or whitespace is looked for."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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
                raise InputError(f"{self.path} holds zero bytes: give a text file in UTF-8.")
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
        """A hash of the content: the bytes, which split they are in, and where files end."""
        found = hashlib.blake2b(digest_size=16)
        for split, sections in self.splits.items():
            found.update(f"{split} {len(sections)}\n".encode())
            for section in sections:
                found.update(f"{section.stop - section.start}\n".encode())
                for block in _blocks(section, 0, section.stop - section.start):
                    found.update(block)
        return found.hexdigest()


def find_text(source: str | Path) -> TextFiles:
    """The text of a name in `NAMES`, or at a path; a folder here called `example` is found as `./example`."""
    if isinstance(source, str) and source in NAMES:
        return _named(source)
    path = Path(source).expanduser()
    try:
        if path.is_dir() and str(source):
            return _folder(path, path.resolve().name)
        if path.is_file():
            return TextFiles(path.stem, _held_out([_whole(path)], path))
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


def _named(name: str) -> TextFiles:
    if name == EXAMPLE:
        # the stamp makes a changed generator write anew
        stamp = source_stamp("text.corpus.generated")
        return _folder(cached_folder("text", f"{name}-{stamp:08x}", write_example), name)
    return _folder(cached_folder("text", name, lambda folder: fetch_wikitext(name, folder)), name)


def _folder(path: Path, name: str) -> TextFiles:
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )
    if not files:
        raise InputError(f"{path} holds no text: give a folder with files that end in {', '.join(SUFFIXES)}.")
    splits = {
        split: [_whole(file) for file in files if _split_of(file) == split]
        for split in SPLITS
        if any(_split_of(file) == split for file in files)
    }
    if "train" not in splits or len(splits) == 1:
        return TextFiles(name, _held_out([_whole(file) for file in files], path))
    for split, sections in splits.items():
        if _first_ink(sections) is None:
            raise InputError(f"the {split} files in {path} hold no text: fill them, or remove them.")
    found = {split: tuple(sections) for split, sections in splits.items()}
    if "valid" not in found:
        found = _held_out(splits["train"], path) | {"test": found["test"]}
    return TextFiles(name, found)


def _split_of(file: Path) -> str | None:
    words = re.split(r"[._-]", file.name.lower())
    return next((split for split, names in SPLITS.items() if set(names) & set(words)), None)


def _whole(path: Path) -> Section:
    try:
        with path.open("rb") as file:
            start = len(BYTE_ORDER_MARK) if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
            return Section(path, start, file.seek(0, 2))
    except OSError as error:
        raise _unreadable(path, error) from None


def _held_out(sections: list[Section], source: Path) -> dict[str, tuple[Section, ...]]:
    """Training text, and validation text from its end."""
    first, last = _first_ink(sections), _last_ink(sections)
    if first is None or last is None:
        raise InputError(f"{source} holds no text: give a text file with words in it, or a folder of such files.")
    cut = _cut_near(sections, first, last, source)
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


def _cut_near(sections: list[Section], first: int, last: int, source: Path) -> int:
    """Where to cut: positions count the bytes of all sections; ink is at `first`, at `last` and nowhere outside."""
    size = last + 1 - first
    target = last + 1 - max(1, size // HELD_OUT)
    low, high = max(first + 1, target - SEARCH_BYTES), min(last + 1, target + SEARCH_BYTES)  # of positions: [low, high)
    window = np.frombuffer(b"".join(_read(sections, low - 1, high)), np.uint8)
    if not window.all():
        raise InputError(f"{source} holds zero bytes: give a text file in UTF-8.")
    before, after = window[:-1], window[1:]  # before[i] and after[i] are the bytes on either side of position low + i
    ends = np.cumsum([section.stop - section.start for section in sections])
    files_end = np.isin(np.arange(low, high), ends)

    line_ends = low + np.flatnonzero((before == ord("\n")) | files_end)
    near = line_ends[np.abs(line_ends - target) <= size // (2 * HELD_OUT)]
    spaces = low + np.flatnonzero(np.isin(after, np.frombuffer(SPACES, np.uint8)) | files_end)
    characters = low + np.flatnonzero((after & 0xC0) != 0x80)
    whole = low == first + 1 and high == last + 1
    for candidates in (near, spaces) if whole else (near, spaces, characters):
        if candidates.size:
            return int(candidates[np.argmin(np.abs(candidates - target))])
    raise InputError(f"{source} holds a single word: give more text, so that part of it can be kept for validation.")


def _first_ink(sections: Iterable[Section]) -> int | None:
    """The position of the first byte that is not whitespace."""
    done = 0
    for block in _all_blocks(sections):
        if ink := block.lstrip(SPACES):
            return done + len(block) - len(ink)
        done += len(block)
    return None


def _last_ink(sections: list[Section]) -> int | None:
    """The position of the last byte that is not whitespace."""
    stop = _size(sections)
    while stop > 0:
        start = max(0, stop - PIECE_BYTES)
        if ink := b"".join(_read(sections, start, stop)).rstrip(SPACES):
            return start + len(ink) - 1
        stop = start
    return None


def _size(sections: Iterable[Section]) -> int:
    return sum(section.stop - section.start for section in sections)


def _read(sections: Iterable[Section], start: int, stop: int) -> Iterator[bytes]:
    """The bytes at positions from `start` up to `stop`, where positions count the bytes of all sections."""
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
    """Lines, and parts of overlong lines that are cut before whitespace or else between characters."""
    try:
        with section.path.open("rb") as file:
            file.seek(section.start)
            left, kept = section.stop - section.start, b""
            while left:
                line = file.readline(min(left, PIECE_BYTES - len(kept)))
                left = left - len(line) if line else 0  # nothing: the file has been cut short
                raw = kept + line
                cut = len(raw) if raw.endswith(b"\n") or not left else _last_cut(raw)
                raw, kept = raw[:cut], raw[cut:]
                if not left and not raw.endswith(b"\n") and not file.read(1):
                    raw += b"\n"
                yield raw[:-2] + b"\n" if raw.endswith(b"\r\n") else raw
    except OSError as error:
        raise _unreadable(section.path, error) from None


def _last_cut(raw: bytes) -> int:
    """The last place to cut, before whitespace or else before a character; never in front of everything."""
    space = max(raw.rfind(space) for space in SPACES)
    if space > 0:
        return space
    lead = len(raw) - 1
    while lead > max(0, len(raw) - 4) and raw[lead] & 0xC0 == 0x80:
        lead -= 1
    return lead or len(raw)


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot read {path} ({error.strerror or error}): give text that can be read.")
