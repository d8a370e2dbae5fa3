"""Beyond the paper: can the winners of attention on text be said before training, and in which models?

A prediction from the text alone (`text/predictions`) is compared with the change of attention logits in training: in
(Y, Z) itself, in regular transformers, and on the ladder between the two, whose rungs change one thing at a time
(`text/model/ladder.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from scansnap.figures import text_runs
from scansnap.figures.described import described
from scansnap.text.corpus.corpus import Corpus
from scansnap.text.predictions import trials
from scansnap.text.predictions.methods import Predictor, Settled
from scansnap.text.predictions.predict import predict
from scansnap.text.predictions.score import SCORES, TOP, score_prediction
from scansnap.text.training.options import YZTextOptions

QUERIES, TOKENS, LEAST = 30, 3000, 50
PASSES, NUM_SEEDS = 2, 2
TIMES, PRIORS = (300.0, 1000.0, 3000.0), (0.5, 0.75, 0.9)
"""Other settings of the method `settled`: how much depends on them."""

METHODS: dict[str, str | Predictor] = {
    "settled": "settled",
    "first_drive": "first_drive",
    **{f"settled {time:g} {prior:g}": Settled(time, prior) for time in TIMES for prior in PRIORS},
}


def predictions(corpus: Corpus, *, device: str = "cpu") -> xr.Dataset:
    """`predicted` and, from shuffled text, `control` (method, query, token), and what they are compared with."""
    setting = {"queries": QUERIES, "tokens": TOKENS, "least": LEAST, "device": device}
    datasets = {name: predict(corpus, **setting, method=method, control=True) for name, method in METHODS.items()}
    dims = ("method", "query", "token")
    first = datasets["settled"]
    return first[["count", "frequency"]].assign(
        predicted=(dims, np.array([dataset["gain"].values for dataset in datasets.values()])),
        control=(dims, np.array([dataset["control"].values for dataset in datasets.values()])),
        method=list(METHODS),
    )


def prepare(
    *,
    text: str | Path | Corpus | None = None,
    num_seeds: int = NUM_SEEDS,
    passes: int = PASSES,
    device: str = "cpu",
    predicted: xr.Dataset | None = None,
    changes: xr.Dataset | None = None,
) -> xr.Dataset:
    """Scores (trial, seed, method, explanation), mean over queries.

    `rank_of_query` (trial, query) is that of the default method, mean over seeds, and so on for `partial`, `winners`.
    `distinctness` (trial, seed) is its partial rank correlation, as in the figure `tokens`.  `predicted` and `changes`
    come from `predictions` and `run_trials`, which are called if they are None.
    """
    from scansnap.text.token_choice import count_tokens, rank_correlations  # compiled, which training does not need

    corpus = text_runs.corpus_of(text)
    predicted = predictions(corpus, device=device) if predicted is None else predicted
    queries, tokens = predicted["query"].values, predicted["token"].values
    if changes is None:
        changes = trials.run_trials(corpus, queries, tokens, num_seeds=num_seeds, passes=passes, device=device)
    actual = changes["change"].astype(np.float64).where(changes["change"] > 0).values
    flat = actual.reshape(-1, *actual.shape[2:])  # (trial and seed, query, token)
    scores = []
    for name in predicted["method"].values:
        of_method = {"gain": predicted["predicted"].sel(method=name), "control": predicted["control"].sel(method=name)}
        scores.append(score_prediction(predicted.assign(of_method), flat))
    score = xr.concat(scores, "method")
    explained = count_tokens(
        corpus, queries, window=YZTextOptions.window, tokens=int(tokens.max()) + 1, least=LEAST
    ).sel(token=tokens)
    distinct = [
        rank_correlations(explained, z)["partial"].sel(explanation=["distinctness", "control"]).mean("query").values
        for z in flat
    ]

    def by_seed(values: xr.DataArray) -> xr.DataArray:
        shape = (actual.shape[0], actual.shape[1], *values.transpose("run", ...).shape[1:])
        dims = ("trial", "seed", *(dim for dim in values.dims if dim != "run"))
        return xr.DataArray(values.transpose("run", ...).values.reshape(shape), dims=dims)

    default = score.isel(method=0).sel(explanation="prediction", drop=True)
    dataset = xr.Dataset(
        {
            **{name: by_seed(score[name].mean("query")) for name in SCORES},
            **{f"{name}_of_query": by_seed(default[name]).mean("seed") for name in SCORES},
            "calibration": by_seed(score["calibration"].isel(method=0)).mean("seed"),
            "distinctness": (("trial", "seed", "shuffled"), np.array(distinct).reshape(*actual.shape[:2], 2)),
            "loss": (("trial", "seed"), changes["loss"].values),
            "seconds": (("trial", "seed"), changes["seconds"].values),
            "compared": ("query", scores[0]["tokens"].values),
        },
        coords={
            **{name: ("trial", changes[name].values) for name in ("group", "model", "ratio")},
            "method": predicted["method"].values,
            "explanation": score["explanation"].values,
            "query": np.array(corpus.words(queries)),
            "seed": changes["seed"].values,
            "shuffled": [False, True],
        },
    )
    options = {
        "corpus": corpus.name, "passes": int(changes.attrs["passes"]), "num_seeds": changes.sizes["seed"],
        "least": LEAST, "top": TOP,
    }  # fmt: skip
    return described(dataset, options)
