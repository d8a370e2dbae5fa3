"""What commands print: text that a terminal shows and does not obey, whatever names are in it."""

from __future__ import annotations

import os
import sys

import typer

from scansnap.runtime.errors import printable


def say(text: str, *, error: bool = False, color: str | None = None) -> None:
    """Print a text of one or several lines, on the error stream if it is about the work and not its result.

    A `color` is shown by terminals, unless NO_COLOR is set.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is None:  # whoever started the program has closed it
        return
    words = printable(text, keep="\n")
    if color is not None and stream.isatty() and not os.environ.get("NO_COLOR"):
        words = typer.style(words, fg=color)
    print(words, file=stream, flush=True)
