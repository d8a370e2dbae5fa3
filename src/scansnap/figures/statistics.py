"""The tests behind the trends: one-sided t tests on paired differences, many at once, corrected by Holm's method.

Runs that differ only in a learning rate share their seeds, and with them their starts and batches.  Differences are
therefore taken seed by seed, so that whatever the seed does to both runs drops out.

Holm's correction of m p-values in increasing order: p_(i) becomes max_{j <= i} min(1, (m - j + 1) p_(j)).  If all m
corrected values are at most 5%, the chance that even one of the m statements is wrongly accepted is at most 5%.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from scansnap.figures.recipe import Trend
from scansnap.validation.checks import integer

LEVEL = 0.05
"""The significance level of every test."""

SURPRISING = 0.01
"""The p-value up to which numbers contradict those that they should agree with."""

EXCEPTIONS_IN_A_NOTE = 8
"""The most exceptions that a note names; it counts the others."""


def enough_seeds(num_seeds: int, *, least: int = 2) -> int:
    """The number of seeds, which must be at least `least`: a standard error needs two."""
    return integer("num_seeds", num_seeds, least=least, most=10_000)


def standard_error(values: ArrayLike) -> NDArray[np.float64]:
    """The standard error of the mean over the last axis."""
    return stats.sem(np.asarray(values, np.float64), axis=-1)


def positive(differences: ArrayLike) -> NDArray[np.float64]:
    """p-values of one-sided t tests that the mean over the last axis is above zero."""
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are all alike
        test = stats.ttest_1samp(np.asarray(differences, np.float64), 0.0, axis=-1, alternative="greater")
    return np.nan_to_num(test.pvalue, nan=1.0)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values corrected for how many there are."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    return corrected


def all_rise(statement: str, labels: Sequence[str], differences: ArrayLike) -> Trend:
    """A trend that holds if all differences are significantly above zero, and fails if one is significantly below.

    `differences` (comparisons, seeds) has a row for each label.  The note names the exceptions, reversed ones first.
    """
    d = np.asarray(differences, np.float64)
    corrected = holm(positive(d))
    above, below = corrected <= LEVEL, holm(positive(-d)) <= LEVEL
    means, errors = d.mean(-1), standard_error(d)
    exceptions = [
        f"{labels[i]}: {means[i]:+.3g} ± {errors[i]:.2g} ({'reversed' if below[i] else 'not settled'})"
        for i in sorted(np.flatnonzero(~above).tolist(), key=lambda i: not below[i])
    ]
    more = f"; and {len(exceptions) - EXCEPTIONS_IN_A_NOTE} more" if len(exceptions) > EXCEPTIONS_IN_A_NOTE else ""
    named = (
        f"exceptions, with standard errors: {'; '.join(exceptions[:EXCEPTIONS_IN_A_NOTE])}{more}"
        if exceptions
        else "no exceptions"
    )
    count, num_seeds = d.shape
    return Trend(
        statement,
        expected=f"{count} of {count} comparisons",
        measured=float(above.sum()),
        standard_error=None,
        p_value=float(corrected.max()),
        holds=bool(above.all()),
        note=f"one-sided paired t tests over {num_seeds} seeds, Holm's correction for {count}, level {LEVEL:.0%}; "
        f"{int(below.sum())} reversed, {int((~above & ~below).sum())} not settled; {named}",
        settled=bool(above.all() or below.any()),
    )


def rise(statement: str, values: ArrayLike, what: str, *, above: float = 0.0) -> Trend:
    """A trend about the mean of values over seeds, often differences, which should be above a number."""
    v = np.asarray(values, np.float64)
    p, reversed_p = (float(positive(sign * (v - above))) for sign in (1, -1))
    note = f"{what}; one-sided paired t test over {len(v)} seeds, level {LEVEL:.0%}"
    settled = min(p, reversed_p) <= LEVEL
    return Trend(statement, f"above {above:g}", float(v.mean()), float(standard_error(v)), p, p <= LEVEL, note, settled)


def significant(
    statement: str, expected: str, measured: float, p: float, note: str, *, error: float | None = None
) -> Trend:
    """A trend that holds if the p-value of the test that `note` describes is at most the level."""
    return Trend(statement, expected, float(measured), error, float(p), bool(p <= LEVEL), f"{note}, level {LEVEL:.0%}")


def compatible(statement: str, measured: float, p: float, note: str) -> Trend:
    """A trend that holds unless the p-value of the test that `note` describes is at most 1%."""
    return Trend(statement, f"p above {SURPRISING}", float(measured), None, float(p), bool(p > SURPRISING), note)


def majority(statement: str, won: NDArray[np.bool_], of: str) -> Trend:
    """A trend about a share of cases that should be above one half."""
    p = stats.binomtest(int(won.sum()), won.size, 0.5, alternative="greater").pvalue
    note = f"{int(won.sum())} of {won.size} {of}; binomial test against one half"
    return significant(statement, "above 0.5", won.mean(), p, note, error=float(won.std() / np.sqrt(won.size)))


RELATIONS = {"below": operator.lt, "above": operator.gt, "at_most": operator.le, "at_least": operator.ge}


def exact(statement: str, measured: float, note: str, **limit: float) -> Trend:
    """A trend about formulas, in which nothing is random: `measured` is `below=1`, `above`, `at_most` or `at_least`."""
    ((relation, number),) = limit.items()
    expected = f"{relation.replace('_', ' ')} {number:g}"
    holds = bool(RELATIONS[relation](measured, number))
    return Trend(statement, expected, float(measured), None, None, holds, note)
