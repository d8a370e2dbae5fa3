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

AXES: dict[str, tuple[float, float, int, bool, bool]] = {
    "lemma_2": (32, 2**14, 10, True, True),
    "lemma_5": (0, 400, 21, False, False),
    "lemma_6": (0.1, 1e9, 41, True, False),
    "lemma_7": (1, 20_000, 20_000, True, True),
    "lemma_8": (100, 1e6, 6, True, True),
    "lemma_9": (1, 1e12, 50, True, True),
    "lemma_10": (1, 1000, 23, True, True),
    "lemma_12": (1 / 120, 1, 120, False, True),
    "theorem_1": (100, 1e9, 15, True, True),
    "theorem_2": (1, 1e9, 28, True, False),
    "theorem_3": (1000, 1, 7, True, True),
    "theorem_4": (1, 1e12, 97, True, False),
    "corollary_1": (1, 1e9, 40, True, True),
    "corollary_2": (1, 1e9, 28, True, False),
    "remark_1": (10, 1e6, 11, True, False),
    "assumption_2": (2, 20, 4, False, True),
    "equation_12": (1, 1000, 4, True, True),
    "equation_112": (0.1, 5, 50, False, False),
    "symmetric_drive": (1, 1e12, 97, True, False),
    "positional_prior": (1, 1e5, 21, True, False),
    "tf_idf": (0, 100, 11, False, False),
    "residual_beta": (1, 1e9, 28, True, False),
    "residual_fates": (1, 1e9, 28, True, False),
    "lemma_3_rate": (0.01, 0.99, 50, False, False),
    "lemma_7_shift": (100, 1000000000, 5, True, False),
    "theorem_1_b": (1000, 1000000000, 25, True, False),
    "theorem_4_scanning": (0.0442665534494, 44.2665534494, 25, True, True),
    "theorem_4_snapping": (93155375.3154, 1e150, 60, True, False),
    "corollary_1_sigma": (30, 30000, 6, True, True),
    "remark_2": (1, 200000, 57, True, False),
    "remark_3": (100, 1000000000, 5, True, False),
    "remark_3_order": (100, 1000000000, 6, True, False),
    "remark_4": (0.01, 0.99, 13, False, False),
    "equation_133": (1.32185236769e15, 3.57225099441e208, 41, True, False),
    "section_6_a": (0.5, 5, 4, True, True),
    "section_6_b": (1, 1e12, 49, True, False),
    "section_6_c": (0.3, 3000, 9, True, True),
    "appendix_f_orders": (100, 1e12, 6, True, False),
    "appendix_f_a": (100, 1000000000, 8, True, False),
    "appendix_f_b": (8.60268314574, 17205.3662915, 81, True, False),
    "effective_rate": (10, 1000000, 11, True, True),
    "layer_norm": (34, 10000, 4, True, True),
    "few_tokens": (0.5, 100, 6, True, False),
    "spurious_tokens": (1, 256, 5, True, False),
    "heads_as_one": (1, 100000, 21, True, False),
    "winner_takes_all": (1, 1e150, 10, True, False),
}
"""First and last place on the x axis, number of places, and whether x and y are logarithmic."""

LOGARITHMIC = {
    "lemma_11": (False, False),
    "lemma_13": (True, True),
    "lemma_14": (False, False),
    "lemma_15": (True, True),
    "lemma_16": (True, False),
    "lemma_17": (True, True),
    "remark_2_start": (True, True),
    "equation_93": (False, False),
    "equation_132": (True, False),
    "figure_9": (True, True),
}
"""Whether x and y are logarithmic, where the x axis depends on what is measured."""


LINES: dict[str, Callable[[Verdict, Curve], None]] = {}
"""What the lines of a claim's picture must be, by the claim's id."""


def test_axes_cover_what_was_measured(verdict: Verdict) -> None:
    curve = verdict.curve
    if curve is None:
        assert verdict.id not in AXES
        return
    assert (np.diff(curve.x) >= 0).all() or verdict.id == "theorem_3"
    lines = np.array(list(curve.lines.values()))
    assert np.isfinite(lines).all()
    assert not curve.log_x or (curve.x > 0).all()
    assert not curve.log_y or (lines > 0).all()
    if verdict.id in AXES:
        first, last, count, log_x, log_y = AXES[verdict.id]
        assert (curve.x[0], curve.x[-1]) == pytest.approx((first, last), rel=1e-10)
        assert len(curve.x) == count
    else:  # `Curve.against` has neither axis logarithmic
        log_x, log_y = LOGARITHMIC.get(verdict.id, (False, False))
    assert (curve.log_x, curve.log_y) == (log_x, log_y)


def lines(check: Callable[[Verdict, Curve], None]) -> Callable[[Verdict, Curve], None]:
    """A decorator: the function checks the picture of the claim that has its name."""
    LINES[check.__name__] = check
    return check


def measurement(verdict: Verdict, label: str) -> Measurement:
    (match,) = [measurement for measurement in verdict.measurements if measurement.label == label]
    return match


def sizes(verdict: Verdict) -> dict[str, Any]:
    setting = verdict.setting
    return {"vocab_size": setting.classes.vocab_size, "num_classes": setting.classes.num_classes, "lr_y": setting.lr_y}


def growth(verdict: Verdict, t: Any) -> Any:
    return theory.decoder_growth(t, vocab_size=verdict.setting.classes.vocab_size, lr_y=verdict.setting.lr_y)


def against(name: str, tolerance: float) -> Callable[[Verdict, Curve], None]:
    """A prediction that is right, over what was measured."""

    def check(verdict: Verdict, curve: Curve) -> None:
        assert (curve.lines["equal"] == curve.x).all()
        assert name in curve.dots
        assert_allclose(curve.lines[name], curve.x, atol=tolerance * np.abs(curve.x).max())

    return check


@lines
def lemma_2(verdict: Verdict, curve: Curve) -> None:
    """T^(-1/2) starts where the errors do; the errors have the exponent that was measured."""
    errors = curve.lines["measured"]
    assert_allclose(curve.lines["T^(-1/2)"], errors[0] * np.sqrt(32 / curve.x), rtol=1e-12)
    slope = np.polyfit(np.log(curve.x), np.log(errors), 1)[0]
    assert slope == pytest.approx(measurement(verdict, "exponent of the error in T").measured, rel=1e-9)
    at_128 = measurement(verdict, "relative error at the published T = 128").measured
    assert errors[curve.x.tolist().index(128)] == pytest.approx(at_128, rel=1e-12)


@lines
def lemma_4(verdict: Verdict, curve: Curve) -> None:
    against("exact form", 1e-9)(verdict, curve)
    assert_allclose(curve.lines["published form"], 3 * curve.lines["exact form"], rtol=1e-9, atol=1e-12)


@lines
def lemma_5(verdict: Verdict, curve: Curve) -> None:
    size, rate = verdict.setting.classes.vocab_size, verdict.setting.lr_y
    h = theory.decoder_growth_steps(400, vocab_size=size, lr_y=rate)[curve.x.astype(int)]
    assert_allclose(curve.lines["Lemma 5"], (size - 1) * h, rtol=1e-12)
    assert_allclose(curve.lines["trained"], curve.lines["Lemma 5"], rtol=1e-9, atol=1e-12)


@lines
def lemma_6(verdict: Verdict, curve: Curve) -> None:
    assert_allclose(curve.lines["closed form"], 1600 * growth(verdict, curve.x), rtol=1e-12)
    assert_allclose(curve.lines["integrated"], curve.lines["closed form"], rtol=1e-8)


@lines
def lemma_7(verdict: Verdict, curve: Curve) -> None:
    steps = theory.decoder_growth_steps(20_000, vocab_size=1600, lr_y=0.5)[1:]
    assert_allclose(curve.lines["h* - h"], steps - growth(verdict, curve.x), rtol=1e-9, atol=1e-15)
    assert_allclose(curve.lines["2 eta_Y / M"], 2 * 0.5 / 1600, rtol=1e-12)


@lines
def lemma_8(verdict: Verdict, curve: Curve) -> None:
    assert curve.x.tolist() == [100, 1000, 1600, 1e4, 1e5, 1e6]
    scale = np.log(np.log(curve.x)) / np.log(curve.x)
    omega_0, omega_1 = theory.growth_crossings(vocab_size=curve.x)
    for name, line in (
        ("omega_0", omega_0),
        ("omega_1", omega_1),
        ("2 lnln M / ln M", 2 * scale),
        ("lnln M / (2 ln M)", scale / 2),
        ("2/(M^0.99 ln M)", 2 * curve.x**-0.99 / np.log(curve.x)),
    ):
        assert_allclose(curve.lines[name], line, rtol=1e-12)


@lines
def lemma_9(verdict: Verdict, curve: Curve) -> None:
    first, second = theory.scan_end(**sizes(verdict)), theory.snap_start(**sizes(verdict))
    assert dict(curve.marks) == {"t'_0": first, "t_0": second}
    assert ((curve.x <= first * (1 + 1e-12)) | (curve.x >= second * (1 - 1e-12))).all()
    assert_allclose(curve.lines["Eq. 85"], theory.speed(curve.x, **sizes(verdict)), rtol=1e-12)
    assert_allclose(curve.lines["measured, modified gradient"], curve.lines["Eq. 85"], rtol=1e-6)
    assert_allclose(curve.lines["measured, true gradient"], curve.lines["Eq. 85"], rtol=0.02)


@lines
def lemma_10(verdict: Verdict, curve: Curve) -> None:
    """Nine in ten counts are within 1.64 standard deviations, up to rounding."""
    first = theory.count_radius(curve.x, failure=0.1)
    assert_allclose(curve.lines["first bound, sqrt(N/2 ln(2/delta)) + 1"], first, rtol=1e-12)
    loose = theory.count_radius(curve.x, failure=0.1, form="loose")
    assert_allclose(curve.lines["second bound, sqrt(N ln(2/delta))"], loose, rtol=1e-12)
    simulated = curve.lines["nine in ten simulated counts are within"]
    assert (np.abs(simulated - 1.64 * np.sqrt(curve.x * 2 / 9)) <= 1).all()


@lines
def lemma_11(verdict: Verdict, curve: Curve) -> None:
    mean, radius = 30.0, float(theory.count_radius(90, failure=0.1))
    assert len(curve.x) == 401
    assert (curve.x[0], curve.x[-1]) == pytest.approx((1 - radius / mean, 1 + radius / mean), rel=1e-12)
    h, middle = growth(verdict, curve.x * mean), growth(verdict, mean)
    residual = theory.residual_size(h, vocab_size=1600) / theory.residual_size(middle, vocab_size=1600)
    published, proved = (
        theory.residual_deviation(mean, radius, vocab_size=1600, lr_y=0.5, form=form)
        for form in ("published", "proved")
    )
    for name, line in (
        ("|h(N_n)/h(Nbar) - 1|", np.abs(h / middle - 1)),
        ("its bound", np.full(401, radius / mean)),
        ("relative change of the residual", np.abs(residual - 1)),
        ("its bound, sigma'", np.full(401, published)),
        ("proved on both sides", np.full(401, proved)),
    ):
        assert_allclose(curve.lines[name], line, rtol=1e-9, atol=1e-13)


@lines
def lemma_12(verdict: Verdict, curve: Curve) -> None:
    theta, bound = curve.lines.values()
    worst = measurement(verdict, "|theta_n|, all runs")
    assert (np.diff(theta) >= 0).all()
    assert theta[-1] == pytest.approx(worst.measured, rel=1e-12)
    assert_allclose(bound, worst.predicted, rtol=1e-12)
    assert_allclose(curve.x, np.arange(1, 121) / 120, rtol=1e-12)


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
def lemma_14(verdict: Verdict, curve: Curve) -> None:
    assert_allclose(curve.lines["lambda/(1 + lambda)"], curve.x / (1 + curve.x), rtol=1e-12)
    assert_allclose(curve.lines["measured"], curve.lines["lambda/(1 + lambda)"], rtol=1e-9, atol=1e-12)


@lines
def lemma_16(verdict: Verdict, curve: Curve) -> None:
    """-E'_nn = (E (I + E)^{-1} E)_nn is at least |E e_n|^2/(1 + lambda_1), and all lambda are below two."""
    assert (curve.lines["must be above"] == 0).all()
    assert (curve.lines["measured"] >= 1 / 3).all()
    e = theory.overlaps(theory.directions(verdict.setting.probs))
    own = curve.lines["measured"][np.isclose(curve.x, e.max(), rtol=1e-12)]
    assert_allclose(own, -np.diag(theory.inverse_overlaps(e)) / e.max() ** 2, rtol=1e-9)


@lines
def theorem_1(verdict: Verdict, curve: Curve) -> None:
    e = theory.overlaps(theory.directions(verdict.setting.probs))
    _, beta = theory.backpropagated_gradient(e, vocab_size=1600)
    xi = theory.drive(e, beta, speed=theory.speed(curve.x, **sizes(verdict)))
    assert_allclose(curve.lines["Theorem 1"], xi[:, 0], rtol=1e-12)  # the classes are symmetric
    assert_allclose(curve.lines["measured, modified gradient"], curve.lines["Theorem 1"], rtol=1e-6)
    assert (curve.lines["measured, true gradient"] < curve.lines["Theorem 1"] / 2).all()


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
    setting, lines = verdict.setting, curve.lines
    overlap = float(theory.overlaps(theory.directions(setting.probs)).max())
    constant = theory.phase_constant(overlap, num_classes=10)
    for form in ("exact", "published"):
        bound = theory.growth_bound(curve.x, **sizes(verdict), lr_z=setting.lr_z, constant=constant, form=form)
        assert_allclose(lines[f"{form} form"], bound, rtol=1e-12)
    assert dict(curve.marks) == {"t'_0": theory.scan_end(**sizes(verdict)), "t_0": theory.snap_start(**sizes(verdict))}
    for gradient in ("modified", "true"):
        name = f"flow, {gradient} gradient, eta_Y/eta_Z = 10"
        apart = np.abs(lines["exact form"] - lines[name]).max() / lines[name].max()
        label = f"B_n, exact form, against -z of the common token, {name}"
        assert apart == pytest.approx(measurement(verdict, label).deviation, rel=1e-9)
        slower = lines[f"flow, {gradient} gradient, eta_Y/eta_Z = 1000"]
        assert slower[0] == pytest.approx(lines[name][0] / 100, rel=1e-2)  # at first in proportion to eta_Z


@lines
def corollary_1(verdict: Verdict, curve: Curve) -> None:
    assert_allclose(curve.lines["Corollary 1"], theory.residual_norm(curve.x, **sizes(verdict)), rtol=1e-12)
    for gradient in ("modified", "true"):
        ratio = curve.lines["Corollary 1"] / curve.lines[f"measured, {gradient} gradient"]
        worst = measurement(verdict, f"|e_n - alpha_n|, {gradient} gradient").deviation
        assert np.abs(ratio - 1).max() == pytest.approx(worst, rel=1e-3)  # the classes are symmetric


@lines
def corollary_2(verdict: Verdict, curve: Curve) -> None:
    assert len(verdict.setting.classes.common_tokens) == 3
    for line in curve.lines.values():
        assert (np.diff(line, prepend=0.0) < 0).all()


@lines
def remark_1(verdict: Verdict, curve: Curve) -> None:
    rho = float(theory.overlaps(theory.directions(verdict.setting.probs))[0, 1])
    published, own, other = curve.lines.values()
    assert_allclose(published, (1 - rho) * 1599 * growth(verdict, curve.x / 3), rtol=1e-12)
    worst = measurement(verdict, "logits w_n, published")
    assert (published[-1], own[-1]) == pytest.approx((worst.predicted, worst.measured), rel=1e-9)
    assert_allclose(other, rho * own, rtol=0.03)  # the rows of Y that classes share raise all next tokens together


@lines
def remark_2_start(verdict: Verdict, curve: Curve) -> None:
    scaled = 1600 * growth(verdict, curve.x)
    assert_allclose(curve.lines["exp(M h) / ((M - 1) M h)"], np.exp(scaled) / (1599 * scaled), rtol=1e-12)
    assert (curve.lines["overtaken"] == 1).all()
    for form in ("published", "exact"):
        start = theory.shift_start(vocab_size=1600, lr_y=0.5, form=form)
        assert curve.marks[f"s_1, {form}"] == pytest.approx(start, rel=1e-12)
    starts = sorted(curve.marks.values())
    assert (curve.x[0], curve.x[-1]) == pytest.approx((starts[0] / 10, starts[1] * 10), rel=1e-12)
    assert len(curve.x) == 81


@lines
def assumption_2(verdict: Verdict, curve: Curve) -> None:
    assert curve.x.tolist() == [2, 6, 10, 20]
    assert_allclose(curve.lines["limit, 1/K"], 1 / curve.x, rtol=1e-12)
    tops = [
        measurement(verdict, f"|lambda_1| against 1/K, Syn-Medium, {count:g} queries").measured for count in curve.x / 2
    ]
    assert_allclose(curve.lines["|lambda_1|"], tops, rtol=1e-12)


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
def equation_88(verdict: Verdict, curve: Curve) -> None:
    against("exact form", 1e-9)(verdict, curve)
    worst = measurement(verdict, "beta, published form")
    assert np.abs(curve.lines["published form"] - curve.x).max() / curve.x.max() == pytest.approx(worst.deviation)


@lines
def equation_93(verdict: Verdict, curve: Curve) -> None:
    for form in ("published", "exact"):
        used = [entry.deviation for entry in verdict.measurements if f"{form} bound" in entry.label]
        assert curve.lines[f"{form} bound"].max() == pytest.approx(max(used), rel=1e-9)
    ratio = curve.lines["published bound"] / curve.lines["exact bound"]
    assert_allclose(ratio, (1 + curve.x) / (1 - curve.x), rtol=1e-9)
    assert (curve.lines["what a lower bound may be"] == 1).all()
    assert set(curve.dots) == {"published bound", "exact bound"}


@lines
def equation_112(verdict: Verdict, curve: Curve) -> None:
    """r(t) = 15 (1 + t)^2 for tokens of probabilities 0.4 and 0.1: dr/dt = 30 (1 + t)."""
    assert_allclose(curve.lines["as printed"], 15 * (1 + curve.x), rtol=1e-12)
    assert_allclose(curve.lines["with the factor 2"], 30 * (1 + curve.x), rtol=1e-12)
    assert_allclose(curve.lines["measured"], 30 * (1 + curve.x), rtol=1e-8)


@lines
def equation_132(verdict: Verdict, curve: Curve) -> None:
    """From a hundred times the published time on, to ten times the logarithm that the exact one asks for."""
    more = {**sizes(verdict), "lr_z": verdict.setting.lr_z, "constant": 3.0}
    assert len(curve.x) == 81
    assert curve.x[0] == pytest.approx(100 * theory.late_time(**more, form="published"), rel=1e-12)
    logarithm = [np.log(1000 * 0.5 * t / 10) for t in (curve.x[-1], theory.late_time(**more))]
    assert logarithm[0] == pytest.approx(10 * logarithm[1], rel=1e-12)
    assert_allclose(curve.lines["B_n"], theory.growth_bound(curve.x, **more), rtol=1e-12)
    for form in ("published", "exact"):
        late = theory.growth_bound_late(curve.x, **more, form=form)
        assert_allclose(curve.lines[f"Eq. 132, {form} form"], late, rtol=1e-12)


@lines
def figure_9(verdict: Verdict, curve: Curve) -> None:
    setting, first = verdict.setting, float(theory.scan_end(**sizes(verdict)))
    assert (curve.x[0], curve.x[-1]) == pytest.approx((first / 200, first), rel=1e-12)
    assert len(curve.x) == 61
    assert curve.marks["t'_0/20"] == pytest.approx(first / 20, rel=1e-12)
    whole = theory.growth_bound(curve.x, **sizes(verdict), lr_z=setting.lr_z, constant=1.0, form="published")
    assert_allclose(curve.lines["B_n, Eq. 129"], whole, rtol=1e-12)
    for form, nu in (("published", 0.1), ("exact", 10.0)):
        eq_130 = np.log(1 + 2 * 999**2 / (nu * 10 * 1000**2) * (0.5 * curve.x) ** 2) / 4
        assert_allclose(curve.lines[f"Eq. 130, nu {form}"], eq_130, rtol=1e-12)


@lines
def symmetric_drive(verdict: Verdict, curve: Curve) -> None:
    setting = verdict.setting
    overlap = float(theory.overlaps(theory.directions(setting.probs)).max())
    constant = theory.phase_constant(overlap, num_classes=10)
    published = theory.common_logit(curve.x, **sizes(verdict), lr_z=setting.lr_z, constant=constant)
    assert_allclose(curve.lines["Theorem 4, exact form"], published, rtol=1e-4)  # which takes the overlap at t = 1
    for ratio in (10, 1):
        z, reduced = (curve.lines[f"{name}, eta_Y/eta_Z = {ratio}"] for name in ("flow", "symmetric equations"))
        assert_allclose(z, reduced, atol=1e-4 * np.abs(z).max())
        assert (np.diff(z) < 0).all()


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
def tf_idf(verdict: Verdict, curve: Curve) -> None:
    """Before training attention is P(l|n), so that the lines start together."""
    likeness, raw = curve.lines["attention and TF-IDF"], curve.lines["frequencies and TF-IDF"]
    assert (raw == raw[0]).all()
    assert likeness[0] == pytest.approx(raw[0], rel=1e-5)
    classes = verdict.setting.classes
    weights = theory.tf_idf(classes.probs)[0]
    cosine = classes.probs[0] @ weights / np.linalg.norm(classes.probs[0]) / np.linalg.norm(weights)
    assert raw[0] == pytest.approx(cosine, rel=1e-12)
    worst = measurement(verdict, "attention equals TF-IDF: 1 - cosine")
    assert likeness[-1] == pytest.approx(worst.measured, rel=0.01)


@lines
def residual_beta(verdict: Verdict, curve: Curve) -> None:
    """The classes are symmetric: within a query all beta are equal."""
    classes = verdict.setting.classes
    f = theory.directions(classes.probs)
    published = theory.residual_beta(f, classes.query, form="published")
    assert curve.lines["within a query, as published"][0] == pytest.approx(published[0, 1], rel=1e-4)
    within, true = curve.lines["within a query, modified gradient"], curve.lines["within a query, true SGD"]
    exact = theory.residual_beta(f, classes.query)
    assert within[0] == pytest.approx(exact[0, 1], rel=0.02)
    across = curve.lines["across queries, largest, modified gradient"]
    assert across[0] == pytest.approx(exact[0, 2:].max(), rel=0.02)
    late = curve.x >= 1e3
    share = (curve.lines["across queries, largest, true SGD"] / true)[late].max()
    label = "largest beta across queries over least within, true SGD from 10^3 steps on"
    assert share == pytest.approx(measurement(verdict, label).measured, rel=1e-3)


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
    "energy_law": against("the law", 1e-6),
    "finite_length": against("first order in 1/T", 0.1),
}


MEANS: dict[str, tuple[float, ...]] = {
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
"""The mean of each line, in the order of the picture, where the check is the only one to compute the line."""


def test_lines_are_what_their_names_say(verdict: Verdict) -> None:
    curve = verdict.curve
    assert (curve is not None) == (verdict.id in LINES or verdict.id in MEANS)
    if verdict.id in LINES:
        LINES[verdict.id](verdict, curve)
    elif verdict.id in MEANS:
        means = [line.mean() for line in curve.lines.values()]
        assert_allclose(means, MEANS[verdict.id], rtol=0.005)
