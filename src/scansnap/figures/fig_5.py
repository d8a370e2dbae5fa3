"""Figure 5: attention of the first class of Syn-Small under Adam, eta_Y = eta_Z = 0.1, 0.5 and 1.

The paper shows one run for each rate and says that the rates pick different subsets of distinct tokens.  Many runs say
whether they do.  If the rate did not matter, the three runs of a seed, which see the same batches, could be exchanged.
How much the favored tokens overlap is therefore ranked among overlaps with the rates shuffled within every seed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.published import PUBLISHED
from scansnap.dynamics.sweep import sweep
from scansnap.figures.attention_over_time import heatmap
from scansnap.figures.recipe import FigureRecipe, Trend, setting_in_words
from scansnap.figures.statistics import enough_seeds, significant
from scansnap.figures.style import COLORS, attention_bar, label

ADAM = PUBLISHED["syn-small-adam"].options
RATES = [0.1, 0.5, 1.0]
SHUFFLES = 999
FAVORED = 3
"""The size of the subset of tokens that a run favors."""


def prepare(*, num_seeds: int = 100) -> xr.Dataset:
    """`attention` (rate, seed, step, token) on the first class's distinct tokens.

    `final_mean` and `final_spread` are over seeds; `won` is the share of seeds in which a token ends with the most.
    """
    num_seeds = enough_seeds(num_seeds)
    classes = syn_small()
    setting = {**vars(ADAM), "lr_y": None, "lr_z": RATES, "lr_y_over_lr_z": 1.0}
    setting |= {"seeds": range(num_seeds), "record": ("attention",)}
    runs = sweep(classes, **setting, progress=False)
    runs = runs.squeeze("lr_y_over_lr_z", drop=True).rename(lr_z="rate")
    first_class = runs["attention"].isel({"class": 0, "layer": 0, "head": 0}, drop=True)
    dataset = first_class.sel(token=classes.distinct_tokens(0)).to_dataset()
    final = dataset["attention"].isel(step=-1)
    dataset["final_mean"], dataset["final_spread"] = final.mean("seed"), final.std("seed", ddof=1)
    dataset["won"] = (final.argmax("token") == xr.DataArray(np.arange(final.sizes["token"]), dims="token")).mean("seed")
    return dataset.assign_attrs(runs.attrs)


def draw(dataset: xr.Dataset) -> Figure:
    """Attention of the first seed above, final attention of all seeds below."""
    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    grid = figure.add_gridspec(2, dataset.sizes["rate"])
    maps = []
    for i, rate in enumerate(dataset["rate"].values):
        axes = figure.add_subplot(grid[0, i])
        first_seed = dataset["attention"].sel(rate=rate).isel(seed=0)
        image = heatmap(axes, first_seed, "step", float(dataset["attention"].isel(seed=0).max()), name_kinds=False)
        axes.set_title(f"$\\eta_Y = \\eta_Z$ = {rate:g}, first seed", fontsize=9, loc="left")
        axes.set_xlabel("updates", fontsize=9)
        axes.set_ylabel("distinct token" if i == 0 else "", fontsize=9)
        maps.append(axes)
        _final(figure.add_subplot(grid[1, i]), dataset.sel(rate=rate), first=i == 0)
    attention_bar(maps, image, location="top", aspect=60)
    runs = f"mean and sd of {dataset.sizes['seed']} runs, and how often each token has the most (%)"
    figure.suptitle(f"Figure 5: Syn-Small, Adam, class 1. Below: {runs}", fontsize=11)
    return figure


def _final(axes: Axes, at_rate: xr.Dataset, *, first: bool) -> None:
    """Draw final attention, mean and spread over seeds, and how often each token has the most."""
    mean, spread = at_rate["final_mean"].values, at_rate["final_spread"].values
    axes.bar(at_rate["token"], mean, yerr=spread, color=COLORS[0], alpha=0.55, capsize=2)
    for token, share, height in zip(at_rate["token"].values, at_rate["won"].values, mean + spread, strict=True):
        if share > 0:
            axes.text(token, height + 0.01, f"{share:.0%}", ha="center", fontsize=7, rotation=90)
    axes.set_xticks(at_rate["token"].values)
    axes.set_ylim(0, 0.21)
    label(axes, x="distinct token", y="final attention (share)" if first else "")


def excess_overlap(favored: NDArray[np.float64]) -> float:
    """The share of favored tokens (rate, seed, token) that two seeds have in common: at two rates minus at one."""
    num_rates, num_seeds = favored.shape[:2]
    total = favored.sum(1)  # (rate, token)
    same = (total**2).sum() - FAVORED * num_seeds * num_rates
    pairs = combinations(range(num_rates), 2)
    cross = sum(2 * (total[i] @ total[j] - (favored[i] * favored[j]).sum()) for i, j in pairs)
    ordered = num_seeds * (num_seeds - 1)
    return float(cross / (num_rates * (num_rates - 1) * ordered) - same / (num_rates * ordered)) / FAVORED


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether runs at two rates have fewer favored tokens in common than runs at one rate."""
    final = dataset["attention"].isel(step=-1).transpose("rate", "seed", "token").values
    favored = (np.argsort(np.argsort(-final, axis=-1), axis=-1) < FAVORED).astype(float)
    num_rates, num_seeds = favored.shape[:2]
    measured = excess_overlap(favored)
    shuffles = np.random.default_rng(0).permuted(np.tile(np.arange(num_rates), (SHUFFLES, num_seeds, 1)), axis=-1)
    by_chance = [excess_overlap(favored[order.T, np.arange(num_seeds)]) for order in shuffles]
    p = (1 + sum(overlap <= measured for overlap in by_chance)) / (1 + SHUFFLES)
    winners = [dataset["token"].values[np.bincount(row).argmax()] for row in final.argmax(-1)]
    listed = ", ".join(f"{token} at {rate:g}" for token, rate in zip(winners, dataset["rate"].values, strict=True))
    statement = f"Different rates favor different subsets of {FAVORED} tokens."
    note = (
        "share of favored tokens that runs of two seeds have in common: at two rates minus at one rate; "
        f"{SHUFFLES} shuffles of the rates within each of {num_seeds} seeds; most frequent winner: {listed}"
    )
    return [significant(statement, "below 0", measured, p, note)]


FIGURE = FigureRecipe(
    name="5",
    title="Attention of Syn-Small over training with Adam",
    statement="With Adam, different learning rates steer attention toward different subsets of the distinct tokens.",
    setting=f"Syn-Small, Adam, η_Y = η_Z = 0.1, 0.5 and 1, {setting_in_words(ADAM)}; first class",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
