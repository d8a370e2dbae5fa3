"""What all pictures share: colours that the colour-blind can tell apart, line styles that print in grey, labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""

LINES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

KINDS = {"distinct": COLOURS[0], "common": COLOURS[4]}
"""Distinct tokens blue, common tokens yellow, as the paper has them."""


def line(i: int) -> dict[str, Any]:
    """Colour and style of the i-th line; none is dotted, which is for times that are marked."""
    styles = [style for style in LINES if style != ":"]
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": styles[i % len(styles)]}


def label(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Labels, ticks and grid at sizes that survive print."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def log_axis(axes: Axes, values: NDArray[np.floating]) -> None:
    """A logarithmic x axis with these values, and no others, on it."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 8, **options})


def draw_band(axes: Axes, band: xr.DataArray, i: int, words: str) -> None:
    """The middle curve and the range of many over `step`: what `statistics.band` gives, in the i-th colour."""
    low, middle, high = band.transpose("band", "step").values
    axes.fill_between(band["step"].values, low, high, color=COLOURS[i % len(COLOURS)], alpha=0.25, linewidth=0)
    axes.plot(band["step"].values, middle, **line(i), linewidth=1.6, label=words)


GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "Gamma": "Γ", "delta": "δ", "Delta": "Δ", "eps": "ε", "zeta": "ζ",
    "eta": "η", "theta": "θ", "Theta": "Θ", "iota": "ι", "lambda": "λ", "nu": "ν", "xi": "ξ", "rho": "ρ",
    "sigma": "σ", "chi": "χ", "omega": "ω", "sqrt": "√", "int": "∫", "infinity": "∞", "<=": "≤", ">=": "≥",
    "->": "→", ">>": "≫", "<<": "≪",
}  # fmt: skip


def readable(text: str) -> str:
    """Plain mathematics with its own signs: eta_Y as η_Y, <= as ≤."""
    words = re.compile("|".join(rf"(?<![A-Za-z]){w}(?![a-z])" if w[0].isalpha() else re.escape(w) for w in GREEK))
    return words.sub(lambda found: GREEK[found.group()], text)
