"""Figure 11: recall of distinct tokens against the threshold, changing eta_Y/eta_Z.

`recall.py` defines recall, its two readings and the descent rate; the runs are those of Figure 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from scansnap.figures import syn_medium_runs
from scansnap.figures.recall import descent_trends, draw_recall, entropy_trends, prepare_recall
from scansnap.figures.recipe import FigureRecipe
from scansnap.figures.trend import Trend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED = 1.0
"""η_Z of the lines that are drawn; the trend is tested at every value."""


def prepare(*, num_seeds: int = 10, runs: xr.Dataset | None = None) -> xr.Dataset:
    """The dataset of `prepare_recall`; `runs` comes from `syn_medium_runs.make`, which is called if it is None."""
    return prepare_recall(FIGURE.title, syn_medium_runs.make(num_seeds=num_seeds) if runs is None else runs)


def draw(dataset: xr.Dataset) -> Figure:
    """A panel for each reading and number of queries."""
    num_seeds = dataset.sizes["seed"]
    title = f"Figure 11: recall of distinct tokens, $\\eta_Z$ = {FIXED:g}, {num_seeds} seeds, bands: one standard error"
    return draw_recall(dataset, "lr_y_over_lr_z", {"lr_z": FIXED}, title)


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether recall descends more slowly with each step along the axis, and as Figure 6 says, in both readings."""
    slower = "A smaller η_Y/η_Z makes recall descend more slowly"
    return [*descent_trends(dataset, "lr_y_over_lr_z", falls=False, statement=slower), *entropy_trends(dataset)]


FIGURE = FigureRecipe(
    name="11",
    title="Recall of distinct tokens against the threshold, for several η_Y/η_Z",
    statement="A smaller η_Y/η_Z makes recall fall more slowly with the threshold: sparser attention.",
    setting=f"{syn_medium_runs.SETTING}; thresholds 0.5/M to 2/M",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
