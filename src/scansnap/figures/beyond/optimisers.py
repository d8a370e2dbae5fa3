"""Who wins under SGD, Adam, sign-SGD and normalised SGD: Figure 5's question, asked of four rules over many seeds.

The winner of a run is the distinct token of the first class with most attention after training.  Two runs agree if they
have the same winner; the share of pairs of seeds that agree says how reproducible the choice is (1/10 if all ten tokens
won equally often).  Whether the rate decides who wins is tested as in Figure 5.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.train import train
from scansnap.figures.described import described
from scansnap.figures.fig_5 import SHUFFLES, shuffled
from scansnap.figures.statistics import LEVEL, enough_seeds, holm
from scansnap.figures.style import label
from scansnap.figures.trend import Trend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Which distinct token wins, under four optimisers"
STATEMENT = (
    "SGD picks the most probable distinct token; Adam picks others, depending on its rate (Section 8), and is left for "
    "future work. Here it is set beside sign-SGD and normalised SGD."
)
SETTING = "Syn-Small, η_Y = η_Z at three rates each, batch 128, T = 128, zero start, 100 updates; first class"

RATES = {
    "sgd": (0.1, 1.0, 10.0),
    "normalised_sgd": (0.1, 0.5, 1.0),
    "adam": (0.1, 0.5, 1.0),
    "sign_sgd": (0.01, 0.05, 0.1),
}
"""Where runs learn: at each the loss ends below one nat."""


def prepare(*, seeds: int = 100) -> xr.Dataset:
    """`winner` (optimizer, rate, seed), `lr` (optimizer, rate), `won` (.., token), and attention left to `common`."""
    began = time.perf_counter()
    count = enough_seeds(seeds)
    options: dict[str, Any] = {"steps": 100, "batch_size": 128, "seq_len": 128, "record_every": 100}
    winners, common = [], []
    for optimizer, rates in RATES.items():
        lr = np.repeat(rates, count)
        runs = train(syn_small(), **options, optimizer=optimizer, lr_y=lr, lr_z=lr,
                     seeds=list(range(count)) * len(rates), record=("attention",), progress=False)  # fmt: skip
        first = runs["attention"].isel({"class": 0, "step": -1})
        own = np.isin(first["token"].values, syn_small().distinct_tokens(0))
        winners.append(first.values[:, own].argmax(-1).reshape(len(rates), count))
        common.append(first.isel(token=first["token_kind"].values == "common").sum("token").values.reshape(-1, count))
    tokens = syn_small().distinct_tokens(0)
    dims = ("optimizer", "rate", "seed")
    dataset = xr.Dataset(
        {
            "winner": (dims, np.array(winners)),
            "common": (dims, np.array(common), {"units": "1"}),
            "lr": (("optimizer", "rate"), np.array(list(RATES.values()))),
        },
        coords={"optimizer": list(RATES), "rate": np.arange(3), "seed": np.arange(count), "token": tokens},
    )
    dataset["won"] = (dataset["winner"] == xr.DataArray(np.arange(len(tokens)), dims="token")).mean("seed")
    return described(dataset, TITLE, {**options, "seeds": count}, began)


def draw(dataset: xr.Dataset) -> Figure:
    """For each optimiser a table of tokens against rates: the share of runs that a token wins."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    panels = figure.subplots(1, dataset.sizes["optimizer"], sharey=True)
    for i, (axes, optimizer) in enumerate(zip(panels, dataset["optimizer"].values, strict=True)):
        one = dataset.sel(optimizer=optimizer)
        share = one["won"].transpose("token", "rate").values
        image = axes.imshow(share, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=1)
        for token, rate in zip(*np.nonzero(share >= 0.005), strict=True):
            shade = "black" if share[token, rate] > 0.5 else "white"
            axes.text(rate, token, f"{share[token, rate]:.0%}", ha="center", va="center", fontsize=8, color=shade)
        axes.set_xticks(range(3), [f"{rate:g}" for rate in one["lr"].values])
        axes.set_yticks(range(dataset.sizes["token"]), [str(token) for token in dataset["token"].values])
        label(axes, x="$\\eta_Y = \\eta_Z$", y="distinct token, rare to frequent" if i == 0 else "",
              title=str(optimizer).replace("_", " "))  # fmt: skip
        axes.grid(visible=False)
    bar = figure.colorbar(image, ax=panels, location="right", fraction=0.03, pad=0.01)
    bar.set_label("share of runs that it wins", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    title = (
        f"Beyond the basic setting: the distinct token with most attention, Syn-Small, {dataset.sizes['seed']} seeds"
    )
    figure.suptitle(title, fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Who SGD picks; whether the rate decides under each rule; and how reproducible the choice is."""
    rng = np.random.default_rng(0)
    winners = dataset["winner"].transpose("optimizer", "rate", "seed").values
    names = [str(name) for name in dataset["optimizer"].values]
    tests = [shuffled(one, rng) for one in winners]
    corrected = holm([p for _, p in tests])
    found = [_first(winners[names.index("sgd")])]
    for name, (size, _), p in zip(names, tests, corrected, strict=True):
        if name != "sgd":
            found.append(
                Trend(f"Under {name} the rate decides which token wins.", "V above 0", size, None, float(p),
                      bool(p <= LEVEL), f"Cramér's V of winner and rate; {SHUFFLES} shuffles of the rates within each "
                      f"of {winners.shape[2]} seeds, Holm's correction for {len(names)}, level {LEVEL:.0%}")
            )  # fmt: skip
    found += [_reproducible(name, one) for name, one in zip(names, winners, strict=True) if name != "sgd"]
    return found


def _first(winners: NDArray[np.int64]) -> Trend:
    """In how many SGD runs the most probable token has most attention."""
    won = winners == 9
    test = stats.binomtest(int(won.sum()), won.size, 0.5, alternative="greater")
    return Trend("Under SGD the most probable distinct token wins, whatever the rate.", "above 0.5", float(won.mean()),
                 float(won.std() / np.sqrt(won.size)), float(test.pvalue), bool(test.pvalue <= LEVEL),
                 f"{int(won.sum())} of {won.size} runs at three rates; binomial test against one half")  # fmt: skip


def _reproducible(name: str, winners: NDArray[np.int64]) -> Trend:
    """The share of pairs of seeds that agree, mean over rates, against one half; its error by the jackknife."""

    def agreement(some: NDArray[np.int64]) -> float:
        seeds = some.shape[1]
        counts = np.array([np.bincount(row, minlength=10) for row in some])
        return float((counts * (counts - 1)).sum(1).mean() / (seeds * (seeds - 1)))

    seeds = winners.shape[1]
    own = agreement(winners)
    without = np.array([agreement(np.delete(winners, s, axis=1)) for s in range(seeds)])
    error = float(np.sqrt((seeds - 1) / seeds * ((without - without.mean()) ** 2).sum()))
    p = float(stats.norm.sf((own - 0.5) / error)) if error > 0 else float(own <= 0.5)
    return Trend(f"Under {name} two seeds mostly agree on the winner.", "above 0.5", own, error, p, p <= LEVEL,
                 f"share of pairs among {seeds} seeds with the same winner, mean over three rates; jackknife over "
                 f"seeds, normal approximation, level {LEVEL:.0%}")  # fmt: skip
