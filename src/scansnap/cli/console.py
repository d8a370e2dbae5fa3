"""What a command prints, and what it prints when Ctrl-C or SIGTERM stops it.

Work that can be continued adds a note to the interruption on its way out (`BaseException.add_note`), and the command
prints these notes.  Launchers and impatient users send a signal several times: signals within `GRACE` seconds count as
one, and a later one ends the process at once, which leaves a store as it was at its last checkpoint.

A signal may arrive while a library calls back into Python or while an object is destroyed.  Python cannot raise an
exception there: it reports the exception and goes on.  The report is then suppressed, and the signal is sent again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import click

from scansnap.runtime.errors import PaperWarning, ScanSnapError, printable

GRACE = 1.0
"""Seconds in which several signals count as one."""

AGAIN = 0.02
"""Seconds after which a signal is sent again if Python could not raise its exception."""


def echo(text: str, *, error: bool = False, color: str | None = None) -> None:
    """Print a text without control characters, on the error stream if it is about the work and not its result.

    A `color` is shown by terminals, unless NO_COLOR is set.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is None:  # closed by the parent process
        return
    shown = printable(text, keep="\n")
    if color is not None and stream.isatty() and not os.environ.get("NO_COLOR"):
        shown = click.style(shown, fg=color)
    print(shown, file=stream, flush=True)


@contextlib.contextmanager
def papers_left_out_in_one_line() -> Iterator[None]:
    """Print a `PaperWarning` as one sentence, without the line of code that it comes from."""
    show_before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, PaperWarning):
            echo(f"scansnap: {message}", error=True)
        else:
            show_before(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


class Terminated(KeyboardInterrupt):
    """SIGTERM, which systems send before they end a process."""


class Stopped(ScanSnapError):
    """A command that was stopped, with the sentence to print and the exit status."""

    def __init__(self, stop: KeyboardInterrupt) -> None:
        notes = getattr(stop, "__notes__", []) or ["nothing was written."]
        super().__init__(f"stopped; {' '.join(notes)}")
        self.status = 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Let the first signal stop the work by an exception; a signal that the process ignores stays ignored."""
    stops = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
    before = {number: signal.getsignal(number) for number in stops if signal.getsignal(number) is not signal.SIG_IGN}
    last = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if last is None:
            last = time.monotonic() + GRACE
            raise stops[signal.Signals(number)]
        if time.monotonic() > last:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def report(lost: sys.UnraisableHookArgs) -> None:
        nonlocal last
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            report_before(lost)
            return
        last = None
        number = signal.SIGTERM if isinstance(lost.exc_value, Terminated) else signal.SIGINT
        threading.Timer(AGAIN, os.kill, (os.getpid(), number)).start()

    report_before, sys.unraisablehook = sys.unraisablehook, report
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        sys.unraisablehook = report_before
        for number, handler in before.items():
            signal.signal(number, handler)
