"""Files whose damage shows, and which a power cut leaves whole.

A file is known by its size and the CRC-32 of its bytes.  A change of up to 32 neighboring bits always changes the
CRC-32, and any other one but once in 2^32 times.  What must be on the disk before something else refers to it is
synced: the files, and the folders that name them.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import gibibytes

Sum = list[int]
"""The size of a file and the CRC-32 of its bytes; with a third number, of as many of its first bytes."""

SEAL = b', "crc32": '
READ_BYTES = 2**20
SYNCED_AT_ONCE = 8
"""Files synced side by side: a disk writes many of them in the time of one."""


class DamagedFile(Exception):
    """A file with other bytes than were written."""


def checksum(data: bytes | memoryview) -> Sum:
    """The sum of a file with these bytes."""
    return [len(data), zlib.crc32(data)]


def file_checksum(path: Path) -> Sum:
    """The sum of a file, read block by block."""
    value = size = 0
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            value = zlib.crc32(block, value)
            size += len(block)
    return [size, value]


def list_files(folder: Path, *, leave_out: Collection[str] = ()) -> dict[str, Sum]:
    """The sums of all files in a folder, by their paths in it, except some of its files and folders."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder): path for path in paths}
    return {name.as_posix(): file_checksum(path) for name, path in names.items() if name.parts[0] not in leave_out}


def is_list_of_sums(content: object) -> bool:
    """Whether this maps names of files inside a folder to their sums, as a list that was read from a file should."""
    return isinstance(content, dict) and all(
        ".." not in name.split("/")
        and not name.startswith("/")
        and isinstance(value, list)
        and 2 <= len(value) <= 3
        and all(type(number) is int for number in value)
        for name, value in content.items()
    )


def matches(data: bytes, written: Sum) -> bool:
    """Whether these are the bytes that the sum is of."""
    size, value, *used = written
    return len(data) == size and zlib.crc32(data[: used[0]] if used else data) == value


def sealed(content: Mapping[str, Any]) -> bytes:
    """An object as JSON whose last entry is the CRC-32 of all bytes before it."""
    body = json.dumps(content).encode()[:-1]
    return body + SEAL + str(zlib.crc32(body)).encode() + b"}"


def unsealed(data: bytes) -> dict[str, Any]:
    """The object in sealed JSON; refuses other bytes than were written, and JSON without a seal."""
    body, _, value = data.rpartition(SEAL)
    if value != str(zlib.crc32(body)).encode() + b"}":
        raise DamagedFile("it has other bytes than were written")
    content: dict[str, Any] = json.loads(body + b"}")
    return content


def sync(paths: Iterable[Path]) -> None:
    """Return when the files and folders are on the disk."""
    waiting = list(paths)
    if len(waiting) < 2:
        for path in waiting:
            _sync(path)
        return
    try:
        with ThreadPoolExecutor(SYNCED_AT_ONCE) as pool:
            list(pool.map(_sync, waiting))
    except RuntimeError:  # no threads can be started while the program ends
        for path in waiting:
            _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Sync a folder and all that is in it."""
    sync([folder, *folder.rglob("*")])


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one move: after a power cut too it has its old bytes or its new ones."""
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.write_bytes(data)
        sync([draft])
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync([path.parent])


def free_space(path: Path) -> int:
    """Bytes that can still be written where a file or a folder is to be."""
    return shutil.disk_usage(_there(path)).free


def check_disk_space(path: Path, needed: float, what: str, advice: str) -> None:
    """Refuse what does not fit on the disk, before anything is done: "`what` up to 3 GiB"."""
    free = free_space(path)
    if needed > free:
        raise InputError(f"{what} up to {gibibytes(needed)} and {_there(path)} has {gibibytes(free)} free: {advice}.")


def _there(path: Path) -> Path:
    """The folder that is there already of those above a path."""
    return next(parent for parent in path.absolute().parents if parent.exists())
