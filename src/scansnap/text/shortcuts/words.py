"""The words of a text.

A word is a run of letters, digits and underscores, with apostrophes inside, in lower case; any other sign that is not
white space is a word by itself, so that punctuation can be a shortcut too.  A text is the *set* of its words: how often
a word is repeated does not matter.
"""

from __future__ import annotations

import re

LONGEST = 64
"""A longer run of letters is several words: it is no word, and a file may hold a megabyte of it."""

_WORD = re.compile(rf"\w{{1,{LONGEST}}}(?:['\u2019]\w{{1,{LONGEST}}}){{0,3}}|[^\w\s]")


def words_of(text: str) -> set[str]:
    """The words of a text; at least one, unless it is all white space."""
    return set(_WORD.findall(text.lower()))
