"""Figure 5: attention of the first class of Syn-Small under Adam, eta_Y = eta_Z = 0.1, 0.5 and 1.

The paper shows one run for each rate and says that the rates pick different subsets of distinct tokens.  Many runs say
whether they do.  The winner of a run is the distinct token with the most attention.  If the rate did not matter, the
three winners of a seed (whose runs see the same batches) could be exchanged.  The chi-square statistic of the table
winner x rate is therefore ranked among those with the rates shuffled within every seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.published import PUBLISHED
from scansnap.figures.attention_over_time import heatmap
from scansnap.figures.recipe import FigureRecipe, Trend, setting_in_words, sweep_setting
from scansnap.figures.statistics import LEVEL, enough_seeds, holm, significant
from scansnap.figures.style import COLORS, attention_bar, label

ADAM = PUBLISHED["syn-small-adam"].options
SHUFFLES = 9999
FAVORED = 3
"""The size of the subset of tokens that a run favors."""


def prepare(*, num_seeds: int = 100, rates: Sequence[float] = (0.1, 0.5, 1.0)) -> xr.Dataset:
    """`attention` (rate, seed, step, token) on the first class's distinct tokens, and on its `common` tokens together.

    `final_mean` and `final_spread` are over seeds; `won` is the share of seeds in which a token ends with the most.
    """
    num_seeds = enough_seeds(num_seeds)
    classes = syn_small()
    runs = sweep_setting(
        classes, ADAM, lr_z=list(rates), lr_y_over_lr_z=1.0, seeds=range(num_seeds), record=("attention",)
    ).rename(lr_z="rate")
    first_class = runs["attention"].isel({"class": 0, "layer": 0, "head": 0}, drop=True)
    dataset = first_class.sel(token=classes.distinct_tokens(0)).to_dataset()
    common = first_class.isel(token=runs["token_kind"].values == "common").sum("token")
    dataset["common"] = common.assign_attrs(units="1")
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


def shuffled(winners: NDArray[np.int64], rng: np.random.Generator) -> tuple[float, float]:
    """Cramér's V of the table winner x rate from winners (rate, seed), and the p-value of its chi-square statistic."""
    names = np.unique(winners)
    expected = np.array([(winners == name).sum() for name in names]) / len(winners)

    def chi_square(*rows: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        counts = np.array([[(row == name).sum(axis) for row in rows] for name in names])  # (winner, rate, ..)
        return ((counts.T - expected) ** 2 / expected).sum((-2, -1)).T

    test = stats.permutation_test(
        tuple(winners), chi_square, permutation_type="samples", n_resamples=SHUFFLES, alternative="greater", rng=rng
    )
    degrees = max(min(len(winners), len(names)) - 1, 1)
    return float(np.sqrt(test.statistic / (winners.size * degrees))), float(test.pvalue)


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Winners by rate, all together and pair by pair, and the subsets that runs favor."""
    final = dataset["attention"].isel(step=-1).transpose("rate", "seed", "token").values
    rng = np.random.default_rng(0)
    how = f"{SHUFFLES} shuffles of the rates within each of {final.shape[1]} seeds"
    winners, rates = final.argmax(-1), dataset["rate"].values
    most_frequent = [dataset["token"].values[np.bincount(row).argmax()] for row in winners]
    listed = ", ".join(f"{token} at {rate:g}" for token, rate in zip(most_frequent, rates, strict=True))
    cramers_v, p = shuffled(winners, rng)
    note = f"Cramér's V of winner and rate; most frequent winner: {listed}; {how}"
    return [
        significant("Different rates make different distinct tokens win.", "V above 0", cramers_v, p, note),
        _pairs(winners, rates, how, rng),
        _subsets(final, how, rng),
    ]


def _pairs(winners: NDArray[np.int64], rates: NDArray[np.float64], how: str, rng: np.random.Generator) -> Trend:
    """The winners at each rate against those at each other rate."""
    pairs = list(combinations(range(len(rates)), 2))
    each = [shuffled(winners[list(pair)], rng) for pair in pairs]
    corrected = holm([p for _, p in each])
    listed = [
        f"{rates[i]:g} and {rates[j]:g}: V = {v:.2f}, p = {p:.2g}"
        for (i, j), (v, _), p in zip(pairs, each, corrected, strict=True)
    ]
    count = float((corrected <= LEVEL).sum())
    note = f"{'; '.join(listed)}; {how}, Holm's correction for {len(pairs)}"
    expected = f"{len(pairs)} of {len(pairs)} pairs"
    return significant("Any two rates differ in who wins.", expected, count, float(corrected.max()), note)


def _subsets(final: NDArray[np.float64], how: str, rng: np.random.Generator) -> Trend:
    """The overlap of the tokens that two runs favor: at two rates minus at one rate."""
    ranks = np.argsort(np.argsort(-final, axis=-1), axis=-1)
    favored = (ranks < FAVORED).astype(float)  # (rate, seed, token)
    num_rates, num_seeds = favored.shape[:2]

    def excess_overlap(sets: NDArray[np.float64]) -> float:
        """Mean overlap between rates minus that within a rate, over pairs of seeds, as a share of the subset."""
        total = sets.sum(1)  # (rate, token)
        same = (total**2).sum() - FAVORED * num_seeds * num_rates
        cross = sum(2 * (total[i] @ total[j] - (sets[i] * sets[j]).sum()) for i, j in combinations(range(num_rates), 2))
        ordered = num_seeds * (num_seeds - 1)
        return float(cross / (num_rates * (num_rates - 1) * ordered) - same / (num_rates * ordered)) / FAVORED

    measured = excess_overlap(favored)
    shuffles = rng.permuted(np.tile(np.arange(num_rates), (999, num_seeds, 1)), axis=-1)
    by_chance = [excess_overlap(favored[order.T, np.arange(num_seeds)]) for order in shuffles]
    p = (1 + sum(overlap <= measured for overlap in by_chance)) / (1 + len(by_chance))
    statement = f"Different rates favor different subsets of {FAVORED} tokens."
    note = (
        "share of favored tokens that runs of two seeds have in common: at two rates minus at one rate; "
        f"{how.replace(str(SHUFFLES), str(len(by_chance)))}"
    )
    return significant(statement, "below 0", measured, p, note)


FIGURE = FigureRecipe(
    name="5",
    title="Attention of Syn-Small over training with Adam",
    statement="With Adam, different learning rates steer attention toward different subsets of the distinct tokens.",
    setting=f"Syn-Small, Adam, η_Y = η_Z = 0.1, 0.5 and 1, {setting_in_words(ADAM)}; first class",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
