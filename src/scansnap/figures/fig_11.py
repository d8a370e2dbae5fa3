"""Figure 11: recall of distinct tokens against the threshold, changing eta_Y/eta_Z.

Recall, its two readings and the descent rate are explained in `recall.py`; the runs are those of Figure 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from scansnap.figures import syn_medium_runs
from scansnap.figures.recall import descent_trends, draw_recall, prepare_recall
from scansnap.figures.trend import Trend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Recall of distinct tokens against the threshold, for several η_Y/η_Z"
STATEMENT = "A smaller η_Y/η_Z makes recall fall more slowly with the threshold: sparser attention."
SETTING = f"{syn_medium_runs.SETTING}; thresholds 0.5/M to 2/M"

FIXED = 1.0
"""η_Z of the lines that are drawn; the trend is tested at all."""


def prepare(*, seeds: int = 10, runs: xr.Dataset | None = None) -> xr.Dataset:
    """What `prepare_recall` gives; `runs` is what `syn_medium_runs.make` gave, made here unless given."""
    return prepare_recall(TITLE, syn_medium_runs.make(seeds=seeds) if runs is None else runs)


def draw(dataset: xr.Dataset) -> Figure:
    """Panels reading x number of queries."""
    seeds = dataset.sizes["seed"]
    title = f"Figure 11: recall of distinct tokens, $\\eta_Z$ = {FIXED:g}, {seeds} seeds, bands: one standard error"
    return draw_recall(dataset, "lr_y_over_lr_z", {"lr_z": FIXED}, title)


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether recall descends more slowly, step by step along the axis, in both readings."""
    return descent_trends(
        dataset, "lr_y_over_lr_z", falls=False, statement="A smaller η_Y/η_Z makes recall descend more slowly"
    )
