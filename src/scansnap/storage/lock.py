"""One process writes a store: it holds a lock that the system gives to one process only, and takes back when it ends.

The lock is on a file beside the store.  A file that nobody holds means nothing, whatever is in it: a process that was
killed leaves its file, whose lock is free.  On network file systems this works as far as their locks do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from scansnap.runtime.errors import StoreError


class WriterLock:
    """The lock of a store; it is free again after `release`, or when this object or its process is gone."""

    def __init__(self, path: Path) -> None:
        self._held: int | None = None
        if path.name in ("", ".."):
            raise StoreError(f"a result cannot be written over the folder {path}: give it a name, such as result.zarr.")
        self._path = path
        self._file = path.with_name(f"{path.name}.lock")

    def acquire(self) -> None:
        """Take the lock, or refuse to write what another process is writing."""
        while self._held is None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise StoreError(f"cannot write {self._path}: {error.strerror or error}.") from None
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.read(handle, 20).decode(errors="replace") or "another"
                os.close(handle)
                if not isinstance(error, BlockingIOError):
                    raise StoreError(f"cannot lock {self._path}: {error.strerror or error}.") from None
                remedy = "close what this process opened" if owner == str(os.getpid()) else "wait for it"
                raise StoreError(f"process {owner} is writing {self._path}: {remedy}, or give another name.") from None
            if self._is_there(handle):
                self._held = handle
            else:
                os.close(handle)  # its holder removed it after this process had opened it
        with contextlib.suppress(OSError):  # only for the sentence above
            os.ftruncate(self._held, 0)
            os.pwrite(self._held, str(os.getpid()).encode(), 0)

    def _is_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self._file.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others write."""
        if self._held is not None:
            try:
                with contextlib.suppress(OSError):
                    self._file.unlink()
            finally:
                os.close(self._held)
                self._held = None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # os may be gone when the program ends
        if self._held is not None:
            close(self._held)
