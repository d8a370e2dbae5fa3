"""Sequence classes of a text: pairs of a query and a next token, with the tokens that precede them.

From the counts c(l, m, n) of some queries, next tokens and contextual tokens, the class (m, n) has

    P(l|m, n) = c(l, m, n) / sum_l c(l, m, n),    P(m, n) = c(m, n) / sum of c over all classes,

over the most frequent tokens l.  Both sums run over the classes and tokens that are kept; `kept` gives their share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError
from scansnap.text.corpus import Corpus
from scansnap.text.counts import CountOptions, TextCounts, largest
from scansnap.validation.argument_types import ArgumentType, read_number
from scansnap.validation.checks import integer, is_list
from scansnap.validation.options import from_names, option, options, options_as_kwargs
from scansnap.validation.validate import validated


@dataclass(frozen=True)
class QueriesType(ArgumentType):
    """How many queries, or which."""

    wanted = "a number of words, or words or ids"

    def check(self, name: str, value: Any) -> int | tuple[str | int, ...]:
        if not is_list(value):
            return integer(name, value, least=1)
        return tuple(entry if isinstance(entry, str) else integer(f"{name} entry", entry) for entry in value)

    def read(self, name: str, text: str) -> Any:
        return read_number(name, text, int, self.wanted) if text.isdigit() else text.split(",")

    def plain(self, value: Any) -> Any:
        return value if isinstance(value, int) else list(value)


@options
class ClassOptions(CountOptions):
    """Which sequence classes are made."""

    queries: int | Sequence[str | int] = option(
        "The number of queries, the most frequent words of the text, or the words.", QueriesType(), default=5
    )
    next_tokens: int = option(
        "The most frequent next tokens of each query, other than itself; each makes a class.", default=5, least=1
    )
    tokens: int = option("The most frequent contextual tokens before these pairs.", default=50, least=1)


@dataclass(frozen=True)
class Kept:
    """The shares of a text that its classes keep."""

    occurrences: float
    """Of the pairs of a token and its next token in the text."""
    contexts: float
    """Of the contextual tokens of these pairs."""

    def __str__(self) -> str:
        pairs = f"{self.occurrences:.1%} of the text's pairs of a token and the next one"
        return f"{pairs}, and {self.contexts:.1%} of the tokens before these"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TextClasses(SequenceClasses):
    """Sequence classes made from a text."""

    kept: Kept


@options_as_kwargs(ClassOptions, ClassOptions)
@validated
def classes_from_text(corpus: Corpus, /, **kwargs: Any) -> TextClasses:
    """The classes of the most frequent queries, next tokens and contextual tokens of a text.

    Parameters
    ----------
    corpus : Corpus
        What `read_corpus` returns.
    {options}

    Returns
    -------
    TextClasses
        Sequence classes named by the text's words, and `kept`, the shares of the text that they keep.

    Examples
    --------
    >>> corpus = ss.read_corpus("example")
    >>> ss.classes_from_text(corpus, queries=["in", "to"], next_tokens=3, tokens=8).num_classes
    2
    """
    options = from_names(ClassOptions, kwargs)
    text = TextCounts(corpus, window=options.window, split=options.split)
    pairs: list[tuple[int, int]] = []
    occurrences: list[int] = []  # of each pair
    triples = []  # number of the pair, contextual token, count
    for query in text.of(text.tokens_of(options.queries)):
        is_other = query.next_tokens != query.query  # a class cannot predict its own query
        places = largest(query.next_counts * is_other, options.next_tokens)
        contexts = query.contexts(places)
        triples.append((len(pairs) + contexts.place, contexts.token, contexts.count))
        pairs += [(query.query, int(next_token)) for next_token in query.next_tokens[places]]
        occurrences += query.next_counts[places].tolist()
    pair, token, count = map(np.concatenate, zip(*triples, strict=True))
    token_counts = np.bincount(token, count, corpus.vocab_size).astype(np.int64)
    context_tokens = largest(token_counts, options.tokens)
    column = np.full(corpus.vocab_size, -1)
    column[context_tokens] = np.arange(len(context_tokens))
    is_kept = column[token] >= 0
    kept_rows = np.zeros((len(pairs), len(context_tokens)), np.int64)  # c(l, n), one row for each class
    kept_rows[pair[is_kept], column[token[is_kept]]] = count[is_kept]
    has_context, times = kept_rows.any(1), np.array(occurrences)
    if not has_context.any():
        raise InputError("no token precedes these queries: give other queries.")
    shares = Kept(
        occurrences=float(times[has_context].sum() / text.query_counts.sum()),
        contexts=float(kept_rows.sum() / token_counts.sum()),
    )
    queries_and_next = np.array(pairs)[has_context]
    names = np.unique(np.concatenate([context_tokens, queries_and_next.ravel()]))  # the vocabulary of the classes
    ids = np.searchsorted(names, context_tokens)
    probs = kept_rows[has_context] / kept_rows[has_context].sum(1, keepdims=True)
    weights = times[has_context] / times[has_context].sum()
    query, next_token = np.searchsorted(names, queries_and_next).T
    classes = TextClasses.from_supports(
        tokens=[ids] * len(probs),
        probs=list(probs),
        query=query,
        next_token=next_token,
        vocab_size=len(names),
        weights=weights,
        token_names=corpus.words(names),
    )
    assert isinstance(classes, TextClasses)
    object.__setattr__(classes, "kept", shares)
    return classes
