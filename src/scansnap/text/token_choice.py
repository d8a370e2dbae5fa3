"""Does attention learned from text choose the tokens that the theory says?

For a query token m and contextual tokens l the learned attention logit z_m(l) is put beside what Theorems 2 and 3 speak
of, counted in the training text (`text/corpus/contexts.py`): distinctness D(l|m), how much l says about the token after
m, and co-occurrence P(l|m); and beside the raw frequency of l, which knows nothing of m.

Few counts alone make D positive, so D is taken above what it is when next tokens are shuffled over m's occurrences; D
of a further shuffle, treated the same way, is the control: whatever it explains, counting explains.
Everything is by ranks.  `rank_correlations` has Spearman's correlations and partial ones, in which the ranks of the
other two explanations are taken out of both sides by least squares: that attention is high on what is frequent must not
count for distinctness.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from scansnap.base.errors import InputError
from scansnap.text.corpus.contexts import count_contexts
from scansnap.text.corpus.corpus import Corpus

SHUFFLES = 3
LEAST_COUNT = 50
"""A contextual token counts for a query that it is seen beside at least so often."""

LEAST_TOKENS = 10
"""A query counts that has at least so many of them."""

EXPLANATIONS = ("distinctness", "cooccurrence", "frequency")
TAKEN_OUT = {
    "distinctness": ("cooccurrence", "frequency"),
    "cooccurrence": ("distinctness", "frequency"),
    "frequency": ("distinctness", "cooccurrence"),
    "control": ("cooccurrence", "frequency"),  # in the place of distinctness
}


def count_tokens(
    corpus: Corpus, queries: Iterable[int], *, window: int, tokens: int, least: int = LEAST_COUNT, seed: int = 0
) -> xr.Dataset:
    """For each query token and the first `tokens` token ids what the text says of them; NaN where seen too seldom.

    With the tokenizer "words" smaller ids are more frequent.  `control` is distinctness after one more shuffle.
    """
    chosen = [int(query) for query in queries]
    ids = np.asarray(corpus.train)
    overall = np.bincount(ids, minlength=corpus.vocab_size)[:tokens]
    rng = np.random.default_rng(seed)
    names = ("distinctness", "control", "cooccurrence", "frequency")
    values = {name: np.full((len(chosen), min(tokens, corpus.vocab_size)), np.nan) for name in names}
    for i, query in enumerate(chosen):
        counts = count_contexts(ids, query, window, vocab_size=corpus.vocab_size)
        shuffles = [counts.shuffled(rng).distinctness[:tokens] for _ in range(SHUFFLES + 1)]
        expected = np.mean(shuffles[1:], axis=0)
        found = {
            "distinctness": counts.distinctness[:tokens] - expected,
            "control": shuffles[0] - expected,
            "cooccurrence": counts.cooccurrence[:tokens],
            "frequency": overall / len(ids),
        }
        enough = counts.token_counts[:tokens] >= least
        for name, value in found.items():
            values[name][i] = np.where(enough, value, np.nan)
    return xr.Dataset(
        {name: (("query", "token"), value) for name, value in values.items()},
        coords={
            "query": chosen,
            "token": np.arange(min(tokens, corpus.vocab_size)),
            "query_word": ("query", np.array(corpus.words(chosen))),
        },
        attrs={"window": window, "least_count": least, "shuffles": SHUFFLES, "corpus": corpus.name},
    )


def rank_correlations(counts: xr.Dataset, logits: ArrayLike) -> xr.Dataset:
    """Spearman's and partial correlations of attention logits (query, token) with each explanation, for each query."""
    z = np.asarray(logits, np.float64)
    if z.shape != counts["distinctness"].shape:
        raise InputError(f"logits have shape {z.shape}: give one for each query and token {counts.sizes}.")
    plain = np.full((len(z), len(EXPLANATIONS) + 1), np.nan)
    partial = plain.copy()
    sizes = np.zeros(len(z), np.int64)
    for i in range(len(z)):
        one = counts.isel(query=i)
        known = np.isfinite(one["distinctness"].values) & np.isfinite(z[i])
        sizes[i] = known.sum()
        if sizes[i] < LEAST_TOKENS:
            continue
        target = stats.rankdata(z[i][known])
        ranks = {name: stats.rankdata(one[name].values[known]) for name in TAKEN_OUT}
        for j, name in enumerate(TAKEN_OUT):
            others = [ranks[other] for other in TAKEN_OUT[name]]
            plain[i, j] = np.corrcoef(target, ranks[name])[0, 1]
            partial[i, j] = np.corrcoef(_without(target, others), _without(ranks[name], others))[0, 1]
    coords = {"query": counts["query"].values, "explanation": list(TAKEN_OUT)}
    dims = ("query", "explanation")
    return xr.Dataset({"plain": (dims, plain), "partial": (dims, partial), "tokens": ("query", sizes)}, coords=coords)


def _without(values: NDArray[np.float64], others: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """What is left of `values` after least squares on the others and a constant."""
    design = np.column_stack([np.ones_like(values), *others])
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
