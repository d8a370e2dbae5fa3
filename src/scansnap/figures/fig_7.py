"""Figure 7: attention of the first layer on a window of text, as a 1-layer and a 3-layer transformer train.

Sparsity and freezing are measured separately: by the entropy of attention as a share of the largest possible in its
row, mean over the validation split, and by the share of attention that moves per step.  `results/metrics.py` defines
when a pattern counts as frozen.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scansnap.corpus.corpus import Corpus
from scansnap.figures import text_runs
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import exact, rise
from scansnap.figures.style import COLORS, attention_bar, label, legend, line
from scansnap.figures.text_attention import draw_pattern
from scansnap.results.metrics import find_snap

LAYERS = (1, 3)
STEPS = 1500
PANELS = 4
"""How many patterns of each model are shown, evenly spaced up to update 1,500 or the last."""

RECORD_EVERY = 50
WINDOW = 1
WORDS = 16
"""The words of the window that are shown: rows attend to what is before them, so that nothing is cut from these."""


def prepare(
    *,
    text: str | Path | Corpus | None = None,
    num_seeds: int = 1,
    steps: int = STEPS,
    device: str = "cpu",
    precision: str = "float32",
    folder: Path | None = text_runs.FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """`attention` (layers, step shown, query_position, key_position) of the first seed, and over all records
    `normalized_entropy`, `entropy`, `moved` (layers, seed, record) and `snap_step` (layers, seed; NaN: not frozen)."""
    corpus = text_runs.corpus_of(text)
    every = min(RECORD_EVERY, max(1, steps // 4))
    common = {"lr_y": 5.0, "steps": steps, "record_every": every, "device": device, "precision": precision}
    settings = {layers: {**common, "layers": layers} for layers in LAYERS}
    runs, dataset = text_runs.train_grid(
        corpus, "layers", settings, num_seeds=num_seeds, folder=folder, progress=progress
    )
    text_runs.refuse_diverged(runs)
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


def draw(dataset: xr.Dataset) -> Figure:
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


def trends(dataset: xr.Dataset) -> list[Trend]:
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


FIGURE = FigureRecipe(
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
    prepare=prepare,
    draw=draw,
    trends=trends,
)
