"""What a command says when Ctrl-C or SIGTERM stops it: what there is, and how to go on.

Whatever can be continued adds a note to the interruption on its way out; Python shows notes below a traceback, and the
commands show them alone.  Launchers and impatient users send a signal several times: those within `GRACE` seconds are
one, and a later one ends the process at once, which leaves a store as it was at its last checkpoint.

A signal may come while a library calls back into Python or while an object is destroyed, where Python cannot hand on an
exception, reports it and goes on.  It is then not reported, and the signal is sent again a little later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from scansnap.runtime.errors import ScanSnapError

GRACE = 1.0
AGAIN = 0.02
"""Seconds after which a signal that Python could not hand on is sent again."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as systems send it before they end a process."""


class Stopped(ScanSnapError):
    """A command that was stopped, with the sentence to say and the status to end with."""

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
