"""Figure 12: recall of distinct tokens against the threshold, changing eta_Z.

`recall.py` defines recall, its two readings and the descent rate; the runs are those of Figure 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from scansnap.figures import syn_medium_runs
from scansnap.figures.recall import descent_trends, draw_recall, prepare_recall
from scansnap.figures.recipe import FigureRecipe
from scansnap.figures.trend import Trend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED = 2.0
"""η_Y/η_Z of the lines that are drawn; the trend is tested at every value."""


def prepare(*, num_seeds: int = 10, runs: xr.Dataset | None = None) -> xr.Dataset:
    """The dataset of `prepare_recall`; `runs` comes from `syn_medium_runs.make`, which is called if it is None."""
    return prepare_recall(FIGURE.title, syn_medium_runs.make(num_seeds=num_seeds) if runs is None else runs)


def draw(dataset: xr.Dataset) -> Figure:
    """A panel for each reading and number of queries."""
    num_seeds = dataset.sizes["seed"]
    bands = f"{num_seeds} seeds, bands: one standard error"
    title = f"Figure 12: recall of distinct tokens, $\\eta_Y/\\eta_Z$ = {FIXED:g}, {bands}"
    return draw_recall(dataset, "lr_z", {"lr_y_over_lr_z": FIXED}, title)


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether recall descends more slowly with each step along the axis, in both readings."""
    return descent_trends(dataset, "lr_z", falls=True, statement="A larger η_Z makes recall descend more slowly")


FIGURE = FigureRecipe(
    name="12",
    title="Recall of distinct tokens against the threshold, for several η_Z",
    statement="A larger η_Z makes recall fall more slowly with the threshold: sparser attention.",
    setting=f"{syn_medium_runs.SETTING}; thresholds 0.5/M to 2/M",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
