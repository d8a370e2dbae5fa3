"""Text for a terminal: names that users give stay names there, whatever they hold.

A terminal obeys control and escape characters, and marks of direction turn the text around them.  Both are written out
as Python writes them in a string (\\x1b, \\u202e), so that they can be seen and do nothing.  `figures/plain_text.py`
does the same for pictures, and `report/html.py` for pages.
"""

from __future__ import annotations

from reprlib import Repr

BRIEF = Repr()
"""Values as text of a bounded length, however deep or long they are."""

BRIEF.maxlist = BRIEF.maxtuple = BRIEF.maxdict = BRIEF.maxset = BRIEF.maxfrozenset = 20
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 200


def printable(text: str, most: int | None = None, keep: str = "") -> str:
    """The text in one line without anything that a terminal would obey but `keep`, cut to `most` characters."""
    if most is not None:
        text = text[: most + 1]
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() or letter in keep else _written(letter) for letter in text)
    return text if most is None or len(text) <= most else text[: most - 3] + "..."


def number_text(value: float, form: str) -> str:
    """A number as text, in words where there is none."""
    return "no number" if value != value else format(value, form)


def _written(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def shortened(value: object, most: int = 60) -> str:
    """A value as text for a sentence, cut if it is long."""
    return printable(_brief(value), most)


def _brief(value: object) -> str:
    """A value as Python writes it, cut where it is long or deep."""
    try:
        return BRIEF.repr(value)
    except ValueError:  # what Python says of a whole number that it will not write out
        return f"a whole number of {value.bit_length():,} bits" if isinstance(value, int) else type(value).__name__
