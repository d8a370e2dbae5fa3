"""The few kinds of error scansnap raises.

Every message is one or two sentences in the user's words: what was given, what is allowed, what to do.  The command
line prints only the message; Python code can catch each kind.

A message is one line of printable text, whatever it quotes.  Control characters and direction marks, which a
terminal would obey, are escaped as in a Python string (\\x1b, \\u202e).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from reprlib import Repr

LONGEST = 4000
"""Characters of a message."""


class ScanSnapError(Exception):
    """The base class of scansnap's errors; the message says what is wrong and what to do.

    >>> try:
    ...     ss.load("nowhere.zarr")
    ... except ss.ScanSnapError as error:
    ...     print(type(error).__name__)
    StoreError
    """

    def __init__(self, sentence: object = "") -> None:
        super().__init__(printable(str(sentence), LONGEST))


class InputError(ScanSnapError, ValueError):
    """An argument, a file or a combination of options that cannot be used as given.

    >>> try:
    ...     ss.train("syn-small", lr_y=-1.0, lr_z=1.0, steps=5)
    ... except ss.InputError as error:
    ...     print(error)
    lr_y is -1.0: give a finite learning rate of at least 0, or a sequence of them, one per run.
    """


class StoreError(ScanSnapError):
    """A result on disk that cannot be written, opened or continued.

    >>> try:
    ...     ss.load("nowhere.zarr")
    ... except ss.StoreError as error:
    ...     print(error)
    nowhere.zarr does not exist: give the folder that a run was written to.
    """


class PaperWarning(UserWarning):
    """An installed paper is left out, because it fails to import or takes a name that exists."""


def brief(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]


LISTED = 30
"""The largest number of allowed names that an error lists if it also suggests one."""


def unknown(kind: str, name: object, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not one of `allowed`, with the nearest allowed name."""
    names = [str(option) for option in allowed]
    word = printable(name, 60) if isinstance(name, str) else short_repr(name)
    from difflib import get_close_matches

    near = 0.6 if len(word) > 2 else 0.5  # of two characters one may be wrong
    nearest = [
        match
        for match in get_close_matches(word, names, n=1, cutoff=near)
        if not word.isdigit()  # a number is not misspelled
        and (_unnumbered(match) != _unnumbered(word) or word.startswith(match))  # nor is theorem_99 theorem_5
    ]
    if nearest and len(names) > LISTED:
        return InputError(f"unknown {kind} '{word}': did you mean '{nearest[0]}'?")
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return InputError(f"unknown {kind} '{word}': {hint}choose one of {', '.join(names)}.")


def _unnumbered(name: str) -> str:
    """A name without the number that it ends in after an underscore."""
    return re.sub(r"_\d+$", "_", name)


# --- values as text ----------------------------------------------------------------------------------------------

BRIEF = Repr()
"""Values as text of a bounded length, however deep or long they are."""

BRIEF.maxlist = BRIEF.maxtuple = BRIEF.maxdict = BRIEF.maxset = BRIEF.maxfrozenset = 20
BRIEF.maxstring = BRIEF.maxother = BRIEF.maxlong = 200


def printable(text: str, most: int | None = None, keep: str = "") -> str:
    """The text in one line, cut to `most` characters, with control characters escaped except those in `keep`."""
    if most is not None:
        text = text[: most + 1]
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() or letter in keep else _written(letter) for letter in text)
    return text if most is None or len(text) <= most else text[: most - 3] + "..."


def number_text(value: float, form: str) -> str:
    """A number as text, or "no number" for NaN."""
    return "no number" if value != value else format(value, form)


def count_items(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 2 rows."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _written(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def short_repr(value: object, most: int = 60) -> str:
    """A value as text for a sentence, cut if it is long."""
    return printable(_brief(value), most)


def _brief(value: object) -> str:
    """A value as Python writes it, cut where it is long or deep."""
    try:
        return BRIEF.repr(value)
    except ValueError:  # Python refuses to convert very large integers to text
        return f"a whole number of {value.bit_length():,} bits" if isinstance(value, int) else type(value).__name__
