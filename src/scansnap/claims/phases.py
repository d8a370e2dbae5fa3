"""Theorem 4: the phase transition as published, as derived, and under SGD.

Theorem 4's two bullets: how the growth factor chi of the dominant token grows
------------------------------------------------------------------------------
For any path with xi_n >= 0 and f(t) >= f(0), dz = eta_Z P(n) f^2 xi_n dt gives f(0)^2 P(n) B_n <= z <= P(n) B_n (Eq. 12
with P(n), `theory.growth_factor_bounds`).  With Theorem 4's B_n = 1/4 ln(1 + 4 Gamma/C_0) and P(n) = 1/K,

    (1 + 4 Gamma/C_0)^(f(0)^2/(2K))  <=  chi  <=  (1 + 4 Gamma/C_0)^(1/(2K)).

While attention scans Gamma grows like t^2, so chi grows at most like t^(1/K); after the snap Gamma grows like ln^2 t,
so chi grows at most like (ln t)^(1/K).  The text has neither 1/K, and C_0 + 4 Gamma, which is not one at t = 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scansnap import theory
from scansnap.claims.check import FORM_ROLES, GRADIENT_ROLES, Check, Curve, Setting, assumed_setting
from scansnap.claims.claim import claim
from scansnap.claims.decoder import weak_setting
from scansnap.claims.population import (
    FloatArray,
    dominant_growth,
    flow_logits,
    growth_bound,
    integral,
    phase_constant,
    symmetric_flow,
    trajectory,
)
from scansnap.data.synthetic import single_common
from scansnap.theory.reduced_dynamics import DecoderGradient


def section_6_setting() -> Setting:
    """Ten classes of one query with one common token, M = 1000, eta_Y/eta_Z = 10: the picture of Section 6."""
    return Setting(single_common(), lr_y=0.5, lr_z=0.05)


@claim(
    where="Theorem 4, attention scanning",
    category="error",
    setting=weak_setting,
    wrong_factor=1.5,
    needs=("several classes", "distinct tokens", "one common token", "one query", "symmetric classes"),
)
def theorem_4_scanning(check: Check) -> None:
    r"""Up to $t'_0$ $\chi$ is at least $e^{2 f(0)^2 B_n}$, about $((\rho_0^4 + 2 \eta_Y \eta_Z t^2)/K)^{f(0)^2/2}$:
    (sub-)linear.

    Conditions: one common token, one query, modified gradient, $\eta_Y \gg \eta_Z$, $(K - 1) f_n \cdot f_{n'} \ll 1$
    for Eq. 13

    Correction: $\chi$ is at least $(1 + 4 \Gamma/C_0)^{f(0)^2/(2K)}$ and at most $(1 + 4 \Gamma/C_0)^{1/(2K)}$, up to
    what Eqs. 12 and 13 neglect: at $t = 0$ the printed bound is not one but $C_0^{f(0)^2/2}$, and it has no $P(n) =
    1/K$.  It is the upper bound that makes $\chi$ sub-linear, and more so: at most $t^{1/K}$

    Check: ln chi along flows up to t'_0 against both forms of the bounds, and its exponent in t; both gradients.
    """
    setting = check.setting
    end = float(theory.scan_end(**setting.sizes, lr_y=setting.lr_y))
    times = np.geomspace(end / 1000, end, 25)
    f = theory.directions(setting.probs)[0]
    own = np.isin(setting.classes.contextual_tokens, setting.classes.distinct_tokens(0))
    start, share = float(f[own].max()), 1 / setting.classes.num_classes
    published, exact = growth_bound(setting, times, "published"), growth_bound(setting, times)
    growth, true = (dominant_growth(symmetric_flow(setting, times, gradient)) for gradient, _ in GRADIENT_ROLES)
    lower, upper = 2 * start**2 * share * exact, 2 * share * exact
    check.at_least("ln chi against the printed lower bound, modified gradient", growth, 2 * start**2 * published)
    label = "ln chi against 0.9 of the lower bound with C_0 and P(n), modified gradient"
    check.at_least(label, growth, 0.9 * lower, role="corrected")
    check.curve = Curve(
        times,
        {
            "lower bound, printed": 2 * start**2 * published,
            "lower bound, with C_0 and P(n)": lower,
            "ln chi, modified gradient": growth,
            "ln chi, true gradient": true,
            "upper bound, with C_0 and P(n)": upper,
        },
        "steps, up to t'_0",
        "ln chi of the dominant token",
        log_y=True,
    )


@claim(
    where="Theorem 4, attention snapping",
    category="sharpened",
    setting=section_6_setting,
    wrong_factor=1.1,
    needs=("several classes", "distinct tokens", "one common token", "one query", "symmetric classes"),
)
def theorem_4_snapping(check: Check) -> None:
    r"""From $t_0$ on the growth factor $\chi$ of the dominant token is $O(\ln t)$.

    Conditions: one common token, one query

    Check: d ln chi/d lnln t from 1,000 t_0 to 10^150 steps along both flows, against 1/K; and that of the upper bound.

    The measured exponent is at most 4% of 1/K with the modified gradient and 23% under SGD: the printed order is an
    upper bound, which a flow far below it can check only so loosely.  The bound's own exponent is checked closely.
    """
    setting = check.setting
    start = float(theory.snap_start(**setting.sizes, lr_y=setting.lr_y))
    times = np.geomspace(1e3 * start, 1e150, 61)
    share = 1 / setting.classes.num_classes
    depth = np.log(np.log(setting.classes.vocab_size * setting.lr_y * times * share))
    bound = growth_bound(setting, times)
    lines = {"1/K": np.full(60, share), "upper bound, e^(2 B_n/K)": 2 * share * np.diff(bound) / np.diff(depth)}
    for gradient, role in GRADIENT_ROLES:
        exponent = np.diff(dominant_growth(symmetric_flow(setting, times, gradient))) / np.diff(depth)
        label = f"exponent of chi in ln t, against 1/K, {gradient} gradient"
        check.at_most(label, exponent, share, role=role, wrong_factor=30.0)
        lines[f"measured, {gradient} gradient"] = exponent
    label = "exponent of the upper bound e^(2 B_n/K), against 1/K, at 10^150 steps"
    check.equal(label, share, lines["upper bound, e^(2 B_n/K)"][-1], tolerance=0.03)
    check.curve = Curve(times[1:], lines, "steps, from 1,000 t_0 on", "d ln chi / d lnln(M eta_Y t/K)")


def _exponent(x: FloatArray, y: FloatArray) -> float:
    """The slope of ln y against ln x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@claim(
    where="Theorem 4, how far attention gets, Eqs. 14 and 118 to 133",
    category="error",
    setting=lambda: Setting(single_common(num_distinct=20), lr_y=0.5, lr_z=0.05),
    wrong_factor=1.1,
    needs=("one common token", "one query"),
)
def theorem_4(check: Check) -> None:
    r"""$B_n = \frac{1}{4} \ln(C_0 + 4 \Gamma)$: attention scans like $\ln t$ up to $t'_0$ and snaps to $\ln \ln t$ from
    $t_0$ on.

    Conditions: one common token, one query, $\dot z = -\eta_Z \gamma e^{4z}/C_0$ (Eqs. 118, 119), modified gradient

    Correction: from its premises $B_n = \frac{1}{4} \ln(1 + 4 \Gamma/C_0)$, so that $B_n(0) = 0$; the premises neglect
    $(K-1) o$ beside one and the decoder's lag, with which $-z$ under the modified gradient is a function of $M h(t/K)
    \sqrt{\eta_Z/\eta_Y}$ (theory.lagged_attention); under true SGD neither holds: $\beta$ starts at $1/M$ (see
    symmetric_drive)

    Check: B_n from its premises; exponents of both phases; -z of the common token along flows up to 10^12 steps,
    against B_n and with the decoder's lag.
    """
    setting, classes = check.setting, check.setting.classes
    arguments: dict[str, Any] = {**setting.sizes, "lr_y": setting.lr_y}
    first, second = float(theory.scan_end(**arguments)), float(theory.snap_start(**arguments))
    times = np.geomspace(min(1.0, first / 100), 1e12, 97)
    integral = _integrated(setting, times)
    lines = {}
    for form, role in FORM_ROLES:
        bound = lines[f"{form} form"] = growth_bound(setting, times, form)
        label = f"B_n against the integral of Eqs. 118 and 119, {form} form"
        check.equal(label, bound, integral, tolerance=1e-3, role=role)
    slower = replace(setting, lr_z=setting.lr_y / 1000)
    settings = {f"eta_Y/eta_Z = {each.lr_y / each.lr_z:g}": each for each in (setting, slower)}
    for gradient, _ in GRADIENT_ROLES:
        for ratio, each in settings.items():
            lines[f"flow, {gradient} gradient, {ratio}"] = _lost(each, times, gradient)
    early, late = times <= first / 10, times >= second * 1000
    log_time = np.log(classes.vocab_size * setting.lr_y * times / classes.num_classes)
    for name, values in lines.items():
        if name == "published form":
            continue
        role = "corrected" if name == "exact form" else "beyond"
        grown = np.expm1(4 * values)
        for phase, x, within in (("scanning", times, early), ("snapping", log_time, late)):
            if within.sum() > 2:
                label = f"{phase}: exponent of e^(4B) - 1 in {'t' if x is times else 'ln(M eta_Y t/K)'}, {name}"
                check.equal(label, 2.0, _exponent(x[within], grown[within]), tolerance=0.05, role=role)
        if role == "beyond" and not name.endswith("= 1000"):
            label = f"B_n, exact form, against -z of the common token, {name}"
            check.equal(label, lines["exact form"], values, tolerance=0.05, role=role)
    for ratio, each in settings.items():
        _check_flow(check, each, times, lines[f"flow, modified gradient, {ratio}"], ratio)
    weak, ratio = assumed_setting(), "three classes that meet all assumptions"
    some = times[::8]
    _check_flow(check, weak, some, _lost(weak, some, "modified"), ratio)
    label = f"B_n over -z at t = {some[-1]:.3g}, true gradient, {ratio}"
    ahead = growth_bound(weak, some[-1]) / _lost(weak, some, "true")[-1]
    check.equal(label, 1.0, ahead, tolerance=0.05, role="beyond")
    drawn = {f"B_n, {form} form, {next(iter(settings))}": lines.pop(f"{form} form") for form, _ in FORM_ROLES}
    drawn |= {f"B_n, exact form, {ratio}": growth_bound(each, times) for ratio, each in list(settings.items())[1:]}
    marks = {"t'_0": first, "t_0": second}
    check.curve = Curve(times, drawn | lines, "steps", "B_n, or -z of the common token in flows", marks=marks)


def _check_flow(check: Check, setting: Setting, times: FloatArray, lost: FloatArray, name: str) -> None:
    """-z of the common token along a flow with the modified gradient: B_n over it, and it with the decoder's lag."""
    classes, rate = setting.classes, setting.lr_y
    sizes: dict[str, Any] = {"vocab_size": classes.vocab_size, "lr_y": rate}
    bound = growth_bound(setting, times)
    for i in (0, -1):
        label = f"B_n over -z at t = {times[i]:.3g}, modified gradient, {name}"
        check.equal(label, 1.0, bound[i] / lost[i], tolerance=0.05, role="beyond")
    if np.ptp(classes.weights) < 1e-12 and setting.lr_z <= rate:
        growth = classes.vocab_size * theory.decoder_growth(times / classes.num_classes, **sizes)
        tau = growth * np.sqrt(setting.lr_z / rate)
        lagged = theory.lagged_attention(tau, probs=setting.probs, query=classes.query).attention_logits
        token = int(np.searchsorted(classes.contextual_tokens, classes.common_tokens[0]))
        label = f"-z with the decoder's lag over -z of the flow, modified gradient, {name}"
        check.equal(label, -lagged[:, 0, token] / lost, 1.0, tolerance=0.02, role="corrected")


def _lost(setting: Setting, times: FloatArray, gradient: DecoderGradient) -> FloatArray:
    """-z of the common token along a flow."""
    logits = flow_logits(setting.classes, times=times, **setting.rates, decoder_gradient=gradient)
    return -logits.sel(token=setting.classes.common_tokens[0]).values[:, 0]


def _integrated(setting: Setting, times: FloatArray) -> FloatArray:
    """eta_Z int xi_n up to each time by Simpson's rule in log time, with xi_n from Eq. 123."""
    fine = np.geomspace(times[0] * 1e-6, times[-1], 16_001)
    gamma = theory.speed(fine, **setting.sizes, lr_y=setting.lr_y)
    xi = gamma / (phase_constant(setting) + 4 * integral(setting.lr_z * gamma, fine))
    return np.interp(np.log(times), np.log(fine), integral(setting.lr_z * xi, fine))


@claim(
    where="Section 6, Eq. 13, with Eq. 10 as published",
    category="error",
    setting=section_6_setting,
    needs=("one common token", "one query", "symmetric classes"),
)
def equation_13(check: Check) -> None:
    r"""One $C_0 = \rho_0^4/K$ serves $\dot z$ of the common token and the drive $\xi_n$ alike.

    Conditions: one common token, one query

    Correction: by Eq. 10 as published $\dot z$ sums over the $K$ classes of the query, $\xi_n$ does not: $-\dot z$ is
    $K$ times $\eta_Z \xi_n (1 - f^2)$; with $P(n)$ in Eq. 10 the two agree, and to leading order in the overlap $o =
    P(l|n)^2 e^{2z}/\rho_0^2$ it is $C_0 = 1/((K-1) o^2)$: the text has $K$ for the $K - 1$ terms, drops $P(l|n)^2$ and
    writes $f_{nl'}$ for $f_{n'l}$; at the start, with Theorem 1's $\beta$, $\dot z$ has $C_0 = (1 + (K-1) o)/((K-1)
    o^2)$

    Check: -dz/dt of the common token over eta_Z xi_n (1 - f^2) at the start, with and without P(n); C_0 against dz/dt
    of a flow with the modified gradient after a hundredth of a step.
    """
    classes = check.setting.classes
    f = theory.directions(check.setting.probs)
    e = theory.overlaps(f)
    _, beta = theory.backpropagated_gradient(e, vocab_size=classes.vocab_size)
    xi = theory.drive(e, beta, speed=1.0)
    token = int(np.searchsorted(classes.contextual_tokens, classes.common_tokens[0]))
    for form, role in FORM_ROLES:
        rate = theory.logits_velocity(f, beta, query=classes.query, speed=1.0, lr_z=1.0, form=form)
        ratio = -rate[0, token] / (xi[0] * (1 - f[0, token] ** 2))
        check.equal(f"-dz/dt / (xi_n (1 - f^2)), {form} Eq. 10", 1.0, ratio, tolerance=1e-6, role=role)
    squared = np.linalg.norm(check.setting.probs[0]) ** -2
    published = theory.phase_constant(squared, num_classes=classes.num_classes, form="published")
    label = "C_0 xi_n/gamma with beta = f_n . f_n', published C_0"
    check.equal(label, 1.0, published * (e[0] ** 2).sum(), tolerance=1e-6)
    early = 0.01
    (state,), _ = trajectory(classes, times=np.array([early]), **check.setting.rates, decoder_gradient="modified")
    gamma = float(theory.speed(early, **check.setting.sizes, lr_y=check.setting.lr_y))
    initial = theory.phase_constant(e[0, 1], num_classes=classes.num_classes, form="initial")
    ratio = -initial * state.velocity()[1][0, token] / gamma
    label, tolerance = "C_0 times -dz/dt/(eta_Z gamma) of the flow at its start, initial C_0", 6 / classes.vocab_size
    check.equal(label, 1.0, ratio, tolerance=tolerance, wrong_factor=1.02, role="corrected")


@claim(
    where="abstract; Section 6, first paragraph; Theorem 4, attention snapping",
    category="holds",
    setting=section_6_setting,
    wrong_factor=1.2,
    needs=("one common token", "one query", "symmetric classes"),
)
def winner_takes_all(check: Check) -> None:
    r"""Attention does not become winner-takes-all, although $B_n$ grows to infinity.

    Conditions: one common token, one query, a fixed ratio $\eta_Y/\eta_Z$; observed in one setting of symmetric
    classes, at rates of 0.5 and less; at $\eta_Z = 100$ training ends on one of ten tokens (few_tokens)

    Check: B_n up to 10^150 steps, and the share of the most probable distinct token among them along both flows.
    """
    setting = check.setting
    late = growth_bound(setting, [1e75, 1e150])
    check.equal("gain of B_n from 10^75 to 10^150 steps", np.log(2) / 2, late[1] - late[0], tolerance=0.05)
    times = 10.0 ** np.array([0.0, 3, 6, 12, 25, 50, 75, 100, 125, 150])
    lines = {}
    for gradient, _ in GRADIENT_ROLES:
        for ratio in (setting.lr_y / setting.lr_z, 1000.0):
            reduced = symmetric_flow(setting, times, gradient, lr_y=setting.lr_y, lr_z=setting.lr_y / ratio)
            attention = reduced.distinct_attention
            share = attention.max(axis=1) / attention.sum(axis=1)
            name = f"{gradient} gradient, eta_Y/eta_Z = {ratio:g}"
            label = f"largest share among distinct tokens after 10^150 steps, {name}"
            check.equal(label, share[3], share[-1], tolerance=0.02)
            lines[name] = share
    check.curve = Curve(times, lines, "steps", "share of the most probable of the distinct tokens")
