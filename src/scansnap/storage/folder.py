"""A folder whose files change together: the one way in which results, models and caches are stored.

`manifest.json` lists the size and the checksum of every file of the folder, holds a JSON object that describes the
content (`info`), and ends with its own checksum.  New files stand beside their old versions, as `name.new`, until
`commit`:

    1. the new files are synced;
    2. the new manifest replaces the old one atomically, and is synced;
    3. the new files are renamed.

A process that ends before the second point leaves the folder as it was after the last commit.  One that ends after it
leaves files to be renamed, which readers find and the next writer renames.  So the manifest never names a file that is
not on the disk, and a file that is missing or does not match was damaged by something else.

One process writes at a time: it holds a lock on a file inside the folder, which the system releases when the process
ends.  Readers take no lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from filelock import FileLock, Timeout

from scansnap.runtime.errors import StoreError
from scansnap.storage.files import (
    IS_WINDOWS,
    Checksum,
    DamagedFile,
    atomic_write,
    checksum,
    checksummed_json,
    file_checksum,
    is_checksum_table,
    read_checksummed_json,
    sync,
    write_errors,
)

MANIFEST = "manifest.json"
LOCK = ".scansnap.lock"
STAGED_SUFFIX = ".new"
"""The suffix of a file that is not committed yet."""

WHOLE_STORE = "the store"
"""The part to which files belong that are not in a subfolder."""


@dataclass(frozen=True)
class Condition:
    """The result of reading every file of a store."""

    complete: bool
    damaged: dict[str, list[str]]
    """The damaged files of each part of the store; an intact part has none."""

    @property
    def is_intact(self) -> bool:
        """Whether no damage was found."""
        return not any(self.damaged.values())


class StoreLock:
    """The lock of the process that writes a folder.

    It is free again after `release`, or when this object or its process is gone.
    """

    _held: ClassVar[weakref.WeakSet[StoreLock]] = weakref.WeakSet()

    def __init__(self, root: Path) -> None:
        if root.name in ("", ".."):
            raise StoreError(f"a result cannot be written over the folder {root}: give it a name, such as result.zarr.")
        self._root = root
        self._lock = FileLock(root / LOCK, thread_local=False)

    def acquire(self, *, wait: bool = False) -> None:
        """Take the lock; raise a `StoreError` if another process holds it, unless this may `wait` for it."""
        if self._lock.is_locked:
            return
        root = self._root
        with write_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(blocking=wait)
            except Timeout:
                own = any(lock._root.absolute() == root.absolute() for lock in self._held)
                who, remedy = ("this", "close what this process opened") if own else ("another", "wait for it")
                raise StoreError(f"{who} process is writing {root}: {remedy}, or give another name.") from None
        self._held.add(self)

    def release(self) -> None:
        """Let other processes write."""
        self._held.discard(self)
        self._lock.release()

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return bool(self._lock.is_locked)


def is_new(root: Path) -> bool:
    """Whether nothing was committed to a folder: it does not exist, or a writer ended before its first commit."""
    try:
        if not stat.S_ISDIR(root.stat().st_mode):
            return False
    except OSError:  # it does not exist, or cannot: then writing it says why
        return True
    return all(name == LOCK or name.endswith(STAGED_SUFFIX) for _, _, names in os.walk(root) for name in names)


class CheckedFolder:
    """The files of a folder.  `files` and `info` are as of the last commit; `committed` says whether there is one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, Checksum] = {}
        self.info: dict[str, Any] = {}
        self.committed = False
        self._lock = StoreLock(root)
        self._staged: dict[str, Checksum | None] = {}  # what the next commit adds, or with None removes
        self._turn = threading.RLock()  # one thread at a time changes what is staged: zarr writes in threads of its own
        self._is_closed = False
        self.read_manifest()

    # --- reading ---------------------------------------------------------------------------------------------------

    def read_manifest(self) -> None:
        """Read what was committed."""
        self.files, self.info, self.committed = {}, {}, False
        try:
            content = read_checksummed_json((self.root / MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, DamagedFile):
            raise StoreError(
                f"{self.root} is damaged: the bytes of its manifest, {MANIFEST}, differ from those that were written, "
                "so nothing in it can be checked."
            ) from None
        if not isinstance(content.get("info"), dict) or not is_checksum_table(content.get("files")):
            raise StoreError(f"{self.root} is damaged: its manifest, {MANIFEST}, was not written by scansnap.")
        self.files, self.info, self.committed = content["files"], content["info"], True

    def names(self) -> list[str]:
        """The names of all files, including staged ones."""
        return [name for name in {**self.files, **self._staged} if self.has(name)]

    def has(self, name: str) -> bool:
        """Whether the folder has a file, committed or staged."""
        return bool(self._staged.get(name, name in self.files))

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, or None if the folder has no such file; raises a `StoreError` if it is damaged."""
        if name in self._staged:
            return self._written(name).read_bytes() if self._staged[name] else None
        if name not in self.files:
            return None
        data = self._intact(name)
        if data is None:
            self.read_manifest()  # another process may have committed since
            if self.committed and name not in self.files:
                return None
            data = self._intact(name) if self.committed else None
        if data is None:
            raise self.damage(name)
        return data

    def _intact(self, name: str) -> bytes | None:
        for path in (self.root / name, self._new(name)):  # a writer may have ended before it renamed its files
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if checksum(data) == self.files[name]:
                return data
        return None

    def damaged(self) -> list[str]:
        """The files that are missing or whose bytes differ from those that were written."""
        return [name for name in self.files if not self._is_intact(name)]

    def _is_intact(self, name: str) -> bool:
        for path in (self.root / name, self._new(name)):
            with contextlib.suppress(OSError):
                if file_checksum(path) == self.files[name]:
                    return True
        return False

    def condition(self) -> Condition:
        """Read every file, and report the damaged ones by part."""
        parts: dict[str, list[str]] = {part_of(name) or WHOLE_STORE: [] for name in sorted(self.files)}
        for name in self.damaged():
            parts[part_of(name) or WHOLE_STORE].append(name)
        return Condition(True, parts)

    def refuse_damage(self, advice: str = "") -> None:
        """Read every file, and raise a `StoreError` if one is damaged."""
        for name in self.damaged():
            raise self.damage(name, advice)

    def check_presence(self) -> None:
        """Raise a `StoreError` if a file is missing or has another size; other damage shows when a file is read."""
        for name, (size, _) in self.files.items():
            path = self.root / name
            if not path.is_file() or path.stat().st_size != size:
                self.read(name)

    def damage(self, name: str, advice: str = "") -> StoreError:
        """The error for a damaged file."""
        owner = f"of '{part_of(name)}'" if part_of(name) else "of the store"
        there = (self.root / name).exists()
        problem = "has other bytes than were written" if there else "is missing"
        what = advice or f"scansnap check {self.root} lists what is intact, and load(..., partial=True) reads it"
        return StoreError(f"{self.root} is damaged: the file {name} {owner} {problem}; {what}.")

    # --- writing ---------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Become the one process that writes, and clean up after one that ended in the middle of it."""
        # the manifest comes last here: a writer's first commit puts it there before any other file
        if not is_new(self.root) and not (self.root / MANIFEST).exists():
            raise StoreError(f"{self.root} is not a scansnap store: give another name.")
        self._lock.acquire()
        self._is_closed = False
        try:
            with write_errors(self.root):
                self.read_manifest()
                self._clean_up()
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Let other processes write; what is staged is not committed, and a folder that is still new is removed."""
        with self._turn:
            self._is_closed = True
        is_unused = self._lock.is_held and not self.committed and is_new(self.root)
        if is_unused:
            shutil.rmtree(self.root, ignore_errors=True)
        self._lock.release()
        if is_unused and IS_WINDOWS:  # it keeps files that are open, such as the lock, and so their folder
            with contextlib.suppress(OSError):
                self.root.rmdir()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, and commit everything that is staged here or nothing."""
        self.lock()
        try:
            with self.staging():
                yield
        finally:
            self.unlock()

    @contextlib.contextmanager
    def staging(self) -> Iterator[None]:
        """On an error, discard what is staged."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                self.discard()
            raise

    def write(self, name: str, data: bytes) -> None:
        """Stage a file."""
        with self._turn:
            self._draft(name).write_bytes(data)
            self._staged[name] = checksum(data)

    def write_with(self, name: str, fill: Callable[[BinaryIO], object]) -> None:
        """Stage a file that a function of the open file writes."""
        path = self._draft(name)
        with path.open("wb") as file:
            fill(file)
        self._staged[name] = file_checksum(path)

    def adopt_all(self) -> None:
        """Stage everything that was written in place."""
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            is_own = path.suffix == STAGED_SUFFIX or name in (LOCK, MANIFEST, *self.files)
            if path.is_file() and not is_own:
                self._staged[name] = file_checksum(path)

    def remove(self, name: str) -> None:
        """Stage the removal of a file."""
        with self._turn:
            self._new(name).unlink(missing_ok=True)
            self._staged[name] = None

    def commit(self, info: dict[str, Any] | None = None) -> None:
        """Commit everything that is staged, and `info` if it is given."""
        with self._turn:
            added = {name: value for name, value in self._staged.items() if value is not None}
            written = [self._written(name) for name in added]
            folders = {folder for path in written for folder in path.parents if folder.is_relative_to(self.root)}
            sync({*written, *folders})
            files = {name: value for name, value in {**self.files, **added}.items() if self._staged.get(name, True)}
            content = {"info": self.info if info is None else info, "files": files}
            is_first = not self.committed
            atomic_write(self.root / MANIFEST, checksummed_json(content))
            if is_first:
                sync([self.root.parent])
            self.files, self.info, self.committed = files, content["info"], True
            for name in added:
                if (path := self._new(name)).exists():
                    path.replace(self.root / name)
            for name in self._staged.keys() - added:
                (self.root / name).unlink(missing_ok=True)
            self._staged = {}

    def discard(self) -> None:
        """Forget what is staged; remove a folder to which nothing was ever committed."""
        with self._turn:
            self.read_manifest()  # a commit may have failed after it replaced the manifest
            for name, value in self._staged.items():
                if value is None or self.files.get(name) != value:
                    self._new(name).unlink(missing_ok=True)
            self._staged = {}
            if is_new(self.root):
                shutil.rmtree(self.root, ignore_errors=True)

    def leftovers(self) -> list[Path]:
        """Staged files; if no writer holds the lock, they are left over from a crash."""
        return [*self.root.rglob(f"*{STAGED_SUFFIX}")]

    def _clean_up(self) -> None:
        """Finish the commit of a writer that ended in it, and remove what it did not commit."""
        for draft in self.leftovers():
            name = draft.relative_to(self.root).as_posix().removesuffix(STAGED_SUFFIX)
            if name in self.files and file_checksum(draft) == self.files[name]:
                draft.replace(self.root / name)
            else:
                draft.unlink(missing_ok=True)

    def _draft(self, name: str) -> Path:
        """The path at which a file is written until the next commit."""
        if self._is_closed:
            raise RuntimeError(f"{self.root} is closed")
        if not self.root.exists():  # it was moved away: do not recreate parts of it
            raise FileNotFoundError(2, "No such file or directory")
        path = self._new(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._staged.setdefault(name, None)  # so that `discard` removes it if writing fails
        return path

    def _written(self, name: str) -> Path:
        """The path of a staged file: its draft, or its final place if it was adopted."""
        draft = self._new(name)
        return draft if draft.exists() else self.root / name

    def _new(self, name: str) -> Path:
        path = self.root / name
        return path.with_name(f"{path.name}{STAGED_SUFFIX}")


def is_intact(root: Path) -> bool:
    """Whether a folder has all files that were committed to it, undamaged."""
    try:
        folder = CheckedFolder(root)
    except StoreError:  # the manifest is damaged
        return False
    return folder.committed and not folder.damaged()


def write_folder(root: Path, write: Callable[[Path], dict[str, Any] | None], *, keep_intact: bool = False) -> None:
    """Write a whole folder anew: `write` writes its files in place and may return `info`.

    Until all files are on the disk the folder has no manifest.  Of several processes that write it, all but one wait.
    With `keep_intact`, nothing is done if the folder is intact.
    """
    lock = StoreLock(root)
    lock.acquire(wait=True)
    try:
        if keep_intact and is_intact(root):
            return
        (root / MANIFEST).unlink(missing_ok=True)
        info = write(root)
        folder = CheckedFolder(root)
        folder.adopt_all()
        folder.commit(info)
    finally:
        lock.release()


def empty_folder(root: Path) -> None:
    """Remove everything in a folder but its lock."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def part_of(name: str) -> str:
    """The subfolder of a file, such as the variable of an array; empty if the file belongs to the whole store."""
    first, slash, _ = name.partition("/")
    return first if slash else ""
