"""What a text may give its label away by: words, pairs of words, positions, length, casing, white space, patterns.

Every feature is something that a text has or has not, so that one test serves all of them (`judging.py`):

    word         a word or sign, in lower case
    pair         two adjacent words
    first, last  the first or last word of the text
    early, late  a word in the first or second half of the text
    length       at most, or more than, some number of words (at the deciles of the texts)
    casing, white space, punctuation, pattern    listed below
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray
from scipy import sparse

from scansnap.corpus.tokenizers import words_and_signs
from scansnap.runtime.errors import count_items

IntArray = NDArray[np.int64]

PATTERNS = {
    "a URL": r"https?://\S|\bwww\.\w",
    "an e-mail address": r"\w@\w[\w-]*\.\w",
    "an HTML tag": r"</?[a-zA-Z][^<>\n]{0,200}>|&[a-z]+;",
    "a number": r"\b\d+(?:[.,]\d+)*\b",
    "a date": r"\b\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b",
    "an identifier": r"\b(?=[0-9a-zA-Z]*\d)(?=[0-9a-zA-Z]*[a-zA-Z])[0-9a-zA-Z]{8,}\b",
    "a mention": r"(?<!\w)@\w",
    "a hashtag": r"(?<!\w)#\w",
    "an emoji": r"[\p{Extended_Pictographic}--[\d#*©®™]]",
}
WHITE_SPACE = {
    "leading": r"\A\s",
    "trailing": r"\s\Z",
    "two spaces": r"\S  +\S",
    "a tab": r"\t",
    "a line break": r"\n(?=\s*\S)",
    "an unusual space": r"[^\S \t\n\r]",
}
CASING = {
    "starts with a small letter": r"\A\P{L}*\p{Ll}",
    "no capital letter": r"\A(?=.*\p{Ll})\P{Lu}*\Z",
    "no small letter": r"\A(?=.*\p{Lu}.*\p{Lu})\P{Ll}*\Z",
    "a word in capitals": r"\b\p{Lu}{2,}\b",
    "every word capitalized": r"\A(?:\P{L}*+\p{Lu}[\p{L}\p{M}'\u2019]*+){2,}+\P{L}*\Z",
}
SHAPES = [
    (kind, name, regex.compile(pattern, regex.DOTALL | regex.V1))
    for kind, patterns in (("pattern", PATTERNS), ("white space", WHITE_SPACE), ("casing", CASING))
    for name, pattern in patterns.items()
]
RUN = regex.compile(r"([^\w\s])\1+")

PLAIN_KINDS = ("length", "casing", "white space", "punctuation", "pattern")
"""Features of the text as a whole, which may explain words."""

NESTED_KINDS = ("pair", "first", "last", "early", "late")
"""Features that a text has only if it has their words."""

POSITIONED = 5000
"""The most frequent words that are tested by their position."""

DECILES = np.arange(1, 10) / 10


class Feature(NamedTuple):
    """A kind of feature, and which one."""

    kind: str
    name: str


def words_of(text: str) -> list[str]:
    """The words and signs of a text, in lower case and in order; at least one, unless it is all white space."""
    return words_and_signs(unicodedata.normalize("NFC", text).lower())


def shapes_of(text: str) -> Iterator[Feature]:
    """Casing, white space, runs of punctuation and patterns of a text."""
    for kind, name, pattern in SHAPES:
        if pattern.search(text):
            yield Feature(kind, name)
    for run in {match.group(1) for match in RUN.finditer(text)}:
        yield Feature("punctuation", f"{run}{run}")


class FeatureTable(NamedTuple):
    """Which text has which feature: n texts, V features."""

    features: list[Feature]
    has: sparse.csc_array  # (n, V) of int32, 0 or 1
    parents: list[tuple[int, ...]]  # the words that a nested feature needs
    num_pairs: int  # pairs in enough texts, also those beyond the budget


def feature_table(
    tokens: NDArray[np.int32],
    ends: IntArray,
    vocabulary: list[str],
    shapes: list[tuple[int, Feature]],
    weights: IntArray,
    *,
    least: int,
    pairs: int,
) -> FeatureTable:
    """All features that at least `least` rows have; text i stands for `weights[i]` rows.

    Text i has the tokens `tokens[ends[i - 1] : ends[i]]`; `shapes` are pairs of a text and a feature of it.
    """
    starts = np.append(0, ends[:-1])
    lengths = ends - starts
    text = np.repeat(np.arange(len(ends)), lengths)
    place = np.arange(len(tokens)) - starts[text]
    builder = _Builder(weights, least)
    word = tokens.astype(np.int64)
    words = builder.add(text, word, lambda key: Feature("word", vocabulary[key]))
    frequent = sorted(words, key=lambda key: -builder.counts[words[key]])[:POSITIONED]
    is_frequent = np.zeros(len(vocabulary), bool)
    is_frequent[frequent] = True

    size, inner = len(vocabulary), place > 0
    both = word[np.flatnonzero(inner) - 1] * size + word[inner]
    is_known = np.zeros(len(vocabulary), bool)
    is_known[list(words)] = True
    usable = is_known[both // size] & is_known[both % size]
    num_pairs = 0
    if pairs:
        builder.add(
            text[inner][usable],
            both[usable],
            lambda key: Feature("pair", f"{vocabulary[key // size]} {vocabulary[key % size]}"),
            lambda key: (words[key // size], words[key % size]),
            most=pairs,
        )
        num_pairs = builder.found
    half = lengths[text] / 2
    for kind, chosen in (
        ("first", place == 0),
        ("last", place == lengths[text] - 1),
        ("early", (place < half) & is_frequent[word] & (lengths[text] > 1)),
        ("late", (place >= half) & is_frequent[word] & (lengths[text] > 1)),
    ):
        chosen = chosen & is_known[word]
        builder.add(
            text[chosen],
            word[chosen],
            lambda key, kind=kind: Feature(kind, vocabulary[key]),
            lambda key: (words[key],),
        )
    numbers = {shape: i for i, shape in enumerate(dict.fromkeys(shape for _, shape in shapes))}
    listed = list(numbers)
    at = np.array([(i, numbers[shape]) for i, shape in shapes], np.int64).reshape(-1, 2)
    builder.add(at[:, 0], at[:, 1], lambda key: listed[key])
    limits = np.unique(np.quantile(lengths[weights > 0], DECILES).astype(np.int64)).tolist()
    sides = [(side, limit) for limit in limits for side in ("at most", "more than")]
    is_side = np.stack([lengths <= limit if side == "at most" else lengths > limit for side, limit in sides], 1)
    names = [f"{side} {count_items(limit, 'word')}" for side, limit in sides]
    of_text, side_of = np.nonzero(is_side)
    builder.add(of_text, side_of, lambda key: Feature("length", names[key]))
    return FeatureTable(builder.features, builder.table(), builder.parents, num_pairs)


class _Builder:
    """Collects features that enough rows have."""

    def __init__(self, weights: IntArray, least: int) -> None:
        self._weights, self._least = weights, least
        self.features: list[Feature] = []
        self.parents: list[tuple[int, ...]] = []
        self.counts: list[int] = []  # rows that have each feature
        self.found = 0
        self._tables: list[sparse.csc_array] = []

    def add(self, text, key, feature, parents=lambda key: (), most=None):  # type: ignore[no-untyped-def]
        """Add the features with these keys of these texts; returns their numbers by key."""
        keys, column = np.unique(key, return_inverse=True)
        has = sparse.csc_array((np.ones(len(text), np.int32), (text, column)), (len(self._weights), len(keys)))
        has.data[:] = 1  # where a text had a key repeatedly
        counts = has.T @ self._weights
        chosen = np.flatnonzero(counts >= self._least)
        self.found = len(chosen)
        if most is not None and len(chosen) > most:
            chosen = np.sort(chosen[np.argsort(-counts[chosen], kind="stable")[:most]])
        numbers = {own: len(self.features) + i for i, own in enumerate(keys[chosen].tolist())}
        self.features += map(feature, numbers)
        self.parents += map(parents, numbers)
        self.counts += counts[chosen].tolist()
        self._tables.append(has[:, chosen])
        return numbers

    def table(self) -> sparse.csc_array:
        """(n, V) which text has which feature."""
        return sparse.hstack(self._tables, format="csc")
