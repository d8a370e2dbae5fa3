"""How much memory this machine has, and how to say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from scansnap.runtime.errors import InputError

GROUPS_OF_PROCESS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Where Linux says which control groups this process is in, and what is set for them."""


def physical_memory() -> int:
    """Bytes of memory in this machine, or in the container that this process runs in."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()])


def _group_limits() -> Iterator[int]:
    """The limits of the control groups around this process, beyond which it would be killed.

    Containers and schedulers set them.  In a container the path of the group may be that of the machine outside, of
    which only the top is seen, so that all groups above are looked at too.
    """
    for _, controllers, path in (line.split(":", 2) for line in _content(GROUPS_OF_PROCESS).splitlines()):
        if controllers == "":  # version 2
            root, file = GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            limit = _content(root.joinpath(*parts[:depth], file)).strip()
            if limit.isdigit():  # or "max"
                yield int(limit)


def _content(file: Path) -> str:
    """What is in a file; nothing if it is not there, or not for this process."""
    try:
        return file.read_text()
    except OSError:
        return ""


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
