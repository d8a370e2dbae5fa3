"""Folders of plain files that are written once and kept in the user's cache.

A folder is filled under a temporary name and then renamed, so that a killed process leaves nothing unfinished and two
processes that write the same folder do not collide.  It contains a list of its files with their sizes and checksums; a
folder that does not match its list is written again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scansnap.runtime.errors import StoreError
from scansnap.storage.cache_folder import VARIABLE, cache_folder
from scansnap.storage.files import list_files

LIST = "files.json"
DRAFT = ".draft-"
ABANDONED_SECONDS = 24 * 3600
"""A draft of this age was left by a killed process."""


def cached_folder(kind: str, key: str, fill: Callable[[Path], None]) -> Path:
    """The folder `kind/key` of the cache; if it is missing or damaged, `fill` writes its files into an empty folder."""
    folder = cache_folder() / kind / key
    try:
        if is_intact(folder):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder.parent))
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        fill(draft)
        (draft / LIST).write_text(json.dumps(list_files(draft, leave_out={LIST}), indent=1) + "\n", encoding="utf-8")
        _publish(draft, folder)
    except OSError as error:
        raise _unusable(folder, error) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def is_intact(folder: Path) -> bool:
    """Whether the folder contains exactly what was written into it."""
    try:
        listed = json.loads((folder / LIST).read_text(encoding="utf-8"))
        return listed == list_files(folder, leave_out={LIST})
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _publish(draft: Path, folder: Path) -> None:
    """Give the draft its final name, unless another process was faster; a damaged folder of that name is removed."""
    draft.chmod(0o755)  # drafts are private to their owner, caches may be shared
    for _ in range(3):
        try:
            draft.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
        if is_intact(folder):
            return
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            damaged = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder.parent))
            folder.rename(damaged / "damaged")
            shutil.rmtree(damaged, ignore_errors=True)
    raise OSError(f"{folder} is being changed by other processes")


def _remove_abandoned(parent: Path) -> None:
    for draft in parent.glob(f"{DRAFT}*"):
        with contextlib.suppress(OSError):
            if time.time() - max(path.stat().st_mtime for path in (draft, *draft.rglob("*"))) > ABANDONED_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)


def _unusable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {folder} to the cache ({error.strerror or error}): set ${VARIABLE} to a writable folder."
    )
