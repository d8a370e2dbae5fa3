"""Words and signs: how prose is split.

A word is a run of letters, digits and underscores, with apostrophes inside; any other sign that is not white space is a
word by itself.  So "Good," is good and a comma, with the quotation marks around them.
"""

from __future__ import annotations

import re

LONGEST = 64
"""A longer run of letters is several words: it is no word, and a file may hold a megabyte of it."""

_WORD = re.compile(rf"\w{{1,{LONGEST}}}(?:['\u2019]\w{{1,{LONGEST}}}){{0,3}}|[^\w\s]")


def words_and_signs(text: str) -> list[str]:
    """The words of a text in their order; at least one, unless it is all white space."""
    return _WORD.findall(text)
