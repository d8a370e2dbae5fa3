"""Which tokens before a query are distinct and which are common, by counts.

From the counts of one query m (`counts.py`) follow

    P(n|m) = c(m, n) / (number of occurrences)
    D(l|m) = Σ_n P(n|l, m) log(P(n|l, m) / P(n|m)),  P(n|l, m) = c(l, m, n) / c(l, m)

D, in nats, is how much a contextual token l tells about the next token.  It is 0 for a token that occurs with all next
tokens in proportion and −log P(n|m) for one that is distinct to n.

Distinctness is positive for rare tokens by chance alone.  If l occurs c times and next tokens are drawn from
P(n|m) = p regardless of l, then c(l, n) is binomial, and since x Bin(x; c, p) = c p Bin(x − 1; c − 1, p),

    E[D] = Σ_n p (E[log(1 + B)] − log(c p)),    B ~ Bin(c − 1, p).

With mean μ = (c − 1) p, B is nearly Poisson, but for its smaller variance μ (1 − p), which by the second derivative of
the logarithm adds μ p / 2(1 + μ)².  For large c this is the familiar (number of next tokens − 1) / 2c.  What D exceeds
it by is evidence.  A token is called *common* if that excess is at most `COMMON_SHARE` of the entropy of the next
token, otherwise *distinct*.  A token counts once for every window that it is in, and windows overlap, so that one
passage counts several times: the excess ranks tokens, it is no test.  So tokens that precede the query in few of its
windows, which may all be of one passage, are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scansnap.text.corpus import Corpus
from scansnap.text.counts import CountOptions, TextCounts
from scansnap.validation.checks import integer
from scansnap.validation.options import from_names, options_as_kwargs
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import xarray as xr

COMMON_SHARE = 0.05
"""The largest excess of a common token, as a share of the entropy of the next token."""

LEAST_COUNT, LEAST_SHARE = 10, 0.02
"""By default a token is shown that precedes the query this many times, and this many times per occurrence of it."""

NEXT_WORDS = 3
"""The most next tokens of each contextual token that are listed."""

LARGE_MEAN = 1e3
"""Beyond this mean E[log(1 + X)] of a Poisson variable is log λ + 1/(2λ) to six digits."""

GRID = 60
"""Numbers of occurrences at which E[D] is computed; between them it is interpolated."""


@dataclass(frozen=True, kw_only=True)
class ContextWordsCall(CountOptions):
    """A call of `context_words`, for its signature."""

    query: str | int = field(kw_only=False)
    least: int | None = None


@options_as_kwargs(ContextWordsCall, CountOptions)
@validated
def context_words(corpus: Corpus, query: str | int, /, *, least: int | None = None, **kwargs: Any) -> xr.Dataset:
    """The words before a query: how often each precedes it, which next words it points to, distinct or common.

    Parameters
    ----------
    corpus : Corpus
        What `read_corpus` returns.
    query : str or int
        The query, a word or a token id.
    {options}
    least : int, optional
        How often a token must precede the query to be listed; by default a fiftieth of the query's occurrences, and at
        least 10.

    Returns
    -------
    xarray.Dataset
        By contextual token, from the most distinct on: `count` beside the query, `occurrences` in the text,
        `distinctness` D(l|m), its mean `by_chance`, and whether the token `is_distinct`.  By token and rank, the next
        words that it tells most about: `next_word` (empty if there are fewer), `next_share` after this token and
        `usual_share` after the query.

    Examples
    --------
    >>> words = ss.context_words(ss.read_corpus("example"), "the")
    >>> print(*words["word"].values[:2], *words["next_word"].values[:2, 0])
    hunter ruled forest castle
    """
    import xarray as xr

    options = from_names(CountOptions, kwargs)
    text = TextCounts(corpus, window=options.window, split=options.split)
    (counts,) = text.of(text.tokens_of([query]))
    if least is None:
        least = max(LEAST_COUNT, math.ceil(LEAST_SHARE * counts.num_occurrences))
    contexts = counts.contexts()
    next_probs = counts.next_counts / counts.num_occurrences  # P(n|m)
    share = contexts.count / contexts.token_counts[contexts.token]  # P(n|l, m)
    terms = share * np.log(share / next_probs[contexts.place])
    # a divergence is never negative, but rounding can make it so
    distinctness = np.maximum(np.bincount(contexts.token, terms, corpus.vocab_size), 0.0)
    listed = np.flatnonzero(contexts.token_counts >= integer("least", least, least=1))
    chance = chance_distinctness(next_probs, contexts.token_counts[listed])
    excess = distinctness[listed] - chance
    entropy = -float(next_probs @ np.log(next_probs))
    order = np.argsort(-excess, kind="stable")
    listed, chance, excess = listed[order], chance[order], excess[order]
    by_token = np.lexsort((-terms, contexts.token))
    first = np.searchsorted(contexts.token[by_token], listed)
    pointed = first[:, None] + np.arange(NEXT_WORDS)  # places in by_token
    exists = np.arange(NEXT_WORDS) < (np.searchsorted(contexts.token[by_token], listed, side="right") - first)[:, None]
    rows = by_token[np.where(exists, pointed, 0)]
    exists &= terms[rows] > 0
    next_words = np.array(corpus.words(counts.next_tokens))[contexts.place[rows]]
    over_tokens = {
        "count": contexts.token_counts[listed],
        "occurrences": text.query_counts[listed],
        "distinctness": distinctness[listed],
        "by_chance": chance,
        "is_distinct": excess > COMMON_SHARE * entropy,
    }
    pointing = {
        "next_word": np.where(exists, next_words, ""),
        "next_share": np.where(exists, share[rows], np.nan),
        "usual_share": np.where(exists, next_probs[contexts.place[rows]], np.nan),
    }
    return xr.Dataset(
        {
            **{name: ("token", values) for name, values in over_tokens.items()},
            **{name: (("token", "rank"), values) for name, values in pointing.items()},
        },
        coords={"token": listed, "word": ("token", np.array(corpus.words(listed), str))},
        attrs={
            "query": corpus.words([counts.query])[0],
            "num_occurrences": counts.num_occurrences,
            "num_tokens": text.num_tokens,
            "least": least,
            "next_entropy": entropy,
            **options.to_dict(),
        },
    )


def chance_distinctness(next_probs: NDArray[np.float64], occurrences: NDArray[np.int64]) -> NDArray[np.float64]:
    """E[D] of tokens with these numbers of occurrences that are unrelated to the next token."""
    if not len(occurrences):
        return np.empty(0)
    probs = next_probs[next_probs > 0]
    low, high = int(occurrences.min()), int(occurrences.max())
    grid = np.unique(np.append(np.geomspace(low, high, GRID), [low, high]))
    expected = []
    for c in grid:
        mean = (c - 1) * probs
        narrower = mean * probs / (2 * (1 + mean) ** 2)
        expected.append(float(probs @ (_poisson_logarithm(mean) + narrower - np.log(c * probs))))
    return np.maximum(np.interp(np.log(occurrences), np.log(grid), expected), 0.0)


def _poisson_logarithm(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """E[log(1 + X)] for X ~ Poisson(mean)."""
    grid, values = _poisson_table()
    safe = np.maximum(mean, np.exp(grid[0]))  # where it vanishes
    return np.where(mean > LARGE_MEAN, np.log(safe) + 0.5 / safe, np.interp(np.log(safe), grid, values))


@cache
def _poisson_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The logarithm of the mean, and E[log(1 + X)]."""
    from scipy import special

    grid = np.linspace(np.log(1e-6), np.log(LARGE_MEAN), 1000)
    x = np.arange(int(LARGE_MEAN + 20 * np.sqrt(LARGE_MEAN)))
    log_probs = x * grid[:, None] - np.exp(grid)[:, None] - special.gammaln(x + 1)
    return grid, np.exp(log_probs) @ np.log(x + 1)
