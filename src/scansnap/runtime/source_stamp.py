"""A number that changes when the code behind a compiled function changes.

Numba caches compiled functions on disk.  It recompiles a function when its own file changes, but not when a function
that it calls in another file changes: the old machine code would keep giving the old numbers.  The cache is also keyed
by the values that a function closes over, so every cached function closes over the stamp of its module.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent

IMPORT = re.compile(r"^from (scansnap\.[\w.]+) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
"""An import of this package when a module is loaded; to parse the sources would take ten times as long."""


def source_stamp(module: str) -> int:
    """A checksum of the sources of `module` and of all modules of this package that it imports, directly or not."""
    stamp = 0
    for name in sorted({module, *_imported(module)}):
        stamp = zlib.crc32(_file(name).read_bytes(), stamp)
    return stamp


def _imported(module: str) -> set[str]:
    """The modules of this package that a module imports when it is loaded, and those that they import."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        for name in _direct(waiting.pop()) - reached:
            reached.add(name)
            waiting.append(name)
    return reached


@cache
def _direct(module: str) -> frozenset[str]:
    names = set()
    for home, *listed in IMPORT.findall(_file(module).read_text(encoding="utf-8")):
        names |= {home, *(f"{home}.{word}" for word in re.findall(r"\w+", " ".join(listed)))}
    return frozenset(name for name in names if _file(name).is_file())


def _file(module: str) -> Path:
    return PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
