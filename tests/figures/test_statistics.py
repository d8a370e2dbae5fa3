"""The tests behind the trends: textbook values, and the verdicts they give."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

from scansnap.figures.recipe import Trend
from scansnap.figures.statistics import all_rise, exact, holm, majority, positive, rise, standard_error
from scansnap.figures.style import draw_band, mean_and_error


def test_holm_keeps_its_level() -> None:
    """20 true nulls, 4,000 times: at most 5% have a wrong rejection; three standard errors are 1%."""
    p = np.random.default_rng(1).uniform(size=(4000, 20))
    assert np.mean([holm(row).min() <= 0.05 for row in p]) <= 0.06
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # by hand


def test_positive_without_spread() -> None:
    assert positive([[1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]]).tolist() == [0.0, 1.0, 1.0]


def differences(*means: float) -> np.ndarray:
    noise = np.random.default_rng(2).normal(0, 0.1, (len(means), 20))
    return noise - noise.mean(-1, keepdims=True) + np.array(means)[:, None]


def family(*means: float) -> Trend:
    return all_rise("s", [f"c{i}" for i in range(len(means))], differences(*means))


def test_a_family_holds_fails_or_is_not_settled() -> None:
    assert family(1.0, 2.0).verdict == "holds"
    unsettled = family(1.0, 0.0)
    assert unsettled.verdict == "not settled"
    assert unsettled.measured == 1
    assert "c1: +" in unsettled.note or "c1: -" in unsettled.note
    assert "(not settled)" in unsettled.note
    failed = family(1.0, 0.0, -1.0)
    assert failed.verdict == "fails"
    assert failed.note.index("c2: -1") < failed.note.index("c1:")  # what is reversed comes first
    assert failed.p_value == 1.0
    assert "; 1 reversed, 1 not settled; exceptions" in failed.note
    assert "and 4 more" in family(*[-1.0] * 12).note
    error = standard_error(differences(1.0, 0.0, -1.0))[2]
    assert f"c2: -1 ± {error:.2g} (reversed)" in failed.note


def test_a_majority_is_a_binomial_test() -> None:
    """15 of 20: the chance of as many under one half is 21,700/2^20."""
    trend = majority("s", np.arange(20) < 15, "cases")
    assert trend.p_value == pytest.approx(21_700 / 2**20)
    assert (trend.measured, trend.standard_error) == pytest.approx((0.75, np.sqrt(0.75 * 0.25 / 20)))
    assert (trend.verdict, majority("s", np.arange(20) < 14, "cases").holds) == ("holds", False)


def test_rise_and_exact() -> None:
    """The mean of four is 1.05 ± 0.065: it is above 0.8 at 5%, and not above 0.9."""
    values = np.array([0.9, 1.0, 1.1, 1.2])
    p = stats.ttest_1samp(values, 0.8, alternative="greater").pvalue
    assert rise("s", values, "x", above=0.8).p_value == pytest.approx(p)
    verdicts = [rise("s", values, "x", above=limit).verdict for limit in (0.8, 0.95, 1.3)]
    assert verdicts == ["holds", "not settled", "fails"]
    assert [exact("s", 2.0, "n", **limit).verdict for limit in ({"at_most": 2}, {"below": 2})] == ["holds", "fails"]
    assert exact("s", 2.0, "n", at_least=1e-9).expected == "at least 1e-09"


def test_a_trend_has_one_text_for_its_numbers() -> None:
    random = Trend("s", "above 0", 0.051536, 0.000664, 5.64e-91, True, "n")
    assert (random.measured_text, random.p_text) == ("0.05154 ± 0.00066", "below 0.001")
    certain = exact("s", 2.0, "n", below=1)
    assert (certain.measured_text, certain.p_text) == ("2", "")
    missing = Trend("s", "above 0", float("nan"), float("nan"), float("nan"), False, "n")
    assert (missing.measured_text, missing.p_text) == ("no number", "no number")


def test_reductions_over_seeds() -> None:
    values = xr.DataArray(np.arange(101.0)[:, None] * np.ones(3), dims=("seed", "step"), coords={"step": range(3)})
    axes = Figure().subplots()
    draw_band(axes, values, 0, "runs")
    (filled,), (median,) = axes.collections, axes.lines
    assert median.get_ydata().tolist() == [50.0] * 3
    assert set(filled.get_paths()[0].vertices[:, 1]) == {5.0, 95.0}
    mean, error = mean_and_error(values)
    assert (float(mean[0]), float(error[0])) == pytest.approx((50, stats.sem(np.arange(101.0))))
