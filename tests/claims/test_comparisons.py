"""Comparisons of a claim at the edge of what they allow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.check import Check, Setting


def test_a_zero_is_not_positive() -> None:
    check = Check(Setting(ss.syn_small()))
    check.positive("a zero", [1.0, 0.0])
    check.positive("the least there is", [1.0, 5e-324])
    zero, least = check.measurements
    assert (zero.holds, zero.deviation) == (False, 0.5)
    assert (least.holds, least.deviation) == (True, 0.0)


@pytest.mark.parametrize("measured", [-2.0, -1.0, 0.0, 1.0, 2.0, np.nan])
@pytest.mark.parametrize("bound", [-1.5, -1.0, 0.0, 1.0, 1.5, np.nan])
def test_bounds_of_any_sign_can_be_broken(measured: float, bound: float) -> None:
    check = Check(Setting(ss.syn_small()))
    check.at_most("", [0.0 if bound >= 0 else -9.0, measured], bound)
    check.at_least("", [9.0, measured], bound)
    assert [entry.holds for entry in check.measurements] == [measured <= bound, measured >= bound]


MEASURED = np.array([0.5, 1.0, 2.0])
COMPARISONS: dict[str, Callable[[Check, float], None]] = {
    "equal": lambda check, f: check.equal("", f * MEASURED, MEASURED, tolerance=0.05),
    "equal to NaN": lambda check, f: check.equal("", f * MEASURED, np.array([1.0, np.nan, 1.0]), tolerance=0.05),
    "at most": lambda check, f: check.at_most("", MEASURED, 1.05 * MEASURED / f),
    "at least": lambda check, f: check.at_least("", MEASURED, 0.95 * MEASURED * f),
    "positive": lambda check, f: check.positive("", MEASURED if f == 1 else -MEASURED),
    "mostly positive": lambda check, f: check.positive("", [-1, -1, 1] if f == 1 else [1, 1, -1], allowed=0.7),
    "within": lambda check, f: check.within("", MEASURED, 2.05 / f, failure=0.1),
}


@pytest.mark.parametrize("factor", [1.01, 1.2, 0.5, -1.0])
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_measurement_notices_what_would_not_hold_with_a_wrong_prediction(name: str, factor: float) -> None:
    check = Check(Setting(ss.syn_small()), wrong_factor=factor)
    for prediction in (1.0, factor):
        COMPARISONS[name](check, prediction)
    right, wrong = check.measurements
    assert right.notices == (right.holds and not wrong.holds)
    assert right.holds == (name != "equal to NaN")
