"""The synthetic settings of Section 8: Syn-Small and Syn-Medium."""

from __future__ import annotations

import numpy as np

from scansnap.data.sequence_classes import MOST_TOKENS, SequenceClasses
from scansnap.runtime.errors import InputError
from scansnap.validation import checks
from scansnap.validation.validate import validated


@validated
def synthetic(
    *,
    num_query: int,
    next_per_query: int,
    num_common: int = 10,
    num_distinct: int = 10,
    vocab_size: int | None = None,
) -> SequenceClasses:
    """`num_query` query tokens with `next_per_query` next tokens each: K classes that share their common tokens.

    Before normalization a common token has weight 1 and a class's distinct tokens have weights evenly spaced from 0.1
    to 1, so the last is as probable as a common one.  Ids are common tokens, distinct tokens class by class,
    query tokens, next tokens: M = num_common + K num_distinct + num_query + K, unless a larger `vocab_size` adds tokens
    that never occur.  (The paper's text counts contextual tokens only and says M = 30 for Syn-Small; the published runs
    predict one of 34.)

    >>> classes = ss.synthetic(num_query=2, next_per_query=3, num_common=4, num_distinct=5)
    >>> classes.num_classes, classes.vocab_size
    (6, 42)
    """
    sizes = {
        "num_query": num_query,
        "next_per_query": next_per_query,
        "num_common": num_common,
        "num_distinct": num_distinct,
    }
    for name, value in sizes.items():
        checks.integer(name, value, least=0 if name == "num_common" else 1, most=MOST_TOKENS)
    num_classes = num_query * next_per_query
    first_query = num_common + num_classes * num_distinct
    used = first_query + num_query + num_classes
    if used > MOST_TOKENS:
        raise InputError(f"these classes use {used:,} tokens: there may be up to {MOST_TOKENS:,}.")
    if vocab_size is not None and vocab_size < used:
        raise InputError(f"vocab_size is {vocab_size}: these classes alone use {used} tokens.")
    common = np.arange(num_common)
    distinct_weights = np.linspace(0.1, 1.0, num_distinct) if num_distinct > 1 else np.ones(1)
    probs = np.concatenate([np.ones(num_common), distinct_weights])
    probs /= probs.sum()
    return SequenceClasses.from_supports(
        tokens=[
            np.concatenate([common, num_common + i * num_distinct + np.arange(num_distinct)])
            for i in range(num_classes)
        ],
        probs=[probs] * num_classes,
        query=first_query + np.arange(num_classes) // next_per_query,
        next_token=first_query + num_query + np.arange(num_classes),
        vocab_size=vocab_size or used,
    )


def syn_small() -> SequenceClasses:
    """Syn-Small (Figures 4, 5): two queries with one next token each; 34 tokens.

    >>> classes = ss.syn_small()
    >>> classes.num_classes, classes.vocab_size
    (2, 34)
    """
    return synthetic(num_query=2, next_per_query=1)


@validated
def syn_medium(*, num_query: int = 3) -> SequenceClasses:
    """Syn-Medium (Figures 6, 11, 12): 1, 3, 5 or 10 queries with two next tokens each.

    >>> ss.syn_medium(num_query=5).num_classes
    10
    """
    return synthetic(num_query=num_query, next_per_query=2)


@validated
def local_common(
    *, num_distinct: int = 8, vocab_size: int = 1600, shared: float = 1.0, common: float = 1.0
) -> SequenceClasses:
    """Two queries with two next tokens each; common and distinct tokens differ within a query and over all classes.

    Each class has `num_distinct` tokens of its own, one that it shares with the other class of its query (locally
    common), and one that it shares with a class of the other query (common, but locally distinct): Section 7's setting
    for a residual connection.  Before normalization distinct tokens have weights from 0.5 to 1, the token shared across
    queries has weight `shared` and the locally common one `common`.  Ids are distinct tokens class by class, the two
    tokens shared across queries, the two shared within them, query tokens, next tokens.

    >>> classes = ss.local_common()
    >>> classes.common_tokens, classes.local_common_tokens(int(classes.query[0]))
    (array([32, 33, 34, 35]), array([34]))
    """
    checks.integer("num_distinct", num_distinct, least=1, most=MOST_TOKENS // 4)
    checks.number("shared", shared, least=0)
    checks.number("common", common, least=0)
    across = 4 * num_distinct
    used = across + 10
    if vocab_size < used:
        raise InputError(f"vocab_size is {vocab_size}: these classes alone use {used} tokens.")
    weights = np.append(np.linspace(0.5, 1.0, num_distinct), [shared, common])
    return SequenceClasses.from_supports(
        tokens=[
            np.append(i * num_distinct + np.arange(num_distinct), [across + i % 2, across + 2 + i // 2])
            for i in range(4)
        ],
        probs=[weights / weights.sum()] * 4,
        query=[across + 4 + i // 2 for i in range(4)],
        next_token=[across + 6 + i for i in range(4)],
        vocab_size=vocab_size,
    )


@validated
def single_common(*, num_classes: int = 10, num_distinct: int = 5, vocab_size: int = 1000) -> SequenceClasses:
    """One query, one common token, `num_distinct` distinct tokens per class: the setting of Section 6 and Theorem 4.

    >>> ss.single_common(num_classes=3).common_tokens
    array([0])
    """
    return synthetic(
        num_query=1, next_per_query=num_classes, num_common=1, num_distinct=num_distinct, vocab_size=vocab_size
    )
