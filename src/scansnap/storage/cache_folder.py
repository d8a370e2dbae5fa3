"""The folder in which the package keeps what it can make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scansnap.runtime.errors import StoreError
from scansnap.validation.checks import expand_user

VARIABLE = "SCANSNAP_CACHE"


def cache_folder() -> Path:
    """$SCANSNAP_CACHE, or `scansnap` in the platform's folder for caches (`~/.cache`, $XDG_CACHE_HOME, ...)."""
    if os.environ.get(VARIABLE):
        return expand_user(f"${VARIABLE}", os.environ[VARIABLE]).absolute()
    try:
        home = Path.home()
    except RuntimeError:
        raise StoreError(f"there is no home folder for a cache: set ${VARIABLE} to a folder.") from None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "scansnap"
