"""A number that changes when the code behind a compiled function changes.

Numba keeps compiled functions on disk and compiles again when the file that defines one has changed, but not when a
function that it calls, in another file, has: the old machine code would go on giving the old numbers.  Its cache is
also keyed by the values that a function closes over.  So every function that is kept closes over the stamp of the
modules it calls.
"""

from __future__ import annotations

import zlib
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def source_stamp(*modules: str) -> int:
    """A checksum of the sources of modules of this package, given as "data.sampling"."""
    stamp = 0
    for module in modules:
        stamp = zlib.crc32(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_bytes(), stamp)
    return stamp
