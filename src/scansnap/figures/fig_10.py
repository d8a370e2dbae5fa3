"""Figure 10: entropy of attention over the validation split after training, against the learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap.corpus.corpus import Corpus
from scansnap.figures import text_runs
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import Family
from scansnap.figures.style import label, legend, line, log_axis, points

RATES = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
PASSES = 3
"""The number of passes over the training text; the paper trains until convergence."""


def prepare(
    *,
    text: str | Path | Corpus | None = None,
    num_seeds: int = 5,
    rates: Sequence[float] = RATES,
    steps: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    folder: Path | None = text_runs.FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """`entropy`, `normalized_entropy`, `top_1` and `valid_loss` (lr, seed) after training, and `course`, which is
    `normalized_entropy` over training (lr, seed, record); NaN for a run that diverged."""
    corpus = text_runs.corpus_of(text)
    steps = text_runs.passes(corpus, PASSES) if steps is None else steps
    common = {"steps": steps, "record_every": max(1, steps // 30), "device": device, "precision": precision}
    settings = {float(rate): {**common, "lr_y": float(rate)} for rate in rates}
    _, measures = text_runs.train_grid(corpus, "lr", settings, num_seeds=num_seeds, folder=folder, progress=progress)
    dataset = measures.isel(record=-1).drop_vars(["moved", "record"])
    dataset["course"] = measures["normalized_entropy"]
    dataset["entropy"].attrs["units"] = "nats"
    return dataset.assign_attrs(corpus=corpus.name)


def draw(dataset: xr.Dataset) -> Figure:
    """Entropy and validation loss against the rate, and the entropy over training."""
    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    rates = dataset["lr"].values
    panels = (("entropy", "entropy of attention (nats)"), ("valid_loss", "validation loss (nats)"))
    for k, (name, words) in enumerate(panels):
        axes = figure.add_subplot(1, 3, k + 1)
        values = dataset[name].transpose("lr", "seed")
        for column in values.values.T:
            axes.plot(rates, column, ".", color="gray", markersize=4, alpha=0.7)
        points(axes, rates, values.mean("seed"), values.std("seed", ddof=1), 0, "")
        log_axis(axes, rates)
        label(axes, x="learning rate $\\eta$", y=words, title="mean and standard deviation over seeds" if not k else "")
    axes = figure.add_subplot(1, 3, 3)
    for i, rate in enumerate(rates):
        course = dataset["course"].sel(lr=rate).mean("seed")
        axes.plot(dataset["record"], course, **line(i), linewidth=1.4, label=f"$\\eta$ = {rate:g}")
    label(axes, x="updates", y="entropy of attention / largest possible")
    legend(axes)
    figure.suptitle(
        f"Figure 10: sparsity of attention against the learning rate, {dataset.sizes['seed']} seeds", fontsize=11
    )
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether each step up in the rate lowers the entropy."""
    if dataset.sizes["seed"] < 2 or dataset.sizes["lr"] < 2:
        return []
    values = dataset["entropy"].transpose("lr", "seed").values
    rates = dataset["lr"].values
    labels = [f"η {low:g} to {high:g}" for low, high in pairwise(rates)]
    complete = np.isfinite(values).all(1)
    steps = [i for i in range(len(rates) - 1) if complete[i] and complete[i + 1]]
    if not steps:
        return []  # no two neighboring rates have all their runs
    family = Family([labels[i] for i in steps], (values[:-1] - values[1:])[steps])
    ends = Family(["from the smallest rate to the largest"], values[complete][:1] - values[complete][-1:])
    return [
        family.trend("Each larger learning rate lowers the entropy of attention."),
        ends.trend("The largest learning rate gives a lower entropy than the smallest."),
    ]


FIGURE = FigureRecipe(
    name="10",
    title="Entropy of attention after training against the learning rate, on text",
    statement="The larger the learning rate, the lower the entropy of attention after training: sparser attention.",
    setting=(
        "1-layer transformers on text as in Figure 7, plain SGD at one rate for all parameters; entropy of attention, "
        "mean over the rows of the validation split"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
