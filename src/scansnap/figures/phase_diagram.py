"""Maps of a sweep: two of its axes as the axes of a picture, and what attention came to as the color.

    phase_diagram(ss.sweep("single-common", lr_y=rates, lr_z=rates, times=times, record="attention"))

The picture's axes are any two axes of the sweep, the record axis among them: of the others, seeds and classes are
averaged, and of the records the last is taken.  Theorem 4's times t'_0 and t_0 are drawn where they are lines: over
time against lr_y, and as the lines of equal t_0 where the color is the snap time and an axis is lr_y.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from scansnap import theory
from scansnap.figures.style import COLOR_MAP, color_bar, label, widened_range
from scansnap.results import measure
from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

FEW = 9
"""As many places of an axis have a tick each."""

AVERAGED = ("seed", "class", "layer", "head")

LABELS = {
    "lr_y": "decoder rate $\\eta_Y$",
    "lr_z": "attention rate $\\eta_Z$",
    "lr_y_over_lr_z": "ratio of rates $\\eta_Y/\\eta_Z$",
    "step": "updates",
    "time": "time (batch-1 updates)",
    "snap_time": "when attention snapped (updates)",
    "winner_share": "attention on the winner (share)",
    "entropy": "entropy of attention on distinct tokens (nats)",
    "favored_entropy": "entropy of attention on favored tokens (nats)",
    "loss": "loss (nats)",
}

WITHOUT = {
    "entropy": "its classes have no distinct tokens, so take favored_entropy",
    "favored_entropy": "no token tells its next tokens apart, so give another color",
    "snap_time": "no run has snapped, so run it for longer or give another color",
}
"""What to do where a color has no number at all."""


@validated
def phase_diagram(result: xr.Dataset, *, x: str = "lr_y", y: str = "lr_z", color: str = "snap_time") -> Figure:
    """Draw a map of a sweep.

    Parameters
    ----------
    result : xarray.Dataset
        A result of `sweep`, of training or of flows, which recorded `attention` unless `color` needs none.
    x, y : str
        Two dimensions of the result: axes of the sweep, or its step or time.
    color : str
        snap_time (when attention froze, `measure.snaps`), winner_share (attention on the most attended token),
        favored_entropy (for classes without distinct tokens), or a recorded quantity, such as entropy or loss.

    Examples
    --------
    >>> grid = ss.sweep("syn-small", lr_y=[1, 10], lr_z=[1, 10], steps=20)
    >>> figure = ss.phase_diagram(grid, x="lr_y", y="lr_z", color="entropy")
    """
    from matplotlib.figure import Figure

    values = map_of(result, x, y, color)
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    color_bar([axes], draw_map(axes, values), LABELS.get(color, color))
    return figure


def map_of(result: xr.Dataset, x: str, y: str, color: str) -> xr.DataArray:
    """The numbers of a map (y, x), with the sizes that Theorem 4's times depend on as attributes."""
    record = measure.record_dimension(result)
    axes = [str(name) for name in result["status"].dims]
    for name in (x, y):
        if name not in (*axes, record):
            raise unknown("axis of the map", name, [*axes, record])
        if result[name].dtype.kind not in "iuf":
            raise InputError(f"the axis {name} has names and no numbers: give one with numbers, such as a rate.")
    if x == y:
        raise InputError(f"x and y are both {x}: give two different axes.")
    if color == "snap_time" and record in (x, y):
        raise InputError(f"snap_time is one number for each run: give two axes of the sweep, not {record}.")
    values = _color(result, color)
    if record in values.dims and record not in (x, y):
        values = values.isel({record: -1}, drop=True)
    values = values.mean([name for name in AVERAGED if name in values.dims and name not in (x, y)])
    others = [str(name) for name in values.dims if name not in (x, y)]
    for other in others:
        if values.sizes[other] > 1:
            raise InputError(f"the result varies in {other} too: select one value of it, as result.sel({other}=...).")
    values = values.squeeze(others, drop=True).reset_coords(drop=True).transpose(y, x)
    if not bool(values.notnull().any()):
        raise InputError(f"there is no {color} anywhere in this result: {WITHOUT.get(color, 'give another color')}.")
    return values.rename(color).assign_attrs(_sizes(result))


def default_color(result: xr.Dataset, x: str, y: str) -> str:
    """The first color that a map of the result has numbers for: when it snapped, how sparse it is, its loss."""
    attention = ["snap_time", "favored_entropy"] if "attention" in result else []
    for color in ("snap_time", "entropy", "favored_entropy", "loss"):
        if color in attention or color in result:
            with suppress(InputError):
                return str(map_of(result, x, y, color).name)
    raise InputError("this result has no numbers to map: record attention, entropy or loss.")


def _color(result: xr.Dataset, color: str) -> xr.DataArray:
    if color == "snap_time":
        return measure.snaps(result)["snap_step"]
    if color == "winner_share":
        return measure.top_k_mass(result)
    if color == "favored_entropy":
        return measure.favored_entropy(result)
    if color not in result:
        raise unknown(
            "color of the map", color, ["snap_time", "winner_share", "favored_entropy", *map(str, result.data_vars)]
        )
    return result[color]


def _sizes(result: xr.Dataset) -> dict[str, Any]:
    """M and K, if there is one setting of classes that are equally likely, as Theorem 4 has it."""
    classes = json.loads(result.attrs.get("classes", "{}"))
    if len(classes) != 1 or "class_weight" not in result or len(np.unique(result["class_weight"])) > 1:
        return {}
    ((_, setting),) = classes.items()
    return {"vocab_size": int(setting["vocab_size"]), "num_classes": result.sizes["class"]}


def draw_map(axes: Axes, values: xr.DataArray) -> QuadMesh:
    """Draw a map with its lines; gray where there is no number."""
    from matplotlib.ticker import FixedLocator, NullLocator

    values = values.sortby(list(values.dims))
    y, x = (str(name) for name in values.dims)
    logarithmic = values.name in ("snap_time", "loss")
    shown = values.where(values > 0) if logarithmic else values
    axes.set_facecolor("0.8")
    image = axes.pcolormesh(
        *(_edges(values[name].values) for name in (x, y)),
        shown.values,
        cmap=COLOR_MAP,
        norm="log" if logarithmic else None,
        rasterized=True,
    )
    if not logarithmic:
        image.set_clim(*widened_range(float(shown.min()), float(shown.max())))
    for name, axis, scale in ((x, axes.xaxis, axes.set_xscale), (y, axes.yaxis, axes.set_yscale)):
        places = values[name].values.astype(float)
        if _is_log(places):
            scale("log")
        if len(places) <= FEW:
            axis.set_major_locator(FixedLocator(places.tolist()))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:.3g}")
    notes = _draw_times(axes, values, x, y) if {"vocab_size", "num_classes"} <= set(values.attrs) else []
    if bool(np.isnan(shown.values).any()):
        notes.append("gray: no snap" if values.name == "snap_time" else "gray: no number")
    label(axes, x=LABELS.get(x, x), y=LABELS.get(y, y), title="; ".join(notes))
    axes.grid(visible=False)
    return image


def _draw_times(axes: Axes, values: xr.DataArray, x: str, y: str) -> list[str]:
    """t'_0 and t_0 of Theorem 4, which depend on eta_Y alone; returns what must be said about the lines."""
    sizes = {name: values.attrs[name] for name in ("vocab_size", "num_classes")}
    if "lr_y" not in (x, y):
        return []
    rates = values["lr_y"].values.astype(float)
    rates = rates[rates > 0]
    swapped = y == "lr_y"
    if {x, y} & {"time", "step"}:
        for times, style, name in (
            (theory.scan_end(**sizes, lr_y=rates), "--", "$t'_0$ (Theorem 4)"),
            (theory.snap_start(**sizes, lr_y=rates), "-", "$t_0$ (Theorem 4)"),
        ):
            axes.plot(*((times, rates) if swapped else (rates, times)), color="white", linestyle=style, label=name)
        axes.legend(fontsize=7, loc="best", facecolor="0.25", labelcolor="white", framealpha=0.8)
        axes.set_xlim(*_edges(values[x].values)[[0, -1]])
        axes.set_ylim(*_edges(values[y].values)[[0, -1]])
        return []
    if values.name != "snap_time" or min(values.shape) < 2 or not np.isfinite(values.values).any():
        return []
    exponents = np.log10(values.values)
    levels = 10.0 ** np.arange(np.floor(np.nanmin(exponents)) + 1, np.ceil(np.nanmax(exponents)))
    lines = axes.contour(values[x].values, values[y].values, values.values, levels=levels, colors="black", linewidths=1)
    axes.clabel(lines, fmt=lambda level: f"$10^{{{np.log10(level):.0f}}}$", fontsize=8)
    unit = float(theory.snap_start(**sizes, lr_y=1.0))  # t_0 is in proportion to 1/eta_Y
    for level in levels[(unit / levels >= rates[0]) & (unit / levels <= rates[-1])]:
        line, where = (axes.axhline, axes.get_yaxis_transform) if swapped else (axes.axvline, axes.get_xaxis_transform)
        line(unit / level, color="white", linestyle="--", linewidth=1.2)
        axes.annotate(
            f"$10^{{{np.log10(level):.0f}}}$",
            (0.98, unit / level) if swapped else (unit / level, 0.02),
            xycoords=where(),
            color="white",
            fontsize=8,
            ha="right",
            va="bottom",
            bbox={"facecolor": "0.25", "edgecolor": "none", "alpha": 0.7, "pad": 1.5},
        )
    return ["contours: measured (black), $t_0$ of Theorem 4 (white)"]


def _is_log(places: NDArray[np.float64]) -> bool:
    return bool((places > 0).all() and places[-1] > 4 * places[0])


def _edges(labels: NDArray[Any]) -> NDArray[np.float64]:
    """The edges of cells around places that increase: halfway between them on their axis, as far beyond its ends."""
    places = labels.astype(np.float64)
    on_axis = np.log(places) if _is_log(places) else places
    if len(places) == 1:
        return np.array([places[0] - 0.5, places[0] + 0.5])
    inner = (on_axis[1:] + on_axis[:-1]) / 2
    edges = np.concatenate([[2 * on_axis[0] - inner[0]], inner, [2 * on_axis[-1] - inner[-1]]])
    return np.exp(edges) if _is_log(places) else edges
