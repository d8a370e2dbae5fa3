"""Which token wins under SGD, Adam, sign-SGD and normalized SGD: Figure 5's question for four rules and many seeds.

The winner of a run is the distinct token of the first class with the most attention after training.  Two runs agree if
they have the same winner; the share of pairs of seeds that agree says how reproducible the choice is (1/10 if all ten
tokens won equally often).  Whether the rate decides who wins is tested as in Figure 5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

import scansnap as ss
from common import SYN_SMALL
from scansnap.figures.statistics import enough_seeds, holm, majority, significant
from scansnap.figures.style import label

SHUFFLES = 9999
SETTING = replace(SYN_SMALL, momentum=None, record_every=None, record=("attention",))
RATES = {
    "sgd": (0.1, 1.0, 10.0),
    "normalized_sgd": (0.1, 0.5, 1.0),
    "adam": (0.1, 0.5, 1.0),
    "sign_sgd": (0.01, 0.05, 0.1),
}
"""Rates at which runs learn: at each of them the loss ends below one nat."""


def prepare(*, num_seeds: int = 100) -> xr.Dataset:
    """`winner` (optimizer, rate, seed), `lr` (optimizer, rate), `won` (.., token), and attention on `common` tokens."""
    num_seeds = enough_seeds(num_seeds)
    classes = ss.syn_small()
    tokens = classes.distinct_tokens(0)
    winners, common = [], []
    for optimizer, rates in RATES.items():
        setting = {**vars(SETTING), "optimizer": optimizer, "lr_y": None, "lr_z": rates, "lr_y_over_lr_z": 1.0}
        runs = ss.sweep(classes, **{**setting, "seeds": range(num_seeds)}, progress=False).squeeze(drop=True)
        final = runs["attention"].isel({"class": 0, "step": -1})  # (lr_z, seed, token)
        winners.append(final.sel(token=tokens).argmax("token").values)
        common.append(final.isel(token=final["token_kind"].values == "common").sum("token").values)
    dims = ("optimizer", "rate", "seed")
    dataset = xr.Dataset(
        {
            "winner": (dims, np.array(winners)),
            "common": (dims, np.array(common), {"units": "1"}),
            "lr": (("optimizer", "rate"), np.array(list(RATES.values()))),
        },
        coords={"optimizer": list(RATES), "rate": np.arange(3), "seed": np.arange(num_seeds), "token": tokens},
        attrs=runs.attrs,
    )
    dataset["won"] = (dataset["winner"] == xr.DataArray(np.arange(len(tokens)), dims="token")).mean("seed")
    return dataset


def draw(dataset: xr.Dataset) -> Figure:
    """A table of tokens against rates for each optimizer: the share of runs that a token wins."""
    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    panels = figure.subplots(1, dataset.sizes["optimizer"], sharey=True)
    for i, (axes, optimizer) in enumerate(zip(panels, dataset["optimizer"].values, strict=True)):
        of_optimizer = dataset.sel(optimizer=optimizer)
        share = of_optimizer["won"].transpose("token", "rate").values
        image = axes.imshow(share, origin="lower", aspect="auto", cmap="viridis", vmin=0, vmax=1)
        for token, rate in zip(*np.nonzero(share >= 0.005), strict=True):
            shade = "black" if share[token, rate] > 0.5 else "white"
            axes.text(rate, token, f"{share[token, rate]:.0%}", ha="center", va="center", fontsize=8, color=shade)
        axes.set_xticks(range(3), [f"{rate:g}" for rate in of_optimizer["lr"].values])
        axes.set_yticks(range(dataset.sizes["token"]), [str(token) for token in dataset["token"].values])
        label(
            axes,
            x="$\\eta_Y = \\eta_Z$",
            y="distinct token, rare to frequent" if i == 0 else "",
            title=str(optimizer).replace("_", " "),
        )
        axes.grid(visible=False)
    figure.colorbar(image, ax=panels, label="share of runs that it wins", fraction=0.03, pad=0.01)
    title = (
        f"Beyond the basic setting: the distinct token with most attention, Syn-Small, {dataset.sizes['seed']} seeds"
    )
    figure.suptitle(title, fontsize=11)
    return figure


def shuffled(winners: NDArray[np.int64], rng: np.random.Generator) -> tuple[float, float]:
    """Cramér's V of the table winner x rate from winners (rate, seed), and its p-value by shuffles within seeds."""
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


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Which token SGD picks; and, for the other rules, whether the rate decides and how reproducible the choice is."""
    rng = np.random.default_rng(0)
    winners = dataset["winner"].transpose("optimizer", "rate", "seed").values
    names = [str(name) for name in dataset["optimizer"].values]
    tests = [shuffled(of_rule, rng) for of_rule in winners]
    corrected = holm(np.array([p for _, p in tests]))
    statement = "Under SGD the most probable distinct token wins, whatever the rate."
    tested = [majority(statement, winners[names.index("sgd")] == 9, "runs at three rates")]
    note = (
        f"Cramér's V of winner and rate; {SHUFFLES} shuffles of the rates within each of {winners.shape[2]} seeds, "
        f"Holm's correction for {len(names)}"
    )
    for name, (cramers_v, _), p in zip(names, tests, corrected.tolist(), strict=True):
        if name != "sgd":
            statement = f"Under {name} the rate decides which token wins."
            tested.append(significant(statement, "V above 0", cramers_v, p, note))
    tested += [_reproducible(name, of_rule) for name, of_rule in zip(names, winners, strict=True) if name != "sgd"]
    return tested


def _reproducible(name: str, winners: NDArray[np.int64]) -> ss.Trend:
    """Whether more than half of the pairs of seeds agree, mean over rates; the standard error is the jackknife's."""

    def agreement(some: NDArray[np.int64]) -> float:
        num_seeds = some.shape[1]
        counts = np.array([np.bincount(row, minlength=10) for row in some])
        return float((counts * (counts - 1)).sum(1).mean() / (num_seeds * (num_seeds - 1)))

    num_seeds = winners.shape[1]
    share = agreement(winners)
    without = np.array([agreement(np.delete(winners, s, axis=1)) for s in range(num_seeds)])
    error = float(np.sqrt((num_seeds - 1) / num_seeds * ((without - without.mean()) ** 2).sum()))
    p = float(stats.norm.sf((share - 0.5) / error)) if error > 0 else float(share <= 0.5)
    note = (
        f"share of pairs among {num_seeds} seeds with the same winner, mean over three rates; jackknife over seeds, "
        "normal approximation"
    )
    statement = f"Under {name} two seeds mostly agree on the winner."
    return significant(statement, "above 0.5", share, p, note, error=error)


FIGURE = ss.FigureRecipe(
    name="optimizers",
    title="Which distinct token wins, under four optimizers",
    statement=(
        "SGD picks the most probable distinct token; Adam picks others, depending on its rate (Section 8), and is left "
        "for future work. Here it is set beside sign-SGD and normalized SGD."
    ),
    setting="Syn-Small, η_Y = η_Z at three rates each, batch 128, T = 128, zero start, 100 updates; first class",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
