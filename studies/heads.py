"""Heads with different starts: how often they pick different tokens, and whether the start predicts which.

The winner of a head is the distinct token of the first class with the most attention after training.  Theorem 3
predicts it: the relative gain r_{l/l'}(t) = r_{l/l'}(0) chi(t) keeps its sign, so the token with the largest
P(l|n) exp(z_l(0)) stays ahead.  Y starts at zero, as the theorem requires, or at random, as Z does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

import scansnap as ss
from common import SYN_SMALL
from scansnap.figures.statistics import enough_seeds, rise
from scansnap.figures.style import label, legend, line, log_axis, mean_and_error, points

HEADS = 4
SETTING = replace(SYN_SMALL, heads=HEADS, record_every=None)
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
STARTS = ("zero", "uniform")


def prepare(*, num_seeds: int = 40) -> xr.Dataset:
    """`winner` and `predicted` (start, scale, seed, head), the share of pairs that `differ` and of heads `foretold`
    (start, scale, seed), and the share of pairs whose leaders differ at the start."""
    num_seeds = enough_seeds(num_seeds)
    classes = ss.syn_small()
    setting = {**vars(SETTING), "init": "uniform", "init_scale_z": SCALES, "seeds": range(num_seeds)}
    setting["record"] = ("attention", "attention_logits")
    uniform = ss.sweep(classes, **setting, progress=False).squeeze(drop=True)
    ends = np.empty((len(STARTS), len(SCALES), 2, num_seeds, HEADS), np.int64)
    for j, scale in enumerate(SCALES):
        runs = uniform.sel(init_scale_z=scale).rename(seed="run")
        # The same Z(0) with a decoder that starts at zero.
        z = np.zeros((num_seeds, HEADS, classes.vocab_size, classes.vocab_size))
        z[:, :, classes.queries[:, None], classes.contextual_tokens] = runs["attention_logits"].isel(step=0)
        from_zero = replace(SETTING, init=(np.zeros_like(z), z), seeds=range(num_seeds), record=("attention",))
        zero = ss.train(classes, **vars(from_zero), progress=False).squeeze(drop=True)
        for i, started in enumerate((zero, runs)):
            attention = started["attention"].isel({"class": 0}).sel(token=classes.distinct_tokens(0))
            ends[i, j] = attention.argmax("token").transpose("step", "run", "head")
    dims = ("start", "scale", "seed")
    predicted, winner = ends[:, :, 0], ends[:, :, 1]
    return xr.Dataset(
        {
            "predicted": ((*dims, "head"), predicted),
            "winner": ((*dims, "head"), winner),
            "differ": (dims, _differ(winner), {"units": "1"}),
            "differ_at_start": (dims, _differ(predicted), {"units": "1"}),
            "foretold": (dims, (winner == predicted).mean(-1), {"units": "1"}),
        },
        coords={"start": list(STARTS), "scale": list(SCALES), "seed": np.arange(num_seeds), "head": np.arange(HEADS)},
        attrs=uniform.attrs,
    )


def _differ(tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of pairs of heads whose tokens are not the same."""
    return np.mean([tokens[..., a] != tokens[..., b] for a, b in combinations(range(tokens.shape[-1]), 2)], axis=0)


def draw(dataset: xr.Dataset) -> Figure:
    """How often heads differ, and how often the start predicted the winner, against the scale."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    scales = dataset["scale"].values
    words = {"zero": "Y(0) = 0", "uniform": "Y(0) random"}
    for i, start in enumerate(dataset["start"].values):
        with_start = dataset.sel(start=start)
        for axes, name in ((left, "differ"), (right, "foretold")):
            points(axes, scales, *mean_and_error(with_start[name]), i, words[str(start)])
    at_start = dataset["differ_at_start"].isel(start=0).mean("seed")
    left.plot(scales, at_start, **line(2), marker="o", markersize=9, fillstyle="none", label="leaders at the start")
    for axes in (left, right):
        log_axis(axes, scales)
        axes.set_ylim(0, 1.05)
    label(left, x="scale of Z(0)", y="share of pairs of heads", title="heads that pick different tokens")
    label(right, x="scale of Z(0)", y="share of heads", title="the leader at the start wins")
    legend(left, loc="lower right")
    legend(right, loc="lower right")
    figure.suptitle(
        f"Beyond the basic setting: four heads, {dataset.sizes['seed']} seeds, bars: one standard error", fontsize=11
    )
    return figure


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Whether heads differ more the further apart they start, and whether r(0) predicts the winner."""
    tested = []
    for start, words in (("zero", "Y(0) = 0"), ("uniform", "Y(0) random")):
        differ = dataset["differ"].sel(start=start).transpose("scale", "seed").values
        statement = f"The wider the start, the more heads pick different tokens ({words})."
        tested.append(
            rise(statement, differ[-1] - differ[0], "share of pairs that differ, largest scale minus smallest")
        )
        tested.append(_predicted(dataset.sel(start=start), words))
    return tested


def _predicted(with_start: xr.Dataset, words: str) -> ss.Trend:
    """Whether the winner led at the start in more than nine of ten heads, over all scales."""
    shares = zip(with_start["scale"].values, with_start["foretold"].mean("seed").values, strict=True)
    by_scale = ", ".join(f"{value:.0%} at {scale:g}" for scale, value in shares)
    what = f"share of heads whose winner led at the start, mean over scales ({by_scale})"
    statement = f"Theorem 3's r(0) says which token wins ({words})."
    return rise(statement, with_start["foretold"].mean("scale"), what, above=0.9)


FIGURE = ss.FigureRecipe(
    name="heads",
    title="Heads that start apart",
    statement=(
        "The initial value is a prior: of tokens of comparable probability either can win, depending on z(0); "
        "independent starts of several heads enable more diverse combinations of tokens (Section 5)."
    ),
    setting=(
        "Syn-Small, four heads, Z(0) uniform in ± scale/√M, Y(0) = 0 or uniform in ± 1/√M, SGD with momentum "
        f"{SETTING.momentum:g}, η_Y = η_Z = 1, batch {SETTING.batch_size}, T = {SETTING.seq_len:g}, {SETTING.steps} "
        "updates; first class"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
