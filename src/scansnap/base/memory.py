"""How much memory this machine has, and how to say so."""

from __future__ import annotations

import os


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gibibytes(size: float) -> str:
    """A number of bytes in readable form."""
    return f"{size / 2**30:.2g} GiB" if size < 10 * 2**30 else f"{size / 2**30:,.0f} GiB"
