"""What all pictures share: colors that the color-blind can tell apart, line styles that survive gray print, labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""

LINES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

KINDS = {"distinct": COLORS[0], "common": COLORS[4]}
"""Distinct tokens are blue and common tokens yellow, as in the paper."""


def line(i: int) -> dict[str, Any]:
    """Color and style of the i-th line; none is dotted, since dotted lines mark times."""
    styles = [style for style in LINES if style != ":"]
    return {"color": COLORS[i % len(COLORS)], "linestyle": styles[i % len(styles)]}


def label(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Set labels, ticks and grid at sizes that can be read in print."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def log_axis(axes: Axes, values: NDArray[np.floating]) -> None:
    """Make the x axis logarithmic, with ticks at these values only."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def legend(axes: Axes, **options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 8, **options})


def draw_band(axes: Axes, band: xr.DataArray, i: int, name: str) -> None:
    """Draw the median and the range of many curves over `step`, as `statistics.band` gives them, in the i-th color."""
    low, median, high = band.transpose("band", "step").values
    axes.fill_between(band["step"].values, low, high, color=COLORS[i % len(COLORS)], alpha=0.25, linewidth=0)
    axes.plot(band["step"].values, median, **line(i), linewidth=1.6, label=name)
