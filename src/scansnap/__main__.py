"""The program as the console starts it: `scansnap`, or `python -m scansnap` for launchers that start modules.

`main` answers signals with a sentence.  Before it, while modules are imported, a signal ends the process silently.
After it, while Python shuts down, signals are ignored.

The garbage collector seldom searches the objects of imported modules: that took a tenth of the processor time of a
short command.  Young cycles are collected as ever.  (Do not freeze the collector at the end: libraries bound with
nanobind then report leaks.)

Characters that the output cannot encode are written as escapes, and output that a closed pipe or a full disk did not
take is dropped.
"""

import contextlib
import gc
import io
import os
import signal
import sys

FULL_COLLECTION = 100
"""Collections of younger objects before one of all objects."""


def run() -> None:
    """Run `main`, and let no signal show a traceback before or after it."""
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell makes background jobs ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from scansnap.cli.app import main

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        main()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _drop_unprinted()


def _drop_unprinted() -> None:
    """Drop output that a full disk or a closed pipe did not take: Python would report an error at exit."""
    if sys.stdout is None:  # closed by the parent process
        return
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    run()
