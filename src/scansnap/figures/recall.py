"""Figures 11 and 12: recall of distinct tokens against a threshold, changing eta_Y/eta_Z (11) and eta_Z (12).

Recall is the share of all distinct tokens, over classes and runs, whose value is above a threshold near 1/M.  Appendix
G speaks of the softmax values of each query, which can be read in two ways:

- `softmax`: the softmax of the row z_m over the vocabulary, which is 1/M for every token at the start;
- `attention`: c_n, which includes P(l|n): at the start the distinct tokens lie from 0.2/M to 2/M for one query, and
  from 1.5/M to 15/M for ten.

Both are shown.  The first is meant.  The text speaks of "its softmax value for every query token", and a row z_m
belongs to a query, c_n to a next token.  1/M, around which the thresholds lie, is where every token's softmax starts,
while c_n of nine in ten distinct tokens starts above 2/M for ten queries.  And that the results "match that of Fig. 6"
is so in that reading alone: `entropy_trends` compares descent rates with the published entropies.

The descent rate of a run is minus the slope of the line fitted to its recall against M x threshold over the thresholds
drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

from scansnap.figures import syn_medium_runs
from scansnap.figures.recipe import FigureRecipe, Trend, read_published
from scansnap.figures.statistics import significant
from scansnap.figures.style import COLORS, label, legend, line, mean_and_error
from scansnap.figures.syn_medium_runs import neighbors, queries

READINGS = {"softmax": "softmax of $z_m$", "attention": "attention $c_n$"}
NAMES = {"lr_z": "η_Z", "lr_y_over_lr_z": "η_Y/η_Z"}
WORDS = {"softmax": "softmax of z_m", "attention": "attention c_n"}
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
        """The dataset of `prepare_recall`; `runs` comes from `syn_medium_runs.make`, which is called if it is None."""
        return prepare_recall(syn_medium_runs.make(num_seeds=num_seeds) if runs is None else runs)

    def draw(dataset: xr.Dataset) -> Figure:
        bands = f"{dataset.sizes['seed']} seeds, bands: one standard error"
        title = f"Figure {name}: recall of distinct tokens, {_symbol(other)} = {fixed:g}, {bands}"
        return draw_recall(dataset, along, {other: fixed}, title)

    def trends(dataset: xr.Dataset) -> list[Trend]:
        statement = f"{slower} makes recall descend more slowly"
        return [*descent_trends(dataset, along, falls=falls, statement=statement), *more_trends(dataset)]

    return FigureRecipe(
        name=name,
        title=f"Recall of distinct tokens against the threshold, for several {NAMES[along]}",
        statement=f"{slower} makes recall fall more slowly with the threshold: sparser attention.",
        setting=f"{syn_medium_runs.SETTING}; thresholds 0.5/M to 2/M",
        prepare=prepare,
        draw=draw,
        trends=trends,
    )


def _symbol(rate: str) -> str:
    return f"${NAMES[rate]}$".replace("η", "\\eta")


def prepare_recall(runs: xr.Dataset) -> xr.Dataset:
    """`recall` (reading, num_query, lr_z, lr_y_over_lr_z, seed, threshold), and each run's `descent`."""
    recall = xr.concat(
        [_recall(runs[name] * runs["vocab_size"]) for name in READINGS],
        xr.DataArray(list(READINGS), dims="reading", name="reading"),
    )
    dims = ("reading", *syn_medium_runs.CELL)
    recall = recall.transpose(*dims, "threshold")
    centered = THRESHOLDS - THRESHOLDS.mean()
    descent = -(recall.values @ centered) / (centered @ centered)
    return xr.Dataset(
        {"recall": recall.assign_attrs(units="1"), "descent": (dims, descent, {"units": "recall per 1/M"})},
        attrs=runs.attrs,
    )


def _recall(values: xr.DataArray) -> xr.DataArray:
    """The share of distinct tokens above each threshold; values are in units of 1/M, NaN where there is no class."""
    shares = [(values > threshold).sum(("class", "rank")) / values.count(("class", "rank")) for threshold in THRESHOLDS]
    return xr.concat(shares, xr.DataArray(THRESHOLDS, dims="threshold", name="threshold"))


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


def entropy_trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether recall descends faster where the published entropy of Figure 6 is higher, in each reading."""
    rows = read_published("figure_6_entropy")
    tested = []
    for name, words in WORDS.items():
        descent = dataset["descent"].sel(reading=name).mean("seed")
        by_query: dict[int, tuple[float, float]] = {}
        for num_query in sorted({int(row["num_query"]) for row in rows}):
            cells = [row for row in rows if row["num_query"] == num_query]
            rates = [
                float(descent.sel(num_query=num_query, lr_z=row["lr_z"], lr_y_over_lr_z=row["lr_y_over_lr_z"]))
                for row in cells
            ]
            test = stats.spearmanr(rates, [row["entropy_mean"] for row in cells], alternative="greater")
            by_query[num_query] = float(test.statistic), float(test.pvalue)
        least = min(by_query.values())
        shown = ", ".join(f"{queries(q)}: {value:+.2f}" for q, (value, _) in by_query.items())
        statement = f"Recall descends faster where Figure 6's published entropy is higher ({words})."
        note = (
            f"least rank correlation over 16 published cells for each number of queries ({shown}); one-sided test of "
            "Spearman's coefficient"
        )
        tested.append(significant(statement, "above 0", least[0], max(p for _, p in by_query.values()), note))
    return tested


def descent_trends(dataset: xr.Dataset, along: str, *, falls: bool, statement: str) -> list[Trend]:
    """Trends of the descent rate between neighbors of the grid along one axis, in both readings."""
    return [
        neighbors(dataset["descent"].sel(reading=name), along, falls=falls).trend(f"{statement} ({words}).")
        for name, words in WORDS.items()
    ]


FIGURE_11 = recall_figure(
    "11", along="lr_y_over_lr_z", fixed=1.0, slower="A smaller η_Y/η_Z", falls=False, more_trends=entropy_trends
)
FIGURE_12 = recall_figure("12", along="lr_z", fixed=2.0, slower="A larger η_Z", falls=True)
