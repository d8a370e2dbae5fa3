"""The few kinds of error scansnap raises.

Every message is one or two sentences in the user's words: what was given, what is allowed, what to do.  The command
line prints only the message; Python code can tell the kinds apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ScanSnapError(Exception):
    """Anything scansnap refuses to do; the message says why and what to do instead."""


class InputError(ScanSnapError, ValueError):
    """An argument, a file or a combination of options that cannot be used as given."""


class StoreError(ScanSnapError):
    """A result on disk that cannot be written, opened or continued."""


def brief(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]


def unknown(kind: str, name: object, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not one of `allowed`, with the nearest allowed name."""
    names = [str(option) for option in allowed]
    nearest = [
        match for match in get_close_matches(str(name), names, n=1, cutoff=0.5)
        if _without_digits(match) != _without_digits(str(name))  # theorem_99 is no misspelled theorem_5
    ]  # fmt: skip
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    return InputError(f"unknown {kind} '{name}': {hint}choose one of {', '.join(names)}.")


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())
