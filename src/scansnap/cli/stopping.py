"""What a command says when Ctrl-C or SIGTERM stops it: what there is, and how to go on.

Whatever can be continued adds a note to the interruption on its way out; Python shows notes below a traceback, and the
commands show them alone.
"""

from __future__ import annotations

import signal
from types import FrameType

from scansnap.base.errors import ScanSnapError


class Terminated(KeyboardInterrupt):
    """SIGTERM, as systems send it before they end a process."""


class Stopped(ScanSnapError):
    """A command that was stopped, with the sentence to say and the status to end with."""

    def __init__(self, stop: KeyboardInterrupt) -> None:
        notes = getattr(stop, "__notes__", []) or ["nothing was written."]
        super().__init__(f"stopped; {' '.join(notes)}")
        self.status = 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


def stop_on_sigterm() -> None:
    """Let SIGTERM stop the work as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
