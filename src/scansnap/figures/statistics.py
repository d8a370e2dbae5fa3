"""The tests behind the trends: one-sided t tests on paired differences, many at once, corrected by Holm's method.

Runs that differ in a learning rate alone share their seeds, so they share their start and their batches; a difference
is therefore taken seed by seed, and what the seed does to both runs alike drops out.

Holm's correction of m p-values in increasing order: p_(i) becomes max_{j <= i} min(1, (m - j + 1) p_(j)).  If all m
corrected values are at most 5% the chance that even one of the m statements is wrongly accepted is at most 5%.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from scansnap.base.errors import InputError
from scansnap.figures.trend import Trend

LEVEL = 0.05
"""Chance of a false alarm that every test is held to."""

BAND = (0.05, 0.5, 0.95)

NAMED = 8
"""Exceptions that a note names; of more it gives the number."""


def enough_seeds(seeds: int) -> int:
    """The number of seeds, refused below the two that a standard error needs."""
    if isinstance(seeds, bool) or not isinstance(seeds, int | np.integer) or not 2 <= seeds <= 10_000:
        raise InputError(f"seeds is {seeds!r}: give a number of seeds from 2 to 10,000.")
    return int(seeds)


def standard_error(values: ArrayLike) -> NDArray[np.float64]:
    """Of the mean over the last axis."""
    array = np.asarray(values, np.float64)
    return array.std(-1, ddof=1) / np.sqrt(array.shape[-1])


def band(values: xr.DataArray) -> xr.DataArray:
    """5%, 50% and 95% of the runs, over the dimension `seed`: what a picture shows of many curves."""
    return values.quantile(list(BAND), "seed").rename(quantile="band").assign_attrs(values.attrs)


def positive(differences: ArrayLike) -> NDArray[np.float64]:
    """p-values of "the mean over the last axis is above zero": one-sided t tests."""
    d = np.asarray(differences, np.float64)
    mean, error = d.mean(-1), standard_error(d)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, mean / error, np.where(mean > 0, np.inf, -np.inf))
    return stats.t.sf(t, d.shape[-1] - 1)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values corrected for their number."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    return corrected


@dataclass(frozen=True)
class Family:
    """Differences that should all be above zero: one label and one row (over seeds) for each comparison."""

    labels: Sequence[str]
    differences: NDArray[np.float64]  # (comparisons, seeds)

    def trend(self, statement: str) -> Trend:
        """Holds if every single difference is significantly above zero, fails if one is significantly below.

        The note names the exceptions, those that are reversed first.
        """
        corrected = holm(positive(self.differences))
        reversed_ = holm(positive(-self.differences)) <= LEVEL
        means, errors = self.differences.mean(-1), standard_error(self.differences)
        fine = corrected <= LEVEL
        found = [
            f"{self.labels[i]}: {means[i]:+.3g} ± {errors[i]:.2g} ({'reversed' if reversed_[i] else 'not settled'})"
            for i in sorted(np.flatnonzero(~fine).tolist(), key=lambda i: not reversed_[i])
        ]
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        exceptions = f"exceptions, with standard errors: {'; '.join(found[:NAMED])}{more}" if found else "no exceptions"
        count, seeds = self.differences.shape
        return Trend(
            statement,
            expected=f"{count} of {count} comparisons",
            measured=float(fine.sum()),
            standard_error=None,
            p_value=float(corrected.max()),
            holds=bool(fine.all()),
            note=f"one-sided paired t tests over {seeds} seeds, Holm's correction for {count}, level {LEVEL:.0%}; "
            f"{int(reversed_.sum())} reversed, {int((~fine & ~reversed_).sum())} not settled; {exceptions}",
            settled=bool(fine.all() or reversed_.any()),
        )


def rise(statement: str, differences: ArrayLike, what: str) -> Trend:
    """One difference that should be above zero, over seeds."""
    d = np.asarray(differences, np.float64)
    p = float(positive(d))
    note = f"{what}; one-sided paired t test over {len(d)} seeds, level {LEVEL:.0%}"
    settled = p <= LEVEL or float(positive(-d)) <= LEVEL
    return Trend(statement, "above 0", float(d.mean()), float(standard_error(d)), p, p <= LEVEL, note, settled)


def exact(statement: str, expected: str, measured: float, holds: bool, note: str) -> Trend:
    """A statement about formulas, with nothing random in it."""
    return Trend(statement, expected, float(measured), None, None, bool(holds), note)
