"""Figure 4: attention of both classes of Syn-Small under SGD with momentum, eta_Y = 1 and 10; and the loss.

The loss of the left run is published, to six digits (`published/figure_4_loss.csv`).  It is one draw of a random curve,
so it is compared with many of ours: its largest standardized distance from their mean, in the logarithm, is ranked
among the same distances of our own curves.  That rank is a p-value whatever the distribution.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.published import PUBLISHED, SYN_SMALL
from scansnap.dynamics.sweep import sweep
from scansnap.figures.attention_over_time import heatmap
from scansnap.figures.recipe import FigureRecipe, Trend, read_published, setting_in_words
from scansnap.figures.statistics import compatible, enough_seeds, majority, rise
from scansnap.figures.style import attention_bar, draw_band, label, legend, widen_axis

LR_Y = np.concatenate([PUBLISHED[name].options.runs.rates["lr_y"] for name in ("syn-small", "syn-small-fast-decoder")])

CONVERGED_LOSS = 0.1
"""A run has converged when its loss is below this many nats."""


def prepare(*, num_seeds: int = 100) -> xr.Dataset:
    """`loss` (lr_y, seed, step), `entropy` (.., class), `attention` (.., class, token), and the `published_loss`."""
    num_seeds = enough_seeds(num_seeds)
    record = ("loss", "entropy", "attention")
    setting = {**vars(SYN_SMALL), "lr_y": LR_Y, "seeds": range(num_seeds), "record": record}
    runs = sweep(syn_small(), **setting, progress=False)
    rows = read_published("figure_4_loss")
    dataset = runs.squeeze(("lr_z", "layer", "head"), drop=True).assign_coords(
        iteration=[int(row["iteration"]) for row in rows]
    )
    dataset["published_loss"] = ("iteration", [row["loss"] for row in rows], {"units": "nats"})
    return dataset


def draw(dataset: xr.Dataset) -> Figure:
    """Attention of the first seed, and loss and entropy of all seeds."""
    figure = Figure(figsize=(10.0, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 0.9))
    top, maps = float(dataset["attention"].isel(seed=0).max()), []
    for column, rate in enumerate(dataset["lr_y"].values):
        for row in range(2):
            axes = figure.add_subplot(grid[row, column])
            image = heatmap(axes, dataset["attention"].sel(lr_y=rate).isel({"seed": 0, "class": row}), "step", top)
            axes.set_title(f"class {row + 1}, $\\eta_Y$ = {rate:g}, first seed", fontsize=9, loc="left")
            axes.set_xlabel("updates" if row else "", fontsize=9)
            axes.set_ylabel("token" if column == 0 else "", fontsize=9)
            maps.append(axes)
    attention_bar(maps, image, location="bottom", aspect=60)
    loss, entropy = figure.add_subplot(grid[0, 2]), figure.add_subplot(grid[1, 2])
    for axes, values in ((loss, dataset["loss"]), (entropy, dataset["entropy"].mean("class"))):
        for i, rate in enumerate(dataset["lr_y"].values):
            draw_band(axes, values.sel(lr_y=rate), i, f"$\\eta_Y$ = {rate:g}")
    loss.plot(dataset["iteration"], dataset["published_loss"], "k.", markersize=3, label="published, $\\eta_Y$ = 1")
    loss.set_yscale("log")
    label(loss, y="loss (nats)", title="loss")
    label(entropy, x="updates", y="entropy (nats)", title="entropy on distinct tokens")
    legend(loss)
    legend(entropy)
    widen_axis(entropy)
    runs = f"right: median and 5% to 95% of {dataset.sizes['seed']} runs"
    rule = f"SGD with momentum {SYN_SMALL.momentum:g}"
    figure.suptitle(f"Figure 4: Syn-Small, {rule}, $\\eta_Z$ = 1; {runs}", fontsize=11)
    return figure


def surprise(curves: NDArray[np.float64], curve: NDArray[np.float64]) -> float:
    """The p-value of a curve among many (runs, records): the rank of its largest standardized distance among theirs."""
    mean, spread = curves[:, 1:].mean(0), curves[:, 1:].std(0)  # the first record is the same for all
    distance = np.abs((curve[1:] - mean) / spread).max()
    distances = np.abs((curves[:, 1:] - mean) / spread).max(1)
    return float((1 + (distances >= distance).sum()) / (1 + len(distances)))


def trends(dataset: xr.Dataset) -> list[Trend]:
    """The fates of tokens at each rate, the two rates against each other, and the published loss among ours."""
    kinds = dataset["token_kind"].values
    attention, entropy = dataset["attention"], dataset["entropy"].mean("class")
    distinct = attention.isel(token=kinds == "distinct")
    # the most probable token of each class, since attention is P(l|n) at the start
    best = distinct.isel(step=0, lr_y=0, seed=0, drop=True).argmax("token")
    lead = distinct.isel(token=best).mean("class")
    common = attention.isel(token=kinds == "common").sum("token").mean("class")
    tested = []
    for rate in dataset["lr_y"].values:
        at = f"(η_Y = {rate:g})"
        for statement, values, what in (
            (f"The most probable distinct token gains attention {at}.", lead, "its attention"),
            (f"Common tokens lose attention {at}.", -common, "minus their attention"),
            (f"Attention becomes sparse {at}.", -entropy, "minus the entropy on distinct tokens"),
        ):
            at_rate = values.sel(lr_y=rate)
            change = at_rate.isel(step=-1) - at_rate.isel(step=0)
            tested.append(rise(statement, change, f"change of {what} over training, mean over classes"))
        won = (distinct.sel(lr_y=rate).isel(step=-1).argmax("token") == best).values
        statement = f"Attention gathers on the most probable distinct token {at}."
        tested.append(majority(statement, won, "classes of all runs"))
    slow, fast = entropy.isel(lr_y=0, step=-1), entropy.isel(lr_y=-1, step=-1)
    reached = (dataset["loss"] < CONVERGED_LOSS).idxmax("step")
    tested.append(
        rise("A larger η_Y leaves attention less sparse.", fast - slow, "entropy at η_Y = 10 minus at η_Y = 1")
    )
    tested.append(
        rise(
            "A larger η_Y converges faster.",
            reached.isel(lr_y=0) - reached.isel(lr_y=-1),
            f"updates to a loss below {CONVERGED_LOSS} nats, η_Y = 1 minus η_Y = 10",
        )
    )
    tested.append(_published(dataset))
    return tested


def _published(dataset: xr.Dataset) -> Trend:
    """Whether the published loss could be one of ours."""
    curves = np.log(dataset["loss"].isel(lr_y=0).sel(step=dataset["iteration"].values).values)
    p = surprise(curves, np.log(dataset["published_loss"].values))
    note = (
        f"rank of its largest standardized distance in ln loss, over {curves.shape[1] - 1} iterations, among those of "
        f"{len(curves)} runs"
    )
    return compatible("The published loss curve is one of ours.", p, p, note)


FIGURE = FigureRecipe(
    name="4",
    title="Attention of Syn-Small over training with SGD",
    statement=(
        "Attention becomes sparse and gathers on each class's most probable distinct token; a larger η_Y converges "
        "faster to attention that is less sparse."
    ),
    setting=(
        f"Syn-Small (M = 34), SGD with momentum {SYN_SMALL.momentum:g}, η_Z = 1, η_Y = 1 and 10, "
        f"{setting_in_words(SYN_SMALL)}"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
