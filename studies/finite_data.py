"""Training on a fixed set of N sequences: spurious tokens, how they vanish with N, and what a prior gains.

A token is spurious for a class if it is really common but occurs in that class's training sequences only.
`theory.spurious_share` counts which share of a class's tokens that is.  The attention that training gives them is
measured with the exact P(l|n), in nested sets: the first N sequences of a seed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

import scansnap as ss
from common import SYN_SMALL
from scansnap.figures.statistics import all_rise, enough_seeds
from scansnap.figures.style import label, legend, line, log_axis, mean_and_error, points

SIZES = (4, 8, 16, 32, 64, 128)
PRIORS = (0.0, -2.0, -4.0)
SEQ_LEN = 9
SETTING = replace(
    SYN_SMALL,
    steps=200,
    batch_size=None,
    seq_len=SEQ_LEN,
    record_every=None,
    record=("attention", "fresh_loss", "fresh_accuracy"),
)
SMALL = 64
"""The largest number of sequences in a set that is called small."""

NOTHING = 1e-4
"""A share of spurious tokens so small that no run is expected to show it."""


def setting() -> ss.SequenceClasses:
    """Two classes whose sequences consist mostly of common tokens, each of which is rare."""
    return ss.synthetic(num_query=1, next_per_query=2, num_common=40, num_distinct=10)


def prepare(*, num_seeds: int = 30) -> xr.Dataset:
    """`spurious` attention before and after training (stage, prior, num_sequences, seed), `fresh_loss`,
    `fresh_accuracy`, and the share that counting predicts."""
    num_seeds = enough_seeds(num_seeds)
    classes = setting()
    priors = [{"common": prior} for prior in PRIORS]
    varied = {**vars(SETTING), "num_sequences": SIZES, "attention_prior": priors, "seeds": range(num_seeds)}
    runs = ss.sweep(classes, **varied, progress=False)
    runs = runs.squeeze(drop=True).rename(attention_prior="prior", step="stage")
    runs = runs.assign_coords(prior=list(PRIORS), stage=["start", "end"])
    is_spurious = xr.DataArray(
        [[_look_distinct(classes, size, seed) for seed in range(num_seeds)] for size in SIZES],
        dims=("num_sequences", "seed", "class", "token"),
    )
    counted = [
        ss.theory.spurious_share(classes.probs, weights=classes.weights, seq_len=SEQ_LEN, num_sequences=size).mean()
        for size in SIZES
    ]
    dims = ("prior", "num_sequences", "seed")
    spurious = (runs["attention"] * is_spurious).sum("token").mean("class").transpose("stage", *dims)
    dataset = runs[["fresh_loss", "fresh_accuracy"]].isel(stage=-1, drop=True).transpose(*dims)
    dataset["spurious"] = spurious.astype(float, order="C").assign_attrs(units="1")
    dataset["counted"] = ("num_sequences", counted, {"units": "1"})
    return dataset


def _look_distinct(classes: ss.SequenceClasses, size: int, seed: int) -> NDArray[np.bool_]:
    """Which common tokens occur in the training sequences of one class only (K, S)."""
    counts, owner = ss.sample_counts(classes, num=size, seq_len=SEQ_LEN, seed=seed)
    tokens = classes.contextual_tokens
    seen = np.array([counts[owner == k].sum(0)[tokens] > 0 for k in range(classes.num_classes)])
    return seen & (seen.sum(0) == 1) & (classes.token_kinds[tokens] == "common")


def draw(dataset: xr.Dataset) -> Figure:
    """Spurious attention against N, and the loss on fresh data with and without a prior."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = dataset["num_sequences"].values
    plain = dataset.sel(prior=0.0)
    left.plot(sizes, dataset["counted"], **line(6), linewidth=1, label="counting predicts")
    end, strong = plain.sel(stage="end"), dataset.sel(prior=PRIORS[-1], stage="end")
    shown = {
        "before training": plain.sel(stage="start"),
        "after training": end,
        f"after training, prior {PRIORS[-1]:g}": strong,
    }
    for i, (words, part) in enumerate(shown.items()):
        points(left, sizes, *mean_and_error(part["spurious"]), i, words)
    for i, prior in enumerate(dataset["prior"].values):
        part, words = dataset.sel(prior=prior), f"prior {prior:g} on common tokens" if prior else "no prior"
        points(right, sizes, *mean_and_error(part["fresh_loss"]), i, words)
    for axes in (left, right):
        log_axis(axes, sizes)
    label(left, x="N (sequences)", y="attention (share)", title="attention on spurious tokens")
    label(right, x="N (sequences)", y="loss on fresh data (nats)", title="fresh data, after training")
    legend(left)
    legend(right)
    num_seeds = dataset.sizes["seed"]
    figure.suptitle(
        f"Beyond the basic setting: training on N sequences, {num_seeds} seeds, bars: one standard error", fontsize=11
    )
    return figure


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Whether spurious attention falls with N, counting predicts it, training adds to it, and a prior helps."""
    sizes = dataset["num_sequences"].values
    plain = dataset["spurious"].sel(prior=0.0)
    counted = dataset["counted"].values
    past = [int(size) for size in sizes[counted.argmax() :] if counted[list(sizes).index(size)] > NOTHING]
    small = [int(size) for size in sizes if size <= SMALL]
    after = plain.sel(stage="end", num_sequences=past).transpose("num_sequences", "seed").values
    added = (plain.sel(stage="end") - plain.sel(stage="start")).sel(num_sequences=small)
    gain = (dataset["fresh_loss"].sel(prior=0.0) - dataset["fresh_loss"]).sel(num_sequences=small)
    names = [f"N = {size}" for size in small]
    return [
        all_rise(
            "Attention to spurious tokens falls with N, past the N at which most look distinct.",
            [f"N = {a} to {b}" for a, b in pairwise(past)],
            -np.diff(after, axis=0),
        ),
        _counting(dataset),
        all_rise(
            f"Training adds attention to spurious tokens, as if they were distinct (N up to {SMALL}).",
            names,
            added.transpose("num_sequences", "seed").values,
        ),
        *(
            all_rise(
                f"A prior of {prior:g} on common tokens lowers the loss on fresh data (N up to {SMALL}).",
                names,
                gain.sel(prior=prior).transpose("num_sequences", "seed").values,
            )
            for prior in PRIORS[1:]
        ),
    ]


def _counting(dataset: xr.Dataset) -> ss.Trend:
    """The largest difference, over N, between attention before training and the expected share, in standard errors."""
    start = dataset["spurious"].sel(stage="start", prior=0.0).transpose("seed", "num_sequences").values
    varies = start.std(0) > 0
    test = stats.ttest_1samp(start[:, varies], dataset["counted"].values[varies])
    statement = "Before training, attention on spurious tokens is what counting predicts."
    note = (
        f"largest difference in standard errors over {varies.sum()} sizes; t tests, Bonferroni's correction; "
        f"{len(start)} seeds"
    )
    p = float(min(1.0, varies.sum() * test.pvalue.min()))
    return ss.Trend(statement, "p above 0.01", float(np.abs(test.statistic).max()), None, p, p > 0.01, note)


FIGURE = ss.FigureRecipe(
    name="finite_data",
    title="Spurious tokens in small data sets, and a prior against them",
    statement=(
        "A large data set suppresses spurious tokens, which look distinct in a small one and are common in truth; "
        "prior knowledge may suppress them without it (Section 9)."
    ),
    setting=(
        f"One query, two next tokens, 40 common and 10 distinct tokens per class, T = {SETTING.seq_len:g}; all of N "
        f"sequences at each of {SETTING.steps} updates, momentum {SETTING.momentum:g}, η_Y = η_Z = 1, zero start; a "
        "prior adds the same logit to all common tokens"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
