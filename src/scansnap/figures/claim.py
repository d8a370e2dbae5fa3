"""The picture of a claim: what it predicts, and what exact dynamics give.

Most claims have lines over an axis.  Where two overlap, a panel below shows their relative difference.  For the others
the picture shows how far each comparison is from failing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scansnap.claims.check import ROLES, Curve, Measurement
from scansnap.claims.claim import Verdict
from scansnap.figures.style import COLORS, LINES, MARKERS, label, mathtext, plain, plain_ticks, widen_axis, wrapped
from scansnap.runtime.errors import InputError
from scansnap.runtime.formulas import readable

MOST_USED = 1e12
"""The largest ratio of a deviation to the allowed one that is drawn to scale; where none is allowed it is infinite."""

CLOSE = 0.01
"""Two lines whose distance is at most this share of the axis look like one."""

ROUNDING = 1e-12


def _differences(values: NDArray[np.float64], log: bool) -> NDArray[np.float64]:
    """The relative difference of each line from the first line that it overlaps; NaN where it overlaps none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.where(values > 0, np.log(values), np.nan) if log else values
    span = np.nanmax(drawn) - np.nanmin(drawn) if np.isfinite(drawn).any() else 0.0
    differences = np.full_like(values, np.nan)
    for i in range(1, len(values)):
        for j in range(i):
            both = np.isfinite(drawn[i]) & np.isfinite(drawn[j])
            if both.any() and np.abs(drawn[i] - drawn[j])[both].max() <= CLOSE * span:
                size = np.maximum(np.abs(values[i]), np.abs(values[j]))
                difference = np.abs(values[i] - values[j])
                counts = size > ROUNDING * size[both].max()  # beside a zero every difference is large
                differences[i] = np.divide(difference, size, out=np.zeros_like(size), where=counts)
                break
    return differences


def _words(measurement: Measurement) -> str:
    """The deviation in words, which depend on the kind of comparison."""
    deviation, allowed = f"{measurement.deviation:.2g}", f"{measurement.allowed:.2g}"
    predicted, measured = f"{measurement.predicted:.2g}", f"{measurement.measured:.2g}"
    if measurement.kind == "equal":
        return f"off by {deviation}, allowed {allowed}"
    if measurement.kind == "positive":
        return f"wrong sign: {deviation} of all, allowed {allowed}"
    return f"{measured}, {measurement.kind} {predicted}"


def draw(verdict: Verdict) -> Figure:
    """The claim's lines over one axis, or its comparisons where it has none."""
    if verdict.reason:
        raise InputError(f"there is nothing to draw: {verdict.reason}")
    curve = verdict.curve
    if curve is None:
        figure = Figure(figsize=(8.0, 1.9 + 0.5 * len(verdict.measurements)), layout="constrained")
        axes = figure.add_subplot()
        _draw_comparisons(axes, verdict.measurements)
    else:
        differences = _differences(np.array(list(curve.lines.values()), np.float64), curve.log_y)
        close = bool(np.isfinite(differences).any())
        figure = Figure(figsize=(8.0, 6.4 if close else 5.0), layout="constrained")
        grid = figure.add_gridspec(2 if close else 1, 1, height_ratios=(2.6, 1) if close else None)
        axes = figure.add_subplot(grid[0])
        _draw_lines(axes, curve)
        if close:
            _draw_differences(figure.add_subplot(grid[1], sharex=axes), curve.x, differences)
    if curve is None or len(curve.lines) > 1:
        figure.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    figure.suptitle(plain(f"{verdict.id}: {verdict.verdict}", 100), fontsize=11)
    axes.set_title(wrapped(readable(verdict.claim.statement), 90 if curve is None else 130), fontsize=8)
    return figure


def _draw_lines(axes: Axes, curve: Curve) -> None:
    for i, (name, values) in enumerate(curve.lines.items()):
        look: dict[str, Any] = {"linestyle": LINES[i % 7], "linewidth": 1.8}
        if len(values) <= 12 and not curve.dots:
            look["marker"] = "o"
        if name in curve.dots:
            look = {"linestyle": "none", "marker": MARKERS[i % 7], "markersize": 5, "fillstyle": "none", "zorder": 3}
        axes.plot(curve.x, values, color=COLORS[i % 7], label=mathtext(readable(name)), **look)
    for i, (name, place) in enumerate(curve.marks.items()):
        axes.axvline(place, color="gray", linestyle=":", linewidth=1)
        axes.text(
            place,
            0.98 - 0.06 * i,
            f" {mathtext(readable(name))}",
            fontsize=9,
            color="0.35",
            transform=axes.get_xaxis_transform(),
            va="top",
        )
    axes.set_xscale("log" if curve.log_x else "linear")
    axes.set_yscale("log" if curve.log_y else "linear")
    widen_axis(axes)
    for axis, is_log in ((axes.xaxis, curve.log_x), (axes.yaxis, curve.log_y)):
        if not is_log:
            axis.set_major_formatter("{x:g}")  # small numbers in full: readers overlook a factor beside the axis
        plain_ticks(axis)
    axes.set_xlabel(mathtext(readable(curve.x_label)))
    axes.set_ylabel(wrapped(readable(curve.y_label), 44))
    axes.grid(alpha=0.3)


def _draw_differences(axes: Axes, x: NDArray[np.float64], differences: NDArray[np.float64]) -> None:
    """The relative difference between overlapping lines, each in its own color."""
    positive = np.where(differences > 0, differences, np.nan)
    for i, difference in enumerate(differences):
        if np.isfinite(difference).any():
            axes.plot(x, positive[i], color=COLORS[i % 7], linestyle="none", marker=".", markersize=4)
    if not np.isfinite(positive).any():
        axes.text(0.5, 0.5, "no difference", transform=axes.transAxes, ha="center", va="center", fontsize=9)
        axes.set_yticks([])
    else:
        axes.set_yscale("log")
        low, high = np.floor(np.log10(np.nanmin(positive))), np.ceil(np.log10(np.nanmax(positive)))
        axes.set_ylim(10.0**low, 10.0 ** max(low + 1, high))
        axes.yaxis.set_minor_formatter("")
    label(axes, y="relative\ndifference", title="relative difference between overlapping lines")


def _draw_comparisons(axes: Axes, measurements: Sequence[Measurement]) -> None:
    """A dot for each comparison on a log axis; at its ends where there is no deviation, or one off the scale.

    The ratio is that of the deviation to the allowed one; where none is allowed it is zero for none and infinite for
    any.
    """
    deviation, allowed = (np.array([getattr(m, name) for m in measurements]) for name in ("deviation", "allowed"))
    used = np.divide(deviation, allowed, out=np.where(deviation > 0, np.inf, 0.0), where=allowed > 0)
    inside = used[(used > 0) & (used <= MOST_USED)]
    low = 10 ** (np.floor(np.log10(inside.min(initial=0.1))) - 0.7)
    high = 10 ** (np.ceil(np.log10(inside.max(initial=10.0))) + 0.7)
    at, places = np.clip(np.nan_to_num(used, nan=np.inf), low, high), np.arange(len(used))[::-1]
    roles = np.array([measurement.role for measurement in measurements])
    for i, (role, words) in enumerate(ROLES.items()):
        if (roles == role).any():  # the layout reserves space for dots that are not clipped, even if there are none
            style: dict[str, Any] = {"color": COLORS[i], "markersize": 8, "clip_on": False, "zorder": 3}
            axes.plot(at[roles == role], places[roles == role], "o", **style, label=words)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axvspan(1.0, high, color="gray", alpha=0.12, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(-0.6, len(used) - 0.4)
    axes.set_yticks(places, [wrapped(readable(measurement.label), 34) for measurement in measurements], fontsize=8)
    axes.tick_params(axis="y", pad=8)  # beside the dots
    for place, measurement in zip(places, measurements, strict=True):
        axes.annotate(
            _words(measurement).replace(", ", "\n"),
            (1, place),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            xytext=(9, 0),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xlabel("deviation / allowed; fails in the gray part; at the ends: none, or off the scale")
    axes.grid(alpha=0.3, axis="x")
