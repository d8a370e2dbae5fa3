"""Predictions of the tokens that will win a query's attention, made from a text or its counts before training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.corpus.corpus import Corpus, read_corpus
from scansnap.corpus.counts import Counts
from scansnap.corpus.tokenizers import token_of
from scansnap.dynamics.verb import Call, verb
from scansnap.results.dataset import attributes
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import gibibytes, physical_memory
from scansnap.text.predictions.methods import PREDICTORS
from scansnap.text.predictions.options import PredictOptions
from scansnap.text.predictions.reading import CountReading, Reading, WindowReading
from scansnap.text.training.windows import every_window
from scansnap.theory.phases import scan_end, snap_start

TITLE = "predicted gain of attention"
BYTES = 4


@dataclass(frozen=True, kw_only=True)
class PredictCall(PredictOptions, Call):
    """A call of `predict` in its flat form."""


@verb(PredictOptions, PredictCall)
def predict(
    text: Corpus | Counts | str | Path, options: PredictOptions, store: str | Path | None, progress: bool | None
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
        classes.  `text_snap_start` is t_0 of a text that is learned by heart, whose occurrences are a class each.  They
        assume classes that can be told apart, so that the loss vanishes; a text whose loss stays large scans on.

    Examples
    --------
    >>> prediction = ss.predict("example", queries=("the",), least=50)
    >>> prediction["gain"].sizes["query"]
    1
    """
    if isinstance(text, str | Path):
        text = read_corpus(text, progress=progress)
    if not isinstance(text, Corpus) and not _is_counts(text):
        raise InputError(f"text is {type(text).__name__}: give what read_corpus(...) or count_corpus(...) returns.")
    _check_memory(text.vocab_size, options)
    dataset = _dataset(text, options)
    if store is not None:
        from scansnap.results.store import save

        save(dataset, store)
    return dataset


def _is_counts(text: object) -> bool:
    return isinstance(text, Counts)


def reading_of(text: Corpus | Counts, options: PredictOptions) -> Reading:
    """The text, read with even attention."""
    queries = _queries(text, options.queries)
    if not isinstance(text, Corpus):
        return CountReading(text, queries=queries, device=options.device, plan=options.plan(text.num_tokens))
    windows = every_window(text.train, options.window).astype(np.int64)
    plan = options.plan(len(text.train))
    return WindowReading(windows, vocab_size=text.vocab_size, queries=queries, device=options.device, plan=plan)


def _dataset(text: Corpus | Counts, options: PredictOptions) -> xr.Dataset:
    reading = reading_of(text, options)
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
    described = {**options.to_dict(), "record": list(variables)}
    return xr.Dataset(variables, coords, attributes("prediction", TITLE, described))


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


def _queries(text: Corpus | Counts, queries: int | tuple[str, ...]) -> NDArray[np.int64]:
    if isinstance(queries, tuple):
        return np.array(
            [
                token_of(text.tokenizer, word, text.name if isinstance(text, Corpus) else text.source)
                for word in queries
            ],
            np.int64,
        )
    if isinstance(text, Corpus):
        return text.frequent_words(queries)
    from scansnap.corpus.classes import frequent_queries

    return frequent_queries(text, queries)


def _check_memory(vocab_size: int, options: PredictOptions) -> None:
    needed = BYTES * vocab_size**2 * getattr(PREDICTORS.member(options.method), "matrices", 1)
    if options.device == "cpu" and needed > 0.8 * physical_memory():
        raise InputError(
            f"{vocab_size:,} token types need {gibibytes(needed)} for Y, and this machine has "
            f"{gibibytes(physical_memory())}: read the text with a larger min_count."
        )
