"""What commands print: text that a terminal shows and does not obey, whatever names are in it."""

from __future__ import annotations

import sys

from scansnap.base.printable import printable


def say(text: str, *, error: bool = False) -> None:
    """Print a text of one or several lines, on the error stream if it is about the work and not its result."""
    print(printable(text, keep="\n"), file=sys.stderr if error else sys.stdout, flush=True)
