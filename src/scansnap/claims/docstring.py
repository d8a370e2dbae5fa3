"""The docstring of a check: the claim's statement, its conditions, its correction, and how it is checked.

The first paragraph is the statement.  Paragraphs that begin with `Conditions:`, `Correction:` or `Check:` are named;
all others are free, for the derivation.  Line breaks within a paragraph become spaces.
"""

from __future__ import annotations

import inspect
import re
import sys
from difflib import get_close_matches

from scansnap.runtime.errors import InputError

PARAGRAPHS = ("Conditions", "Correction", "Check")
"""The names of paragraphs."""

ESCAPES = re.compile(r"[\a\b\v\f\r]|\S.*\t")
"""Characters that Python makes of commands of LaTeX, as of `\\theta`, where the docstring is not raw."""


def read_docstring(name: str, docstring: str | None, *, statement: str | None = None) -> dict[str, str]:
    """The statement and the named paragraphs, by name; those that are not there are empty.

    If `statement` is given, it is the statement, and the docstring need not have one.
    """
    if sys.flags.optimize > 1:
        raise InputError("claims are stated in docstrings, which python -OO removes: use python, or python -O.")
    if ESCAPES.search(docstring or ""):
        raise InputError(f'the docstring of {name} has backslashes that Python replaces: write r"""...""".')
    texts = {"Statement": statement or "", **dict.fromkeys(PARAGRAPHS, "")}
    for i, paragraph in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(docstring or ""))):
        if late := re.search(rf"\n\s*({'|'.join(PARAGRAPHS)}):", paragraph):
            raise InputError(f"in the docstring of {name}, leave an empty line before '{late[1]}:'.")
        text = " ".join(paragraph.split())
        if title := _title(name, text):
            if texts[title]:
                raise InputError(f"the docstring of {name} has two paragraphs '{title}:': make them one.")
            texts[title] = text.removeprefix(f"{title}:").strip()
            if not texts[title]:
                raise InputError(f"in the docstring of {name}, '{title}:' is empty: write its text after the colon.")
        elif i == 0 and statement is None:
            texts["Statement"] = text
    if not texts["Statement"]:
        raise InputError(f"{name} states nothing: make the statement the first paragraph of its docstring.")
    return texts


def _title(name: str, text: str) -> str | None:
    """The name of a paragraph, if it has one; a misspelled one is refused."""
    begin = re.match(r"(\w+)\s?:", text)
    close = get_close_matches(begin[1].capitalize(), PARAGRAPHS, 1, 0.75) if begin else []
    if begin and close and begin[0] != f"{close[0]}:":
        raise InputError(f"the docstring of {name} has a paragraph '{begin[0]}': write '{close[0]}:'.")
    return close[0] if close else None
