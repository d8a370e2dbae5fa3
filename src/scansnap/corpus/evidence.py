"""Which tokens before a query are distinct, which are common, and what speaks for it.

Distinctness D(l|m) is positive for rare tokens by chance alone.  If l occurs c times and next tokens are drawn from
P(n|m) = p regardless of l, then c(l, n) is binomial, and since x Bin(x; c, p) = c p Bin(x − 1; c − 1, p),

    E[D] = Σ_n p (E[log(1 + B)] − log(c p)),    B ~ Bin(c − 1, p).

With mean μ = (c − 1) p, B is nearly Poisson, but for its smaller variance μ (1 − p), which by the second derivative of
the logarithm adds μ p / 2(1 + μ)².  For large c this is the familiar (number of next tokens − 1) / 2c.  What D exceeds
it by is evidence.  A token is called *distinct* by that excess, and *common* if it is at most `LITTLE` of the entropy
of the next token.  A token counts once for every window that it is in, and windows overlap, so that one passage counts
several times: the excess ranks tokens, it is no test.  So tokens that precede the query in few of its windows, which
may all be of one passage, are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from scansnap.corpus.counts import Counts, largest
from scansnap.runtime.errors import InputError
from scansnap.validation.checks import integer

LITTLE = 0.05
LEAST, LEAST_SHARE = 10, 0.02
"""A token is shown that precedes the query this many times, and this many times per occurrence of the query."""

LARGE = 1e3
"""Beyond this mean E[log(1 + X)] of a Poisson variable is log λ + 1/(2λ) to six digits."""

GRID = 60
"""Numbers of occurrences at which E[D] is computed; between them it is interpolated."""


@dataclass(frozen=True)
class NextToken:
    """A token that follows the query."""

    word: str
    count: int
    """c(m, n)."""
    share: float
    """P(n|m)."""


@dataclass(frozen=True)
class ContextToken:
    """A token that precedes the query, and the next token that it speaks for most."""

    word: str
    count: int
    """c(l, m)."""
    occurrences: int
    """How often it occurs in the text."""
    share: float
    """P(l|m)."""
    distinctness: float
    """D(l|m)."""
    by_chance: float
    """D of a token that occurs as often and says nothing."""
    next_word: str
    next_count: int
    """c(l, m, n)."""
    next_share: float
    """P(n|l, m)."""
    usual_share: float
    """P(n|m)."""


@dataclass(frozen=True)
class Evidence:
    """What precedes and follows a query."""

    query: str
    occurrences: int
    num_tokens: int
    window: int
    least: int
    """How often the tokens shown precede the query, at least."""
    next_entropy: float
    following: list[NextToken]
    distinct: list[ContextToken]
    common: list[ContextToken]


def evidence(counts: Counts, query: str | int, *, top: int = 10, least: int | None = None) -> Evidence:
    """The `top` next tokens of a query, its distinct and its common tokens among those before it `least` times.

    None is `LEAST_SHARE` of the query's occurrences, and at least `LEAST`.
    """
    top = integer("top", top, least=1)
    if counts.least > 1:
        raise InputError(
            f"triples that occur fewer than {counts.least} times are left out of these counts, without which "
            "distinctness is not known: count the text with least=1."
        )
    context = counts.of(query)
    if least is None:
        least = max(LEAST, math.ceil(LEAST_SHARE * context.num_occurrences))
    least = integer("least", least, least=1)
    occurrences = counts.vocabulary["query_count"].values
    words = counts.tokenizer.words
    next_probs = context.next_counts / context.num_occurrences
    entropy = float(special.entr(next_probs).sum())
    frequent = np.flatnonzero(context.token_counts >= least)
    chance = chance_distinctness(next_probs, context.token_counts[frequent])
    excess = context.distinctness[frequent] - chance
    says_little = excess <= LITTLE * entropy

    def context_token(place: int) -> ContextToken:
        token = frequent[place]
        row = context.counts[[token]]
        count = int(context.token_counts[token])
        shares = row.data / count
        # the next token that contributes most to D
        best = int(np.argmax(shares * np.log(shares / next_probs[row.indices])))
        next_token, next_count = int(row.indices[best]), int(row.data[best])
        token_word, next_word = words([token, next_token])
        return ContextToken(
            token_word,
            count,
            int(occurrences[token]),
            float(context.cooccurrence[token]),
            float(context.distinctness[token]),
            float(chance[place]),
            next_word,
            next_count,
            next_count / count,
            float(next_probs[next_token]),
        )

    distinct = np.flatnonzero(~says_little)
    distinct = distinct[np.argsort(-excess[distinct], kind="stable")][:top]
    common = np.flatnonzero(says_little)
    common = common[np.argsort(-context.token_counts[frequent][common], kind="stable")][:top]
    following = largest(context.next_counts, top)
    return Evidence(
        query=words([context.query])[0],
        occurrences=context.num_occurrences,
        num_tokens=counts.num_tokens,
        window=counts.window,
        least=least,
        next_entropy=entropy,
        following=[
            NextToken(word, int(context.next_counts[n]), float(next_probs[n]))
            for n, word in zip(following, words(following), strict=True)
        ],
        distinct=[context_token(int(place)) for place in distinct],
        common=[context_token(int(place)) for place in common],
    )


def chance_distinctness(next_probs: NDArray[np.float64], occurrences: NDArray[np.int64]) -> NDArray[np.float64]:
    """E[D] of tokens with these numbers of occurrences that say nothing about the next token."""
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
    grid, values = _table()
    safe = np.maximum(mean, np.exp(grid[0]))  # where it vanishes
    return np.where(mean > LARGE, np.log(safe) + 0.5 / safe, np.interp(np.log(safe), grid, values))


@cache
def _table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The logarithm of the mean, and E[log(1 + X)]."""
    grid = np.linspace(np.log(1e-6), np.log(LARGE), 1000)
    x = np.arange(int(LARGE + 20 * np.sqrt(LARGE)))
    log_probs = x * grid[:, None] - np.exp(grid)[:, None] - special.gammaln(x + 1)
    return grid, np.exp(log_probs) @ np.log(x + 1)
