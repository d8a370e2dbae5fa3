"""The picture of any system's runs: every recorded quantity over steps or time, one panel each."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.figures.style import label, legend, line, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LINES = 7
"""Lines in a panel: of more runs or entries, evenly spaced ones are drawn."""


def draw(dataset: xr.Dataset) -> Figure:
    """Draw each variable: the runs where it is one number, and otherwise the entries of the first run."""
    from matplotlib.figure import Figure as NewFigure

    dataset, axis = _without_single_entries(dataset)
    names = sorted(map(str, dataset.data_vars), key=lambda name: name != "loss")  # the loss first
    rows = math.ceil(len(names) / 3)
    figure = NewFigure(figsize=(4.2 * min(len(names), 3), 2.6 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, min(len(names), 3), squeeze=False)).ravel()
    for panel, name in zip(panels, names, strict=False):
        values = dataset[name]
        entries = [str(dim) for dim in values.dims if dim not in ("run", axis)]
        lines = (values.isel(run=0).stack(line=entries) if entries else values.rename(run="line")).transpose(
            "line", axis
        )
        shown = np.unique(np.linspace(0, lines.sizes["line"] - 1, MOST_LINES).astype(int))
        for i, entry in enumerate(shown):
            text = _name(lines.isel(line=int(entry)), entries)
            panel.plot(dataset[axis].values, lines.values[entry], **line(i), linewidth=1.4, label=text)
        if axis == "time":
            panel.set_xscale("log")
        if name == "loss" and (values.values[np.isfinite(values.values)] > 0).all():
            panel.set_yscale("log")
        units = values.attrs.get("units", "1")
        words = values.attrs.get("long_name", str(name)) + ("" if units == "1" else f" ({units})")
        title = "\n".join(textwrap.wrap(plain(words, 120), 44))
        label(panel, "step" if axis == "step" else "time (expected steps)", "", title)
        if len(shown) > 1:
            legend(panel, title=None if entries else "run", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for panel in panels[len(names) :]:
        panel.remove()
    return figure


def _name(entry: xr.DataArray, entries: list[str]) -> str:
    if not entries:
        return str(entry["line"].item())
    return ", ".join(f"{dim} {plain(entry[dim].item(), 12)}" for dim in entries)


def _without_single_entries(dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
    """The dataset without dimensions of one entry, such as the only query, and the name of its time axis."""
    axis = "time" if "time" in dataset.dims else "step"
    single = [dim for dim, size in dataset.sizes.items() if size == 1 and dim not in ("run", axis)]
    return dataset.squeeze(single, drop=True), axis


def changes(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Each run's rates, seed, status, and how every quantity that is one number changed.

    Those are its first and last value, and between them its most extreme one with its step or time, if that lies beyond
    both by more than a tenth of the range.
    """
    dataset, axis = _without_single_entries(dataset)
    scalars = [str(name) for name, values in dataset.data_vars.items() if set(values.dims) == {"run", axis}]
    rates = [str(name) for name in dataset.coords if str(name).startswith("lr")]
    return [
        {
            "run": r,
            "rates": {name: float(dataset[name][r]) for name in rates},
            "seed": int(dataset["seed"][r]),
            "status": str(dataset["status"].values[r]),
            "changes": {name: _change(dataset[name].values[r], dataset[axis].values) for name in scalars},
        }
        for r in range(dataset.sizes["run"])
    ]


def _change(values: NDArray[Any], times: NDArray[Any]) -> dict[str, Any]:
    first, last = float(values[0]), float(values[-1])
    change: dict[str, Any] = {"first": first, "last": last}
    if not np.isfinite(values).all():
        return change
    beyond = np.maximum(values - max(first, last), min(first, last) - values)
    turn = int(beyond.argmax())
    if beyond[turn] > 0.1 * np.ptp(values):
        change |= {"turn": float(values[turn]), "turned_at": times[turn].item()}
    return change
