"""What the studies share: stored runs, tests of statements over seeds, the look of pictures, and their command line."""

from __future__ import annotations

import argparse
import hashlib
import json
import operator
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray
from scipy import stats

import scansnap as ss

FOLDER = Path("results") / "studies"
"""Where runs and pictures are written."""

LEVEL = 0.05
"""The significance level of every test."""

SYN_SMALL = ss.PUBLISHED["syn-small"].options
"""The setting of Figure 4, which several studies change."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def read_text(text: Any) -> Any:
    """The corpus of a path or a name; a corpus is returned as it is."""
    return ss.read_corpus(text) if isinstance(text, str | Path) else text


def stored_training(corpus: Any, options: Any, folder: Path | None) -> Any:
    """The training of these options, stored in a folder under a name of its own, so that it can resume."""
    digest = hashlib.blake2b(repr((corpus.fingerprint, options)).encode(), digest_size=8).hexdigest()
    return ss.text_training(corpus, options, store=None if folder is None else folder / f"{corpus.name}-{digest}.zarr")


def updates_per_pass(corpus: Any, *, batch_size: int, window: int) -> int:
    """The number of updates in one pass of `train_text` over the training text."""
    return (len(corpus.train) // batch_size - 1) // window


def with_options(dataset: xr.Dataset, options: Mapping[str, Any]) -> xr.Dataset:
    """The dataset with the options it was made with among its attributes."""
    return dataset.assign_attrs(options=json.dumps(dict(options)))


def enough_seeds(num_seeds: int) -> int:
    """The number of seeds, which must be at least two: a standard error needs them."""
    if num_seeds < 2:
        raise ss.InputError(f"num_seeds is {num_seeds}: give at least 2.")
    return num_seeds


def p_above_zero(differences: ArrayLike) -> NDArray[np.float64]:
    """p-values of one-sided t tests that the mean over the last axis, the seeds, is above zero."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of differences that are all alike
        test = stats.ttest_1samp(np.asarray(differences, np.float64), 0.0, axis=-1, alternative="greater")
    return np.nan_to_num(test.pvalue, nan=1.0)


def standard_error(values: ArrayLike) -> NDArray[np.float64]:
    """The standard error of the mean over the last axis."""
    return stats.sem(np.asarray(values, np.float64), axis=-1)


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values with Holm's correction."""
    order = np.argsort(p_values)
    corrected = np.empty_like(p_values)
    scaled = np.minimum(1.0, p_values[order] * np.arange(len(p_values), 0, -1))
    corrected[order] = np.maximum.accumulate(scaled)
    return corrected


def rise(statement: str, values: ArrayLike, what: str, *, above: float = 0.0) -> ss.Trend:
    """Whether the mean of values over seeds, often differences, is above a number."""
    v = np.asarray(values, np.float64)
    p, reversed_p = (float(p_above_zero(sign * (v - above))) for sign in (1, -1))
    note = f"{what}; one-sided paired t test over {len(v)} seeds, level {LEVEL:.0%}"
    return ss.Trend(
        statement,
        f"above {above:g}",
        float(v.mean()),
        float(standard_error(v)),
        p,
        p <= LEVEL,
        note,
        settled=min(p, reversed_p) <= LEVEL,
    )


def all_rise(statement: str, labels: Sequence[str], differences: NDArray[np.float64]) -> ss.Trend:
    """Whether all differences (comparisons, seeds) are above zero, with Holm's correction for their number."""
    corrected = holm(p_above_zero(differences))
    above, below = corrected <= LEVEL, holm(p_above_zero(-differences)) <= LEVEL
    means, errors = differences.mean(-1), standard_error(differences)
    exceptions = [
        f"{labels[i]}: {means[i]:+.3g} ± {errors[i]:.2g} ({'reversed' if below[i] else 'not settled'})"
        for i in sorted(np.flatnonzero(~above).tolist(), key=lambda i: not below[i])
    ]
    count, num_seeds = differences.shape
    note = (
        f"one-sided paired t tests over {num_seeds} seeds, Holm's correction for {count}, level {LEVEL:.0%}; "
        f"{int(below.sum())} reversed, {int((~above & ~below).sum())} not settled; "
        + (f"exceptions, with standard errors: {'; '.join(exceptions)}" if exceptions else "no exceptions")
    )
    return ss.Trend(
        statement,
        f"{count} of {count} comparisons",
        float(above.sum()),
        None,
        float(corrected.max()),
        bool(above.all()),
        note,
        bool(above.all() or below.any()),
    )


def majority(statement: str, won: NDArray[np.bool_], what: str) -> ss.Trend:
    """Whether a share of cases is above one half."""
    p = float(stats.binomtest(int(won.sum()), won.size, 0.5, alternative="greater").pvalue)
    note = f"{int(won.sum())} of {won.size} {what}; binomial test against one half"
    error = float(won.std() / np.sqrt(won.size))
    return significant(statement, "above 0.5", float(won.mean()), p, note, error=error)


def significant(
    statement: str, expected: str, measured: float, p: float, note: str, *, error: float | None = None
) -> ss.Trend:
    """Whether the p-value of the test that `note` describes is at most the level."""
    return ss.Trend(statement, expected, measured, error, p, p <= LEVEL, f"{note}, level {LEVEL:.0%}")


RELATIONS = {"below": operator.lt, "above": operator.gt, "at_most": operator.le, "at_least": operator.ge}


def exact(statement: str, measured: float, note: str, **limit: float) -> ss.Trend:
    """Whether a number in which nothing is random is `below=1`, `above`, `at_most` or `at_least`."""
    ((relation, number),) = limit.items()
    holds = bool(RELATIONS[relation](measured, number))
    return ss.Trend(statement, f"{relation.replace('_', ' ')} {number:g}", float(measured), None, None, holds, note)


def line(i: int) -> dict[str, Any]:
    """Color and style of the i-th line."""
    return {"color": COLORS[i % len(COLORS)], "linestyle": LINES[i % len(LINES)]}


def label(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Set labels, ticks and grid at sizes that can be read in print."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)


def legend(axes: Axes, **options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 8, "title_fontsize": 8, **options})


def draw_means(axes: Axes, x: ArrayLike, values: xr.DataArray, i: int, name: str) -> None:
    """Draw the mean over seeds with its standard error, in the i-th color and marker."""
    mean, error = values.mean("seed"), values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
    axes.errorbar(x, mean, error, **line(i), marker=MARKERS[i], markersize=4, capsize=2, label=name)


def draw_band(axes: Axes, values: xr.DataArray, i: int, name: str) -> None:
    """Draw the median of many curves (seed, step) and their range from 5% to 95%, in the i-th color."""
    low, median, high = values.quantile([0.05, 0.5, 0.95], "seed").transpose("quantile", "step").values
    axes.fill_between(values["step"], low, high, color=line(i)["color"], alpha=0.25, linewidth=0)
    axes.plot(values["step"], median, **line(i), label=name)


def log_axis(axes: Axes, values: NDArray[np.floating]) -> None:
    """Make the x axis logarithmic, with ticks at these values only."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def command(figure: ss.FigureRecipe) -> None:
    """Make the figure of a study from a text, print its statements and save its picture."""
    parser = argparse.ArgumentParser(description=figure.title)
    parser.add_argument("text", help="a text file, a folder of text files, or a name that read_corpus knows")
    parser.add_argument("--num-seeds", type=int)
    parser.add_argument("--steps", type=int, help="updates of each run")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    options = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    dataset = figure.make(**options)
    for trend in figure.trends(dataset):
        print(f"{trend.verdict}: {trend.statement} {trend.measured_text} ({trend.note})")
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.draw(dataset).savefig(FOLDER / f"{figure.name}.png", dpi=120)
    print(f"picture: {FOLDER / figure.name}.png")
