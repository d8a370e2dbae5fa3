"""The lines of each claim's picture are what their names say, by identities that they obey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from scansnap import theory
from scansnap.claims.check import Curve, Measurement
from scansnap.claims.claim import Verdict

LINES: dict[str, Callable[[Verdict, Curve], None]] = {}
"""What the lines of a claim's picture must be, by the claim's id."""


def lines(check: Callable[[Verdict, Curve], None]) -> Callable[[Verdict, Curve], None]:
    """A decorator: the function checks the picture of the claim that has its name."""
    LINES[check.__name__] = check
    return check


def measurement(verdict: Verdict, label: str) -> Measurement:
    (match,) = [measurement for measurement in verdict.measurements if measurement.label == label]
    return match


@lines
def lemma_10(verdict: Verdict, curve: Curve) -> None:
    """Nine in ten counts are within 1.64 standard deviations, up to rounding."""
    simulated = curve.lines["nine in ten simulated counts are within"]
    assert (np.abs(simulated - 1.64 * np.sqrt(curve.x * 2 / 9)) <= 1).all()


def bounded(bound: Callable[[Any], Any], number: int) -> Callable[[Verdict, Curve], None]:
    """A quantity below its bound, which is a function of |lambda_1|."""

    def check(verdict: Verdict, curve: Curve) -> None:
        measured, most = curve.lines.values()
        assert curve.dots == (next(iter(curve.lines)),)
        assert_allclose(most, bound(curve.x), rtol=1e-9)
        assert (measured <= most * (1 + 1e-9)).all()
        used = [entry.deviation for entry in verdict.measurements]
        assert (measured / most).max() == pytest.approx(max(used), rel=1e-9)
        assert len(curve.x) == number
        own = theory.eigenvalues(theory.overlaps(theory.directions(verdict.setting.probs)))[0]
        assert np.isclose(curve.x, abs(own), rtol=1e-12).any()

    return check


@lines
def lemma_16(verdict: Verdict, curve: Curve) -> None:
    """-E'_nn = (E (I + E)^{-1} E)_nn is at least |E e_n|^2/(1 + lambda_1), and all lambda are below two."""
    assert (curve.lines["must be above"] == 0).all()
    assert (curve.lines["measured"] >= 1 / 3).all()
    e = theory.overlaps(theory.directions(verdict.setting.probs))
    own = curve.lines["measured"][np.isclose(curve.x, e.max(), rtol=1e-12)]
    assert_allclose(own, -np.diag(theory.inverse_overlaps(e)) / e.max() ** 2, rtol=1e-9)


@lines
def theorem_2(verdict: Verdict, curve: Curve) -> None:
    """At first all distinct tokens of a class have one drive; the worst is negative where a sign of dz/dt is wrong."""
    for gradient in ("modified", "true"):
        worst = curve.lines[f"{gradient} gradient"]
        assert worst[0] == pytest.approx(1, abs=1e-3)
        assert (np.diff(worst) < 0).all()
        assert worst[-1] > 0
    for ratio, falls in (("10", True), ("100", True), ("1000", False)):
        name = f"two unequal classes, modified gradient, eta_Y/eta_Z = {ratio}"
        assert (curve.lines[name][-1] < 0) == falls
        assert falls == (measurement(verdict, f"dz/dt of distinct tokens, {name}").deviation > 0)


@lines
def theorem_3(verdict: Verdict, curve: Curve) -> None:
    """The errors are those of the measurements: the dominant growth, in whose units they are, is the largest."""
    for gradient in ("modified", "true"):
        labels = [f"growths by Eq. 110, {gradient} gradient, eta_Y/eta_Z = {ratio:g}" for ratio in curve.x]
        errors = [measurement(verdict, label).deviation for label in labels]
        assert_allclose(curve.lines[f"{gradient} gradient"], errors, rtol=1e-12)


@lines
def theorem_4(verdict: Verdict, curve: Curve) -> None:
    lines = curve.lines
    for gradient in ("modified", "true"):
        name = f"flow, {gradient} gradient, eta_Y/eta_Z = 10"
        apart = np.abs(lines["exact form"] - lines[name]).max() / lines[name].max()
        label = f"B_n, exact form, against -z of the common token, {name}"
        assert apart == pytest.approx(measurement(verdict, label).deviation, rel=1e-9)
        slower = lines[f"flow, {gradient} gradient, eta_Y/eta_Z = 1000"]
        assert slower[0] == pytest.approx(lines[name][0] / 100, rel=1e-2)  # at first in proportion to eta_Z


@lines
def equation_12(verdict: Verdict, curve: Curve) -> None:
    assert curve.x.tolist() == [1, 10, 100, 1000]
    for reading in ("published B_n", "B_n with P(n)", "B_n with P(n) and the token's drive"):
        labels = [f"ln chi from below, {reading}, true gradient, eta_Y/eta_Z = {ratio:g}" for ratio in curve.x]
        used = [measurement(verdict, label).deviation for label in labels]
        assert_allclose(curve.lines[f"lower bound, {reading}"], used, rtol=1e-12)
    above = measurement(verdict, "ln chi from above, B_n with P(n), true gradient")  # the setting's ratio is 1000
    assert curve.lines["upper bound, B_n with P(n) (least)"][-1] == pytest.approx(1 / above.deviation, rel=1e-9)
    assert (curve.lines["upper bound, B_n with P(n) (least)"] > 1).all()


@lines
def equation_112(verdict: Verdict, curve: Curve) -> None:
    """r(t) = 15 (1 + t)^2 for tokens of probabilities 0.4 and 0.1: dr/dt = 30 (1 + t)."""
    assert_allclose(curve.lines["as printed"], 15 * (1 + curve.x), rtol=1e-12)
    assert_allclose(curve.lines["with the factor 2"], 30 * (1 + curve.x), rtol=1e-12)
    assert_allclose(curve.lines["measured"], 30 * (1 + curve.x), rtol=1e-8)


@lines
def symmetric_drive(verdict: Verdict, curve: Curve) -> None:
    for ratio in (10, 1):
        z, reduced = (curve.lines[f"{name}, eta_Y/eta_Z = {ratio}"] for name in ("flow", "symmetric equations"))
        assert_allclose(z, reduced, atol=1e-4 * np.abs(z).max())
        assert (np.diff(z) < 0).all()


def against(name: str, tolerance: float) -> Callable[[Verdict, Curve], None]:
    """A prediction that is right, over what was measured."""

    def check(verdict: Verdict, curve: Curve) -> None:
        assert (curve.lines["equal"] == curve.x).all()
        assert name in curve.dots
        assert_allclose(curve.lines[name], curve.x, atol=tolerance * np.abs(curve.x).max())

    return check


@lines
def positional_prior(verdict: Verdict, curve: Curve) -> None:
    """At first attention is P(l|n) weighed by exp(-slope distance): 0.5 0.7^(d-1) of it is on distinct tokens."""
    distance = np.arange(1, 17)
    share = 0.5 * 0.7 ** (distance - 1)
    for name, slope in (("slope 0", 0.0), ("slope 0.25", 0.25), ("slope 1", 1.0), ("learned", 0.0)):
        weight = np.exp(-slope * distance)
        assert curve.lines[name][0] == pytest.approx(share @ weight / weight.sum(), rel=1e-3)
        assert (np.diff(curve.lines[name]) > 0).all()
    assert curve.lines["learned"][-1] > curve.lines["slope 0"][-1] * 1.05


@lines
def residual_fates(verdict: Verdict, curve: Curve) -> None:
    """Rows of Z keep their sum: a query has 16 distinct tokens, 2 that it shares with the other, 1 common token."""
    for gradient in ("modified", "true"):
        distinct, shared, common = (
            curve.lines[f"{kind}, {gradient} gradient"] for kind in ("distinct", "shared across", "common")
        )
        assert_allclose(16 * distinct + 2 * shared + common, 0, atol=1e-5 * np.abs(common).max())
        assert (np.diff(common) < 0).all()
        assert (np.diff(distinct) > 0).all()


LINES |= {
    "lemma_13": bounded(lambda top: top, 166),
    "lemma_15": bounded(lambda top: top / (1 - top), 156),
    "lemma_17": bounded(lambda top: top**2 / (1 - top), 156),
    "lemma_4": against("exact form", 1e-9),
    "equation_88": against("exact form", 1e-9),
    "energy_law": against("the law", 1e-6),
    "finite_length": against("first order in 1/T", 0.1),
}


MEANS: dict[str, tuple[float, ...]] = {
    "lemma_9": (0.8998, 0.8998, 0.8996),
    "lemma_12": (0.001414, 0.1108),
    "theorem_1": (0.004551, 0.004551, 0.000125),
    "remark_1": (10.62, 12.62, 1.957),
    "equation_93": (0.8656, 0.5899, 1),
    "tf_idf": (0.8056, 0.5272),
    "residual_beta": (0.8908, 1.145, 0.7352, 0.2267, 0.002708),
    "lemma_2": (0.1843, 0.1868),
    "lemma_5": (11.01, 11.01),
    "lemma_6": (14.61, 14.61),
    "lemma_7": (6.924e-07, 0.000625),
    "lemma_8": (0.2884, 0.5085, 0.1271, 0.0008136, 0.0008444),
    "lemma_11": (0.05605, 0.4204, 0.5133, 2.102, 3.842),
    "lemma_14": (-0.364, -0.364),
    "corollary_1": (0.1901, 0.1901, 0.1902),
    "corollary_2": (-0.005068, -0.0003241),
    "remark_2_start": (1.661, 1),
    "assumption_2": (6.137, 0.2042),
    "equation_132": (0.733, 0.9439, 0.6693),
    "figure_9": (0.2856, 1.026, 0.2882),
    "lemma_3_rate": (1.641, 1),
    "lemma_7_shift": (0.2008, 0.2476, 0.1908, 0.2246),
    "theorem_1_b": (8.884, 1.797),
    "theorem_4_scanning": (0.06364, 4.573e-08, 4.665e-08, 1.827e-09, 2.675e-06),
    "theorem_4_snapping": (0.1, 0.09999, 0.003609, 0.01093),
    "theorem_5": (0.7579, 0.9958, 0.8532, 0.7579),
    "corollary_1_sigma": (0.1726, 2.064),
    "remark_2": (2.822, 2.805, 4.605),
    "remark_3": (1.005, 1.119),
    "remark_3_order": (1.108, 1),
    "remark_4": (0.175, 0.324, 0.3562, 0.2542, 1),
    "equation_133": (0.9895, -0.602, 0.9775),
    "section_6_a": (168.7, 127.8, 73.06, 73.05, 74.63, 72.06, 74.24),
    "section_6_b": (-0.006907, -0.007292, -0.001768, -0.00189),
    "section_6_c": (0.08574, 0.09457, 0.01859, 0.03195),
    "appendix_f_orders": (0.942, 0.9407, 0.948, 0.9477),
    "appendix_f_a": (0.1137, 0.1174, 0.02831, 0.03303),
    "appendix_f_b": (1.594, 1.562),
    "effective_rate": (0.0008516, 0.01745, 0.000625),
    "layer_norm": (0.1909, 0.2463),
    "few_tokens": (4.214, 2),
    "spurious_tokens": (0.0728, 0.07176, 0.09834),
    "heads_as_one": (-0.2856, -0.2021, -0.2021, -0.1071, -0.1071),
    "winner_takes_all": (0.3689, 0.368, 0.3648, 0.3669),
}
"""The mean of each line, in the order of the picture, where no identity is at hand."""


def test_lines_are_what_their_names_say(verdict: Verdict) -> None:
    curve = verdict.curve
    assert (curve is not None) == (verdict.id in LINES or verdict.id in MEANS)
    if curve is None:
        return
    assert (np.diff(curve.x) >= 0).all() or verdict.id == "theorem_3"
    assert np.isfinite(list(curve.lines.values())).all()
    assert not curve.log_x or (curve.x > 0).all()
    assert not curve.log_y or all((line > 0).all() for line in curve.lines.values())
    if verdict.id in LINES:
        LINES[verdict.id](verdict, curve)
    else:
        means = [line.mean() for line in curve.lines.values()]
        assert_allclose(means, MEANS[verdict.id], rtol=0.005)
