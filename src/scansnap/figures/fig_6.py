"""Figure 6: entropy of attention on distinct tokens after training, on the grid of learning rates.

Means and standard deviations of all 64 cells are published (`published/figure_6_entropy.csv`).  The difference in a
cell is measured in its standard error, z = (ours - published)/sqrt(s_1^2/n_1 + s_2^2/n_2).  If both come from the same
experiment, |z| is 0.8 on average; the limits here are 1.2 on average over all cells and 4 in any single cell.

The two trends are tested cell by cell: each step along an axis of the grid is one comparison of runs with the same
seeds (see `statistics.Family`).
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from scansnap.dynamics.published import SYN_MEDIUM
from scansnap.figures import syn_medium_runs
from scansnap.figures.recipe import FigureRecipe, Trend, read_published
from scansnap.figures.statistics import exact
from scansnap.figures.style import COLORS, MARKERS, label, legend, log_axis, mean_and_error, points
from scansnap.figures.syn_medium_runs import neighbors, queries

MEAN_LIMIT, SINGLE_LIMIT = 1.2, 4.0
THRESHOLD = 2.0


def prepare(*, num_seeds: int = 10, runs: xr.Dataset | None = None) -> xr.Dataset:
    """`entropy` (num_query, lr_z, lr_y_over_lr_z, seed), its `mean` and `error` over seeds, the published values, and
    `score`, the difference in standard errors.

    `runs` comes from `syn_medium_runs.make`, which is called if it is None.
    """
    runs = syn_medium_runs.make(num_seeds=num_seeds) if runs is None else runs
    dataset = runs[["entropy"]].copy()
    dims = syn_medium_runs.CELL[:-1]
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


def draw(dataset: xr.Dataset) -> Figure:
    """A panel for each number of queries, with open marks for published values; and the differences between the two."""
    figure = Figure(figsize=(10.0, 6.0), layout="constrained")
    grid = figure.add_gridspec(2, 3)
    places = (grid[0, 0], grid[0, 1], grid[1, 0], grid[1, 1])
    for place, num_query in zip(places, dataset["num_query"].values, strict=True):
        axes = figure.add_subplot(place)
        _entropies(axes, dataset.sel(num_query=num_query))
        label(
            axes,
            x="$\\eta_Y/\\eta_Z$ (ratio)",
            y="entropy (nats)",
            title=f"{queries(num_query)}, {2 * num_query} next tokens",
        )
    _scores(figure.add_subplot(grid[0, 2]), dataset)
    empty = figure.add_subplot(grid[1, 2])
    empty.axis("off")
    names = figure.axes[0].get_legend_handles_labels()
    legend(empty, *names, fontsize=9, loc="center", title="error bars: one standard error", title_fontsize=9)
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


def _scores(axes: Axes, dataset: xr.Dataset) -> None:
    for i, num_query in enumerate(dataset["num_query"].values):
        values = dataset["score"].sel(num_query=num_query)
        for j, lr_z in enumerate(values["lr_z"].values):
            places = 4 * j + np.arange(values.sizes["lr_y_over_lr_z"]) + 0.2 * i
            axes.plot(
                places,
                values.sel(lr_z=lr_z),
                MARKERS[i],
                color=COLORS[i],
                markersize=4,
                label=queries(num_query) if j == 0 else None,
            )
    for limit in (-SINGLE_LIMIT, SINGLE_LIMIT):
        axes.axhline(limit, color="black", linestyle=":", linewidth=1)
    for edge in (3.65, 7.65, 11.65):
        axes.axvline(edge, color="gray", linewidth=0.6)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks([1.6, 5.6, 9.6, 13.6], [f"{lr_z:g}" for lr_z in dataset["lr_z"].values])
    axes.set_ylim(-5, 6)
    label(
        axes,
        x="$\\eta_Z$; within each, $\\eta_Y/\\eta_Z$ = 1, 2, 5, 10",
        y="ours less published (standard errors)",
        title="against the published cells; dotted: limits",
    )
    legend(axes, loc="upper left", ncols=2)


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Agreement with the published cells, and the two trends, step by step along the axes of the grid."""
    entropy = dataset["entropy"]
    return [
        *_agreement(dataset),
        neighbors(entropy, "lr_z", falls=True).trend("A larger η_Z lowers the entropy."),
        neighbors(entropy.sel(lr_y_over_lr_z=slice(THRESHOLD, None)), "lr_y_over_lr_z", falls=False).trend(
            "With η_Z fixed a larger η_Y raises the entropy beyond η_Y/η_Z = 2."
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
    place = syn_medium_runs.cell(
        **{name: float(dataset[name].values[i]) for name, i in zip(syn_medium_runs.CELL[:-1], where, strict=True)}
    )
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


FIGURE = FigureRecipe(
    name="6",
    title="Entropy of attention on distinct tokens against the learning rates",
    statement=(
        "A larger η_Z lowers the entropy (sparser attention); with η_Z fixed, a larger η_Y raises it once η_Y/η_Z is "
        "beyond about 2."
    ),
    setting=syn_medium_runs.SETTING,
    prepare=prepare,
    draw=draw,
    trends=trends,
)
