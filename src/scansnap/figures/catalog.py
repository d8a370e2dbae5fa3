"""The figures of this package by name, and those of a user's file; a figure's module is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from scansnap.figures.picture import save_picture
from scansnap.figures.recipe import FigureRecipe
from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.user_code import run_user_file

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

SYNTHETIC = {
    "2": "fig_2",
    "3": "fig_3",
    "4": "fig_4",
    "5": "fig_5",
    "6": "fig_6",
    "8": "fig_8",
    "9": "fig_9",
    "11": "fig_11",
    "12": "fig_12",
    "normalization": "beyond.normalization",
    "optimizers": "beyond.optimizers",
    "finite_data": "beyond.finite_data",
    "heads": "beyond.heads",
    "layers": "beyond.layers",
    "phase_diagram": "beyond.phase_diagram",
}
"""The modules of the figures made from runs of `train` and `flow` and from formulas."""

TEXT = {
    "7": "fig_7",
    "10": "fig_10",
}
"""The modules of the figures made from a text, which the user must give."""

MODULES = {**SYNTHETIC, **TEXT}

ON_TENSORS = ("layers", *TEXT)
"""The figures that cannot be made without PyTorch."""

NUMBERED = tuple(sorted((name for name in MODULES if name.isdigit()), key=int))
"""The figures of the paper."""

BEYOND = tuple(name for name in MODULES if not name.isdigit())
"""The figures about questions that the paper names and leaves open."""

ENDINGS = (".png", ".pdf")


def recipe(figure: str | FigureRecipe) -> FigureRecipe:
    """The figure of this package with that name; a recipe is returned as it is."""
    if isinstance(figure, FigureRecipe):
        return figure
    if figure not in MODULES:
        raise unknown("figure", figure, MODULES)
    return _recipes(import_module(f"scansnap.figures.{MODULES[figure]}"))[figure]


def recipe_from(file: Path, name: str) -> FigureRecipe:
    """The figure with that name in a user's Python file."""
    recipes = _recipes(run_user_file(file))
    if not recipes:
        raise InputError(f"{file} holds no figure: assign a FigureRecipe to a name at its top level.")
    if name not in recipes:
        raise unknown(f"figure of {file}", name, recipes)
    return recipes[name]


def _recipes(module: ModuleType) -> dict[str, FigureRecipe]:
    return {value.name: value for value in vars(module).values() if isinstance(value, FigureRecipe)}


def heading(name: str) -> str:
    """What precedes a figure's title: that it is beyond the paper, or its number there."""
    return "Beyond the basic setting" if name in BEYOND else f"Figure {name}"


def numbers(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    """The numbers drawn, as plain data: variables without the dimension `seed`, with their axes; None if not finite."""
    variables = {}
    for name, values in dataset.data_vars.items():
        if "seed" not in values.dims:
            axes = {str(axis): dataset[axis].values.tolist() for axis in values.dims if axis in dataset.coords}
            plain = values.values.astype(object)
            if values.dtype.kind == "f":
                plain[~np.isfinite(values.values)] = None
            variables[str(name)] = {"dimensions": list(values.dims), "axes": axes, "values": plain.tolist()}
    return variables


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.png for the screen and `stem`.pdf for print."""
    return [save_picture(figure, stem.with_name(stem.name + ending)) for ending in ENDINGS]
