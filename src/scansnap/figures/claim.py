"""The picture of a claim: what it predicts, and what exact dynamics give.

Most claims have lines over an axis.  For the others the picture shows how far each comparison is from failing.
"""

from __future__ import annotations

import json
import re
import textwrap

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scansnap.base.errors import InputError
from scansnap.base.formulas import readable
from scansnap.claims.check import ROLES, Curve, Measurement
from scansnap.claims.claim import Verdict
from scansnap.figures.style import COLORS, LINES, MARKERS

MOST_USED = 1e12
"""The largest ratio of a deviation to the allowed one that is drawn to scale; where none is allowed it is infinite."""

SYMBOL = re.compile(r"[A-Za-z]+'?(_[A-Za-z0-9]+)?(/[0-9]+)?")
"""Names of marks that are drawn as mathematics."""


def prepare(verdict: Verdict) -> xr.Dataset:
    """The claim's lines over one axis, or its comparisons where it has none."""
    if verdict.reason:
        raise InputError(f"there is nothing to draw: {verdict.reason}")
    dataset = _comparisons(verdict.measurements) if verdict.curve is None else _lines(verdict.curve)
    return dataset.assign_attrs(title=f"{verdict.id}: {verdict.verdict}", statement=readable(verdict.claim.statement))


def _lines(curve: Curve) -> xr.Dataset:
    return xr.Dataset(
        {"value": (("line", "x"), np.array(list(curve.lines.values())))},
        coords={
            "x": curve.x,
            "line": [readable(name) for name in curve.lines],
            "joined": ("line", [name not in curve.dots for name in curve.lines]),
        },
        attrs={
            "x_label": readable(curve.x_label),
            "y_label": readable(curve.y_label),
            "marks": json.dumps({readable(name): place for name, place in curve.marks.items()}),
            "log_x": int(curve.log_x),
            "log_y": int(curve.log_y),
        },
    )


def _comparisons(measurements: tuple[Measurement, ...]) -> xr.Dataset:
    """The ratio of each deviation to the allowed one; where none is allowed, zero for none and infinite for any."""
    deviation = np.array([measurement.deviation for measurement in measurements])
    allowed = np.array([measurement.allowed for measurement in measurements])
    share = np.divide(deviation, allowed, out=np.where(deviation > 0, np.inf, 0.0), where=allowed > 0)
    return xr.Dataset(
        {"used": ("comparison", share)},
        coords={
            "comparison": [readable(measurement.label) for measurement in measurements],
            "role": ("comparison", [measurement.role for measurement in measurements]),
            "words": ("comparison", [_words(measurement) for measurement in measurements]),
        },
    )


def _words(measurement: Measurement) -> str:
    """The deviation in words, which depend on the kind of comparison."""
    deviation, allowed = f"{measurement.deviation:.2g}", f"{measurement.allowed:.2g}"
    predicted, measured = f"{measurement.predicted:.2g}", f"{measurement.measured:.2g}"
    if measurement.kind == "equal":
        return f"off by {deviation}, allowed {allowed}"
    if measurement.kind == "positive":
        return f"wrong sign: {deviation} of all, allowed {allowed}"
    if measurement.kind == "within":
        return f"outside: {measured} of all, allowed {predicted}"
    return f"{measured}, {measurement.kind} {predicted}"


def draw(dataset: xr.Dataset) -> Figure:
    """Draw what `prepare` returns; texts are shown as they are, whatever signs they have."""
    lines = "line" in dataset.dims
    height = 5.0 if lines else 1.9 + 0.5 * dataset.sizes["comparison"]
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.add_subplot()
    (_draw_lines if lines else _draw_comparisons)(axes, dataset)
    if not lines or dataset.sizes["line"] > 1:
        legend = figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
        for text in legend.get_texts():
            text.set_parse_math(False)
    figure.suptitle(dataset.attrs["title"], fontsize=11)
    axes.set_title(dataset.attrs["statement"], fontsize=8, wrap=True, parse_math=False)
    return figure


def _draw_lines(axes: Axes, dataset: xr.Dataset) -> None:
    for i, (name, joined) in enumerate(zip(dataset["line"].values, dataset["joined"].values, strict=True)):
        values = dataset["value"].values[i]
        few = len(values) <= 12 and dataset["joined"].values.all()
        if joined:
            axes.plot(dataset["x"].values, values, color=COLORS[i % 7], linestyle=LINES[i % 7], label=str(name),
                      marker="o" if few else None, linewidth=1.8)  # fmt: skip
        else:
            axes.plot(dataset["x"].values, values, color=COLORS[i % 7], linestyle="none", label=str(name),
                      marker=MARKERS[i % 7], markersize=5, fillstyle="none", zorder=3)  # fmt: skip
    for i, (name, place) in enumerate(json.loads(dataset.attrs["marks"]).items()):
        symbol = SYMBOL.fullmatch(name) is not None
        axes.axvline(place, color="gray", linestyle=":", linewidth=1)
        axes.text(place, 0.98 - 0.05 * i, f" ${name}$" if symbol else f" {name}", fontsize=9, color="gray",
                  transform=axes.get_xaxis_transform(), va="top", parse_math=symbol)  # fmt: skip
    axes.set_xscale("log" if dataset.attrs["log_x"] else "linear")
    axes.set_yscale("log" if dataset.attrs["log_y"] else "linear")
    for axis, log in ((axes.xaxis, "log_x"), (axes.yaxis, "log_y")):
        if not dataset.attrs[log]:
            axis.set_major_formatter("{x:g}")  # small numbers in full: readers overlook a factor beside the axis
    axes.set_xlabel(dataset.attrs["x_label"], parse_math=False)
    axes.set_ylabel(textwrap.fill(dataset.attrs["y_label"], 44), parse_math=False)
    axes.grid(alpha=0.3)


def _draw_comparisons(axes: Axes, dataset: xr.Dataset) -> None:
    """A dot for each comparison on a log axis, or a triangle at its end for a ratio that it cannot show."""
    used = dataset["used"].values
    inside = (used > 0) & (used <= MOST_USED)
    low = 10 ** (np.floor(np.log10(used[inside].min(initial=0.1))) - 0.7)
    high = 10 ** (np.ceil(np.log10(used[inside].max(initial=10.0))) + 0.7)
    places = np.arange(len(used))[::-1]
    roles = dataset["role"].values
    for i, (role, words) in enumerate(ROLES.items()):
        for shape, in_shape in (("o", inside), ("<", used == 0), (">", ~inside & (used != 0))):
            drawn = in_shape & (roles == role)
            if drawn.any():  # the layout makes room for dots that are not clipped, even where there are none
                at = np.clip(np.nan_to_num(used[drawn], nan=np.inf), low, high)
                axes.plot(at, places[drawn], shape, color=COLORS[i], markersize=8, clip_on=False, zorder=3)
        if (roles == role).any():
            axes.plot([], [], "o", color=COLORS[i], markersize=8, label=words)  # for the legend
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axvspan(1.0, high, color="gray", alpha=0.12, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(-0.6, len(used) - 0.4)
    labels = [textwrap.fill(str(label), 34) for label in dataset["comparison"].values]
    axes.set_yticks(places, labels, fontsize=8, parse_math=False)
    for place, words in zip(places, dataset["words"].values, strict=True):
        axes.annotate(str(words).replace(", ", "\n"), (1, place), xycoords=axes.get_yaxis_transform(), va="center",
                      xytext=(9, 0), textcoords="offset points", fontsize=8)  # fmt: skip
    ends = "; ◀ no deviation" if (used == 0).any() else ""
    ends += "; ▶ off the scale" if (~inside & (used != 0)).any() else ""
    axes.set_xlabel(f"deviation / allowed; fails in the gray part{ends}")
    axes.grid(alpha=0.3, axis="x")
