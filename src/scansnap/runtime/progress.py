"""Progress of long work, on standard error: a bar on a terminal, and elsewhere an occasional line.

Rich draws the bar.  A sleeping thread writes the lines, so that the work itself need not check the time: the first
line after FIRST seconds, each later one after twice the pause before it, but at most LONGEST.  An hour of work writes
15 lines, and work that takes less than FIRST seconds writes none.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scansnap.runtime.errors import printable

FIRST = 10.0
"""Seconds before the first line."""

LONGEST = 300.0
"""Seconds between two lines, at most."""


@contextmanager
def progress_bar(
    description: str, total: float | None, show: bool | None = None, *, note: str = ""
) -> Iterator[Callable[..., None]]:
    """A function to call with the amount done and a note, which are shown with the time left; `total` may be unknown.

    If `show` is true a bar is drawn; by default on an interactive terminal only, and elsewhere lines are written.
    `note` is shown until the first call.
    """
    if show is False or sys.stderr is None or (total is not None and total <= 0):  # None if it is closed
        yield lambda done, note="": None
        return
    words = printable(description, 60)
    with (_bar if show or sys.stderr.isatty() else _lines)(words, total, note) as update:
        yield update


@contextmanager
def _bar(words: str, total: float | None, note: str) -> Iterator[Callable[..., None]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(f"{words} {note}".rstrip()), total=total)
        yield lambda done, note="": bar.update(task, completed=done, description=escape(f"{words} {note}".rstrip()))


@contextmanager
def _lines(words: str, total: float | None, note: str) -> Iterator[Callable[..., None]]:
    state = Standing(words, total, note=note)
    ended = threading.Event()
    reporter = threading.Thread(target=report, args=(state, ended.wait), daemon=True)
    reporter.start()
    try:
        yield state.update
    finally:
        ended.set()
        reporter.join()


def report(state: Standing, wait: Callable[[float], bool]) -> None:
    """Write lines until `wait`, which takes seconds, says that the work has ended."""
    pause = FIRST
    while not wait(pause):
        with contextlib.suppress(OSError):  # nobody may be reading
            sys.stderr.write(printable(state.line()) + "\n")
            sys.stderr.flush()
        pause = min(2 * pause, LONGEST)


class Standing:
    """The progress of some work.

    The time left is estimated from the pace since the first update: what comes before it is preparation.
    """

    def __init__(
        self, words: str, total: float | None, clock: Callable[[], float] = time.monotonic, note: str = ""
    ) -> None:
        self._words, self._total, self._clock = words, total, clock
        self._began = clock()
        self._first: tuple[float, float] | None = None  # when, and how much was done
        self._last, self._note = (self._began, 0.0), note

    def update(self, done: float, note: str = "") -> None:
        """Set how much is done, and a note."""
        self._last, self._note = (self._clock(), done), note
        self._first = self._first or self._last

    def line(self) -> str:
        """The line that describes the progress now."""
        words = f"{self._words} {printable(self._note, 60)}".rstrip()
        spent = _duration(self._clock() - self._began)
        if self._total is None:
            return f"{words}: {spent} so far"
        (before, less), (now, done) = self._first or self._last, self._last
        sentence = f"{words}: {done / self._total:.0%} after {spent}"
        if done <= less:
            return sentence
        return f"{sentence}, about {_duration((now - before) * (self._total - done) / (done - less))} left"


def _duration(seconds: float) -> str:
    """Two units at most: 50 s, 3 min 20 s, 2 h 5 min."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
