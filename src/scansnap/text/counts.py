"""Counts of the tokens before a query and of the token after it, in memory.

A text is a sequence of tokens x_0, ..., x_{N−1}.  A position t < N − 1 is an occurrence of the query m = x_t with the
next token n = x_{t+1}.  Its contextual tokens are the w − 1 tokens before it in the window of w tokens that it ends:

    c(m, n)    = number of t with x_t = m and x_{t+1} = n
    c(l, m, n) = number of (t, j) with x_t = m, x_{t+1} = n, x_j = l and max(0, t − w + 1) ≤ j < t
    c(l, m)    = Σ_n c(l, m, n)

So a contextual token counts as often as it occurs, the query at the window's end is not a contextual token of itself,
an earlier occurrence of the same token is one, and at the start of a text windows are shorter.  Windows do not reach
from one split into another.  Ends of lines are tokens like others, as they are in training.

The occurrences of the queries are sorted by m and n.  Then the windows of one query follow each other, and the keys of
their (n, l) are sorted in parts, cut between next tokens, which bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError
from scansnap.text.corpus import Corpus
from scansnap.text.tokenizers import frequent_words
from scansnap.validation.checks import integer
from scansnap.validation.options import Options, option, options

ALL_SPLITS = "all"

PART_EVENTS = 2**22
"""Contextual tokens that are sorted at once; more if a single pair of a query and a next token has more."""


@options
class CountOptions(Options):
    """What is counted."""

    window: int = option(
        "Tokens in a window: the query and those before it that count.", default=35, least=2, most=10**6
    )
    split: Literal["train", "valid", "test", "all"] = option("The part of the text that is counted.", default="all")


@dataclass(frozen=True, eq=False)
class QueryCounts:
    """Counts of the contextual and next tokens of one query."""

    query: int
    vocab_size: int
    next_tokens: NDArray[np.int32] = field(repr=False)
    """The tokens that follow the query, in order of their ids."""
    next_counts: NDArray[np.int64] = field(repr=False)
    """c(m, n), for each of `next_tokens`."""
    _windows: NDArray[np.int32] = field(repr=False)
    """A view of the text: the contextual tokens of each position; `vocab_size` stands for none."""
    _positions: NDArray[np.int64] = field(repr=False)
    """The rows of `_windows` in which the query occurs, sorted by next token."""

    @property
    def num_occurrences(self) -> int:
        """How often the query occurs with a next token."""
        return len(self._positions)

    def contexts(self, chosen: Sequence[int] | NDArray[np.integer] | None = None) -> ContextCounts:
        """c(l, m, n) for some of the next tokens, given as places in `next_tokens`, or for all."""
        places = np.arange(len(self.next_tokens)) if chosen is None else np.asarray(chosen, np.int64)
        stops = np.cumsum(self.next_counts)
        rows = [np.arange(stops[i] - self.next_counts[i], stops[i]) for i in places]
        positions = self._positions[np.concatenate([np.empty(0, np.int64), *rows])]
        base = self.vocab_size + 1  # `vocab_size` stands before the start of a text
        dtype = np.dtype("int32" if len(places) * base < 2**31 else "int64")
        first_keys = np.repeat(base * np.arange(len(places), dtype=dtype), self.next_counts[places])
        ends = np.cumsum(self.next_counts[places]) * self._windows.shape[1]  # events
        keys, counts = [np.empty(0, dtype)], [np.empty(0, np.int64)]
        for part in self._parts(ends):
            part_keys, part_counts = count_equal((first_keys[part, None] + self._windows[positions[part]]).ravel())
            keys.append(part_keys)
            counts.append(part_counts)
        place, token = np.divmod(np.concatenate(keys), base)
        inside = token < self.vocab_size
        return ContextCounts(place[inside], token[inside], np.concatenate(counts)[inside], self.vocab_size)

    def _parts(self, ends: NDArray[np.int64]) -> Iterator[slice]:
        """Slices of occurrences that end where a next token ends."""
        width, begin = self._windows.shape[1], 0
        while begin < len(ends):
            done = ends[begin - 1] if begin else 0
            stop = max(begin + 1, int(np.searchsorted(ends, done + PART_EVENTS, side="right")))
            yield slice(int(done) // width, int(ends[stop - 1]) // width)
            begin = stop


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """c(l, m, n) of one query as columns, in order of `place` and `token`, each pair once."""

    place: NDArray[np.integer]
    """Which of the chosen next tokens n is."""
    token: NDArray[np.integer]
    """l."""
    count: NDArray[np.int64]
    vocab_size: int

    @cached_property
    def token_counts(self) -> NDArray[np.int64]:
        """c(l, m), (vocab_size,)."""
        return np.bincount(self.token, self.count, self.vocab_size).astype(np.int64)


class TextCounts:
    """The windows of a text, whose tokens are counted by query when they are asked for."""

    def __init__(self, corpus: Corpus, *, window: int = 35, split: str = ALL_SPLITS) -> None:
        if split != ALL_SPLITS and split not in corpus.splits:
            raise InputError(
                f"{corpus.name} has no split '{split}': choose one of {', '.join(corpus.splits)}, or '{ALL_SPLITS}'."
            )
        texts = list(corpus.splits.values()) if split == ALL_SPLITS else [corpus.splits[split]]
        self.corpus, self.window = corpus, integer("window", window, least=2, most=10**6)
        nothing = np.full(window - 1, corpus.vocab_size, np.int32)
        self._ids = np.concatenate([part for text in texts for part in (nothing, text)])
        self.num_tokens = sum(map(len, texts))

    @cached_property
    def _is_occurrence(self) -> NDArray[np.bool_]:
        """For each position but the last, whether it has a token and a next token."""
        is_token = self._ids < self.corpus.vocab_size
        return is_token[:-1] & is_token[1:]

    @cached_property
    def query_counts(self) -> NDArray[np.int64]:
        """How often each token occurs with a next token, (vocab_size,)."""
        return np.bincount(self._ids[:-1][self._is_occurrence], minlength=self.corpus.vocab_size)

    def tokens_of(self, queries: int | Sequence[str | int]) -> list[int]:
        """The ids of so many frequent words, or of given words or ids; refused if one never has a next token."""
        if isinstance(queries, int):
            number = integer("queries", queries, least=1)
            return frequent_words(self.corpus.tokenizer, self.query_counts, number).tolist()
        most = self.corpus.vocab_size - 1
        ids = [self.corpus.token(q) if isinstance(q, str) else integer("a token", q, most=most) for q in queries]
        if not ids:
            raise InputError("queries is empty: give how many, or at least one word or token id.")
        for token in ids:
            if not self.query_counts[token]:
                raise InputError(f"token {token} never occurs before another token: give a query token that does.")
        return ids

    def of(self, queries: Sequence[int]) -> Iterator[QueryCounts]:
        """The counts of some query tokens, one after another."""
        ids, size = self._ids, self.corpus.vocab_size
        number = np.full(size + 1, -1, np.int32)
        number[list(queries)] = np.arange(len(queries))
        positions = np.flatnonzero(self._is_occurrence & (number[ids[:-1]] >= 0))
        key = number[ids[positions]] * np.int64(size) + ids[positions + 1]
        order = np.argsort(key, kind="stable")
        positions, key = positions[order], key[order]
        pairs, pair_counts = _runs(key)
        pair_cuts = np.searchsorted(pairs, np.arange(len(queries) + 1) * size)
        cuts = np.append(0, np.cumsum(pair_counts))[pair_cuts]
        windows = np.lib.stride_tricks.sliding_window_view(ids, self.window - 1)
        for query in queries:
            i = number[query]
            own = slice(pair_cuts[i], pair_cuts[i + 1])
            next_tokens = (pairs[own] - i * np.int64(size)).astype(np.int32)
            rows = positions[cuts[i] : cuts[i + 1]] - (self.window - 1)
            yield QueryCounts(int(query), size, next_tokens, pair_counts[own], windows, rows)


def count_equal(values: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """The distinct values in order, and how often each occurs; sorts the array that it is given."""
    values.sort()
    return _runs(values)


def _runs(values: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """The values of a sorted array, each once, and how often each occurs."""
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return values[first], np.diff(np.append(first, len(values)))


def largest(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The places of the largest counts above 0, at most `most`, from the largest on."""
    order = np.argsort(-counts, kind="stable")[:most]
    return order[counts[order] > 0]
