"""What all pictures share: colors that the color-blind can tell apart, line styles that survive gray print, labels."""

from __future__ import annotations

import math
import re
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from scansnap.runtime.errors import printable
from scansnap.runtime.formulas import RAISED, SYMBOL, readable, unwrapped

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import ArrayLike, NDArray

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
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)


LONGEST_NAME = 40
"""Characters of a name; a longer one would push the picture out of its frame."""


def plain(name: object, most: int = LONGEST_NAME) -> str:
    """A user's name as text for a picture: in one line, cut if it is long.

    Dollar signs are escaped, because matplotlib would typeset what is between two of them.
    """
    return printable(str(name), most).replace("$", r"\$")


LEAST_SPAN = 0.1
"""The least span of an honest axis, as a share of its largest value."""


def honest_span(low: float, high: float) -> tuple[float, float]:
    """The ends of a scale, wider if they are nearer to each other than a change that is worth a scale."""
    span, middle = max(high - low, LEAST_SPAN * max(abs(low), abs(high))), (low + high) / 2
    return (low, high) if span == high - low else (middle - span / 2, middle + span / 2)


def honest_axis(axes: Axes) -> None:
    """Widen a linear y axis that a small change fills, so that it does not look like a large one."""
    if axes.get_yscale() != "linear":
        return
    axes.set_ylim(*honest_span(*axes.get_ylim()))


def log_if_wide(axes: Axes, values: ArrayLike) -> None:
    """Make the y axis logarithmic if positive values cover a factor of ten or more."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) and numbers.min() > 0 and numbers.max() >= 10 * numbers.min():
        axes.set_yscale("log")


def plain_ticks(axis: Axis) -> None:
    """Write the ticks of a short logarithmic axis out: 0.2, 0.5, 1 and not 2 × 10⁻¹."""
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log" and high < 100 * low and low > 1e-4 and high < 1e4:
        from matplotlib.ticker import LogLocator

        axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")


def log_axis(axes: Axes, values: NDArray[np.floating]) -> None:
    """Make the x axis logarithmic, with ticks at these values only."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def label_powers(axis: Axis, values: NDArray[np.floating]) -> None:
    """Label a logarithmic axis of these values by powers of ten, in plain text; by more if they are within a decade."""
    positive = values[(values > 0) & (values < math.inf)]
    if positive.size and positive.max() < 10 * positive.min():
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
    else:
        axis.set_major_formatter(lambda value, _: "10" + f"{math.log10(value):.0f}".translate(RAISED))
        axis.set_ticks([], minor=True)


def legend(axes: Axes, **options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 8, **options})


def draw_band(axes: Axes, band: xr.DataArray, i: int, name: str) -> None:
    """Draw the median and the range of many curves over `step`, as `statistics.band` gives them, in the i-th color."""
    low, median, high = band.transpose("band", "step").values
    axes.fill_between(band["step"].values, low, high, color=COLORS[i % len(COLORS)], alpha=0.25, linewidth=0)
    axes.plot(band["step"].values, median, **line(i), linewidth=1.6, label=name)


SPACE = r"\\ "
BETWEEN_WORDS = re.compile(r"(?<=\w) (?=\w)")
"""Spaces that mathematics would drop and must not; beside signs it sets its own."""


def mathtext(text: str) -> str:
    """A text for a picture with its subscripts and powers set as such: t'_0, eta_Y, x_{T-1}, M^2, (I + E)^{-1}."""
    with_math = SYMBOL.sub(_set, readable(text).replace("$", r"\$"))
    try:
        _parser().parse(with_math)
    except ValueError:  # what a user writes may look like mathematics and be none
        return text.replace("$", r"\$")
    return with_math


def wrapped(text: str, width: int) -> str:
    """A text as `mathtext` gives it, in lines of at most `width` characters."""
    return "\n".join(mathtext(line) for line in textwrap.wrap(text, width))


def _set(match: re.Match[str]) -> str:
    low, high, power = (
        f"{sign}{{{BETWEEN_WORDS.sub(SPACE, unwrapped(match[name]))}}}" if match[name] else ""
        for sign, name in (("_", "low"), ("^", "high"), ("^", "power"))
    )
    if not low and not high and not power:
        return match[0]
    letter = {"sum": "Σ", "max": r"\max", "min": r"\min"}.get(match["letter"], match["letter"] or "")
    return f"${letter}{match['prime'] or ''}{low}{high}{power}$"


@cache
def _parser() -> Any:
    from matplotlib.mathtext import MathTextParser

    return MathTextParser("path")
