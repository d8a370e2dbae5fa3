"""numba's `njit`, whose cached code only this user can have written.

numba unpickles the code that it finds in its cache, so anyone who can write there can run code as you.  If a folder of
the cache belongs to another user, or if others can write to it, nothing is loaded from it.  Compiled code then goes to
a private folder in the user's cache, and a warning says so.

Modules with compiled functions import `njit` from here, since numba chooses the folder when a function is decorated.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
from numba import njit

from scansnap.runtime.errors import StoreError
from scansnap.storage.cache import cache_folder

__all__ = ["is_private", "njit", "use_private_cache"]

NUMBA_CONFIG: Any = numba.config  # its names are made from environment variables
OTHERS_WRITE, GROUP_WRITES = 0o002, 0o020


def is_private(folder: Path) -> bool:
    """Whether only this user, and root, can write to a folder; true of a folder that does not exist.

    The group may write if it is the user's own, as where each user has one.
    """
    try:
        status = folder.stat()
    except OSError:
        return True
    by_group = status.st_mode & GROUP_WRITES and status.st_gid != os.getegid()
    return status.st_uid in (os.geteuid(), 0) and not by_group and not status.st_mode & OTHERS_WRITE


def _folders() -> Iterator[Path]:
    """The folders from which numba would load: that of NUMBA_CACHE_DIR, or those beside the modules."""
    if NUMBA_CONFIG.CACHE_DIR:
        given = Path(NUMBA_CONFIG.CACHE_DIR)
        yield from (given, *(path for path in given.glob("*") if path.is_dir()))
    else:
        yield from Path(__file__).parents[1].glob("*/__pycache__")


def use_private_cache() -> None:
    """Let numba use another cache if other users can write to its own."""
    if not hasattr(os, "geteuid"):  # Windows, where the cache is in the user's profile
        return
    shared = next((folder for folder in _folders() if not is_private(folder)), None)
    if shared is None:
        return
    try:
        own = cache_folder() / "compiled"
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, StoreError):
        own = shared
    if not is_private(own):
        own = Path(tempfile.mkdtemp(prefix="scansnap-compiled-"))
    warnings.warn(
        f"other users can write to {shared}, so compiled code is not loaded from there but kept in {own}: run "
        f"chmod go-w on it, or set NUMBA_CACHE_DIR to a folder of your own.",
        RuntimeWarning,
        stacklevel=2,
    )
    NUMBA_CONFIG.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = str(own)  # also for processes that this one starts


use_private_cache()
