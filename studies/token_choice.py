"""Does attention learned from text choose the tokens that the theory says?

For a query token m and contextual tokens l, the learned attention logit z_m(l) is compared with the quantities of
Theorems 2 and 3, counted in the training text: from the counts c(l, n) of contextual tokens l in the windows that end
with m, and next tokens n after m,

    P(l|m) = c(l) / sum_l' c(l')                                                       co-occurrence
    D(l|m) = sum_n P(n|l, m) log(P(n|l, m) / P(n|m)),  P(n|l, m) = c(l, n) / c(l)      distinctness, in nats

and with the raw frequency of l, which does not depend on m.

Small counts alone make D positive, so its mean over shuffles of the next tokens over m's occurrences is subtracted.  D
of one more shuffle, treated the same way, is the control: whatever it explains is due to counting alone.

All comparisons use ranks.  `rank_correlations` computes Spearman's correlations and partial ones, which remove the
ranks of the other two explanations from both sides by least squares: high attention on frequent tokens must not count
in favor of distinctness.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, stats

SHUFFLES = 3
LEAST_COUNT = 50
"""How often a contextual token must occur beside a query to be compared."""

LEAST_TOKENS = 10
"""How many such tokens a query must have to be compared."""

EXPLANATIONS = ("distinctness", "cooccurrence", "frequency")
CONTROLLED_FOR = {
    "distinctness": ("cooccurrence", "frequency"),
    "cooccurrence": ("distinctness", "frequency"),
    "frequency": ("distinctness", "cooccurrence"),
    "control": ("cooccurrence", "frequency"),  # takes the place of distinctness
}


def count_tokens(
    corpus: Any, queries: Iterable[int], *, window: int, tokens: int, least: int = LEAST_COUNT, seed: int = 0
) -> xr.Dataset:
    """The explanations for each query token and each of the first `tokens` token ids, NaN where the token is too rare.

    With the tokenizer "words", smaller ids are more frequent.  `control` is distinctness after one more shuffle.
    """
    query_ids = [int(query) for query in queries]
    ids = np.asarray(corpus.train)
    overall = np.bincount(ids, minlength=corpus.vocab_size)[:tokens]
    rng = np.random.default_rng(seed)
    names = ("distinctness", "control", "cooccurrence", "frequency")
    values = {name: np.full((len(query_ids), min(tokens, corpus.vocab_size)), np.nan) for name in names}
    for i, query in enumerate(query_ids):
        positions = np.flatnonzero(ids[:-1] == query)
        contexts, next_tokens = _contexts(ids, positions, window), ids[positions + 1]
        token_counts = np.bincount(contexts[contexts >= 0], minlength=corpus.vocab_size)[:tokens]
        distinctness = _distinctness(contexts, next_tokens, corpus.vocab_size)[:tokens]
        shuffles = [
            _distinctness(contexts, rng.permutation(next_tokens), corpus.vocab_size)[:tokens]
            for _ in range(SHUFFLES + 1)
        ]
        expected = np.mean(shuffles[1:], axis=0)
        explanations = {
            "distinctness": distinctness - expected,
            "control": shuffles[0] - expected,
            "cooccurrence": token_counts / max(1, (contexts >= 0).sum()),
            "frequency": overall / len(ids),
        }
        enough = token_counts >= least
        for name, value in explanations.items():
            values[name][i] = np.where(enough, value, np.nan)
    return xr.Dataset(
        {name: (("query", "token"), value) for name, value in values.items()},
        coords={
            "query": query_ids,
            "token": np.arange(min(tokens, corpus.vocab_size)),
            "query_word": ("query", np.array(corpus.words(query_ids))),
        },
        attrs={"window": window, "least_count": least, "shuffles": SHUFFLES, "corpus": corpus.name},
    )


def _contexts(ids: NDArray[np.integer], positions: NDArray[np.int64], window: int) -> NDArray[np.integer]:
    """The window - 1 tokens before each position (positions, window - 1); -1 before the start of the text."""
    places = positions[:, None] - np.arange(1, window)
    return np.where(places >= 0, ids[places.clip(min=0)], -1)


def _distinctness(
    contexts: NDArray[np.integer], next_tokens: NDArray[np.integer], vocab_size: int
) -> NDArray[np.float64]:
    """D(l|m) of each token (vocab_size,); NaN for tokens that never precede the query."""
    occurrence, place = np.nonzero(contexts >= 0)
    pairs = contexts[occurrence, place], next_tokens[occurrence]
    counts = sparse.coo_array((np.ones(len(occurrence), np.int64), pairs), (vocab_size, vocab_size)).tocsr()
    rows, token_counts = counts.nonzero()[0], counts.sum(axis=1)
    next_probs = counts.data / token_counts[rows]  # P(n|l, m)
    overall = np.bincount(next_tokens, minlength=vocab_size)[counts.indices] / len(next_tokens)  # P(n|m)
    divergence = np.bincount(rows, next_probs * np.log(next_probs / overall), minlength=vocab_size)
    return np.where(token_counts > 0, np.maximum(divergence, 0.0), np.nan)  # rounding can make it negative


def rank_correlations(counts: xr.Dataset, attention_logits: ArrayLike) -> xr.Dataset:
    """Spearman's and partial correlations of attention logits (query, token) with each explanation, by query."""
    z = np.asarray(attention_logits, np.float64)
    shape = counts["distinctness"].shape
    if z.shape != shape:
        raise ValueError(f"attention_logits has shape {z.shape}: give one number for each query and token, {shape}.")
    plain = np.full((len(z), len(EXPLANATIONS) + 1), np.nan)
    partial = plain.copy()
    sizes = np.zeros(len(z), np.int64)
    for i in range(len(z)):
        query_counts = counts.isel(query=i)
        known = np.isfinite(query_counts["distinctness"].values) & np.isfinite(z[i])
        sizes[i] = known.sum()
        if sizes[i] < LEAST_TOKENS:
            continue
        target = stats.rankdata(z[i][known])
        ranks = {name: stats.rankdata(query_counts[name].values[known]) for name in CONTROLLED_FOR}
        for j, name in enumerate(CONTROLLED_FOR):
            others = [ranks[other] for other in CONTROLLED_FOR[name]]
            with np.errstate(invalid="ignore"):  # NaN where one of the two does not vary
                plain[i, j] = np.corrcoef(target, ranks[name])[0, 1]
                partial[i, j] = np.corrcoef(_without(target, others), _without(ranks[name], others))[0, 1]
    coords = {"query": counts["query"].values, "explanation": list(CONTROLLED_FOR)}
    dims = ("query", "explanation")
    return xr.Dataset({"plain": (dims, plain), "partial": (dims, partial), "tokens": ("query", sizes)}, coords=coords)


def _without(values: NDArray[np.float64], others: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The residual of `values` after least squares on the others and a constant."""
    design = np.column_stack([np.ones_like(values), *others])
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
