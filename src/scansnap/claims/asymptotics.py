"""Appendix F, Figure 9 and Theorem 1 (b): h, gamma and B_n to leading order, as formulas of K, M and the rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from scansnap import theory
from scansnap.claims.check import FORM_ROLES, Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.phases import section_6_setting
from scansnap.data.synthetic import single_common
from scansnap.theory.overlap import Form


@claim(
    where="Figure 9, caption; Eqs. 130, 131",
    category="misprint",
    setting=section_6_setting,
    depends_on="K, M and the rates",
)
def figure_9(check: Check) -> None:
    r"""$\nu = \eta_Z/\eta_Y$, and $B_n(t_0)$ depends on $K$, $M$ and $\nu$ alone.

    Correction: $\nu = \eta_Y/\eta_Z$, as Appendix F says; the figure's rates are equal, so that both give one

    Check: Eq. 130 with nu read both ways, against Eq. 129; and B_n(t_0) for eta_Y from 1 to 8 at a fixed ratio.
    """
    arguments: dict[str, Any] = {**check.setting.sizes, "lr_y": check.setting.lr_y}
    size, classes, ratio = *check.setting.sizes.values(), check.setting.lr_y / check.setting.lr_z
    t = float(theory.scan_end(**arguments)) / 20
    whole = theory.growth_bound(t, **arguments, lr_z=check.setting.lr_z, constant=1.0, form="published")
    for (form, role), nu in zip(FORM_ROLES, (1 / ratio, ratio), strict=True):
        eq_130 = np.log(1 + 2 * (size - 1) ** 2 / (nu * classes * size**2) * (check.setting.lr_y * t) ** 2) / 4
        check.equal(f"B_n by Eq. 130, nu {form}", eq_130 / whole, 1.0, tolerance=0.005, role=role)
    rates = np.array([1.0, 2.0, 4.0, 8.0])
    start = theory.snap_start(vocab_size=size, num_classes=classes, lr_y=rates)
    at_snap = theory.growth_bound(
        start, vocab_size=size, num_classes=classes, lr_y=rates, lr_z=rates / ratio, constant=1.0
    )
    check.equal("B_n(t_0) for four rates", at_snap[0], at_snap, tolerance=1e-9, role="corrected")


@claim(
    where="Appendix F (1) and (2), with Eqs. 130 and 131",
    category="sharpened",
    setting=section_6_setting,
    wrong_factor=1.02,
    depends_on="K, M and the rates",
)
def appendix_f_orders(check: Check) -> None:
    r"""$h(t/K)$ is $(1 + o(1)) \eta_Y t/(M K)$ up to $t'_0$ and $(1 + o(1)) \ln(M \eta_Y t/K)/M$ from $t_0$ on.

    Conditions: $o(1)$ as $M$ grows

    Check: h over its leading order in both phases for M from 100 to 10^12, against bounds of order 1/ln M.

    Let y = M h, x = eta_Y t/K: Eq. 45 is e^y - 1 + (M - 1) y = M x.  Early, e^y - 1 >= y gives y <= x.  y is concave
    in x, so that y/x falls; at x = ln M, y = ln M - v has e^-v = v + (ln M + 1 - v)/M > v, so v < 0.5672.  Late,
    e^y >= (M - 1) y (Lemma 8) gives M x + 1 <= 2 e^y, and (M - 1) y >= 0 gives e^y <= M x + 1.  Hence

        1 - 0.5672/ln M <= y/x <= 1  for x <= ln M,        |y - ln(M x + 1)| <= ln 2  from t_0 on.
    """
    count, rate = check.setting.classes.num_classes, check.setting.lr_y
    size = np.array([1e2, 1e3, 1e4, 1e6, 1e9, 1e12])
    arguments: dict[str, Any] = {"vocab_size": size, "num_classes": count, "lr_y": rate}
    first, second = theory.scan_end(**arguments), theory.snap_start(**arguments)
    early = np.geomspace(1e-3, 1, 41)[:, None] * first
    late = np.geomspace(1, 1e12, 41)[:, None] * second
    scaled, grown = (size * theory.decoder_growth(t / count, vocab_size=size, lr_y=rate) for t in (early, late))
    leading, logarithm = rate * early / count, np.log(size * rate * late / count)
    check.at_most("M h over eta_Y t/K up to t'_0", scaled / leading, 1.0)
    check.at_least("M h over eta_Y t/K up to t'_0, from below", scaled / leading, 1 - 0.5672 / np.log(size))
    check.at_most("M h over ln(M eta_Y t/K) from t_0 on", grown / logarithm, 1 + np.exp(-logarithm) / logarithm)
    check.at_least("M h over ln(M eta_Y t/K) from t_0 on, from below", grown / logarithm, 1 - np.log(2) / logarithm)


@claim(
    where="Appendix F (3), Eq. 132",
    category="too strong",
    setting=lambda: Setting(single_common(), lr_y=0.5, lr_z=2e-4),
    wrong_factor=1.05,
    depends_on="K, M and the rates",
)
def equation_132(check: Check) -> None:
    r"""For $t \gg \exp(1/\sqrt{2 \nu})/(M \eta_Y)$ $B_n$ is $\frac{1}{2} \ln \ln(M \eta_Y t/K) + \frac{1}{4} \ln(2 K
    (M-1)^2/(M^2 \nu))$.

    Conditions: $\nu = \eta_Y/\eta_Z$ fixed

    Correction: $\ln(M \eta_Y t/K) \gg \sqrt{\nu C_0/(2 K)}$; a time far beyond the one at which the two are equal is
    not enough, and the printed time is that one up to $K$ and $C_0$ if $\nu$ is read upside down, as in Figure 9's
    caption; as $t \to \infty$ the printed $1 + o(1)$ absorbs $-\frac{1}{4} \ln C_0$, which belongs to $B_n$

    Check: The expansion against B_n with C_0 = 3: a hundred times later than published, and at ten times the logarithm.
    """
    more: dict[str, Any] = {**check.setting.sizes, **check.setting.rates, "constant": 3.0}
    ratio = check.setting.lr_y / check.setting.lr_z
    unit = more["num_classes"] / (more["vocab_size"] * check.setting.lr_y)
    times: dict[Form, float] = {
        "published": 100 * float(theory.late_time(**more, form="published")),
        # ten times the logarithm that it must outgrow, unless that overflows
        "exact": unit * float(np.exp(min(10 * np.sqrt(3.0 * ratio / (2 * more["num_classes"])), 600.0))),
    }
    for form, role in FORM_ROLES:
        late = theory.growth_bound_late(times[form], **more, form=form)
        bound = theory.growth_bound(times[form], **more)
        check.equal(f"B_n by Eq. 132, {form} form and time", late, bound, tolerance=0.02, role=role)
    for factor in (1e3, 1e6):
        time = factor * float(theory.late_time(**more))
        label = f"B_n by Eq. 132, exact form, {factor:g} times the time of equal terms"
        late, bound = theory.growth_bound_late(time, **more), theory.growth_bound(time, **more)
        check.equal(label, late, bound, tolerance=0.02, role="contrast")
    over = np.geomspace(times["published"], times["exact"], 81)
    check.curve = Curve(
        over,
        {
            "B_n": theory.growth_bound(over, **more),
            "Eq. 132, published form": theory.growth_bound_late(over, **more, form="published"),
            "Eq. 132, exact form": theory.growth_bound_late(over, **more),
        },
        "steps, from a hundred times the published time on",
        "B_n",
    )


@claim(
    where="Theorem 1 (b), Theorem 4, attention snapping",
    category="misprint",
    setting=section_6_setting,
    wrong_factor=3.0,
    depends_on="K, M and the rates",
)
def theorem_1_b(check: Check) -> None:
    r"""From $t_0$ on $\gamma = O(K \ln(\eta_Y t/K)/(\eta_Y t))$.

    Conditions: a constant that does not depend on $M$; two is enough for the form with $M$ (Eq. 57)

    Correction: $\gamma = O(K \ln(M \eta_Y t/K)/(\eta_Y t))$, as in Lemma 9: an $M$ is lost from the logarithm, and at
    $t_0$ the printed form falls short by a factor that grows like $\ln M / \ln \ln M$

    Check: gamma(t_0), by Eq. 85, over both forms for M from 1,600 to 10^9; the ratios depend on M alone.
    """
    classes, rate = check.setting.classes.num_classes, check.setting.lr_y
    size = np.array([1.6e3, 1e4, 1e6, 1e9])
    arguments: dict[str, Any] = {"vocab_size": size, "num_classes": classes, "lr_y": rate}
    start = theory.snap_start(**arguments)
    per_class = rate * start / classes
    gamma = theory.speed(start, **arguments)
    for m, ratio in zip(size, gamma * per_class / np.log(per_class), strict=True):
        check.at_most(f"gamma(t_0) over the printed form, M = {m:g}", ratio, 2.0)
    with_size = gamma * per_class / np.log(size * per_class)
    check.at_most("gamma(t_0) over the form with M", with_size, 2.0, role="corrected")


@claim(
    where="Appendix F (3), Eq. 133",
    category="sharpened",
    setting=lambda: Setting(single_common(), lr_y=0.5, lr_z=2e-4),
    wrong_factor=1.1,
    depends_on="K, M and the rates",
)
def equation_133(check: Check) -> None:
    r"""Late $B_n$ is $\Theta(\ln \ln(M \eta_Z \nu t/K) - \ln(\nu/K))$.

    Conditions: $\nu = \eta_Y/\eta_Z$ fixed, as printed, and $t \to \infty$

    Correction: $\frac{1}{2} \ln \ln(M \eta_Y t/K) - \frac{1}{4} \ln(\nu/(2K)) - \frac{1}{4} \ln C_0$: half the weight
    of $\ln \nu$; the printed form is not uniform in $\nu$ and may be negative where $B_n$ is positive, so (a) and (b),
    which compare values of $\nu$, rest on Eq. 129

    Check: B_n over the printed form at 10^(10^50) steps; signs from twice the logarithm of equal terms on, C_0 = 3.
    """
    more: dict[str, Any] = {**check.setting.sizes, **check.setting.rates, "constant": 3.0}
    classes, ratio = more["num_classes"], check.setting.lr_y / check.setting.lr_z
    unit = classes / (more["vocab_size"] * check.setting.lr_y)
    log_time = 1e50 * np.log(10)  # of a time far beyond what a float can hold: h has its leading order, ln(...)/M
    whole = np.log(2 * classes * log_time**2 / (ratio * 3.0)) / 4
    late_form = np.log(log_time) - np.log(ratio / classes)
    check.equal("B_n over the printed form at 10^(10^50) steps", 0.5, whole / late_form, tolerance=0.05)
    times = unit * np.exp(np.geomspace(2, 25, 41) * np.sqrt(ratio * 3.0 / (2 * classes)))
    printed = np.log(np.log(times / unit)) - np.log(ratio / classes)
    late, exact = theory.growth_bound_late(times, **more), theory.growth_bound(times, **more)
    check.positive("the printed form where B_n is positive, finite times", printed[exact > 0], role="beyond")
    check.positive("Eq. 132 with -1/4 ln C_0", late[exact > 0], role="corrected")
    check.curve = Curve(times, {"B_n": exact, "Eq. 133": printed, "Eq. 132, exact form": late}, "steps", "B_n")
