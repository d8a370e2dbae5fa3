"""What a figure says and how it is made, for the figures of this package and for a user's own.

A Python file that assigns a recipe to a name at its top level,

    FIGURE = FigureRecipe(name="mine", title=..., statement=..., setting=..., prepare=prepare, draw=draw, trends=trends)

can be run with `scansnap figure --from that_file.py mine`.  Every figure of this package is made in the same way.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING

from scansnap.runtime.errors import InputError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from scansnap.figures.trend import Trend


@dataclass(frozen=True, kw_only=True)
class FigureRecipe:
    """A figure: its words, its numbers, its picture, and the tests of what it is said to show.

    >>> from scansnap.figures.catalog import recipe
    >>> recipe("9").title
    'B_n over time with both rates scaled together'
    """

    name: str  # the commands call the figure by it, and its files are named for it
    title: str
    statement: str  # what the figure shows, according to the paper; in our words
    setting: str  # the runs or the formulas that it is made from
    prepare: Callable[..., xr.Dataset]  # computes all numbers; every option is a keyword with a default
    draw: Callable[[xr.Dataset], Figure]  # computes nothing
    trends: Callable[[xr.Dataset], list[Trend]]  # a test of each statement

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.name):
            raise InputError(f"the name of a figure is '{self.name}': use letters, digits, _ and -, as in file names.")

    def takes(self, option: str) -> bool:
        """Whether `prepare` has that option; a figure made from formulas alone has no `num_seeds`."""
        return option in signature(self.prepare).parameters

    def make(self, **options: object) -> xr.Dataset:
        """The dataset of `prepare` with the attributes of a result.

        The options are those that `prepare` left there, or those given; the time includes that of any `runs` given.
        """
        from scansnap.results.dataset import attributes

        began = time.perf_counter()
        dataset = self.prepare(**options)
        seconds = time.perf_counter() - began + getattr(options.get("runs"), "attrs", {}).get("seconds", 0.0)
        stated = json.loads(dataset.attrs["options"]) if "options" in dataset.attrs else options
        words = {**stated, "record": [str(name) for name in dataset.data_vars]}
        return dataset.assign_attrs(attributes("figure", self.title, words, seconds=round(seconds, 3)))
