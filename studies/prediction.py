"""Can the winners of attention on text be said before training, and in which models?

python studies/prediction.py PATH        # a CPU takes 15 minutes of processor time for WikiText-2

A prediction from the text alone (`ss.predict`) is compared with the change of attention logits in training: in
(Y, Z) itself, in the published model, and on the ladder between the two, whose rungs change one thing at a time
(`ladder.py`).

The two constants of the method `settled` are tuned on one stretch of the text, in (Y, Z), by the rank correlation over
all ratios.  Everything that is reported is measured on another stretch, which was read for nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import scansnap as ss
import trials
from common import FOLDER, command, with_options
from scansnap.figures.statistics import LEVEL, holm
from scansnap.figures.style import COLORS, label, line
from snap import excerpt

if TYPE_CHECKING:
    from torch import Tensor

QUERIES, TOKENS, LEAST = 30, 3000, 50
SIZE, LEAST_COUNT = 120_000, 100
"""Tokens of a stretch, and how often a word occurs in the whole text unless it is `<unk>`."""

TUNING, EVALUATION = 0, 1_000_000
"""Where the stretches start."""

NUM_SEEDS, TUNING_SEEDS = 5, 2
SCORES = ("rank", "partial", "winners")
TIMES, PRIORS = (300.0, 1000.0, 3000.0), (0.5, 0.75, 0.9)
"""The constants of `settled` among which one pair is chosen."""


class Theorem3:
    """c(l, m) D(l): distinct tokens gain (Theorem 2), those first that occur more often with the query (Theorem 3).

    D(l) = sum_n P(n|l) log P(n|l)/P(n), with P(n|l) = C[l, n]/s_l, is how distinct a token is, in nats.
    """

    def gains(self, reading: ss.Reading) -> Tensor:
        drive = reading.decoder_drive()
        shares = drive / drive.sum(1, keepdim=True)
        distinctness = (shares * (shares.log() - reading.next_shares.log())).nan_to_num().sum(1)  # 0 log 0 = 0
        return reading.pair_counts() * distinctness


def settled(time: float, prior: float) -> Any:
    """The method `settled` with these constants."""
    return replace(ss.PREDICTORS.member("settled"), time=time, prior=prior)  # type: ignore[type-var]


def predict(corpus: Any, method: Any, ratio: float = trials.RATIO) -> xr.Dataset:
    """A prediction, and that of shuffled text."""
    windows = len(trials.every_window(corpus.train, ss.YZTextOptions.window))
    return ss.predict(
        corpus,
        queries=QUERIES,
        tokens=TOKENS,
        least=LEAST,
        method=method,
        lr_z=ss.YZTextOptions.lr_y / ratio,
        steps=trials.PASSES * max(1, windows // ss.YZTextOptions.batch_size),
        control=True,
    )


def tune(corpus: Any, num_seeds: int, folder: Path) -> xr.DataArray:
    """Rank correlations (time, prior) of `settled` in (Y, Z), mean over ratios, seeds and queries."""
    guesses = [predict(corpus, settled(*constants)) for constants in product(TIMES, PRIORS)]
    changes = trials.run_trials(
        corpus,
        guesses[0]["query"].values,
        guesses[0]["token"].values,
        groups=[trials.YZ],
        num_seeds=num_seeds,
        folder=folder,
    )
    scores = [float(_score(guess, changes)["rank"].sel(explanation="prediction").mean()) for guess in guesses]
    shape = len(TIMES), len(PRIORS)
    return xr.DataArray(
        np.reshape(scores, shape), dims=("time", "prior"), coords={"time": list(TIMES), "prior": list(PRIORS)}
    )


def _score(prediction: xr.Dataset, changes: xr.DataArray) -> xr.Dataset:
    """Scores (trial, seed, query, explanation); NaN where a run diverged."""
    actual = changes.astype(np.float64).where(changes > 0).values
    score = ss.score_prediction(prediction, actual.reshape(-1, *actual.shape[2:]))[list(SCORES)]
    shape = *actual.shape[:2], *score["rank"].shape[1:]
    dims = ("trial", "seed", "query", "explanation")
    values = {name: (dims, score[name].values.reshape(shape)) for name in SCORES}
    return xr.Dataset(values, coords={"explanation": score["explanation"].values})


def prepare(
    *, text: Any, num_seeds: int = NUM_SEEDS, tuning_seeds: int = TUNING_SEEDS, folder: Path = FOLDER / "prediction"
) -> xr.Dataset:
    """Scores (trial, seed, method, explanation), mean over queries, and `partial_of_query`, mean over seeds.

    `tuned` (time, prior) are the scores of the constants on the stretch for tuning, and `evaluated` on the other.
    The method `population` is predicted at the ratio of each trial.
    """
    whole = ss.read_corpus(text, min_count=LEAST_COUNT) if isinstance(text, str | Path) else text
    tuned = tune(excerpt(whole, SIZE, start=TUNING), tuning_seeds, folder / "tuning")
    constants = list(product(TIMES, PRIORS))[int(np.argmax(tuned.values))]
    corpus = excerpt(whole, SIZE, start=EVALUATION)
    guesses = {
        "settled": predict(corpus, settled(*constants)),
        "first_drive": predict(corpus, settled(0.0, 0.0)),
        "theorem_3": predict(corpus, Theorem3()),
    }
    first = guesses["settled"]
    queries, tokens = first["query"].values, first["token"].values
    changes = trials.run_trials(corpus, queries, tokens, num_seeds=num_seeds, folder=folder / "evaluation")
    scores = {name: _score(guess, changes) for name, guess in guesses.items()}
    by_ratio = {ratio: predict(corpus, "population", ratio) for ratio in np.unique(changes["ratio"].values)}
    parts = [_score(by_ratio[float(ratio)], changes.isel(trial=[i])) for i, ratio in enumerate(changes["ratio"].values)]
    scores["population"] = xr.concat(parts, "trial")
    score = xr.concat(scores.values(), "method")
    evaluated = tuned.copy()
    yz = changes.isel(trial=np.flatnonzero(changes["group"] == trials.YZ))
    for time, prior in product(TIMES, PRIORS):
        guess = predict(corpus, settled(time, prior))
        ranks = _score(guess, yz)["rank"].sel(explanation="prediction")
        evaluated.loc[{"time": time, "prior": prior}] = float(ranks.mean())
    of_query = score["partial"].sel(explanation=["prediction", "control"]).mean("seed").rename(explanation="source")
    dataset = xr.Dataset(
        {
            **{name: score[name].mean("query") for name in SCORES},
            "partial_of_query": of_query,
            "tuned": tuned,
            "evaluated": evaluated,
        },
        coords={
            **{name: ("trial", changes[name].values) for name in ("group", "model", "ratio")},
            "method": list(scores),
            "query": np.array(corpus.words(queries)),
            "seed": changes["seed"].values,
        },
    )
    options = {
        "corpus": whole.name,
        "passes": trials.PASSES,
        "tokens": SIZE,
        "types": corpus.vocab_size,
        "updates": trials.PASSES * (SIZE // ss.YZTextOptions.window // ss.YZTextOptions.batch_size),
        "num_seeds": num_seeds,
        "tuning_seeds": tuning_seeds,
        "time": float(constants[0]),
        "prior": float(constants[1]),
    }
    return with_options(dataset, options)


def draw(dataset: xr.Dataset) -> Figure:
    """In (Y, Z) against the ratio, and up the ladder."""
    figure = Figure(figsize=(11.0, 4.5), layout="constrained")
    ratios, climb = figure.subplots(1, 2, width_ratios=(1, 2.2), sharey=True)
    yz = dataset.isel(trial=np.flatnonzero(dataset["group"] == trials.YZ))
    for i, method in enumerate(("settled", "population")):
        partial = yz["partial"].sel({"method": method}).mean("seed")
        ratios.plot(yz["ratio"], partial.sel(explanation="prediction"), **line(i), marker="o", label=method)
        ratios.plot(yz["ratio"], partial.sel(explanation="control"), **line(i), alpha=0.5, label=f"{method}, shuffled")
    ratios.set_xscale("log")
    label(ratios, x="$\\eta_Y/\\eta_Z$", y="rank correlation beyond frequency", title="(Y, Z)")
    ratios.legend(frameon=False, fontsize=8)
    order = ladder(dataset)
    places = np.arange(len(order))
    for i, (name, words) in enumerate((("prediction", "settled"), ("control", "settled, shuffled text"))):
        values = dataset["partial"].isel(trial=order).sel({"method": "settled", "explanation": name})
        climb.bar(places + 0.4 * i - 0.2, values.mean("seed"), 0.38, color=COLORS[i], label=words)
        climb.vlines(places + 0.4 * i - 0.2, values.min("seed"), values.max("seed"), color=COLORS[6], linewidth=1)
    climb.axhline(0, color=COLORS[6], linewidth=0.7)
    climb.set_xticks(places, dataset["model"].values[order].tolist(), rotation=35, ha="right")
    label(climb, title=f"One change at a time, $\\eta_Y/\\eta_Z = {trials.RATIO:g}$; lines: range over seeds")
    climb.legend(frameon=False, fontsize=8)
    return figure


def ladder(dataset: xr.Dataset) -> list[int]:
    """The trials from (Y, Z) over the ladder to the published model, at the ratio of the ladder."""
    at_ratio = dataset["ratio"].values == trials.RATIO
    groups = dataset["group"].values
    return [
        int(i)
        for group in (trials.YZ, trials.LADDER, trials.REGULAR)
        for i in np.flatnonzero(at_ratio & (groups == group))
    ]


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Whether predictions say more than frequency, and more than shuffled text: in all trials, Holm over all tests."""
    tested = []
    for trial, method in product(range(dataset.sizes["trial"]), ("settled", "population")):
        now = dataset["partial_of_query"].isel(trial=trial).sel({"method": method})
        prediction, control = (now.sel(source=name).values for name in ("prediction", "control"))
        where = f"{dataset['model'].values[trial]}, ratio {float(dataset['ratio'][trial]):g}, {method}"
        for words, values in (("frequency", prediction), ("shuffled text", prediction - control)):
            known = values[np.isfinite(values)]
            if len(known):
                tested.append((f"More than {words}: {where}", known))
    p = holm(np.array([stats.wilcoxon(values, alternative="greater").pvalue for _, values in tested]))
    below = holm(np.array([stats.wilcoxon(values, alternative="less").pvalue for _, values in tested]))
    note = f"Wilcoxon's signed-rank test over queries, Holm's correction for {len(tested)}"
    return [
        ss.Trend(
            statement,
            "above 0",
            float(values.mean()),
            float(values.std(ddof=1) / np.sqrt(len(values))),
            float(p[i]),
            bool(p[i] <= LEVEL),
            f"{int((values > 0).sum())} of {len(values)} queries; {note}",
            bool(min(p[i], below[i]) <= LEVEL),
        )
        for i, (statement, values) in enumerate(tested)
    ]


FIGURE = ss.FigureRecipe(
    name="prediction",
    title="Which tokens will win attention on text, predicted before training, and in which models",
    statement=(
        "Which tokens occur together decides which tokens attention picks (Theorems 2 and 3), so that counting a text "
        "says beforehand which tokens will win."
    ),
    setting=(
        "(Y, Z) at η_Y = 30; the published model in width 64 at η_Y = 5, clipping at 0.5, dropout 0.2; the models "
        "between them; windows of 36, batch 64, plain SGD; the 30 most frequent words as queries, contextual tokens "
        "seen beside the query at least 50 times"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)

if __name__ == "__main__":
    command(FIGURE)
