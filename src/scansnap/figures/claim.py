"""A claim's picture: what is predicted and what exact dynamics give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from scansnap.claims.claim import Verdict
from scansnap.errors import InputError
from scansnap.figures.style import COLOURS, LINES, readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def prepare(verdict: Verdict) -> xr.Dataset:
    """The claim's lines over one axis."""
    if verdict.curve is None:
        raise InputError(f"{verdict.id} has no picture: its numbers say it all.")
    curve = verdict.curve
    return xr.Dataset(
        {"value": (("line", "x"), np.array(list(curve.lines.values())))},
        coords={"x": curve.x, "line": [readable(name) for name in curve.lines]},
        attrs={
            "title": f"{verdict.id}: {verdict.verdict}",
            "statement": readable(verdict.claim.statement),
            "x_label": readable(curve.x_label),
            "y_label": readable(curve.y_label),
            "marks": json.dumps(dict(curve.marks)),
            "log_x": int(curve.log_x),
            "log_y": int(curve.log_y),
        },
    )


def draw(dataset: xr.Dataset) -> Figure:
    """The picture of what `prepare` gives."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    for i, name in enumerate(dataset["line"].values):
        values = dataset["value"].values[i]
        few = len(values) <= 12
        axes.plot(dataset["x"].values, values, color=COLOURS[i % 7], linestyle=LINES[i % 7], label=str(name),
                  marker="o" if few else None, linewidth=1.8)  # fmt: skip
    for i, (name, place) in enumerate(json.loads(dataset.attrs["marks"]).items()):
        axes.axvline(place, color="grey", linestyle=":", linewidth=1)
        axes.text(place, 0.98 - 0.05 * i, f" ${name}$", transform=axes.get_xaxis_transform(), va="top", fontsize=9,
                  color="grey")  # fmt: skip
    axes.set_xscale("log" if dataset.attrs["log_x"] else "linear")
    axes.set_yscale("log" if dataset.attrs["log_y"] else "linear")
    axes.set_xlabel(dataset.attrs["x_label"])
    axes.set_ylabel(dataset.attrs["y_label"])
    axes.grid(alpha=0.3)
    if dataset.sizes["line"] > 1:
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    figure.suptitle(dataset.attrs["title"], fontsize=11)
    axes.set_title(dataset.attrs["statement"], fontsize=8, wrap=True)
    return figure
