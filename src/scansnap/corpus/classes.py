"""Sequence classes of a text: pairs of a query and a next token, with the tokens that precede them.

From the counts c(l, m, n) of some queries, next tokens and contextual tokens, the class (m, n) has

    P(l|m, n) = c(l, m, n) / sum_l c(l, m, n),    P(m, n) = c(m, n) / sum of c over all classes,

over the most frequent tokens l.  Both sums run over the classes and tokens that are kept; `kept` gives their share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scansnap.corpus.counts import Counts, largest
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError
from scansnap.validation.checks import integer
from scansnap.validation.validate import validated


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
    """Sequence classes made from counts."""

    kept: Kept


@validated
def classes_from_counts(
    counts: Counts, *, queries: int | Sequence[str | int] = 5, next_tokens: int = 5, tokens: int = 50
) -> TextClasses:
    """The classes of the most frequent queries, next tokens and contextual tokens of a text.

    Parameters
    ----------
    counts : Counts
        What `count_corpus` or `read_counts` returns.
    queries : int, or words or ids
        How many of the most frequent words, or which tokens.
    next_tokens : int
        The most frequent next tokens of each query, other than itself; each pair is a class.
    tokens : int
        The most frequent contextual tokens before these pairs.

    Returns
    -------
    TextClasses
        Sequence classes named by the text's words, and `kept`, the shares of the text that they keep.

    Examples
    --------
    >>> counts = ss.count_corpus("example", output="for_classes")
    >>> ss.classes_from_counts(counts, queries=["in", "to"], next_tokens=3, tokens=8).num_classes
    2
    """
    most_next, most_tokens = integer("next_tokens", next_tokens, least=1), integer("tokens", tokens, least=1)
    wanted = (
        counts.frequent_words(integer("queries", queries, least=1)).tolist() if isinstance(queries, int) else queries
    )
    pairs: list[tuple[int, int]] = []
    blocks = []
    times = []
    for context in (counts.of(query) for query in wanted):
        is_other = np.arange(counts.vocab_size) != context.query  # a class cannot predict its own query
        following = largest(context.next_counts * is_other, most_next)
        pairs += [(context.query, int(next_token)) for next_token in following]
        blocks.append(context.counts[:, following].toarray().T)  # c(l, n), one row for each class
        times.append(context.next_counts[following])
    if not pairs:
        raise InputError("queries is empty: give how many, or at least one word or token id.")
    rows, occurrences = np.concatenate(blocks), np.concatenate(times)
    context_tokens = largest(rows.sum(0), most_tokens)
    kept_rows = rows[:, context_tokens]
    has_context = kept_rows.any(1)
    if not has_context.any():
        raise InputError("no token precedes these queries: give other queries.")
    shares = Kept(
        occurrences=float(occurrences[has_context].sum() / counts.vocabulary["query_count"].sum()),
        contexts=float(kept_rows.sum() / rows.sum()),
    )
    queries_and_next = np.array(pairs)[has_context]
    names = np.unique(np.concatenate([context_tokens, queries_and_next.ravel()]))  # the vocabulary of the classes
    ids = np.searchsorted(names, context_tokens)
    probs = kept_rows[has_context] / kept_rows[has_context].sum(1, keepdims=True)
    weights = occurrences[has_context] / occurrences[has_context].sum()
    query, next_token = np.searchsorted(names, queries_and_next).T
    classes = TextClasses.from_supports(
        tokens=[ids] * len(probs),
        probs=list(probs),
        query=query,
        next_token=next_token,
        vocab_size=len(names),
        weights=weights,
        token_names=counts.tokenizer.words(names),
    )
    assert isinstance(classes, TextClasses)
    object.__setattr__(classes, "kept", shares)
    return classes
