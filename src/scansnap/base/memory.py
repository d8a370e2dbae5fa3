"""How much memory this machine has, and how to say so."""

from __future__ import annotations

import os

from scansnap.base.errors import InputError


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(what: str, needed: float, advice: str) -> None:
    """Refuse what does not fit in this machine's memory, before anything is done."""
    if needed > physical_memory():
        raise InputError(
            f"{what} {gibibytes(needed)}, more than this machine's {gibibytes(physical_memory())}: {advice}."
        )


def gibibytes(size: float) -> str:
    """A number of bytes in readable form, in smaller units if it is far below a gibibyte."""
    unit, name = next(
        ((unit, name) for unit, name in ((2**30, "GiB"), (2**20, "MiB")) if size >= unit / 100), (2**10, "KiB")
    )
    return f"{size / unit:.2g} {name}" if size < 10 * unit else f"{size / unit:,.0f} {name}"
