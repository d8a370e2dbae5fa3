"""Checksummed files that are replaced atomically.

A file is identified by its size and the CRC-32 of its bytes.  A file that something else refers to is synced to the
disk first, with the folder that contains it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from scansnap.runtime.errors import InputError, StoreError
from scansnap.runtime.machine import gibibytes

Checksum = list[int]
"""The size of a file and the CRC-32 of its bytes."""

MARK = "written by scansnap"
"""The name of this package in the metadata of pictures."""

MARKS = (MARK.encode(), b'<meta name="generator" content="scansnap">')
"""What is in the pictures and pages that this package writes, by which it recognizes them."""

OVERWRITE: ContextVar[bool] = ContextVar("OVERWRITE", default=False)
"""Whether outputs may replace files that this package did not write: `--overwrite`."""

SEAL = b', "crc32": '
READ_BYTES = 2**20
MARKED_BYTES = 2**14
IS_WINDOWS = os.name == "nt"
"""Windows syncs files that are open for writing, and cannot sync folders: it records names in a journal of its own."""

SYNC_THREADS = 8
"""Files synced at the same time: a disk writes many of them in the time of one."""


class DamagedFile(Exception):
    """A file whose bytes differ from those that were written."""


def checksum(data: bytes | memoryview) -> Checksum:
    """The checksum of a file with these bytes."""
    return [len(data), zlib.crc32(data)]


def file_checksum(path: Path) -> Checksum:
    """The checksum of a file, read block by block."""
    value = size = 0
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            value = zlib.crc32(block, value)
            size += len(block)
    return [size, value]


def is_checksum_table(content: object) -> bool:
    """Whether this maps relative paths inside a folder to checksums, as a manifest should."""
    return isinstance(content, dict) and all(
        ".." not in name.split("/")
        and not name.startswith("/")
        and isinstance(value, list)
        and len(value) == 2
        and all(type(number) is int for number in value)
        for name, value in content.items()
    )


def checksummed_json(content: Mapping[str, Any]) -> bytes:
    """An object as JSON whose last entry is the CRC-32 of all bytes before it."""
    body = json.dumps(content).encode()[:-1]
    return body + SEAL + str(zlib.crc32(body)).encode() + b"}"


def read_checksummed_json(data: bytes) -> dict[str, Any]:
    """The object in checksummed JSON; raises `DamagedFile` if the checksum is missing or wrong."""
    body, _, value = data.rpartition(SEAL)
    if value != str(zlib.crc32(body)).encode() + b"}":
        raise DamagedFile("its bytes differ from those that were written")
    content: dict[str, Any] = json.loads(body + b"}")
    return content


@contextmanager
def write_errors(where: Path | str, note: str = "") -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` that says what cannot be written; `note` ends its message."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {where}: {error.strerror or error}{note}.") from None


def sync(paths: Iterable[Path]) -> None:
    """Return when the files and folders are on the disk."""
    waiting = list(paths)
    try:
        with ThreadPoolExecutor(SYNC_THREADS) as pool:
            list(pool.map(_sync, waiting))
    except RuntimeError:  # no threads can be started at interpreter shutdown
        for path in waiting:
            _sync(path)


def _sync(path: Path) -> None:
    if IS_WINDOWS and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash or a power cut it has its old bytes or its new ones."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_bytes(data)
        sync([draft])
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync([path.parent])


def is_ours(path: Path) -> bool:
    """Whether this package wrote a page, a picture or a table: its mark is near the beginning or the end."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        beginning = file.read(MARKED_BYTES)
        file.seek(max(0, file.seek(0, os.SEEK_END) - MARKED_BYTES))
        return any(mark in part for part in (beginning, file.read()) for mark in MARKS)


def check_replaceable(path: Path) -> None:
    """Refuse to replace a file that this package did not write, unless `--overwrite` was given."""
    if not OVERWRITE.get() and os.path.lexists(path) and not is_ours(path):
        raise StoreError(
            f"{path} is a file that scansnap did not write: give another name, or --overwrite to replace it."
        )


def check_output(what: str, path: Path, endings: str) -> None:
    """Refuse an output without one of the endings (".png or .pdf"), or in place of a file that is not ours."""
    from scansnap.validation import checks  # NumPy takes long to import

    checks.path(what, path)
    if path.suffix.lower() not in endings.replace(",", "").split() or path.is_dir():
        raise InputError(f"{what} is '{path}': give a file whose name ends in {endings}.")
    check_replaceable(path)


def write_output(path: Path, data: bytes, note: str = "") -> None:
    """Write a page or a picture atomically; `note` ends the message of an error."""
    check_replaceable(path)
    with write_errors(path, note):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, data)


def read_regular_text(path: Path) -> str:
    """The text of a regular file; a folder or a device raises an `OSError`, since reading it may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.read_text(encoding="utf-8")


def write_new_text(path: Path, text: str) -> None:
    """Write a text file that must not exist yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists already: give another name, or remove it first.") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from None


def check_disk_space(path: Path, needed: float, what: str, advice: str) -> None:
    """Refuse what does not fit on the disk before anything is written: "`what` up to 3 GiB"."""
    where = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(where).free
    if needed > free:
        raise InputError(f"{what} up to {gibibytes(needed)} and {where} has {gibibytes(free)} free: {advice}.")
