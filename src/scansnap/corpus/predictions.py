"""Predict which tokens will win a query's attention, from a text or its counts before training, and score predictions.

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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from scansnap.corpus.batches import every_window
from scansnap.corpus.corpus import Corpus, read_corpus
from scansnap.corpus.counts import Counts
from scansnap.corpus.predictors import PREDICTORS, PredictOptions
from scansnap.corpus.readings import CountReading, Reading, WindowReading
from scansnap.results.dataset import attributes
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, find_device
from scansnap.theory.phases import scan_end, snap_start
from scansnap.validation.argument_types import Values
from scansnap.validation.checks import integer
from scansnap.validation.options import RunArguments, from_names, options_as_kwargs
from scansnap.validation.validate import validated

TITLE = "predicted gain of attention"
BYTES = 4
MEMORY_SHARE = 0.8
"""The share of the memory that Y may take."""

TOP = 10
GROUPS = 10
SCORES = ("rank", "partial", "winners")


@dataclass(frozen=True, kw_only=True)
class PredictArguments(PredictOptions, RunArguments):
    """The keyword arguments of `predict`, for type checkers."""


@options_as_kwargs(PredictArguments, PredictOptions, RunArguments)
@validated
def predict(
    text: Corpus | Counts | str | Path, *, store: str | Path | None = None, progress: bool | None = None, **kwargs: Any
) -> xr.Dataset:
    """Rank the tokens before each query by the attention that they will gain, before any training.

    Parameters
    ----------
    text : Corpus, Counts, or str or path
        What `read_corpus` returns or takes, or what `count_corpus` returns.  A corpus is read in windows, as training
        reads it; counts do not say which tokens come together, so a prediction from them is coarser.
    {options}

    Returns
    -------
    xarray.Dataset
        `gain` (query, token), NaN for tokens that are too rare beside the query: the attention logit by the method
        `population`, by others in units of one step of eta_Y = eta_Z = 1; `ranked` (query, place), the tokens from the
        largest gain on.  `scan_end` and `snap_start` (query) are the updates t'_0 and t_0 of Theorem 4 for the query's
        most frequent class: a class that is drawn in the share P of the updates takes the time of one of K = 1/P
        classes.  `text_snap_start` is t_0 of a memorized text, in which every occurrence is a class.  They
        assume that classes can be told apart, so that the loss vanishes.  If it stays large, attention keeps scanning.

    Examples
    --------
    >>> prediction = ss.predict("example", queries=("the",), least=50)
    >>> prediction["gain"].sizes["query"]
    1
    """
    options = from_names(PredictOptions, kwargs)
    if isinstance(text, str | Path):
        text = read_corpus(text, progress=progress)
    if options.device == "cpu":
        matrices = getattr(PREDICTORS.member(options.method), "matrices", 1)
        needed = BYTES * text.vocab_size**2 * matrices / MEMORY_SHARE
        what = f"{text.vocab_size:,} token types need about"
        check_memory(what, needed, "read the text with a larger min_count")
    dataset = _dataset(text, options)
    if store is not None:
        from scansnap.results.store import save

        save(dataset, store)
    return dataset


def _read(text: Corpus | Counts, options: PredictOptions) -> Reading:
    """The text and its expected gradients."""
    find_device(options.device)
    asked = options.queries
    queries = text.frequent_words(asked) if isinstance(asked, int) else np.array([text.token(word) for word in asked])
    if not isinstance(text, Corpus):
        return CountReading(text, queries=queries, device=options.device, plan=options.plan(text.num_tokens))
    windows = every_window(text.train, options.window).astype(np.int64)
    plan = options.plan(len(text.train))
    return WindowReading(windows, vocab_size=text.vocab_size, queries=queries, device=options.device, plan=plan)


def _dataset(text: Corpus | Counts, options: PredictOptions) -> xr.Dataset:
    reading = _read(text, options)
    frequency = reading.next_shares.double().cpu().numpy()
    tokens = np.argsort(-frequency, kind="stable")[: options.tokens]
    queries = reading.queries.cpu().numpy()
    counts = reading.pair_counts().cpu().numpy()[:, tokens]
    method = PREDICTORS.member(options.method)
    is_ranked = counts >= options.least

    def gains(source: Reading) -> NDArray[np.float64]:
        return np.where(is_ranked, method.gains(source).double().cpu().numpy()[:, tokens], np.nan)

    gain = gains(reading)
    places = np.argsort(-np.where(is_ranked, gain, -np.inf), axis=1, kind="stable")
    ranked = np.where(np.take_along_axis(is_ranked, places, 1), tokens[places], -1)[:, : is_ranked.sum(1).max()]
    tokenizer = text.tokenizer
    words = {int(token): word for token, word in zip(tokens, tokenizer.words(tokens), strict=True)} | {-1: ""}
    variables = {
        "gain": (("query", "token"), gain),
        "count": (("query", "token"), counts),
        "frequency": (("token",), frequency[tokens]),
        "ranked": (("query", "place"), ranked),
        **_times(reading, options.lr_y),
    }
    if options.control:
        if not isinstance(reading, WindowReading):
            raise InputError("control is asked for, but counts cannot be shuffled: give the text itself.")
        variables["control"] = (("query", "token"), gains(reading.shuffled(options.seed)))
    coords = {
        "query": queries,
        "token": tokens,
        "place": np.arange(1, ranked.shape[1] + 1),
        "query_word": ("query", np.array(tokenizer.words(queries))),
        "token_word": ("token", np.array([words[int(token)] for token in tokens])),
        "ranked_word": (("query", "place"), np.array([[words[int(token)] for token in row] for row in ranked])),
    }
    configuration = {**options.to_dict(), "record": list(variables)}
    return xr.Dataset(variables, coords, attributes("prediction", TITLE, configuration))


def _times(reading: Reading, lr_y: float) -> dict[str, tuple[tuple[str, ...], NDArray[np.float64]]]:
    shares = reading.class_shares().double().cpu().numpy()
    occurs = shares > 0  # a rare query may stand only where windows begin, and then nothing precedes it
    classes = np.round(1 / np.where(occurs, shares, 1.0)).astype(np.int64)
    size = len(reading.next_shares)
    whole_text = snap_start(vocab_size=size, num_classes=reading.occurrences, lr_y=lr_y)
    return {
        **{
            name: (("query",), np.where(occurs, time(vocab_size=size, num_classes=classes, lr_y=lr_y), np.nan))
            for name, time in (("scan_end", scan_end), ("snap_start", snap_start))
        },
        "text_snap_start": ((), np.asarray(whole_text)),
    }


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
        (run, explanation, group), mean over queries; `tokens` (query), how many were compared.

    Examples
    --------
    >>> prediction = ss.predict("example", queries=3, least=50)
    >>> score = ss.score_prediction(prediction, prediction["gain"].fillna(0.0).values)
    >>> score["rank"].shape
    (1, 3, 4)
    """
    top = integer("top", top, least=1)
    if missing := [name for name in ("gain", "count", "frequency", "query_word") if name not in prediction]:
        raise InputError(f"prediction has no variable '{missing[0]}': give what predict(...) returns.")
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
        target, usual = stats.rankdata(actual[run, query][known]), stats.rankdata(frequency[known])
        for i, values in enumerate(explanations.values()):
            said = stats.rankdata(values[query][known])
            at = run, query, i
            scores["rank"][at] = _correlation(said, target)
            scores["partial"][at] = _correlation(_without(said, usual), _without(target, usual))
            scores["winners"][at] = _winners(said, target, top)
            calibration[at] = _calibration(said, target)
    dims = ("run", "query", "explanation")
    return xr.Dataset(
        {
            **{name: (dims, values) for name, values in scores.items()},
            "calibration": xr.DataArray(calibration, dims=(*dims, "group")).mean("query"),
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
