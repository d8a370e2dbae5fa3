"""The paper's figures by number, and those beyond it by name; a module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from scansnap.base.errors import unknown
from scansnap.figures.picture import save_picture

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from scansnap.figures.trend import Trend

NUMBERS = ("2", "3", "4", "5", "6", "8", "9", "11", "12")

BEYOND = ("normalization", "optimisers", "finite_data", "heads", "layers")
"""Figures of what the paper names and leaves open, in `figures/beyond/`."""

SYNTHETIC = (*NUMBERS, *BEYOND)

TEXT = ("7", "10", "tokens")
"""Figures made from a text, which must be given; the last is beyond the paper."""

NAMES = (*SYNTHETIC, *TEXT)

ENDINGS = (".png", ".pdf")


class FigureModule(Protocol):
    """What every module `fig_N`, and every module of `figures/beyond/`, offers."""

    TITLE: str
    STATEMENT: str  # what the paper says that the figure shows, in our words
    SETTING: str
    prepare: Callable[..., xr.Dataset]
    draw: Callable[[xr.Dataset], Figure]
    trends: Callable[[xr.Dataset], list[Trend]]


def module(name: str) -> FigureModule:
    """The figure's module."""
    if name not in NAMES:
        raise unknown("figure", name, NAMES)
    place = f"fig_{name}" if name.isdigit() else f"beyond.{name}"
    return cast(FigureModule, import_module(f"scansnap.figures.{place}"))


def heading(name: str) -> str:
    """What a figure is called: by its number in the paper, or that it is beyond it."""
    return f"Figure {name}" if name.isdigit() else "Beyond the basic setting"


def takes(name: str, option: str) -> bool:
    """Whether the figure's `prepare` has that option: those made of formulas alone have no seeds."""
    return option in signature(module(name).prepare).parameters


def numbers(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    """What is drawn, as plain data: variables without the dimension `seed`, with their axes; None where not finite."""
    found = {}
    for name, values in dataset.data_vars.items():
        if "seed" not in values.dims:
            axes = {str(axis): dataset[axis].values.tolist() for axis in values.dims if axis in dataset.coords}
            listed = values.values.astype(object)
            if values.dtype.kind == "f":
                listed[~np.isfinite(values.values)] = None
            found[str(name)] = {"dimensions": list(values.dims), "axes": axes, "values": listed.tolist()}
    return found


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.png for the screen and `stem`.pdf for print."""
    return [save_picture(figure, stem.with_name(stem.name + ending)) for ending in ENDINGS]
