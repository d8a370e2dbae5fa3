"""Progress of long work, on the terminal's error stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scansnap.base.printable import printable


@contextmanager
def progress_bar(description: str, total: float, show: bool | None = None) -> Iterator[Callable[..., None]]:
    """A function to call with the amount done and a note; if `show` is true it draws a bar with the time left.

    By default the bar shows only on an interactive terminal.
    """
    if not (sys.stderr.isatty() if show is None else show) or total <= 0:
        yield lambda done, note="": None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        words = printable(description, 60)
        task = bar.add_task(words, total=total)
        yield lambda done, note="": bar.update(task, completed=done, description=f"{words} {note}".rstrip())
