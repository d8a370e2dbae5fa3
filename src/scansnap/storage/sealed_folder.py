"""A folder whose files change together, and whose damage shows.

The folder is a zarr store (format 2), and what belongs to it is what its `.zmetadata` says: beside the metadata of all
arrays, which zarr consolidates there, it lists the size and the checksum of every file, and it ends with its own.
Other readers ignore the list.

Files that are written stand beside their old ones, as `name.new`, until `commit`:

    1. the new files are synced;
    2. the list of all files replaces the old list, in one move, and is synced;
    3. the new files take their names.

A process that ends before the second point leaves the folder as it was after the last commit, and one that ends after
it leaves files to be moved, which the next writer does.  So the list never names what is not on the disk, and a file
that does not match it, or is missing, was damaged by something else.  A file that zarr leaves out because all its
values are the fill value is not in the list; a file that is in the list and not in the folder is noticed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from scansnap.runtime.errors import StoreError
from scansnap.storage.files import (
    DamagedFile,
    Sum,
    checksum,
    file_checksum,
    is_list_of_sums,
    matches,
    replace_file,
    sealed,
    sync,
    unsealed,
)

_TURN = threading.RLock()
"""One thread at a time changes what is written."""

LIST = ".zmetadata"
METADATA = (".zarray", ".zattrs", ".zgroup")
SEALED_SINCE = 2
"""The format of results since which they have a list."""


class SealedFolder:
    """The files of a store.  `sums` lists them, as of the last commit; None in a store without checksums."""

    def __init__(self, root: Path, *, new: bool = False) -> None:
        self.root = root
        self.metadata: dict[str, Any] = {}
        self.sums: dict[str, Sum] | None = {}
        self._waiting: dict[str, Sum | None] = {}  # what the next commit adds, or with None removes
        self.is_closed = False  # zarr writes in a thread of its own, which an interruption of this one does not stop
        if not new:
            self._read_list()

    def _read_list(self) -> None:
        try:
            content = unsealed((self.root / LIST).read_bytes())
        except (OSError, DamagedFile):
            if self._should_have_list():
                raise StoreError(
                    f"{self.root} is damaged: its list of files, {LIST}, is missing or has other bytes than were "
                    "written, so nothing in it can be checked; xarray.open_zarr(..., consolidated=False) may open what "
                    "is left."
                ) from None
            content = {"metadata": {}, "files": None}
        if not _is_list(content):
            raise StoreError(f"{self.root} is damaged: its list of files, {LIST}, is none that scansnap wrote.")
        self.metadata, self.sums = content["metadata"], content["files"]

    def _should_have_list(self) -> bool:
        try:
            attrs = json.loads((self.root / ".zattrs").read_bytes())
            return isinstance(attrs, dict) and attrs.get("format", 0) >= SEALED_SINCE
        except (OSError, ValueError, TypeError):
            return False

    def has(self, name: str) -> bool:
        """Whether the store has a file, committed or not."""
        return bool(self._waiting.get(name, name in (self.sums or {})))

    def names(self) -> list[str]:
        """The files of the store, those not yet committed too."""
        return [name for name in {**(self.sums or {}), **self._waiting} if self.has(name)]

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, or None if the store has no such file; refuses bytes other than those written."""
        if name == LIST:
            return self._list()
        if name in self._waiting:
            return self._new(name).read_bytes() if self._waiting[name] else None
        assert self.sums is not None
        if name not in self.sums:
            return None
        data = self._intact(name)
        if data is None:
            self._read_list()  # another process may have committed since
            data = self._intact(name) if self.sums and name in self.sums else None
        if data is None:
            raise StoreError(f"{self.root} is damaged: {self.problem(name)}; {advice(self.root)}")
        return data

    def _intact(self, name: str) -> bytes | None:
        assert self.sums is not None
        for path in (self.root / name, self._new(name)):  # a writer that ended in a commit has not moved its files
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if matches(data, self.sums[name]):
                return data
        return None

    def problem(self, name: str) -> str:
        """What is wrong with a damaged file."""
        what = f"of '{variable_of(name)}'" if variable_of(name) else "of the store"
        if not (self.root / name).exists():
            return f"the file {name} {what} is missing"
        return f"the file {name} {what} has other bytes than were written"

    def damaged(self) -> list[str]:
        """The files that are missing or have other bytes than were written."""
        return [name for name in self.sums or {} if self._intact(name) is None]

    def refuse_damage(self) -> None:
        """Read every file, and refuse a store of which one is damaged."""
        for name in self.damaged():
            raise StoreError(f"{self.root} is damaged: {self.problem(name)}; {advice(self.root)}")

    def check_presence(self) -> None:
        """Refuse a store that lacks a file, has one of another size, or damaged metadata; the rest shows when read."""
        for name, (size, *_) in (self.sums or {}).items():
            path = self.root / name
            if is_metadata(name) or not path.is_file() or path.stat().st_size != size:
                self.read(name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, which counts after the next commit."""
        with _TURN:
            self._draft(name).write_bytes(data)
            self._waiting[name] = checksum(data)
            if is_metadata(name):
                self.metadata[name] = json.loads(data)

    def write_by(self, name: str, fill: Callable[[BinaryIO], object]) -> None:
        """Write a file by a function of the open file."""
        path = self._draft(name)
        with path.open("wb") as file:
            fill(file)
        self._waiting[name] = file_checksum(path)

    def _draft(self, name: str) -> Path:
        """Where a file is written until the next commit."""
        if self.is_closed:
            raise RuntimeError(f"{self.root} is closed")
        path = self._new(name)
        path.parent.mkdir(exist_ok=True)  # not the folder itself, if somebody has removed it
        self._waiting.setdefault(name, None)  # so that `discard` removes it if writing fails
        return path

    def discard(self) -> None:
        """Forget what was written since the last commit, which may have come as far as its list."""
        with _TURN:  # zarr may still be writing other chunks
            self.metadata = {}
            if (self.root / LIST).exists():
                self._read_list()
            for name, value in self._waiting.items():
                if value is None or (self.sums or {}).get(name) != value:
                    self._new(name).unlink(missing_ok=True)
            self._waiting = {}

    def remove(self, name: str) -> None:
        """Remove a file; it is gone after the next commit."""
        with _TURN:
            self._new(name).unlink(missing_ok=True)
            self._waiting[name] = None
            self.metadata.pop(name, None)

    def commit(self) -> None:
        """Let everything written since the last commit count."""
        with _TURN:
            self._commit()

    def close(self) -> None:
        """Refuse to write from now on, when what is being written is."""
        with _TURN:
            self.is_closed = True

    def _commit(self) -> None:
        added = {name: value for name, value in self._waiting.items() if value is not None}
        drafts = [self._new(name) for name in added]
        sync({*drafts, *(draft.parent for draft in drafts)})
        before = self.sums or {}
        self.sums = {name: value for name, value in {**before, **added}.items() if self._waiting.get(name, True)}
        try:
            replace_file(self.root / LIST, self._list())
        except OSError:
            self.sums = before
            raise
        for name in added:
            self._new(name).replace(self.root / name)
        for name in self._waiting.keys() - added:
            (self.root / name).unlink(missing_ok=True)
        self._waiting = {}

    def drafts(self) -> list[Path]:
        """Files that have not got their names; if nobody is writing, a writer that ended has left them."""
        return [*self.root.rglob("*.new")]

    def recover(self) -> None:
        """Finish the last commit of a writer that ended in it, and remove what was not committed."""
        for draft in self.drafts():
            name = draft.relative_to(self.root).as_posix().removesuffix(".new")
            if self.sums and name in self.sums and file_checksum(draft) == self.sums[name]:
                draft.replace(self.root / name)
            else:
                draft.unlink(missing_ok=True)
        if broken := self.damaged():
            raise StoreError(
                f"{self.root} is damaged: {self.problem(broken[0])}; remove it to start the run again, or keep what "
                f"scansnap check {self.root} calls intact with load(..., partial=True)."
            )

    def note(self, name: str, value: Sum) -> None:
        """List a file that was written in place, without a commit."""
        assert self.sums is not None
        self.sums[name] = value

    def write_list(self) -> None:
        """Replace the list."""
        replace_file(self.root / LIST, self._list())

    def _list(self) -> bytes:
        return sealed({"zarr_consolidated_format": 1, "metadata": self.metadata, "files": self.sums})

    def _new(self, name: str) -> Path:
        path = self.root / name
        return path.with_name(f"{path.name}.new")


def _is_list(content: dict[str, Any]) -> bool:
    """Whether a list has what belongs there."""
    metadata, files = content.get("metadata"), content.get("files", ())
    described = isinstance(metadata, dict) and all(isinstance(entry, dict) for entry in metadata.values())
    return described and (files is None or is_list_of_sums(files))


def is_metadata(name: str) -> bool:
    """Whether a file describes an array, or the store."""
    return name.rpartition("/")[2] in METADATA


def variable_of(name: str) -> str:
    """The variable that a file belongs to; none if it belongs to the whole store."""
    return name.rpartition("/")[0]


def advice(path: Path) -> str:
    """What to do about a damaged store."""
    return f"scansnap check {path} says what is intact, and load(..., partial=True) gives it."
