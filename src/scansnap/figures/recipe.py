"""What a figure is made of: a recipe, tests of its statements, the setting of its runs and published numbers.

A Python file that assigns a recipe to a name at its top level,

    FIGURE = FigureRecipe(name="mine", title=..., statement=..., setting=..., prepare=prepare, draw=draw, trends=trends)

can be run with `scansnap figure --from that_file.py mine`.  Every figure of this package is made in the same way.
"""

from __future__ import annotations

import csv
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.resources import files
from inspect import signature
from typing import TYPE_CHECKING, Any

from scansnap.runtime.errors import InputError, number_text

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from scansnap.dynamics.options import TrainOptions


@dataclass(frozen=True)
class Trend:
    """A statement about a figure with the result of a test that can fail.

    >>> ss.Trend("It grows.", "above 0", 1.0, None, None, holds=True, note="exact").verdict
    'holds'
    """

    statement: str  # what the paper says of the figure, in our words
    expected: str  # what `measured` should be
    measured: float
    standard_error: float | None  # None where nothing is random
    p_value: float | None  # of the test that `note` names; None where nothing is random
    holds: bool
    note: str  # the test, its sample size, and the exceptions by name
    settled: bool = True  # False where more seeds are needed: it does not hold, but nothing significant contradicts it

    @property
    def verdict(self) -> str:
        """Holds, fails, or not settled."""
        return "holds" if self.holds else "fails" if self.settled else "not settled"

    @property
    def mark(self) -> str:
        """The verdict as a sign: ✓, ✗ or ?."""
        return {"holds": "✓", "fails": "✗", "not settled": "?"}[self.verdict]

    @property
    def measured_text(self) -> str:
        """The measured value with its standard error, if it has one."""
        has_error = self.standard_error is not None and math.isfinite(self.standard_error)
        return number_text(self.measured, ".4g") + (f" ± {self.standard_error:.2g}" if has_error else "")

    @property
    def p_text(self) -> str:
        """The p-value to two digits, `below 0.001` if it is; empty if there is none."""
        if self.p_value is None:
            return ""
        return "below 0.001" if self.p_value < 0.001 else number_text(self.p_value, ".2g")

    def __str__(self) -> str:
        return f"{self.mark} {self.statement}" + (" (not settled)" if self.verdict == "not settled" else "")

    @property
    def details(self) -> str:
        """The numbers and the test behind the statement."""
        p_value = f", p {self.p_text}" if self.p_text else ""
        return f"    {self.verdict}: {self.measured_text}{p_value} (expected: {self.expected})\n    {self.note}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        values = {**asdict(self), "verdict": self.verdict}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


@dataclass(frozen=True, kw_only=True)
class FigureRecipe:
    """A figure: its texts, its numbers, its picture, and the tests of its statements.

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

    def check_options(self, *names: str) -> None:
        """Refuse options that `prepare` does not have."""
        for name in names:
            if not self.takes(name):
                raise InputError(f"figure {self.name} does not use {name}: leave it out.")

    def make(self, **options: object) -> xr.Dataset:
        """The dataset of `prepare` with the attributes of a result.

        Its options are those of the runs that it was made from, if `prepare` left them there, and those of `prepare`;
        the time includes that of any `runs` given.
        """
        from scansnap.storage.provenance import attributes

        self.check_options(*options)
        began = time.perf_counter()
        dataset = self.prepare(**options)
        seconds = time.perf_counter() - began + getattr(options.get("runs"), "attrs", {}).get("seconds", 0.0)
        stated = {name: given.default for name, given in signature(self.prepare).parameters.items()} | options
        used = json.loads(dataset.attrs.get("options", "{}"))
        used |= {name: value for name, value in stated.items() if isinstance(value, int | float | str | tuple | list)}
        recorded = {**used, "record": [str(name) for name in dataset.data_vars]}
        return dataset.assign_attrs(attributes("figure", self.title, recorded, seconds=round(seconds, 3)))


def setting_in_words(setting: TrainOptions) -> str:
    """The setting's batches, start and length in words: `batch 128, T = 128, zero start, 100 updates`."""
    start = "zero start" if setting.init == "zeros" else "start uniform in ±1/√M"
    return f"batch {setting.batch_size}, T = {setting.seq_len:g}, {start}, {setting.steps} updates"


def read_published(name: str) -> list[dict[str, float]]:
    """The rows of `published/name.csv`: numbers from the paper and its authors' logs, with the source in the file."""
    text = files("scansnap.figures").joinpath("published", f"{name}.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(lines)]
