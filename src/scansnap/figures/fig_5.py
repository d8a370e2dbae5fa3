"""Figure 5: attention of the first class of Syn-Small under Adam, eta_Y = eta_Z = 0.1, 0.5 and 1.

The paper shows one run for each rate and says that the rates pick different subsets of distinct tokens.  Whether they
do is asked of many runs: the winner of a run is the distinct token with most attention.  If the rate did not matter,
the three winners of a seed (whose runs see the same batches) could be exchanged; so the chi-square statistic of the
table winner x rate is ranked among those with the rates shuffled within every seed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.train import train
from scansnap.figures.described import described
from scansnap.figures.heatmap import heatmap
from scansnap.figures.statistics import LEVEL, enough_seeds, holm
from scansnap.figures.style import COLOURS, label
from scansnap.figures.trend import Trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Attention of Syn-Small over training with Adam"
STATEMENT = "With Adam, different learning rates steer attention towards different subsets of the distinct tokens."
SETTING = "Syn-Small, Adam, η_Y = η_Z = 0.1, 0.5 and 1, batch 128, T = 128, zero start, 100 updates; first class"

SHUFFLES = 9999
FAVOURED = 3
"""Tokens that make a run's favoured subset."""


def prepare(*, seeds: int = 100, rates: Sequence[float] = (0.1, 0.5, 1.0)) -> xr.Dataset:
    """`attention` (rate, seed, step, token) on the first class's distinct tokens, and on its `common` tokens together.

    `final_mean` and `final_spread` are over seeds, `won` is the share of seeds in which a token has most in the end.
    """
    began = time.perf_counter()
    count = enough_seeds(seeds)
    lr = np.asarray(rates, float)
    options: dict[str, Any] = {"optimizer": "adam", "steps": 100, "batch_size": 128, "seq_len": 128, "record_every": 2}
    runs = train(syn_small(), **options, lr_y=np.repeat(lr, count), lr_z=np.repeat(lr, count),
                 seeds=list(range(count)) * len(lr), record=("attention",), progress=False)  # fmt: skip
    kinds = runs["token_kind"].values
    first = runs["attention"].isel({"class": 0})
    own = first.isel(token=(kinds == "distinct") & (first.isel(run=0, step=0) > 0).values)
    shape = (len(lr), count, runs.sizes["step"])
    common = first.isel(token=kinds == "common").sum("token").values
    dataset = xr.Dataset(
        {
            "attention": (("rate", "seed", "step", "token"), own.values.reshape(*shape, -1), {"units": "1"}),
            "common": (("rate", "seed", "step"), common.reshape(shape), {"units": "1"}),
        },
        coords={
            "rate": lr,
            "seed": np.arange(count),
            "step": runs["step"].values,
            **{name: ("token", own[name].values) for name in ("token", "token_kind", "token_name")},
        },
    )
    final = dataset["attention"].isel(step=-1)
    dataset["final_mean"], dataset["final_spread"] = final.mean("seed"), final.std("seed", ddof=1)
    dataset["won"] = (final.argmax("token") == xr.DataArray(np.arange(final.sizes["token"]), dims="token")).mean("seed")
    return described(dataset, TITLE, {**options, "rates": lr.tolist(), "seeds": count}, began)


def draw(dataset: xr.Dataset) -> Figure:
    """Above the first seed's attention, below the final attention of all seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    grid = figure.add_gridspec(2, dataset.sizes["rate"])
    top = float(dataset["attention"].isel(seed=0).max())
    maps = []
    for i, rate in enumerate(dataset["rate"].values):
        axes = figure.add_subplot(grid[0, i])
        one = dataset["attention"].sel(rate=rate)
        image = heatmap(axes, one.isel(seed=0), "step", top, name_kinds=False)
        axes.set_title(f"$\\eta_Y = \\eta_Z$ = {rate:g}", fontsize=9, loc="left")
        axes.set_xlabel("updates", fontsize=9)
        axes.set_ylabel("distinct token" if i == 0 else "", fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
        maps.append(axes)
        _final(figure.add_subplot(grid[1, i]), dataset.sel(rate=rate), COLOURS[i], first=i == 0)
    bar = figure.colorbar(image, ax=maps, location="right", fraction=0.05, aspect=25, pad=0.02)
    bar.set_label("attention $c_{l|n}$, first seed", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    runs = f"mean and sd of {dataset.sizes['seed']} runs, and how often a token has most (%)"
    figure.suptitle(f"Figure 5: Syn-Small, Adam, class 1. Below: {runs}", fontsize=11)
    return figure


def _final(axes: Axes, one: xr.Dataset, colour: str, *, first: bool) -> None:
    """Final attention, mean and spread over seeds, and how often each token has most."""
    mean, spread = one["final_mean"].values, one["final_spread"].values
    axes.bar(one["token"], mean, yerr=spread, color=colour, alpha=0.55, capsize=2)
    for token, share, height in zip(one["token"].values, one["won"].values, mean + spread, strict=True):
        if share > 0:
            axes.text(token, height + 0.005, f"{share:.0%}", ha="center", fontsize=7, rotation=90)
    axes.set_xticks(one["token"].values)
    axes.set_ylim(0, 0.21)
    label(axes, x="distinct token", y="final attention (share)" if first else "")


def shuffled(winners: NDArray[np.int64], rng: np.random.Generator) -> tuple[float, float]:
    """Cramer's V of the table winner x rate from winners (rate, seed), and the p-value of its chi-square statistic."""
    rates, seeds = winners.shape
    hot = winners[..., None] == np.unique(winners)  # (rate, seed, winner)

    def statistic(table: NDArray[np.float64]) -> float:
        expected = hot.sum((0, 1)) / rates
        return float(((table - expected) ** 2 / expected).sum())

    own = statistic(hot.sum(1))
    order = rng.permuted(np.tile(np.arange(rates), (SHUFFLES, seeds, 1)), axis=-1)  # (shuffle, seed, rate)
    drawn = winners.T[np.arange(seeds)[:, None], order]  # (shuffle, seed, rate)
    tables = np.stack([(drawn == winner).sum(1) for winner in np.unique(winners)], -1)  # (shuffle, rate, winner)
    theirs = np.array([statistic(table) for table in tables])
    smaller = max(min(rates, hot.shape[-1]) - 1, 1)
    p = (1 + int((theirs >= own - 1e-9).sum())) / (1 + SHUFFLES)
    return float(np.sqrt(own / (winners.size * smaller))), p


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Winners by rate, all together and pair by pair, and favoured subsets."""
    final = dataset["attention"].isel(step=-1).transpose("rate", "seed", "token").values
    rng = np.random.default_rng(0)
    how = f"{SHUFFLES} shuffles of the rates within each of {final.shape[1]} seeds, level {LEVEL:.0%}"
    winners = final.argmax(-1)
    usual = [dataset["token"].values[np.bincount(row).argmax()] for row in winners]
    named = ", ".join(f"{token} at {rate:g}" for token, rate in zip(usual, dataset["rate"].values, strict=True))
    size, p = shuffled(winners, rng)
    note = f"Cramér's V of winner and rate; {how}; most frequent winner: {named}"
    return [
        Trend("Different rates make different distinct tokens win.", "V above 0", size, None, p, p <= LEVEL, note),
        _pairs(winners, dataset["rate"].values, how, rng),
        _subsets(final, how, rng),
    ]


def _pairs(winners: NDArray[np.int64], rates: NDArray[np.float64], how: str, rng: np.random.Generator) -> Trend:
    """Winners at any two rates against each other."""
    pairs = list(combinations(range(len(rates)), 2))
    each = [shuffled(winners[list(pair)], rng) for pair in pairs]
    corrected = holm([p for _, p in each])
    listed = [f"{rates[i]:g} and {rates[j]:g}: V = {v:.2f}, p = {p:.2g}"
              for (i, j), (v, _), p in zip(pairs, each, corrected, strict=True)]  # fmt: skip
    fine = corrected <= LEVEL
    return Trend("Any two rates differ in who wins.", f"{len(pairs)} of {len(pairs)} pairs", float(fine.sum()), None,
                 float(corrected.max()), bool(fine.all()),
                 f"{how}, Holm's correction for {len(pairs)}; {'; '.join(listed)}")  # fmt: skip


def _subsets(final: NDArray[np.float64], how: str, rng: np.random.Generator) -> Trend:
    """Overlap of the favoured tokens of two runs: at two rates, less at one rate."""
    ranks = np.argsort(np.argsort(-final, axis=-1), axis=-1)
    favoured = (ranks < FAVOURED).astype(float)  # (rate, seed, token)
    count, seeds = favoured.shape[:2]

    def apart(sets: NDArray[np.float64]) -> float:
        """Mean overlap between rates less that within, over pairs of different seeds, as a share of the subset."""
        total = sets.sum(1)  # (rate, token)
        same = (total**2).sum() - FAVOURED * seeds * count
        cross = sum(2 * (total[i] @ total[j] - (sets[i] * sets[j]).sum()) for i, j in combinations(range(count), 2))
        ordered = seeds * (seeds - 1)
        return float(cross / (count * (count - 1) * ordered) - same / (count * ordered)) / FAVOURED

    own = apart(favoured)
    order = rng.permuted(np.tile(np.arange(count), (999, seeds, 1)), axis=-1)
    theirs = [apart(favoured[one.T, np.arange(seeds)]) for one in order]
    p = (1 + sum(other <= own for other in theirs)) / (1 + len(theirs))
    return Trend(f"Different rates favour different subsets of {FAVOURED} tokens.", "below 0", own, None, p,
                 bool(own < 0 and p <= LEVEL),
                 f"share of favoured tokens that runs of two seeds have in common: at two rates less at one rate; "
                 f"{how.replace(str(SHUFFLES), str(len(theirs)))}")  # fmt: skip
