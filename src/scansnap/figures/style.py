"""What all pictures share: colors that the color-blind can tell apart, line styles that survive gray print, labels."""

from __future__ import annotations

import math
import re
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

from scansnap.runtime.errors import printable
from scansnap.runtime.formulas import SYMBOL, readable, unwrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
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
"""The smallest range of an axis, as a share of its largest value: a tiny change must not fill the picture."""


def widened_range(low: float, high: float) -> tuple[float, float]:
    """The ends of a scale, moved apart if their distance is below `LEAST_SPAN`."""
    span, middle = max(high - low, LEAST_SPAN * max(abs(low), abs(high))), (low + high) / 2
    return (low, high) if span == high - low else (middle - span / 2, middle + span / 2)


def widen_axis(axes: Axes) -> None:
    """Widen the y axis if its range is small, so that a small change does not look large."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear":
        axes.set_ylim(*widened_range(low, high))
    elif high < 2 * low:
        axes.set_ylim(math.sqrt(low * high / 2), math.sqrt(2 * low * high))


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


def legend(axes: Axes, *handles_and_names: Any, **options: Any) -> None:
    """Add a legend without a frame, of the lines of these axes or of those given."""
    axes.legend(*handles_and_names, **{"frameon": False, "fontsize": 8, "title_fontsize": 8, **options})


COLOR_MAP = "viridis"
"""The color map of all pictures."""


def attention_colors(top: float = 1.0) -> dict[str, Any]:
    """The color map and scale of attention: its square root, from 0 to the largest share in the picture.

    The square root shows small shares too: attention that is uniform over 35 tokens gives each 0.03.
    """
    from matplotlib.colors import PowerNorm

    return {"cmap": COLOR_MAP, "norm": PowerNorm(0.5, 0.0, top)}


def attention_bar(axes: Sequence[Axes], image: ScalarMappable, **options: Any) -> None:
    """Add a color bar to panels that have `attention_colors`."""
    top = image.get_clim()[1] or 0.0
    ticks = [tick for tick in (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0) if tick <= top]
    color_bar(axes, image, "attention (share, √ scale)", ticks=ticks, **options)


def color_bar(axes: Sequence[Axes], image: ScalarMappable, words: str, **options: Any) -> None:
    """Add a color bar to panels, with its label."""
    bar = axes[0].figure.colorbar(image, ax=axes, **options)
    bar.set_label(words, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    if "ticks" in options:
        bar.set_ticks(options["ticks"], labels=[f"{tick:g}" for tick in options["ticks"]])


def mean_and_error(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The mean over the dimension `seed` and its standard error."""
    return values.mean("seed"), values.std("seed", ddof=1, skipna=False) / values.sizes["seed"] ** 0.5


def points(
    axes: Axes, x: ArrayLike, mean: ArrayLike, error: ArrayLike | None, i: int, name: str, **options: Any
) -> None:
    """Draw numbers with error bars in the i-th color and marker, joined by a line."""
    style = {**line(i), "marker": MARKERS[i], "markersize": 4, "capsize": 2, "linewidth": 1.4, "label": name}
    axes.errorbar(x, mean, error, **{**style, **options})


BAND = (0.05, 0.5, 0.95)
"""The quantiles that a picture shows in place of many curves."""


def draw_band(axes: Axes, values: xr.DataArray, i: int, name: str) -> None:
    """Draw the median of many curves (seed, step) and their range from 5% to 95%, in the i-th color."""
    low, median, high = values.quantile(list(BAND), "seed").transpose("quantile", "step").values
    axes.fill_between(values["step"].values, low, high, color=COLORS[i % len(COLORS)], alpha=0.25, linewidth=0)
    axes.plot(values["step"].values, median, **line(i), linewidth=1.6, label=name)


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
