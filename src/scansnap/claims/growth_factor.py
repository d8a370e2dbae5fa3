"""Theorem 4's two bullets: how the growth factor chi of the dominant token grows while attention scans and snaps.

For any path with xi_n >= 0 and f(t) >= f(0), dz = eta_Z P(n) f^2 xi_n dt gives f(0)^2 P(n) B_n <= z <= P(n) B_n (Eq. 12
with P(n), `theory.growth_factor_bounds`).  With Theorem 4's B_n = 1/4 ln(1 + 4 Gamma/C_0) and P(n) = 1/K,

    (1 + 4 Gamma/C_0)^(f(0)^2/(2K))  <=  chi  <=  (1 + 4 Gamma/C_0)^(1/(2K)).

While attention scans Gamma grows like t^2, so chi grows at most like t^(1/K); after the snap Gamma grows like ln^2 t,
so chi grows at most like (ln t)^(1/K).  The text has neither 1/K, and C_0 + 4 Gamma, which is not one at t = 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scansnap import theory
from scansnap.claims.check import Check, Curve, Role, Setting
from scansnap.claims.claim import claim
from scansnap.claims.decoder import weak_setting
from scansnap.claims.population import FloatArray
from scansnap.claims.symmetry import symmetric_arguments
from scansnap.data.synthetic import single_common
from scansnap.theory.reduced_dynamics import DecoderGradient


def _arguments(check: Check) -> dict[str, Any]:
    """The arguments of `theory.growth_bound` but for `form`."""
    classes = check.setting.classes
    overlap = float(theory.overlaps(theory.directions(check.setting.probs)).max())
    return {
        "vocab_size": classes.vocab_size,
        "num_classes": classes.num_classes,
        "lr_y": check.setting.lr_y,
        "lr_z": check.setting.lr_z,
        "constant": theory.phase_constant(overlap, num_classes=classes.num_classes),
    }


def _log_growth(check: Check, times: FloatArray, gradient: DecoderGradient) -> FloatArray:
    """ln chi of the dominant token along a flow."""
    run = theory.symmetric_flow(
        times,
        **symmetric_arguments(check.setting.classes),
        lr_y=check.setting.lr_y,
        lr_z=check.setting.lr_z,
        decoder_gradient=gradient,
    )
    return 2 * run.distinct_logits.max(axis=1)


def _transition(check: Check) -> tuple[float, float]:
    """t'_0 and t_0."""
    classes = check.setting.classes
    sizes: dict[str, Any] = {
        "vocab_size": classes.vocab_size,
        "num_classes": classes.num_classes,
        "lr_y": check.setting.lr_y,
    }
    return float(theory.scan_end(**sizes)), float(theory.snap_start(**sizes))


@claim(
    r"Up to $t'_0$ $\chi$ is at least $e^{2 f(0)^2 B_n}$, about $((\rho_0^4 + 2 \eta_Y \eta_Z t^2)/K)^{f(0)^2/2}$: "
    "(sub-)linear.",
    where="Theorem 4, attention scanning",
    category="error",
    conditions=r"one common token, one query, modified gradient, $\eta_Y \gg \eta_Z$, $(K - 1) f_n \cdot f_{n'} \ll "
    "1$ for Eq. 13",
    setting=weak_setting,
    wrong_factor=1.5,
    correction=r"$\chi$ is at least $(1 + 4 \Gamma/C_0)^{f(0)^2/(2K)}$ and at most $(1 + 4 \Gamma/C_0)^{1/(2K)}$, up "
    "to what Eqs. 12 and 13 neglect: at $t = 0$ the printed bound is not one but $C_0^{f(0)^2/2}$, and it has no "
    r"$P(n) = 1/K$.  It is the upper bound that makes $\chi$ sub-linear, and more so: at most $t^{1/K}$",
    needs=("several classes", "distinct tokens", "one common token", "one query", "symmetric classes"),
)
def theorem_4_scanning(check: Check) -> None:
    """ln chi along flows up to t'_0 against both forms of the bounds, and its exponent in t; both gradients."""
    more = _arguments(check)
    end, _ = _transition(check)
    times = np.geomspace(end / 1000, end, 25)
    f = theory.directions(check.setting.probs)[0]
    own = np.isin(check.setting.classes.contextual_tokens, check.setting.classes.distinct_tokens(0))
    start, share = float(f[own].max()), 1 / check.setting.classes.num_classes
    published, exact = (theory.growth_bound(times, **more, form=form) for form in ("published", "exact"))
    growth = _log_growth(check, times, "modified")
    lower, upper = 2 * start**2 * share * exact, 2 * share * exact
    check.at_least("ln chi against the printed lower bound, modified gradient", growth, 2 * start**2 * published)
    check.at_least(
        "ln chi against 0.9 of the lower bound with C_0 and P(n), modified gradient",
        growth,
        0.9 * lower,
        role="corrected",
    )
    check.at_most(
        "ln chi against the upper bound with C_0 and P(n), modified gradient", growth, upper, role="corrected"
    )
    true = _log_growth(check, times, "true")
    check.at_most("ln chi against the upper bound with C_0 and P(n), true gradient", true, upper, role="contrast")
    check.at_least("ln chi against the lower bound with C_0 and P(n), true gradient", true, lower, role="contrast")
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
    r"From $t_0$ on the growth factor $\chi$ of the dominant token is $O(\ln t)$.",
    where="Theorem 4, attention snapping",
    category="sharpened",
    conditions="one common token, one query",
    setting=lambda: Setting(single_common(), lr_y=0.5, lr_z=0.05),
    wrong_factor=1.1,
    needs=("several classes", "distinct tokens", "one common token", "one query", "symmetric classes"),
)
def theorem_4_snapping(check: Check) -> None:
    """d ln chi/d lnln t from 1,000 t_0 to 10^150 steps along both flows, against 1/K; and that of the upper bound."""
    more = _arguments(check)
    _, start = _transition(check)
    times = np.geomspace(1e3 * start, 1e150, 61)
    share = 1 / check.setting.classes.num_classes
    depth = np.log(np.log(more["vocab_size"] * check.setting.lr_y * times * share))
    bound = theory.growth_bound(times, **more)
    lines = {"1/K": np.full(60, share), "upper bound, e^(2 B_n/K)": 2 * share * np.diff(bound) / np.diff(depth)}
    cases: tuple[tuple[DecoderGradient, Role], ...] = (("modified", "assumed"), ("true", "beyond"))
    for gradient, role in cases:
        exponent = np.diff(_log_growth(check, times, gradient)) / np.diff(depth)
        check.at_most(f"exponent of chi in ln t, against 1/K, {gradient} gradient", exponent, share, role=role)
        lines[f"measured, {gradient} gradient"] = exponent
    check.equal(
        "exponent of the upper bound e^(2 B_n/K), against 1/K, at 10^150 steps",
        share,
        lines["upper bound, e^(2 B_n/K)"][-1],
        tolerance=0.03,
    )
    check.curve = Curve(times[1:], lines, "steps, from 1,000 t_0 on", "d ln chi / d lnln(M eta_Y t/K)")
