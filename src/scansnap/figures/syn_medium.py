"""Figures 6, 11 and 12: Syn-Medium on the grid of learning rates, 64 cells of many seeds.

One sweep makes all runs with the same number of queries.  They share their seeds, and with them starts and batches.
The dataset of the runs has what the figures need about each class's distinct tokens after training:

- `attention`: c_n (Eq. 5), from the exact P(l|n) and the learned z_m;
- `softmax`: exp(z_ml)/sum_l' exp(z_ml') over all M tokens, the softmax value of the query's row that Appendix G names.
  Tokens that are never context keep their random start, uniform in ±a with a = 1/√M, and enter the sum by their
  expectation, sinh(a)/a each: the sum is off by some 0.1%.

Figure 6: entropy of attention on distinct tokens after training, on the grid of learning rates.

Means and standard deviations of all 64 cells are published (`published/figure_6_entropy.csv`).  The difference in a
cell is measured in its standard error, z = (ours - published)/sqrt(s_1^2/n_1 + s_2^2/n_2).  If both come from the same
experiment, |z| is 0.8 on average; the limits here are 1.2 on average over all cells and 4 in any single cell.

The two trends are tested cell by cell: each step along an axis of the grid is one comparison of runs with the same
seeds (`statistics.all_rise`).

Figures 11 and 12: recall of distinct tokens against a threshold, changing eta_Y/eta_Z (11) and eta_Z (12).

Recall is the share of all distinct tokens, over classes and runs, whose value is above a threshold near 1/M.  Appendix
G speaks of the softmax values of each query, which can be read in two ways:

- `softmax`: the softmax of the row z_m over the vocabulary, which is 1/M for every token at the start;
- `attention`: c_n, which includes P(l|n): at the start the distinct tokens lie from 0.2/M to 2/M for one query, and
  from 1.5/M to 15/M for ten.

Both are shown.  The first is meant.  The text speaks of "its softmax value for every query token", and a row z_m
belongs to a query, c_n to a next token.  1/M, around which the thresholds lie, is where every token's softmax starts,
while c_n of nine in ten distinct tokens starts above 2/M for ten queries.  And that the results "match that of Fig. 6"
is so in that reading alone: `entropy_trend` compares descent rates with the published entropies.

The descent rate of a run is minus the slope of the line fitted to its recall against M x threshold over the thresholds
drawn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import syn_medium
from scansnap.dynamics.published import SYN_MEDIUM
from scansnap.dynamics.sweep import sweep
from scansnap.figures.recipe import FigureRecipe, Trend, read_published, setting_in_words
from scansnap.figures.statistics import all_rise, enough_seeds, exact, significant
from scansnap.figures.style import COLORS, label, legend, line, log_axis, mean_and_error, points

QUERIES = (1, 3, 5, 10)
RATES: dict[str, Any] = {"lr_z": (0.5, 1.0, 2.0, 3.0), "lr_y_over_lr_z": (1.0, 2.0, 5.0, 10.0)}
NAMES = {"lr_z": "η_Z", "lr_y_over_lr_z": "η_Y/η_Z"}
CELL = ("num_query", *RATES, "seed")
SETTING = (
    f"Syn-Medium, 1, 3, 5, 10 queries with 2 next tokens each, SGD with momentum {SYN_MEDIUM.momentum:g}, η_Z = 0.5, "
    f"1, 2, 3, η_Y/η_Z = 1, 2, 5, 10, {setting_in_words(SYN_MEDIUM)}"
)


def make_runs(*, num_seeds: int = 10) -> xr.Dataset:
    """`entropy` (num_query, lr_z, lr_y_over_lr_z, seed), `attention` and `softmax` (.., class, rank).

    `rank` orders the distinct tokens of a class by P(l|n).  Values are NaN for classes that a setting does not have.
    """
    began = time.perf_counter()
    num_seeds = enough_seeds(num_seeds)
    parts = [_cells(syn_medium(num_query=num_query), num_seeds) for num_query in QUERIES]
    dataset = xr.concat(parts, xr.DataArray(list(QUERIES), dims="num_query", name="num_query"), join="outer")
    dataset = dataset.assign_coords(vocab_size=("num_query", [syn_medium(num_query=q).vocab_size for q in QUERIES]))
    options = {**SYN_MEDIUM.to_dict(), "num_query": QUERIES, **RATES, "num_seeds": num_seeds}
    attributes = {"options": json.dumps(options), "seconds": time.perf_counter() - began}
    return dataset.transpose(*CELL, ...).assign_attrs(attributes)


def _cells(classes: SequenceClasses, num_seeds: int) -> xr.Dataset:
    """All cells with one number of queries."""
    record = ("attention", "attention_logits", "entropy")
    setting = {**vars(SYN_MEDIUM), "lr_y": None, **RATES, "record_every": None, "record": record}
    runs = sweep(classes, **{**setting, "seeds": range(num_seeds)}, progress=False)
    last = runs.isel(step=-1, layer=0, head=0, drop=True)
    logits = last["attention_logits"]
    last["softmax"] = (logits.dims, query_softmax(logits.values, classes.vocab_size), {"units": "1"})
    distinct = [classes.distinct_tokens(i) for i in range(classes.num_classes)]
    place = {
        "class": xr.DataArray(np.arange(classes.num_classes), dims="class"),
        "query": xr.DataArray(classes.query, dims="class"),
        "token": xr.DataArray(distinct, dims=("class", "rank"), coords={"rank": np.arange(len(distinct[0]))}),
    }
    dataset = last[["attention", "softmax"]].sel(place)
    dataset["entropy"] = last["entropy"].mean("class").astype(float).assign_attrs(units="nats")
    return dataset.reset_coords(drop=True)


def query_softmax(logits: NDArray[np.floating], vocab_size: int) -> NDArray[np.float64]:
    """The softmax of z_m over the whole vocabulary, for the contextual tokens (.., token), whose logits are given."""
    weights = np.exp(logits.astype(np.float64))
    bound = vocab_size**-0.5
    rest = (vocab_size - logits.shape[-1]) * np.sinh(bound) / bound
    return weights / (weights.sum(-1, keepdims=True) + rest)


def queries(num_query: float) -> str:
    """A number of queries in words: `1 query`, `3 queries`."""
    return f"{num_query:g} quer{'y' if num_query == 1 else 'ies'}"


def cell(num_query: float, **rates: float) -> str:
    """A cell of the grid in words."""
    return ", ".join([queries(num_query), *(f"{NAMES[name]} = {value:g}" for name, value in rates.items())])


def neighbors(statement: str, values: xr.DataArray, along: str, *, falls: bool) -> Trend:
    """A trend about differences (over seeds) between neighbors of the grid along one axis: `values` fall or rise."""
    other = "lr_y_over_lr_z" if along == "lr_z" else "lr_z"
    steps = list(pairwise(values[along].values))
    labels = [
        f"{cell(num_query, **{other: fixed})}, {low:g} → {high:g}"
        for num_query, fixed, (low, high) in product(values["num_query"].values, values[other].values, steps)
    ]
    rises = values.diff(along).transpose("num_query", other, along, "seed").values.reshape(len(labels), -1)
    return all_rise(statement, labels, -rises if falls else rises)


MEAN_LIMIT, SINGLE_LIMIT = 1.2, 4.0
THRESHOLD = 2.0


def prepare_6(*, num_seeds: int = 10, runs: xr.Dataset | None = None) -> xr.Dataset:
    """`entropy` (num_query, lr_z, lr_y_over_lr_z, seed), its `mean` and `error` over seeds, the published values, and
    `score`, the difference in standard errors.

    `runs` comes from `make_runs`, which is called if it is None.
    """
    runs = make_runs(num_seeds=num_seeds) if runs is None else runs
    dataset = runs[["entropy"]].copy()
    dims = CELL[:-1]
    dataset["mean"], dataset["error"] = mean_and_error(dataset["entropy"])
    for name in ("published_mean", "published_error"):
        dataset[name] = xr.full_like(dataset["mean"], np.nan)
    for row in read_published("figure_6_entropy"):
        place = {name: row[name] for name in dims}
        dataset["published_mean"].loc[place] = row["entropy_mean"]
        dataset["published_error"].loc[place] = row["entropy_std"] / np.sqrt(row["seeds"])
    dataset["score"] = (dataset["mean"] - dataset["published_mean"]) / np.hypot(
        dataset["error"], dataset["published_error"]
    )
    for name in ("mean", "error", "published_mean", "published_error"):
        dataset[name].attrs["units"] = "nats"
    return dataset


def draw_6(dataset: xr.Dataset) -> Figure:
    """A panel for each number of queries, with open marks for published values."""
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    for axes, num_query in zip(figure.subplots(2, 2).flat, dataset["num_query"].values, strict=True):
        _entropies(axes, dataset.sel(num_query=num_query))
        label(
            axes,
            x="$\\eta_Y/\\eta_Z$ (ratio)",
            y="entropy (nats)",
            title=f"{queries(num_query)}, {2 * num_query} next tokens",
        )
    names = figure.axes[0].get_legend_handles_labels()
    words = "error bars: one standard error"
    figure.legend(*names, frameon=False, loc="outside right center", fontsize=9, title=words, title_fontsize=9)
    runs = f"{dataset.sizes['seed']} seeds a cell"
    figure.suptitle(
        f"Figure 6: entropy of attention on distinct tokens after {SYN_MEDIUM.steps} updates, {runs}", fontsize=11
    )
    return figure


def _entropies(axes: Axes, of_panel: xr.Dataset) -> None:
    ratios = of_panel["lr_y_over_lr_z"].values
    for i, lr_z in enumerate(of_panel["lr_z"].values):
        of_line = of_panel.sel(lr_z=lr_z)
        points(axes, ratios, of_line["mean"], of_line["error"], i, f"$\\eta_Z$ = {lr_z:g}")
        # Beside ours, not on top of them.
        published, name = of_line["published_mean"], f"published, $\\eta_Z$ = {lr_z:g}"
        style = {"linestyle": "none", "linewidth": 1, "markersize": 5, "markerfacecolor": "white"}
        points(axes, ratios * 1.09, published, of_line["published_error"], i, name, **style)
    log_axis(axes, ratios)


def trends_6(dataset: xr.Dataset) -> list[Trend]:
    """Agreement with the published cells, and the two trends, step by step along the axes of the grid."""
    entropy = dataset["entropy"]
    return [
        *_agreement(dataset),
        neighbors("A larger η_Z lowers the entropy.", entropy, "lr_z", falls=True),
        neighbors(
            "With η_Z fixed a larger η_Y raises the entropy beyond η_Y/η_Z = 2.",
            entropy.sel(lr_y_over_lr_z=slice(THRESHOLD, None)),
            "lr_y_over_lr_z",
            falls=False,
        ),
    ]


def _agreement(dataset: xr.Dataset) -> list[Trend]:
    """The mean and the largest difference from the published cells, in standard errors."""
    scores = np.abs(dataset["score"].values)
    known = np.isfinite(scores)
    mean, worst = float(scores[known].mean()), float(scores[known].max())
    count = int(known.sum())
    # |z| of a normal variable has mean 0.80 and standard deviation 0.60; cells that share seeds are not independent.
    p = float(stats.chi2.sf((scores[known] ** 2).sum(), count))
    where = np.unravel_index(np.nanargmax(scores), scores.shape)
    place = cell(**{name: float(dataset[name].values[i]) for name, i in zip(CELL[:-1], where, strict=True)})
    error = float(np.std(scores[known], ddof=1) / np.sqrt(count))
    how = f"|z| over {count} cells, {dataset.sizes['seed']} seeds of ours against 10 published"
    return [
        Trend(
            "Our cells are the published ones.",
            f"at most {MEAN_LIMIT}",
            mean,
            error,
            p,
            mean <= MEAN_LIMIT,
            f"mean {how}; p of the sum of squares as chi-square, as if cells were independent",
        ),
        exact("No single cell is off.", worst, f"largest {how}: {place}", at_most=SINGLE_LIMIT),
    ]


FIGURE_6 = FigureRecipe(
    name="6",
    title="Entropy of attention on distinct tokens against the learning rates",
    statement=(
        "A larger η_Z lowers the entropy (sparser attention); with η_Z fixed, a larger η_Y raises it once η_Y/η_Z is "
        "beyond about 2."
    ),
    setting=SETTING,
    prepare=prepare_6,
    draw=draw_6,
    trends=trends_6,
)


READINGS = {"softmax": "softmax of $z_m$", "attention": "attention $c_n$"}
MEANT = "softmax"
"""The reading that the paper means, in which its statements are tested."""
THRESHOLDS = np.linspace(0.5, 2.0, 31)
"""In units of 1/M."""


def recall_figure(
    name: str,
    *,
    along: str,
    fixed: float,
    slower: str,
    falls: bool,
    more_trends: Callable[[xr.Dataset], list[Trend]] = lambda dataset: [],
) -> FigureRecipe:
    """The figure with a line for each value of one rate and the other rate `fixed`; trends are tested at every value.

    With a `slower` value of the rate recall descends more slowly: its descent rate `falls` or rises along the axis.
    """
    other = "lr_y_over_lr_z" if along == "lr_z" else "lr_z"

    def prepare(*, num_seeds: int = 10, runs: xr.Dataset | None = None) -> xr.Dataset:
        """The dataset of `prepare_recall`; `runs` comes from `make_runs`, which is called if it is None."""
        return prepare_recall(make_runs(num_seeds=num_seeds) if runs is None else runs)

    def draw(dataset: xr.Dataset) -> Figure:
        bands = f"{dataset.sizes['seed']} seeds, bands: one standard error"
        title = f"Figure {name}: recall of distinct tokens, {_symbol(other)} = {fixed:g}, {bands}"
        return draw_recall(dataset, along, {other: fixed}, title)

    def trends(dataset: xr.Dataset) -> list[Trend]:
        descent = dataset["descent"].sel(reading=MEANT)
        slowly = neighbors(f"{slower} makes recall descend more slowly.", descent, along, falls=falls)
        return [slowly, *more_trends(dataset)]

    return FigureRecipe(
        name=name,
        title=f"Recall of distinct tokens against the threshold, for several {NAMES[along]}",
        statement=f"{slower} makes recall fall more slowly with the threshold: sparser attention.",
        setting=f"{SETTING}; thresholds 0.5/M to 2/M",
        prepare=prepare,
        draw=draw,
        trends=trends,
    )


def _symbol(rate: str) -> str:
    return f"${NAMES[rate]}$".replace("η", "\\eta")


def prepare_recall(runs: xr.Dataset) -> xr.Dataset:
    """`recall` (reading, num_query, lr_z, lr_y_over_lr_z, seed, threshold), and each run's `descent`."""
    values = runs[list(READINGS)].to_array("reading") * runs["vocab_size"]  # NaN where there is no class
    thresholds = xr.DataArray(THRESHOLDS, dims="threshold", coords={"threshold": THRESHOLDS})
    recall = (values > thresholds).sum(("class", "rank")) / values.count(("class", "rank"))
    descent = -recall.polyfit("threshold", 1)["polyfit_coefficients"].sel(degree=1, drop=True)
    dataset = xr.Dataset({"recall": recall.assign_attrs(units="1"), "descent": descent}, attrs=runs.attrs)
    dataset["descent"].attrs["units"] = "recall per 1/M"
    return dataset.transpose("reading", *CELL, "threshold")


def draw_recall(dataset: xr.Dataset, along: str, fixed: dict[str, float], title: str) -> Figure:
    """Panels by reading and number of queries, with a line for each value of `along`; the other rate is `fixed`."""
    figure = Figure(figsize=(10.0, 5.2), layout="constrained")
    panels = figure.subplots(len(READINGS), dataset.sizes["num_query"], sharex=True, sharey=True)
    for row, (reading, words) in enumerate(READINGS.items()):
        for column, num_query in enumerate(dataset["num_query"].values):
            axes = panels[row, column]
            of_panel = dataset.sel({"reading": reading, "num_query": num_query, **fixed})
            for i, value in enumerate(of_panel[along].values):
                mean, error = mean_and_error(of_panel["recall"].sel({along: value}))
                axes.fill_between(
                    of_panel["threshold"], mean - error, mean + error, color=COLORS[i], alpha=0.25, linewidth=0
                )
                axes.plot(of_panel["threshold"], mean, **line(i), linewidth=1.5, label=f"{value:g}")
            last = row == len(READINGS) - 1
            label(
                axes,
                x="threshold (units of 1/M)" if last else "",
                y=f"recall, {words}" if column == 0 else "",
                title=queries(num_query),
            )
    legend(panels[0, 0], title=_symbol(along))
    figure.suptitle(title, fontsize=11)
    return figure


def entropy_trend(dataset: xr.Dataset) -> list[Trend]:
    """Whether recall descends faster where the published entropy of Figure 6 is higher."""
    rows = read_published("figure_6_entropy")
    descent = dataset["descent"].sel(reading=MEANT).mean("seed")
    by_query: dict[int, tuple[float, float]] = {}
    for num_query in sorted({int(row["num_query"]) for row in rows}):
        cells = [row for row in rows if row["num_query"] == num_query]
        rates = [
            float(descent.sel(num_query=num_query, lr_z=row["lr_z"], lr_y_over_lr_z=row["lr_y_over_lr_z"]))
            for row in cells
        ]
        test = stats.spearmanr(rates, [row["entropy_mean"] for row in cells], alternative="greater")
        by_query[num_query] = float(test.statistic), float(test.pvalue)
    least, p = min(by_query.values())[0], max(p for _, p in by_query.values())
    shown = ", ".join(f"{queries(q)}: {value:+.2f}" for q, (value, _) in by_query.items())
    note = (
        f"least rank correlation over 16 published cells for each number of queries ({shown}); one-sided test of "
        "Spearman's coefficient"
    )
    statement = "Recall descends faster where Figure 6's published entropy is higher."
    return [significant(statement, "above 0", least, p, note)]


FIGURE_11 = recall_figure(
    "11", along="lr_y_over_lr_z", fixed=1.0, slower="A smaller η_Y/η_Z", falls=False, more_trends=entropy_trend
)
FIGURE_12 = recall_figure("12", along="lr_z", fixed=2.0, slower="A larger η_Z", falls=True)
