"""The words of a labeled text: words and signs in lower case, so that punctuation can be a shortcut too.

A text is the *set* of its words: how often a word is repeated does not matter.
"""

from __future__ import annotations

from scansnap.corpus.tokenizers import words_and_signs


def words_of(text: str) -> set[str]:
    """The words of a text; at least one, unless it is all white space."""
    return set(words_and_signs(text.lower()))
