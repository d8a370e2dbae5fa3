"""When attention snaps, over all pairs of learning rates, and Theorem 4's time t_0.

Theorem 4 has two times that depend on eta_Y alone: attention scans up to t'_0 = K ln M/eta_Y and has snapped from
t_0 = 2 (1 + omega_1) t'_0 on.  The flow, under SGD's own gradient, shows for which rates that is so.  The population
dynamics depends on eta_Z/eta_Y and on time in units of 1/eta_Y alone, so the map has one direction in which only the
clock changes: the interest is across it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

import scansnap as ss
from scansnap.figures.statistics import exact
from scansnap.figures.style import label, legend, line

CLASSES = ss.single_common()
LEAST, MOST = 1e-2, 1e2
TIMES = np.geomspace(1e-1, 1e12, 131)
ALONG = 1.0
"""The rate of Z at which attention is drawn over time."""

NEAR = 10.0
"""Rates are alike if their ratio is at most this, either way."""


@ss.quantity("layer", "head", "token", needs="attention", long_name="attention of the first class")
def first_attention(now: ss.Snapshot) -> ArrayLike:
    """All classes are alike: one stands for all."""
    return now.attention[:, :, :, 0]


def prepare(*, points: int = 25) -> xr.Dataset:
    """`snap_time` and the last `winner_share` (lr_z, lr_y), and `over_time` (lr_y, time), the winner's share."""
    rates = np.geomspace(LEAST, MOST, points)
    runs = ss.sweep(
        CLASSES, lr_y=rates, lr_z=rates, times=TIMES, record=(first_attention, "loss"), progress=False
    ).rename(first_attention="attention")
    share = ss.measure.top_k_mass(runs).squeeze(drop=True).transpose("lr_z", "lr_y", "time")
    snap_time = ss.measure.snaps(runs)["snap_step"].squeeze(drop=True).transpose("lr_z", "lr_y")
    start = ss.theory.snap_start(vocab_size=CLASSES.vocab_size, num_classes=CLASSES.num_classes, lr_y=rates)
    middle = int(np.abs(np.log(rates / ALONG)).argmin())
    return xr.Dataset(
        {
            "snap_time": snap_time.reset_coords(drop=True).assign_attrs(units="steps"),
            "winner_share": share.isel(time=-1).reset_coords(drop=True).assign_attrs(units="1"),
            "over_time": share.isel(lr_z=middle).reset_coords(drop=True).assign_attrs(units="1"),
            "theory": ("lr_y", start, {"units": "steps", "long_name": "t_0"}),
        },
        attrs=runs.attrs,
    )


def draw(dataset: xr.Dataset) -> Figure:
    """The map of snap times; the same times in units of t_0 against the ratio; attention over time."""
    figure = Figure(figsize=(12.0, 3.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_snap_times(left, dataset)
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
    shares = dataset["over_time"]
    bar = {"label": "attention on the winner (share)"}
    shares.plot.pcolormesh(ax=right, x="time", y="lr_y", xscale="log", yscale="log", cbar_kwargs=bar)
    start, rates = dataset["theory"], dataset["lr_y"]
    right.plot(start, rates, color="white", label="$t_0$ (Theorem 4)")
    legend(right, loc="lower right", labelcolor="white")
    title = f"$\\eta_Z$ = {ALONG:g}; color from {float(shares.min()):.2f} to {float(shares.max()):.2f}"
    label(right, x="time (expected steps of batch 1)", y="$\\eta_Y$ (learning rate of Y)", title=title)
    figure.suptitle("Beyond the basic setting: when attention snaps", fontsize=11)
    return figure


def _draw_snap_times(axes: Axes, dataset: xr.Dataset) -> None:
    """Snap times over both rates, with lines of equal time: black as measured, white as Theorem 4 has them."""
    times, rates = dataset["snap_time"], dataset["lr_y"]
    axes.set_facecolor("0.8")
    bar = {"label": "time of the snap (steps)"}
    times.plot.pcolormesh(ax=axes, x="lr_y", y="lr_z", xscale="log", yscale="log", norm=LogNorm(), cbar_kwargs=bar)
    exponents = np.arange(np.ceil(np.log10(times.min())), np.ceil(np.log10(times.max())))
    lines = axes.contour(rates, dataset["lr_z"], times, levels=10.0**exponents, colors="black", linewidths=1)
    axes.clabel(lines, fmt=lambda level: f"$10^{{{np.log10(level):.0f}}}$", fontsize=8)
    unit = float(dataset["theory"][0] * rates[0])  # t_0 is in proportion to 1/eta_Y
    for level in 10.0**exponents:
        if rates[0] <= unit / level <= rates[-1]:
            axes.axvline(unit / level, color="white", linestyle="--", linewidth=1.2)
    label(
        axes,
        x="$\\eta_Y$ (learning rate of Y)",
        y="$\\eta_Z$ (learning rate of Z)",
        title="black: measured; white: $t_0$; gray: no snap",
    )
    axes.grid(visible=False)


def _against_theory(dataset: xr.Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """eta_Z/eta_Y of every run that snapped, and its snap time in units of t_0."""
    ratio, units = xr.broadcast(dataset["lr_z"] / dataset["lr_y"], dataset["snap_time"] / dataset["theory"])
    known = np.isfinite(units.values)
    return ratio.values[known], units.values[known]


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
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


FIGURE = ss.FigureRecipe(
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
