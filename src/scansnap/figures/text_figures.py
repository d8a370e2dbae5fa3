"""Figures 7 and 10: transformers trained on a text, one after another; each run is stored and resumed by name.

Figure 7: attention of the first layer on a window of text, as a 1-layer and a 3-layer transformer train.

Sparsity and freezing are measured separately: by the entropy of attention as a share of the largest possible in its
row, mean over the validation split, and by the share of attention that moves per step.  `runtime/snap.py` defines
when a pattern counts as frozen.

Figure 10: entropy of attention over the validation split after training, against the learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import all_rise, enough_seeds, exact, rise
from scansnap.figures.style import COLORS, attention_bar, label, legend, line, log_axis, points
from scansnap.figures.text_attention import draw_pattern
from scansnap.runtime.errors import InputError
from scansnap.runtime.snap import find_snap
from scansnap.storage.provenance import store_name
from scansnap.text.corpus import Corpus, read_corpus
from scansnap.text.options import TextOptions, TextShape
from scansnap.text.processes import process_count
from scansnap.text.train import text_training
from scansnap.text.windows import Columns

FOLDER = Path("results") / "text"


def corpus_of(text: str | Path | Corpus | None) -> Corpus:
    """The text to train on, which must be given."""
    if text is None:
        raise InputError(
            "this figure is made from text: give a text file, a folder of text files such as WikiText-2's, or a name "
            "(--text)."
        )
    return text if isinstance(text, Corpus) else read_corpus(text)


def train_grid(
    corpus: Corpus,
    axis: str,
    settings: Mapping[Any, Mapping[str, Any]],
    *,
    num_seeds: int,
    folder: Path | None,
    progress: bool | None,
) -> tuple[list[xr.Dataset], xr.Dataset]:
    """The runs of each setting with each seed, and what the figures measure (axis, seed, record).

    With a folder, runs are stored there and reused.  Measures of attention are means over the heads of the first layer;
    `valid_loss` (axis, seed) is the last.
    """
    if process_count() > 1:
        raise InputError(
            f"figures are made by one process, but there are {process_count()}: start the command without a launcher."
        )
    seeds = range(enough_seeds(num_seeds, least=1))
    runs, parts = [], []
    for setting, seed in product(settings.values(), seeds):
        options = {**setting, "seed": seed}
        name = store_name(corpus.name, {**options, "corpus": corpus.fingerprint})
        store = None if folder is None else folder / name
        runs.append(text_training(corpus, **options, store=store).run(progress))
        first = runs[-1].isel(run=0, layer=0).reset_coords(drop=True).rename(step="record")
        part = first[["entropy", "normalized_entropy", "moved", "top_1"]].mean("head", skipna=False)
        parts.append(part.assign(valid_loss=first["valid_loss"].isel(record=-1, drop=True)))
    rows = [parts[i : i + num_seeds] for i in range(0, len(parts), num_seeds)]
    measures = xr.combine_nested(rows, [axis, "seed"])
    return runs, measures.assign_coords({axis: list(settings), "seed": list(seeds)}).transpose(axis, "seed", "record")


LAYERS = (1, 3)
STEPS = 1500
PANELS = 4
"""How many patterns of each model are shown, evenly spaced up to update 1,500 or the last."""

RECORD_EVERY = 50
WINDOW = 1
WORDS = 16
"""The words of the window that are shown: rows attend to what is before them, so that nothing is cut from these."""


def prepare_7(
    *,
    text: str | Path | Corpus | None = None,
    num_seeds: int = 1,
    steps: int = STEPS,
    device: str = "cpu",
    precision: str = "float32",
    folder: Path | None = FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """`attention` (layers, step shown, query_position, key_position) of the first seed, and over all records
    `normalized_entropy`, `entropy`, `moved` (layers, seed, record) and `snap_step` (layers, seed; NaN: not frozen)."""
    corpus = corpus_of(text)
    every = min(RECORD_EVERY, max(1, steps // 4))
    common = {"lr_y": 5.0, "steps": steps, "record_every": every, "device": device, "precision": precision}
    settings = {layers: {**common, "layers": layers} for layers in LAYERS}
    runs, dataset = train_grid(corpus, "layers", settings, num_seeds=num_seeds, folder=folder, progress=progress)
    for run in runs:
        if str(run["status"].values[0]) == "diverged":
            raise InputError(
                f"the run with seed {int(run['seed'][0])} diverged at step {int(run['diverged_step'][0]):,}, so the "
                "figure cannot be made: train for fewer steps."
            )
    records = dataset["record"].values
    shown = np.unique(np.abs(records[:, None] - np.linspace(0, min(steps, STEPS), PANELS)).argmin(0))
    window = min(WINDOW, runs[0].sizes["window"] - 1)
    first_seeds = [run["pattern"].isel(run=0, layer=0, head=0, window=window, step=shown) for run in runs[::num_seeds]]
    patterns = np.array([pattern.values for pattern in first_seeds])
    snaps = [[find_snap(records, moved).step for moved in of_seed] for of_seed in dataset["moved"].values]
    dataset = dataset.drop_vars("top_1").assign_coords(shown=records[shown])
    dataset["attention"] = (("layers", "shown", "query_position", "key_position"), patterns)
    dataset["snap_step"] = (("layers", "seed"), np.array(snaps, dtype=np.float64))
    dataset["word"] = ("key_position", runs[0]["word"].isel(window=window).values)
    return dataset.assign_attrs(corpus=corpus.name)


def draw_7(dataset: xr.Dataset) -> Figure:
    """Patterns with their words, a row for each model; below them, sparsity and change over updates."""
    figure = Figure(figsize=(11.0, 9.0), layout="constrained")
    subfigures: Any = figure.subfigures(2, 1, height_ratios=(2.0, 0.8))
    patterns, curves = subfigures
    grid = patterns.add_gridspec(2, dataset.sizes["shown"])
    for i, layers in enumerate(dataset["layers"].values):
        for j, step in enumerate(dataset["shown"].values):
            axes = patterns.add_subplot(grid[i, j])
            pattern = dataset["attention"].isel(layers=i, shown=j).values[:WORDS, :WORDS]
            words = dataset["word"].values[:WORDS]
            image = draw_pattern(axes, pattern, words, f"{_model(layers)}, step {int(step):,}", inches=2.2)
            if j:
                axes.set_yticks([])
            if not i:
                axes.set_xticks([])
    attention_bar(patterns.axes, image, fraction=0.03, aspect=40, pad=0.01)
    _curves(curves.add_subplot(1, 2, 1), dataset, "normalized_entropy", "entropy of attention / largest possible")
    moving = curves.add_subplot(1, 2, 2)
    _curves(moving, dataset, "rate", "attention moved per step")
    moving.set_yscale("log")
    legend(moving)
    figure.suptitle(
        f"Figure 7: first-layer attention on {len(words)} words of a validation window; rows attend to columns",
        fontsize=11,
    )
    return figure


def _curves(axes: Axes, dataset: xr.Dataset, name: str, words: str) -> None:
    records = dataset["record"].values
    for i, layers in enumerate(dataset["layers"].values):
        of_model = dataset.isel(layers=i)
        moved_per_step = of_model["moved"].values / np.diff(records, prepend=np.nan)
        values = moved_per_step if name == "rate" else of_model[name].values
        others = ", other seeds lighter" * (len(values) > 1)
        for k, row in enumerate(values):
            axes.plot(
                records,
                row,
                **line(i),
                linewidth=1.3,
                alpha=1.0 if not k else 0.5,
                label=_model(layers) + others if not k else None,
            )
        for step in of_model["snap_step"].values[np.isfinite(of_model["snap_step"].values)]:
            axes.axvline(step, color=COLORS[i], linestyle=":", linewidth=1)
    frozen = "dotted: where a pattern froze" if dataset["snap_step"].notnull().any() else "no pattern froze"
    label(axes, x=f"updates; {frozen}", y=words)


def _model(layers: Any) -> str:
    return f"{layers} layer{'s' * (int(layers) > 1)}"


def trends_7(dataset: xr.Dataset) -> list[Trend]:
    """For each model, whether attention is sparser than at the start, and whether it is frozen."""
    tested = []
    for layers in dataset["layers"].values:
        of_model = dataset.sel(layers=layers)
        entropy = of_model["normalized_entropy"]
        fall = (entropy.isel(record=0) - entropy.isel(record=-1)).values
        statement = f"Attention of the first layer becomes sparse ({_model(layers)})."
        what = "fall of the entropy of attention, as a share of the largest possible, from the start to the end"
        if len(fall) > 1:
            tested.append(rise(statement, fall, what))
        else:
            tested.append(exact(statement, fall[0], f"{what}; one run", above=0))
        snaps = of_model["snap_step"].values
        frozen = np.isfinite(snaps)
        long_enough = int(dataset["record"][-1]) >= STEPS  # a shorter run has had no time to freeze
        steps = ", ".join(f"{step:,.0f}" for step in sorted(snaps[frozen])) or "none"
        note = f"runs whose pattern froze within {int(dataset['record'][-1]):,} updates; at steps: {steps}"
        verdict = exact(f"It freezes ({_model(layers)}).", frozen.sum(), note, at_least=len(snaps))
        tested.append(replace(verdict, settled=verdict.holds or long_enough))
    return tested


FIGURE_7 = FigureRecipe(
    name="7",
    title="Attention of the first layer on text while it trains",
    statement=(
        "In 1-layer and 3-layer transformers trained on WikiText-2 by SGD at learning rate 5, attention of the first "
        "layer becomes sparse and freezes, although the learning rate stays the same."
    ),
    setting=(
        "text (WikiText-2 in the paper) as lower-cased words; post-norm layers, d = 200, one head, sinusoidal "
        "positions, dropout 0.2, windows of 35, batch 20, clipping at 0.5, plain SGD at learning rate 5"
    ),
    prepare=prepare_7,
    draw=draw_7,
    trends=trends_7,
)


RATES = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
PASSES = 3
"""The number of passes over the training text; the paper trains until convergence."""


def prepare_10(
    *,
    text: str | Path | Corpus | None = None,
    num_seeds: int = 5,
    rates: Sequence[float] = RATES,
    steps: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    folder: Path | None = FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """`entropy`, `normalized_entropy`, `top_1` and `valid_loss` (lr, seed) after training, and `course`, which is
    `normalized_entropy` over training (lr, seed, record); NaN for a run that diverged."""
    corpus = corpus_of(text)
    steps = (
        PASSES * Columns(corpus.train, TextOptions.batch_size, TextShape.window).per_pass if steps is None else steps
    )
    common = {"steps": steps, "record_every": max(1, steps // 30), "device": device, "precision": precision}
    settings = {float(rate): {**common, "lr_y": float(rate)} for rate in rates}
    _, measures = train_grid(corpus, "lr", settings, num_seeds=num_seeds, folder=folder, progress=progress)
    dataset = measures.isel(record=-1).drop_vars(["moved", "record"])
    dataset["course"] = measures["normalized_entropy"]
    dataset["entropy"].attrs["units"] = "nats"
    return dataset.assign_attrs(corpus=corpus.name)


def draw_10(dataset: xr.Dataset) -> Figure:
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


def trends_10(dataset: xr.Dataset) -> list[Trend]:
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
    return [
        all_rise(
            "Each larger learning rate lowers the entropy of attention.",
            [labels[i] for i in steps],
            (values[:-1] - values[1:])[steps],
        ),
        all_rise(
            "The largest learning rate gives a lower entropy than the smallest.",
            ["from the smallest rate to the largest"],
            values[complete][:1] - values[complete][-1:],
        ),
    ]


FIGURE_10 = FigureRecipe(
    name="10",
    title="Entropy of attention after training against the learning rate, on text",
    statement="The larger the learning rate, the lower the entropy of attention after training: sparser attention.",
    setting=(
        "1-layer transformers on text as in Figure 7, plain SGD at one rate for all parameters; entropy of attention, "
        "mean over the rows of the validation split"
    ),
    prepare=prepare_10,
    draw=draw_10,
    trends=trends_10,
)
