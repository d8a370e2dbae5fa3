"""The user's cache: folders of files that are written once and can be made again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from scansnap.runtime.errors import StoreError
from scansnap.storage.files import write_errors
from scansnap.storage.folder import empty_folder, is_intact, write_folder
from scansnap.validation.checks import expand_user

CACHE_VARIABLE = "SCANSNAP_CACHE"


def cache_folder() -> Path:
    """$SCANSNAP_CACHE, or `scansnap` in $XDG_CACHE_HOME or `~/.cache`."""
    if os.environ.get(CACHE_VARIABLE):
        return expand_user(f"${CACHE_VARIABLE}", os.environ[CACHE_VARIABLE]).absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scansnap"
    except RuntimeError:
        raise StoreError(f"there is no home folder for a cache: set ${CACHE_VARIABLE} to a folder.") from None


def cached_folder(kind: str, key: str, fill: Callable[[Path], None]) -> Path:
    """The folder `kind/key` of the cache; if it is missing or damaged, `fill` writes its files.

    Of several processes that want the same folder one writes it, and the others wait.
    """
    root = cache_folder() / kind / key

    def write(folder: Path) -> None:
        empty_folder(folder)
        try:
            fill(folder)
        except BaseException:
            empty_folder(folder)
            raise

    with write_errors(root, f"; set ${CACHE_VARIABLE} to a writable folder"):
        if not is_intact(root):
            if root.is_file():
                root.unlink()
            root.mkdir(parents=True, exist_ok=True)
            write_folder(root, write, keep_intact=True)
    return root
