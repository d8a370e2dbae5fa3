"""How well a prediction says which tokens gain attention, beside what frequency alone would say.

Attention logits matter up to a constant for each query, so that predicted and actual gains are compared within a query,
by ranks, over the tokens that the prediction ranks:

- rank: Spearman's correlation;
- partial: the same after the ranks of the tokens' frequency are taken out of both sides by least squares;
- winners: the share of the `top` tokens with the largest actual gain that are among the `top` predicted ones, from 0
  for chance to 1 for all: (share - top/L) / (1 - top/L) of L tokens;
- calibration: tokens in ten groups by predicted rank, and the mean actual rank in each, from 0 to 1: (d + 1/2)/10 if
  predicted ranks are right on average, 1/2 everywhere if they say nothing.

The prediction stands beside explanations that any prediction must beat: frequency P(l), co-occurrence c(l, m), PMI, and
the control, if the prediction has one: the same method on shuffled text.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import Values
from scansnap.validation.checks import integer
from scansnap.validation.validate import validated

TOP = 10
GROUPS = 10
SCORES = ("rank", "partial", "winners")


@validated
def score_prediction(prediction: xr.Dataset, gains: Values, *, top: int = TOP) -> xr.Dataset:
    """Compare a prediction with the change of attention logits in training.

    Parameters
    ----------
    prediction : Dataset
        What `predict` returns.
    gains : array (query, token) or (run, query, token)
        The attention logits after training less those before, for the prediction's queries and tokens.
    top : int
        How many tokens count as winners.

    Returns
    -------
    xarray.Dataset
        `rank`, `partial` and `winners` (run, query, explanation), NaN for a query with too few tokens; `calibration`
        (run, explanation, group), mean over queries; `tokens` (query), how many were compared.  `summarize_score`
        gives means and how many queries are positive.

    Examples
    --------
    >>> prediction = ss.predict("example", queries=3, least=50)
    >>> score = ss.score_prediction(prediction, prediction["gain"].fillna(0.0).values)
    >>> score["rank"].shape
    (1, 3, 4)
    """
    top = integer("top", top, least=1)
    shape = prediction["gain"].shape
    actual = np.asarray(gains, np.float64)
    actual = actual[None] if actual.ndim == 2 else actual
    if actual.shape[1:] != shape:
        raise InputError(f"gains has shape {actual.shape}: give one number for each query and token, {shape}.")
    explanations = explanations_of(prediction)
    size = (len(actual), shape[0], len(explanations))
    scores = {name: np.full(size, np.nan) for name in SCORES}
    calibration = np.full((*size, GROUPS), np.nan)
    frequency = prediction["frequency"].values
    ranked = np.isfinite(prediction["gain"].values)
    for run, query in np.ndindex(size[:2]):
        known = ranked[query] & np.isfinite(actual[run, query])
        if known.sum() <= top:
            continue
        target, usual = _ranks(actual[run, query][known]), _ranks(frequency[known])
        for i, values in enumerate(explanations.values()):
            said = _ranks(values[query][known])
            at = run, query, i
            scores["rank"][at] = _correlation(said, target)
            scores["partial"][at] = _correlation(_without(said, usual), _without(target, usual))
            scores["winners"][at] = _winners(said, target, top)
            calibration[at] = _calibration(said, target)
    dims = ("run", "query", "explanation")
    return xr.Dataset(
        {
            **{name: (dims, values) for name, values in scores.items()},
            "calibration": (("run", "explanation", "group"), _mean_over_queries(calibration)),
            "tokens": ("query", ranked.sum(1)),
        },
        coords={
            "query": prediction["query"].values,
            "explanation": list(explanations),
            "group": np.arange(GROUPS),
            "query_word": ("query", prediction["query_word"].values),
        },
        attrs={"top": top},
    )


def summarize_score(score: xr.Dataset) -> xr.Dataset:
    """Means over queries and runs, the number of queries positive in the mean over runs, and the spread of runs."""
    means = {name: score[name].mean(("run", "query")) for name in SCORES}
    positive = {f"{name}_positive": (score[name].mean("run") > 0).sum("query") for name in SCORES}
    spread = {f"{name}_spread": score[name].mean("query").std("run", ddof=1) for name in SCORES}
    if score.sizes["run"] == 1:
        spread = {}
    return xr.Dataset({**means, **positive, **spread})


def explanations_of(prediction: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    """What the actual gains are compared with, each (query, token): the prediction and what it must beat."""
    counts = prediction["count"].values.astype(np.float64)
    frequency = np.broadcast_to(prediction["frequency"].values, counts.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        pmi = np.log(counts) - np.log(frequency)  # to a constant for each query
    explanations = {"prediction": prediction["gain"].values}
    if "control" in prediction:
        explanations["control"] = prediction["control"].values
    return {**explanations, "frequency": frequency, "cooccurrence": counts, "pmi": pmi}


def _mean_over_queries(calibration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of those that have tokens in a group; NaN where none has."""
    known = np.isfinite(calibration)
    number = known.sum(axis=1)
    return np.where(known, calibration, 0.0).sum(axis=1) / np.where(number, number, np.nan)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return stats.rankdata(values)


def _without(ranks: NDArray[np.float64], usual: NDArray[np.float64]) -> NDArray[np.float64]:
    """What least squares on the other ranks and a constant leaves."""
    usual = usual - usual.mean()
    return ranks - ranks.mean() - usual * float(ranks @ usual) / max(float(usual @ usual), 1e-300)


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson's correlation; NaN where one side does not vary beyond rounding."""
    x, y = x - x.mean(), y - y.mean()
    lengths = np.linalg.norm(x), np.linalg.norm(y)
    return float(x @ y / (lengths[0] * lengths[1])) if min(lengths) > 1e-9 * len(x) else np.nan


def _winners(said: NDArray[np.float64], target: NDArray[np.float64], top: int) -> float:
    first = [set(np.argsort(-ranks, kind="stable")[:top].tolist()) for ranks in (said, target)]
    chance = top / len(said)
    return (len(first[0] & first[1]) / top - chance) / (1 - chance)


def _calibration(said: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    group = np.minimum((said - 0.5) / len(said) * GROUPS, GROUPS - 1).astype(int)
    share = (target - 0.5) / len(target)
    counts = np.bincount(group, minlength=GROUPS)
    with np.errstate(invalid="ignore"):
        return np.bincount(group, share, minlength=GROUPS) / np.where(counts, counts, np.nan)
