"""Can the winners of attention on text be said before training, and in which models?

A prediction from the text alone (`ss.predict`) is compared with the change of attention logits in training: in
(Y, Z) itself, in regular transformers, and on the ladder between the two, whose rungs change one thing at a time
(`ladder.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import scansnap as ss
import trials
from common import COLORS, LEVEL, MARKERS, command, holm, label, line, log_axis, majority, read_text, with_options
from token_choice import count_tokens, rank_correlations

if TYPE_CHECKING:
    from torch import Tensor

QUERIES, TOKENS, LEAST = 30, 3000, 50
PASSES, NUM_SEEDS = 2, 2
SCORES = ("rank", "partial", "winners")
TIMES, PRIORS = (300.0, 1000.0, 3000.0), (0.5, 0.75, 0.9)
"""Other settings of the method `settled`: how much depends on them."""

ROWS_AT_ONCE = 1024
"""Rows of an M x M matrix that are worked on at once."""


@dataclass(frozen=True)
class Theorem3:
    """c(l, m) D(l): distinct tokens gain (Theorem 2), those first that occur more often with the query (Theorem 3).

    D(l) = sum_n P(n|l) log P(n|l)/P(n), with P(n|l) = C[l, n]/s_l, is how distinct a token is, in nats.
    """

    def gains(self, reading: ss.Reading) -> Tensor:
        drive = reading.decoder_drive()
        log_shares = reading.next_shares.log()
        distinctness = drive.new_zeros(len(drive))
        for rows, part in zip(drive.split(ROWS_AT_ONCE), distinctness.split(ROWS_AT_ONCE), strict=True):
            shares = rows / rows.sum(1, keepdim=True)
            part.copy_((shares * (shares.log() - log_shares)).nan_to_num().sum(1))  # 0 log 0 = 0
        return reading.pair_counts() * distinctness


SETTLED = ss.PREDICTORS.member("settled")
METHODS: dict[str, dict[str, Any]] = {
    "settled": {"method": "settled"},
    "first_drive": {"method": replace(SETTLED, time=0.0, prior=0.0)},  # type: ignore[type-var]
    "theorem_3": {"method": Theorem3()},
    **{
        f"population {ratio:g}": {"method": "population", "lr_z": ss.YZTextOptions.lr_y / ratio}
        for ratio in trials.RATIOS
    },
    **{
        f"settled {time:g} {prior:g}": {"method": replace(SETTLED, time=time, prior=prior)}  # type: ignore[type-var]
        for time in TIMES
        for prior in PRIORS
    },
}
"""The options of each prediction; the first is the default."""


def predictions(corpus: Any, *, device: str = "cpu") -> xr.Dataset:
    """`predicted` and, from shuffled text, `control` (method, query, token), and what they are compared with."""
    setting: dict[str, Any] = {"queries": QUERIES, "tokens": TOKENS, "least": LEAST, "device": device}
    windows = trials.every_window(corpus.train, ss.YZTextOptions.window)
    setting["steps"] = PASSES * max(1, len(windows) // ss.YZTextOptions.batch_size)
    datasets = {name: ss.predict(corpus, **setting, **asked, control=True) for name, asked in METHODS.items()}
    dims = ("method", "query", "token")
    first = datasets["settled"]
    return first[["count", "frequency"]].assign(
        predicted=(dims, np.array([dataset["gain"].values for dataset in datasets.values()])),
        control=(dims, np.array([dataset["control"].values for dataset in datasets.values()])),
        method=list(METHODS),
    )


def prepare(
    *,
    text: Any,
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
    corpus = read_text(text)
    predicted = predictions(corpus, device=device) if predicted is None else predicted
    queries, tokens = predicted["query"].values, predicted["token"].values
    if changes is None:
        changes = trials.run_trials(corpus, queries, tokens, num_seeds=num_seeds, passes=passes, device=device)
    actual = changes["change"].astype(np.float64).where(changes["change"] > 0).values
    flat = actual.reshape(-1, *actual.shape[2:])  # (trial and seed, query, token)
    scores = []
    for name in predicted["method"].values:
        of_method = predicted.sel({"method": name}, drop=True)
        scores.append(ss.score_prediction(of_method.rename(predicted="gain"), flat))
    score = xr.concat(scores, "method")
    explained = count_tokens(
        corpus, queries, window=ss.YZTextOptions.window, tokens=int(tokens.max()) + 1, least=LEAST
    ).sel(token=tokens)
    with np.errstate(invalid="ignore"):  # a query whose tokens all say as little has no correlation
        partial = [rank_correlations(explained, z)["partial"].mean("query") for z in flat]
    distinct = [values.sel(explanation=["distinctness", "control"]).values for values in partial]

    def by_seed(values: xr.DataArray) -> xr.DataArray:
        shape = (actual.shape[0], actual.shape[1], *values.transpose("run", ...).shape[1:])
        dims = ("trial", "seed", *(dim for dim in values.dims if dim != "run"))
        return xr.DataArray(values.transpose("run", ...).values.reshape(shape), dims=dims)

    default = score.isel(method=0).sel(explanation="prediction", drop=True)
    dataset = xr.Dataset(
        {
            **{name: by_seed(score[name].mean("query")) for name in SCORES},
            **{f"{name}_of_query": by_seed(default[name]).mean("seed") for name in SCORES},
            "calibration": by_seed(score["calibration"].isel(method=0)).mean("seed").rename(group="group_of_ten"),
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
            "group_of_ten": score["group"].values,
            "shuffled": [False, True],
        },
    )
    options = {
        "corpus": corpus.name,
        "passes": int(changes.attrs["passes"]),
        "num_seeds": changes.sizes["seed"],
        "least": LEAST,
        "top": int(score.attrs["top"]),
    }
    return with_options(dataset, options)


def draw(dataset: xr.Dataset) -> Figure:
    """Against the ratio, up the ladder, and how far predicted ranks can be trusted."""
    figure = Figure(figsize=(11.0, 8.0), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.0, 1.25))
    _draw_ratios(figure.add_subplot(grid[0, 0]), dataset)
    _draw_calibration(figure.add_subplot(grid[0, 1]), dataset)
    _draw_ladder(figure.add_subplot(grid[1, :]), dataset)
    figure.suptitle("Winners of attention on text, predicted before training", fontsize=11)
    return figure


def _draw_ratios(axes: Any, dataset: xr.Dataset) -> None:
    partial = dataset["partial"].isel(method=0).mean("seed")
    models = dict.fromkeys(dataset["model"].values[dataset["group"].values != trials.LADDER].tolist())
    for i, model in enumerate(models):
        of_model = partial.isel(trial=_where(dataset, model))
        values = of_model.sel(explanation="prediction")
        axes.plot(of_model["ratio"], values, **line(i), marker=MARKERS[i], markersize=4, label=model)
        if i == 0:
            axes.plot(
                of_model["ratio"],
                of_model.sel(explanation="control"),
                color="gray",
                linestyle=":",
                label=f"{model}, shuffled text",
            )
            methods = [f"population {ratio:g}" for ratio in of_model["ratio"].values]
            if set(methods) <= set(dataset["method"].values):
                at_ratio = (
                    dataset["partial"].mean("seed").isel(trial=_where(dataset, model)).sel(explanation="prediction")
                )
                said = [float(at_ratio.isel(trial=j).sel({"method": name})) for j, name in enumerate(methods)]
                axes.plot(
                    of_model["ratio"], said, color="black", linestyle="--", marker=".", label=f"{model}, population"
                )
    axes.axhline(0, color=COLORS[6], linewidth=0.7)
    log_axis(axes, np.unique(dataset["ratio"].values))
    label(axes, x="$\\eta_Y/\\eta_Z$", y="rank correlation beyond frequency", title="What the prediction says")
    axes.set_ylim(top=1.0)  # space for the legend
    axes.legend(frameon=False, fontsize=7, loc="upper left", ncols=2)


def _draw_calibration(axes: Any, dataset: xr.Dataset) -> None:
    middle = (dataset["group_of_ten"].values + 0.5) / dataset.sizes["group_of_ten"]
    for i, trial in enumerate(np.flatnonzero(dataset["group"].values == trials.YZ)):
        values = dataset["calibration"].isel(trial=trial).sel(explanation="prediction")
        name = f"(Y, Z), $\\eta_Y/\\eta_Z = {float(dataset['ratio'][trial]):g}$"
        axes.plot(middle, values, **line(i), marker=MARKERS[i], markersize=4, label=name)
    axes.plot([0, 1], [0, 1], color="gray", linestyle=":", label="if all ranks were right")
    label(axes, x="predicted rank, from 0 to 1", y="mean actual rank", title="Calibration")
    axes.legend(frameon=False, fontsize=8)


def _draw_ladder(axes: Any, dataset: xr.Dataset) -> None:
    order = ladder(dataset)
    places = np.arange(len(order))
    scores = {"winners": "ten winners, above chance", "rank": "rank correlation", "partial": "beyond frequency"}
    for i, (name, words) in enumerate(scores.items()):
        values = dataset[name].isel(method=0, trial=order).sel(explanation="prediction")
        mean, low, high = values.mean("seed"), values.min("seed"), values.max("seed")
        axes.bar(places + 0.27 * (i - 1), mean, 0.25, color=COLORS[i], label=words)
        axes.vlines(places + 0.27 * (i - 1), low, high, color=COLORS[6], linewidth=1)
    axes.axhline(0, color=COLORS[6], linewidth=0.7)
    axes.set_xticks(places, dataset["model"].values[order].tolist(), rotation=30, ha="right")
    label(
        axes,
        y="prediction against what was learned",
        title=f"One change at a time, $\\eta_Y/\\eta_Z = {trials.RATIO:g}$; lines: range over seeds",
    )
    axes.legend(frameon=False, fontsize=8)


def ladder(dataset: xr.Dataset) -> list[int]:
    """The trials from (Y, Z) over the ladder to regular transformers of one layer, at the ratio of the ladder."""
    at_ratio = dataset["ratio"].values == trials.RATIO
    is_one_layer = np.char.startswith(dataset["model"].values.astype(str), "1 layer")
    groups = dataset["group"].values
    parts = (groups == trials.YZ, groups == trials.LADDER, (groups == trials.REGULAR) & is_one_layer)
    return [int(i) for part in parts for i in np.flatnonzero(at_ratio & part)]


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Whether the prediction says more than frequency does: in (Y, Z) at each ratio, and in regular transformers."""
    tested = []
    for trial in range(dataset.sizes["trial"]):
        group, model = str(dataset["group"].values[trial]), str(dataset["model"].values[trial])
        if group == trials.LADDER:
            continue
        values = dataset["partial_of_query"].isel(trial=trial).dropna("query").values
        if len(values):
            where = f"{model} at η_Y/η_Z = {float(dataset['ratio'][trial]):g}"
            what = f"queries with a positive partial rank correlation, {values.mean():.2f} in the mean"
            tested.append(majority(f"The prediction says more than frequency: {where}.", values > 0, what))
    p_values = holm(np.array([test.p_value for test in tested]))
    words = f", Holm's correction for {len(tested)}"
    return [
        replace(test, p_value=float(p), holds=bool(p <= LEVEL), settled=bool(p <= LEVEL), note=test.note + words)
        for test, p in zip(tested, p_values, strict=True)
    ]


def _where(dataset: xr.Dataset, model: str) -> Any:
    return np.flatnonzero((dataset["model"].values == model) & (dataset["group"].values != trials.LADDER))


FIGURE = ss.FigureRecipe(
    name="prediction",
    title="Which tokens will win attention on text, predicted before training, and in which models",
    statement=(
        "Which tokens occur together decides which tokens attention picks (Theorems 2 and 3), so that counting a text "
        "says beforehand which tokens will win."
    ),
    setting=(
        "(Y, Z) over the whole vocabulary, η_Y = 30; regular transformers, η_Y = 5, clipping at 0.5, dropout 0.2; the "
        "ladder between them; windows of 36, batch 64, plain SGD; the 30 most frequent words as queries, contextual "
        "tokens seen beside the query at least 50 times"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)

if __name__ == "__main__":
    command(FIGURE)
