"""A claim's picture: what is predicted and what exact dynamics give.

Most claims have lines over an axis.  Those that do not are drawn as their comparisons: how far each is from failing.
"""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from scansnap.base.errors import InputError
from scansnap.claims.claim import ROLES, Curve, Measurement, Verdict
from scansnap.figures.style import COLORS, LINES, MARKERS, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_USED = 1e12
"""Up to here what was found over what is allowed is drawn to scale; what nothing is allowed of, for one, is not."""


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
            "marks": json.dumps(dict(curve.marks)),
            "log_x": int(curve.log_x),
            "log_y": int(curve.log_y),
        },
    )


def _comparisons(measurements: tuple[Measurement, ...]) -> xr.Dataset:
    """What was found over what is allowed: zero where nothing is off, infinite where nothing may be and is."""
    found = np.array([one.deviation for one in measurements])
    allowed = np.array([one.allowed for one in measurements])
    # a positive share over an allowed share of zero is infinite, and none of none is none
    share = np.divide(found, allowed, out=np.where(found > 0, np.inf, 0.0), where=allowed > 0)
    return xr.Dataset(
        {"used": ("comparison", share)},
        coords={
            "comparison": [readable(one.label) for one in measurements],
            "role": ("comparison", [one.role for one in measurements]),
            "words": ("comparison", [_words(one) for one in measurements]),
        },
    )


def _words(one: Measurement) -> str:
    """What the deviation is, for this kind of comparison."""
    if one.kind == "equal":
        return f"off by {one.deviation:.2g}, allowed {one.allowed:.2g}"
    if one.kind == "positive":
        return f"wrong sign: {one.deviation:.2g} of all, allowed {one.allowed:.2g}"
    if one.kind == "within":
        return f"outside: {one.measured:.2g} of all, allowed {one.predicted:.2g}"
    return f"{one.measured:.2g}, {one.kind} {one.predicted:.2g}"


def draw(dataset: xr.Dataset) -> Figure:
    """The picture of what `prepare` gives."""
    from matplotlib.figure import Figure

    lines = "line" in dataset.dims
    height = 5.0 if lines else 1.9 + 0.5 * dataset.sizes["comparison"]
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.add_subplot()
    (_draw_lines if lines else _draw_comparisons)(axes, dataset)
    if not lines or dataset.sizes["line"] > 1:
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    figure.suptitle(dataset.attrs["title"], fontsize=11)
    axes.set_title(dataset.attrs["statement"], fontsize=8, wrap=True)
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
        axes.axvline(place, color="grey", linestyle=":", linewidth=1)
        axes.text(place, 0.98 - 0.05 * i, f" {name}" if " " in name else f" ${name}$", fontsize=9, color="grey",
                  transform=axes.get_xaxis_transform(), va="top")  # fmt: skip
    axes.set_xscale("log" if dataset.attrs["log_x"] else "linear")
    axes.set_yscale("log" if dataset.attrs["log_y"] else "linear")
    for axis, log in ((axes.xaxis, "log_x"), (axes.yaxis, "log_y")):
        if not dataset.attrs[log]:
            axis.set_major_formatter("{x:g}")  # small numbers in full: a factor beside the axis is overlooked
    axes.set_xlabel(dataset.attrs["x_label"])
    axes.set_ylabel(textwrap.fill(dataset.attrs["y_label"], 44))
    axes.grid(alpha=0.3)


def _draw_comparisons(axes: Axes, dataset: xr.Dataset) -> None:
    """A dot for each comparison on a log axis; what a log axis cannot show stands as a triangle at its end."""
    used = dataset["used"].values
    inside = (used > 0) & (used <= MOST_USED)
    low = 10 ** (np.floor(np.log10(used[inside].min(initial=0.1))) - 0.7)
    high = 10 ** (np.ceil(np.log10(used[inside].max(initial=10.0))) + 0.7)
    places = np.arange(len(used))[::-1]
    roles = dataset["role"].values
    for i, (role, words) in enumerate(ROLES.items()):
        for shape, mine in (("o", inside), ("<", used == 0), (">", ~inside & (used != 0))):
            chosen = mine & (roles == role)
            if chosen.any():  # the layout makes room for dots that are not clipped, even where there are none
                at = np.clip(np.nan_to_num(used[chosen], nan=np.inf), low, high)
                axes.plot(at, places[chosen], shape, color=COLORS[i], markersize=8, clip_on=False, zorder=3)
        if (roles == role).any():
            axes.plot([], [], "o", color=COLORS[i], markersize=8, label=words)  # for the legend
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axvspan(1.0, high, color="grey", alpha=0.12, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(-0.6, len(used) - 0.4)
    axes.set_yticks(places, [textwrap.fill(str(one), 34) for one in dataset["comparison"].values], fontsize=8)
    for place, words in zip(places, dataset["words"].values, strict=True):
        axes.annotate(str(words).replace(", ", "\n"), (1, place), xycoords=axes.get_yaxis_transform(), va="center",
                      xytext=(9, 0), textcoords="offset points", fontsize=8)  # fmt: skip
    ends = "; ◀ nothing is off" if (used == 0).any() else ""
    ends += "; ▶ further than that" if (~inside & (used != 0)).any() else ""
    axes.set_xlabel(f"found / allowed; in grey it does not hold{ends}")
    axes.grid(alpha=0.3, axis="x")
