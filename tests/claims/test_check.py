"""Comparisons of a check: what they judge, at the edge of what they allow, and whether they can fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.check import Check, Curve, Setting

NAN = float("nan")


@pytest.mark.parametrize(
    ("compare", "holds", "deviation", "deviation_is"),
    [
        (lambda check: check.equal("", [1.0, 2.0], [1.0, 2.1], tolerance=0.04), False, 0.1 / 2.1, "relative error"),
        (lambda check: check.equal("", [1.0, 2.0], [1.0, 2.1], tolerance=0.06), True, 0.1 / 2.1, "relative error"),
        (lambda check: check.equal("", NAN, 1.0, tolerance=1.0), False, NAN, "relative error"),
        (lambda check: check.at_most("", [1.0, 3.0], [2.0, 2.0]), False, 1.5, "share of the bound"),
        (lambda check: check.at_most("", [1.0, 2.0], 2.0), True, 1.0, "share of the bound"),
        (lambda check: check.at_least("", [1.0, 3.0], 2.0), False, 2.0, "share of the bound"),
        (lambda check: check.at_least("", [2.0, 3.0], 2.0), True, 1.0, "share of the bound"),
        (lambda check: check.positive("", [1, 2, 3, -1]), False, 0.25, "share of wrong signs"),
        (lambda check: check.positive("", [1, 2, 3, -1], allowed=0.25), True, 0.25, "share of wrong signs"),
        (lambda check: check.positive("", [1.0, 0.0]), False, 0.5, "share of wrong signs"),
        (lambda check: check.positive("", [1.0, 5e-324]), True, 0.0, "share of wrong signs"),
    ],
)
def test_comparisons_judge_as_they_should(
    compare: Callable[[Check], None], holds: bool, deviation: float, deviation_is: str
) -> None:
    check = Check(Setting(ss.syn_small()))
    compare(check)
    (measurement,) = check.measurements
    assert measurement.holds == holds
    assert measurement.deviation == pytest.approx(deviation, nan_ok=True)
    assert measurement.deviation_is == deviation_is


def test_a_measurement_shows_the_entry_that_is_furthest_off() -> None:
    check = Check(Setting(ss.syn_small()))
    check.equal("", [1.0, 2.0], [1.0, 2.1], tolerance=0.04)
    check.at_most("", [1.0, 3.0], [2.0, 2.5])
    check.at_least("", [1.0, 3.0], [2.0, 2.5])
    shown = [(measurement.predicted, measurement.measured) for measurement in check.measurements]
    assert shown == [(2.0, 2.1), (2.5, 3.0), (2.0, 1.0)]


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
}


@pytest.mark.parametrize("factor", [1.01, 1.2, 0.5, -1.0])
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_measurement_notices_what_would_not_hold_with_a_wrong_prediction(name: str, factor: float) -> None:
    """Where a claim is about signs, its other comparisons must notice a factor of 1.5."""
    check = Check(Setting(ss.syn_small()), wrong_factor=factor)
    for prediction in (1.0, 1.5 if factor < 0 and "positive" not in name else factor):
        COMPARISONS[name](check, prediction)
    right, wrong = check.measurements
    assert right.notices == (right.holds and not wrong.holds)
    assert right.holds == (name != "equal to NaN")


def test_a_row_may_state_a_wrong_factor_of_its_own() -> None:
    check = Check(Setting(ss.syn_small()), wrong_factor=1.01)
    for factor in (None, 1.5, 3.0):
        check.at_most("", 1.0, 2.0, wrong_factor=factor)
    assert [entry.notices for entry in check.measurements] == [False, False, True]


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_draws_other_numbers_and_says_so(seed: int) -> None:
    """A sampled check depends on the seed, one that draws nothing does not."""
    check = Check(Setting(ss.syn_small()), seed=seed)
    assert not check.drew
    assert check.seeds(4) == range(4 * seed, 4 * seed + 4)
    assert check.drew
    assert check.rng().random() == np.random.default_rng(seed).random()


X = np.arange(3.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curve(X, {3: X}, "x", "y"), "a curve has 3 in place of a label: give a string"),
        (lambda: Curve(X, {"a": X, "b": X[:2]}, "x", "y"), r"'b' of a curve has shape \(2,\) over .* of shape \(3,\)"),
        (lambda: Curve(X, {"a": X}, "x", "y", dots=("b",)), "unknown line 'b': choose one of a"),
        (lambda: Curve(X, {}, "x", "y"), "a curve has no lines"),
        (lambda: Check(Setting(ss.syn_small())).positive(3, 1.0), "a comparison has 3 in place of a label"),
        (lambda: Setting(ss.syn_small(), lr_y=-1.0), "lr_y holds -1"),
    ],
)
def test_what_a_check_cannot_take_is_one_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        make()
