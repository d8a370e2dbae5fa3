"""When attention snaps, over all pairs of learning rates, and Theorem 4's time t_0.

Theorem 4 has two times that depend on eta_Y alone: attention scans up to t'_0 = K ln M/eta_Y and has snapped from
t_0 = 2 (1 + omega_1) t'_0 on.  The flow, under SGD's own gradient, shows for which rates that is so.  The population
dynamics depends on eta_Z/eta_Y and on time in units of 1/eta_Y alone, so the map has one direction in which only the
clock changes: the interest is across it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from scansnap.dynamics.published import PUBLISHED
from scansnap.dynamics.sweep import sweep
from scansnap.figures.phase_diagram import LABELS, draw_map, map_of
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import exact
from scansnap.figures.style import color_bar, label, legend, line
from scansnap.results.snapshot import Snapshot
from scansnap.systems.quantity import quantity
from scansnap.theory import snap_start

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

EXPERIMENT = PUBLISHED["single-common"]
LEAST, MOST = 1e-2, 1e2
TIMES = np.geomspace(1e-1, 1e12, 131)
ALONG = 1.0
"""The rate of Z at which attention is drawn over time."""

NEAR = 10.0
"""Rates are alike if their ratio is at most this, either way."""


@quantity("layer", "head", "token", needs="attention", long_name="attention of the first class")
def first_attention(now: Snapshot) -> ArrayLike:
    """All classes are alike: one stands for all."""
    return now.attention[:, :, :, 0]


def prepare(*, points: int = 25) -> xr.Dataset:
    """`snap_time` and the last `winner_share` (lr_z, lr_y), and `over_time` (lr_y, time), the winner's share."""
    rates = np.geomspace(LEAST, MOST, points)
    runs = sweep(
        EXPERIMENT.classes, lr_y=rates, lr_z=rates, times=TIMES, record=(first_attention, "loss"), progress=False
    ).rename(first_attention="attention")
    middle = float(rates[np.abs(np.log(rates / ALONG)).argmin()])
    dataset = xr.Dataset(
        {
            "snap_time": map_of(runs, "lr_y", "lr_z", "snap_time").assign_attrs(units="steps"),
            "winner_share": map_of(runs, "lr_y", "lr_z", "winner_share").assign_attrs(units="1"),
            "over_time": map_of(runs.sel(lr_z=[middle]), "time", "lr_y", "winner_share").assign_attrs(units="1"),
        }
    )
    sizes = {"vocab_size": EXPERIMENT.classes.vocab_size, "num_classes": EXPERIMENT.classes.num_classes}
    dataset["theory"] = ("lr_y", snap_start(**sizes, lr_y=rates), {"units": "steps", "long_name": "t_0"})
    return dataset.assign_attrs(runs.attrs)


def draw(dataset: xr.Dataset) -> Figure:
    """The map of snap times; the same times in units of t_0 against the ratio; attention over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 3.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    color_bar([left], draw_map(left, dataset["snap_time"]), LABELS["snap_time"])
    ratio, units = _against_theory(dataset)
    middle.axhspan(0.5, 2, color="0.9", zorder=0, label="within a factor of two")
    middle.loglog(ratio, units, "o", color=line(0)["color"], markersize=3, label="every pair of rates")
    middle.axhline(1, **line(1), label="$t_0$ of Theorem 4")
    label(
        middle,
        x="$\\eta_Z/\\eta_Y$",
        y="time of the snap (units of $t_0$)",
        title="one curve: rates only set the clock",
    )
    legend(middle, loc="lower left")
    color_bar([right], draw_map(right, dataset["over_time"].rename("winner_share")), LABELS["winner_share"])
    shares = dataset["over_time"].values
    note = f"$\\eta_Z$ = {ALONG:g}; color from {shares.min():.2f} to {shares.max():.2f}"
    right.set_title(note, fontsize=9, loc="left")
    figure.suptitle("Beyond the basic setting: when attention snaps", fontsize=11)
    return figure


def _against_theory(dataset: xr.Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """eta_Z/eta_Y of every run that snapped, and its snap time in units of t_0."""
    ratio, units = xr.broadcast(dataset["lr_z"] / dataset["lr_y"], dataset["snap_time"] / dataset["theory"])
    known = np.isfinite(units.values)
    return ratio.values[known], units.values[known]


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Whether attention snaps at t_0, whether eta_Z matters, and what it comes to."""
    ratio, units = _against_theory(dataset)
    factor = np.exp(np.abs(np.log(units)))
    alike = (ratio <= NEAR * 1.001) & (ratio >= 0.999 / NEAR)
    longest, shortest = dataset["snap_time"].max("lr_z"), dataset["snap_time"].min("lr_z")
    spread = float((longest / shortest).max())
    share = dataset["winner_share"]
    sparser = share.diff("lr_y") < 0
    return [
        exact(
            f"If the rates are within a factor of {NEAR:g} of each other, attention snaps at t_0.",
            factor[alike].max(),
            f"the largest factor between the time of the snap and t_0, of {alike.sum()} runs",
            at_most=2,
        ),
        exact(
            "When attention snaps depends on η_Y alone.",
            spread,
            f"longest over shortest time of the snap with η_Z from {LEAST:g} to {MOST:g} at the same η_Y, the "
            "largest over η_Y",
            at_most=2,
        ),
        exact(
            "With η_Z fixed a smaller η_Y leads to sparser attention.",
            float(sparser.mean()),
            f"share of pairs of neighboring η_Y in which the smaller gives the winner more attention at t = "
            f"{TIMES[-1]:.0e}",
            at_least=0.9,
        ),
        exact(
            "Attention does not become winner-takes-all.",
            float(share.max()),
            f"the largest share of attention on one token at t = {TIMES[-1]:.0e}",
            below=0.5,
        ),
    ]


FIGURE = FigureRecipe(
    name="phase_diagram",
    title="When attention snaps, over all pairs of learning rates",
    statement=(
        "Attention scans up to t'_0 = K ln M/η_Y and has snapped from t_0 on; both depend on η_Y alone (Theorem 4). "
        "With η_Z fixed a smaller η_Y leads to sparser attention, which does not become winner-takes-all (Section 6)."
    ),
    setting=(
        f"population dynamics up to 10¹² steps, ten classes with a single common token, M = 1000, zero start, "
        f"η_Y and η_Z from {LEAST:g} to {MOST:g} each"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
