"""The figures of Scan and Snap by number, those of other papers by name, and those of a user's file.

`ss.figure` makes one.  A figure's module is imported when it is needed.  A new figure of Scan and Snap needs its module
and one line here; another paper's are found in its module `figure`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.runtime.errors import InputError, unknown
from scansnap.storage.files import MARK, write_output
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

SYNTHETIC = {
    "2": "fig_2",
    "3": "fig_3",
    "4": "fig_4",
    "5": "fig_5",
    "6": "syn_medium",
    "8": "fig_8",
    "9": "fig_9",
    "11": "syn_medium",
    "12": "syn_medium",
}
"""The modules of the paper's figures that are made from runs of `train` and `flow` and from formulas."""

TEXT = {
    "7": "text_figures",
    "10": "text_figures",
}
"""The modules of the paper's figures that are made from a text, which the user must give."""

MODULES = {**SYNTHETIC, **TEXT}

NUMBERED = tuple(sorted((*SYNTHETIC, *TEXT), key=int))
"""The figures of the paper."""

ENDINGS = (".png", ".pdf")
"""The files of a figure: one for the screen and one for print."""


@dataclass(frozen=True)
class FigureResult:
    """A figure that `figure` made.

    >>> result = ss.figure("8")
    >>> [trend.verdict for trend in result.trends if trend.statement == "The gap goes to zero."]
    ['holds']
    """

    recipe: FigureRecipe  # its title, its statement and how it is made
    dataset: xr.Dataset  # all numbers that are drawn
    trends: list[Trend]  # the tests of its statements
    picture: Figure  # a matplotlib figure

    def __str__(self) -> str:
        return "\n".join([self._heading, *map(str, self.trends)])

    @property
    def details(self) -> str:
        """The figure in words, with its setting, and the numbers and the test behind each statement."""
        setting = f"  {self.recipe.setting} ({self.dataset.attrs['seconds']:.1f} s)"
        return "\n".join([self._heading, setting, *(f"{trend}\n{trend.details}" for trend in self.trends)])

    @property
    def _heading(self) -> str:
        return f"Figure {self.recipe.name}: {self.recipe.title}\n  {self.recipe.statement}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "figure": self.recipe.name,
            "title": self.recipe.title,
            "statement": self.recipe.statement,
            "setting": self.recipe.setting,
            "trends": [trend.as_dict() for trend in self.trends],
            "numbers": numbers(self.dataset),
            "seconds": self.dataset.attrs["seconds"],
        }


@validated
def figure(name: str | FigureRecipe, **options: object) -> FigureResult:
    """Make a figure of the paper, of another paper or your own from new runs, and test what it should show.

    Parameters
    ----------
    name : str or FigureRecipe
        The figure's number in the paper, as "6" or "fig_6", the name of another paper's figure, or your own recipe.
    **options
        Options of this figure: `num_seeds` of figures of runs; `text`, `steps`, `device` and `precision` of figures
        that train on a text.

    Returns
    -------
    FigureResult
        The numbers as a Dataset, the picture as a matplotlib Figure, and the tests of the figure's statements.

    Examples
    --------
    >>> result = ss.figure("8")
    >>> result.recipe.title
    'Growth of the decoder step by step and in continuous time'
    >>> result.picture.savefig("figure_8.png")
    """
    made = recipe(name)
    dataset = made.make(**options)
    return FigureResult(made, dataset, made.trends(dataset), made.draw(dataset))


def recipe(figure: str | FigureRecipe) -> FigureRecipe:
    """The figure with that name; a recipe is returned as it is."""
    if isinstance(figure, FigureRecipe):
        return figure
    name = figure.removeprefix("fig_")
    if name in MODULES:
        return _recipes(import_module(f"scansnap.figures.{MODULES[name]}"))[name]
    if name in own_paper_recipes():
        return own_paper_recipes()[name]
    if name not in installed_recipes():
        raise unknown("figure", figure, [*NUMBERED, *own_paper_recipes(), *installed_recipes()])
    return installed_recipes()[name]


@cache
def own_paper_recipes() -> dict[str, FigureRecipe]:
    """The figures of the other papers in this package."""
    from scansnap.systems.catalog import OWN_PAPERS, collect_from_papers

    return collect_from_papers("figure", _recipes, OWN_PAPERS)


@cache
def installed_recipes() -> dict[str, FigureRecipe]:
    """The figures of installed papers."""
    from scansnap.systems.catalog import collect_from_papers, installed_papers

    return collect_from_papers("figure", _recipes, installed_papers(), (*MODULES, *own_paper_recipes()))


def recipe_from(file: Path, name: str) -> FigureRecipe:
    """The figure with that name in a user's Python file."""
    from scansnap.validation.user_code import run_user_file

    recipes = _recipes(run_user_file(file))
    if not recipes:
        raise InputError(f"{file} holds no figure: assign a FigureRecipe to a name at its top level.")
    if name not in recipes:
        raise unknown(f"figure of {file}", name, recipes)
    return recipes[name]


def _recipes(module: ModuleType) -> dict[str, FigureRecipe]:
    return {value.name: value for value in vars(module).values() if isinstance(value, FigureRecipe)}


def numbers(dataset: xr.Dataset) -> dict[str, dict[str, Any]]:
    """The numbers of a figure as plain data, with their axes; None if not finite.

    Of what was measured for each seed, these are the mean and its standard error, as `name_mean` and `name_error`.
    """
    import numpy as np

    from scansnap.figures.style import mean_and_error

    shown = {}
    for name, values in dataset.data_vars.items():
        if "seed" not in values.dims:
            shown[str(name)] = values
        elif values.dtype.kind == "f":
            shown[f"{name}_mean"], shown[f"{name}_error"] = mean_and_error(values)
    variables = {}
    for name, values in shown.items():
        axes = {str(axis): dataset[axis].values.tolist() for axis in values.dims if axis in dataset.coords}
        plain = values.values.astype(object)
        if values.dtype.kind == "f":
            plain[~np.isfinite(values.values)] = None
        variables[name] = {"dimensions": list(values.dims), "axes": axes, "values": plain.tolist()}
    return variables


def save_picture(figure: Figure, target: Path, where: str = "") -> Path:
    """Write a matplotlib figure atomically; the ending of the file name decides the format.

    `where` ends the message of an error.
    """
    buffer, form = io.BytesIO(), target.suffix[1:].lower()
    figure.savefig(buffer, dpi=150, format=form, metadata={"Software" if form == "png" else "Creator": MARK})
    write_output(target, buffer.getvalue(), where)
    return target
