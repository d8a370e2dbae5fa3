"""Theorems 2 and 3, Corollary 2: which tokens gain attention, which lose it, and the race among distinct tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap import theory
from scansnap.claims.check import GRADIENT_ROLES, Check, Curve, Role, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import (
    FloatArray,
    distinct_entries,
    first_fall,
    flow_logits,
    integral,
    trained,
    trajectory,
)
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import syn_small, synthetic
from scansnap.theory.reduced_dynamics import DecoderGradient

TIMES = np.geomspace(1, 1e9, 28)


def _velocities(
    check: Check, classes: SequenceClasses, gradient: DecoderGradient
) -> tuple[FloatArray, FloatArray, xr.Dataset]:
    """dz/dt of distinct and of common tokens along a flow (one entry per time, query and token), and the flow."""
    states, result = trajectory(classes, times=TIMES, **check.setting.rates, decoder_gradient=gradient)
    rates = np.array([state.velocity()[1] for state in states])  # (time, Q, S)
    distinct, common = (rates[:, *distinct_entries(classes, kind)] for kind in ("distinct", "common"))
    return distinct, common, result


def unequal_classes() -> SequenceClasses:
    """Two classes of one query with one common token, likelier in one than in the other; they meet Assumption 2."""
    return SequenceClasses.from_supports(
        tokens=[[0, 1, 2], [0, 3, 4]],
        probs=[[0.5, 0.4, 0.1], [0.1, 0.7, 0.2]],
        query=[59, 59],
        next_token=[58, 57],
        vocab_size=4000,
    )


UNEQUAL_RATIOS = (10.0, 100.0, 1000.0)
PUBLISHED_RUN: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 128, "dtype": "float64"}


@claim(
    where="Theorem 2, Eqs. 97 to 100",
    category="too strong",
    wrong_factor=-1.0,
    needs=("a distinct token", "common tokens", "no positions"),
    assumes=("weak_overlap", "no_vanishing_overlap", "independent_classes", "fast_decoder"),
)
def theorem_2(check: Check) -> None:
    r"""Distinct tokens gain attention at all times, and a single common token loses it.

    Conditions: Assumption 2, modified gradient, $T \to \infty$; $\eta_Y \gg \eta_Z$, read as the leading order in
    $\eta_Z/\eta_Y$; to gain is $dz/dt > 0$, of the logit and not of the share

    Correction: under the modified gradient at a finite $\eta_Y/\eta_Z$ a distinct token gains until $M h(t/K)$ is
    $\sqrt{\eta_Y/\eta_Z}$ times a number that depends on the classes alone (theory.first_fall): the decoder lags behind
    attention; true SGD has no such law, and a token may fall sooner or later

    Check: Signs of dz/dt at 28 times from 1 to 10^9 steps; when a token first falls in two unequal classes; signs of z
    after sampled training with finite T and momentum.
    """
    classes = check.setting.classes
    for gradient, role in GRADIENT_ROLES:
        gain, loss, _ = _velocities(check, classes, gradient)
        check.positive(f"dz/dt of distinct tokens, {gradient} gradient", gain, role=role)
        if len(classes.common_tokens) == 1:
            check.positive(f"-dz/dt of the common token, {gradient} gradient", -loss, role=role)
    _check_unequal(check)
    sampled: dict[str, dict[str, Any]] = {
        "T = 128": {"seq_len": 128},
        "T = 128, momentum 0.9": {"seq_len": 128, "momentum": 0.9},
        "T = 20,000": {"seq_len": 20_000},
    }
    for where, data in {"": classes, ", Syn-Small": syn_small()}.items():
        for name, options in sampled.items():
            z = trained(data, "attention_logits", steps=100, seeds=check.seeds(20), **PUBLISHED_RUN, **options)
            for sign, kind in (("", "distinct"), ("-", "common")):
                values = (-1.0 if sign else 1.0) * z[:, *distinct_entries(data, kind)]
                label = f"{sign}z of {kind} tokens, SGD at equal rates, {name}{where}"
                check.positive(label, values, role="contrast" if where else "beyond", allowed=0.01)


def _check_unequal(check: Check) -> None:
    """When a distinct token first falls in two unequal classes: within 10^9 steps, and in units of M h(t/K)."""
    classes, rate = unequal_classes(), check.setting.lr_y
    sizes: dict[str, Any] = {"vocab_size": classes.vocab_size, "lr_y": rate}

    def scaled(steps: float) -> float:
        return classes.vocab_size * float(theory.decoder_growth(steps / classes.num_classes, **sizes))

    lines: dict[str, list[float]] = {"predicted, modified gradient": []}
    for ratio in UNEQUAL_RATIOS:
        rates = {"lr_y": rate, "lr_z": rate / ratio}
        fall = theory.first_fall(Setting(classes).probs, query=classes.query, vocab_size=classes.vocab_size, **rates)
        lines["predicted, modified gradient"].append(scaled(np.nanmin(fall)))
        for gradient, _ in GRADIENT_ROLES:
            name = f"two unequal classes, {gradient} gradient, eta_Y/eta_Z = {ratio:g}"
            measured = first_fall(classes, until=1e36, decoder_gradient=gradient, **rates)
            check.at_least(f"steps until a distinct token falls, {name}", measured, 1e9, role="beyond")
            lines.setdefault(f"{gradient} gradient", []).append(scaled(measured))
            if gradient == "modified":
                label, predicted = f"M h at the first fall, {name}", lines["predicted, modified gradient"][-1]
                check.equal(label, predicted, scaled(measured), tolerance=0.01, role="corrected")
    check.curve = Curve(
        np.array(UNEQUAL_RATIOS),
        {name: np.array(values) for name, values in lines.items()},
        "eta_Y / eta_Z, two unequal classes",
        "M h(t/K) at the first fall of a distinct token",
        log_y=True,
        dots=("modified gradient",),
    )


def symmetric_setting() -> Setting:
    """Three classes of one query, each with three common and 44 distinct tokens, M = 1600: Assumption 2 is met."""
    return Setting(synthetic(num_query=1, next_per_query=3, num_common=3, num_distinct=44, vocab_size=1600))


@claim(
    where="Corollary 2, Eqs. 101 to 107",
    category="holds",
    setting=symmetric_setting,
    wrong_factor=-1.0,
    needs=("several classes", "common tokens", "one query", "symmetric classes"),
    assumes=("weak_overlap", "no_vanishing_overlap", "fast_decoder"),
)
def corollary_2(check: Check) -> None:
    """With symmetric classes of one query all common tokens lose attention.

    Conditions: Assumption 2, one query, matching distinct tokens, common tokens of equal probability, $Z(0) = 0$

    Check: Signs of dz/dt along flows; then with two queries, and with common tokens of unequal probability.
    """
    classes = check.setting.classes
    lines = {}
    for gradient, role in GRADIENT_ROLES:
        _, loss, result = _velocities(check, classes, gradient)
        z = result["attention_logits"].values[0]
        check.positive(f"-dz/dt of common tokens, {gradient} gradient", -loss, role=role)
        lines[f"{gradient} gradient"] = z[:, *distinct_entries(classes, "common")].mean(axis=1)
        if gradient == "modified":
            lists = [np.searchsorted(classes.contextual_tokens, classes.distinct_tokens(n)) for n in range(2)]
            check.equal("z of matching distinct tokens", z[:, 0, lists[0]], z[:, 0, lists[1]], tolerance=1e-6)
    two = synthetic(num_query=2, next_per_query=2, num_common=3, num_distinct=44, vocab_size=1600)
    check.positive("-dz/dt with two queries, true gradient", -_velocities(check, two, "true")[1], role="beyond")
    _, loss, _ = _velocities(check, _uneven(), "modified")
    check.positive("-dz/dt, a common token ten times rarer in one class, modified gradient", -loss, role="beyond")
    check.curve = Curve(TIMES, lines, "steps", "attention logit z (mean over common tokens)")


def _uneven() -> SequenceClasses:
    """The symmetric setting with one common token ten times rarer in the first class."""
    base = symmetric_setting().classes
    probs = base.probs
    probs[0, 0] /= 10
    probs[0] /= probs[0].sum()
    return SequenceClasses(probs=probs, query=base.query, next_token=base.next_token, vocab_size=base.vocab_size)


FINE_TIMES = np.geomspace(1, 1e9, 181)
RATIOS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
PUBLISHED, WITH_WEIGHT, WITH_DRIVE = "B_n as published", "P(n) B_n", "P(n) B_n with the token's drive"
"""What stands for B_n in three forms of Eq. 12."""


def companions(classes: SequenceClasses, attention_logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Growth of the first class's distinct tokens (time, D): predicted from the dominant one's (Eq. 110), and measured.

    Both are in units of the dominant token's own growth.  `attention_logits` (time, S) is the class's row of Z over
    the contextual tokens, from Z(0) = 0.
    """
    ids = classes.distinct_tokens(0)
    probs = classes.probs[0, ids]
    z = attention_logits[:, np.searchsorted(classes.contextual_tokens, ids)]
    leader = attention_logits[:, [dominant_column(classes)]]
    chi = theory.companion_growth(theory.relative_gain(probs.max(), probs), theory.growth_factor(leader))
    return np.log(chi) / 2 / leader, z / leader


def dominant_column(classes: SequenceClasses) -> int:
    """The column of Z of the first class's most probable distinct token."""
    ids = classes.distinct_tokens(0)
    return int(np.searchsorted(classes.contextual_tokens, ids[classes.probs[0, ids].argmax()]))


@claim(
    where="Theorem 3, Eqs. 11 and 108 to 114",
    category="too strong",
    wrong_factor=1.05,
    needs=("distinct tokens", "common tokens", "no positions"),
    assumes=("fast_decoder", "independent_classes"),
)
def theorem_3(check: Check) -> None:
    r"""One growth factor gives all distinct tokens of a class: $r(t) = r(0) \chi(t)$; the dominant token's $f$ grows.

    Conditions: to leading order in $\eta_Z/\eta_Y$; Eq. 98, which the modified gradient with attention fixed implies

    Correction: at a finite $\eta_Y/\eta_Z$ up to a time that grows with it, as for Theorem 2; later the less probable
    token may catch up with the dominant one

    Check: The identity along flows from 1 to 10^9 steps: both decoder gradients, eta_Y/eta_Z from 1000 down to 1, which
    are the claim's own; for two unequal classes too, and there the order of two distinct tokens.
    """
    classes, rate = check.setting.classes, check.setting.lr_y
    worst: dict[str, list[float]] = {}
    for gradient, _ in GRADIENT_ROLES:
        for ratio in RATIOS:
            z = _first_logits(classes, lr_y=rate, lr_z=rate / ratio, decoder_gradient=gradient)
            role: Role = "assumed" if gradient == "modified" and ratio == RATIOS[0] else "beyond"
            predicted, measured = companions(classes, z)
            label = f"growths by Eq. 110, {gradient} gradient, eta_Y/eta_Z = {ratio:g}"
            check.equal(label, predicted, measured, tolerance=0.02, role=role)
            worst.setdefault(gradient, []).append(float(np.abs(predicted - measured).max()))
            if ratio == RATIOS[0]:
                leader = dominant_column(classes)
                f = [theory.directions(check.setting.probs[:1], logits)[0, leader] for logits in z]
                check.positive(f"growth of the dominant f, {gradient} gradient", np.diff(f), role=role)
    _check_unequal_race(check)
    sampled: dict[str, dict[str, Any]] = {"momentum 0.9": {"momentum": 0.9}, "T = 128": {"seq_len": 128}}
    for name, options in sampled.items():
        options = {"batch_size": 128, "seq_len": np.inf, "dtype": "float64", **options}
        z = trained(classes, "attention_logits", steps=400, lr_y=0.1, lr_z=0.001, seeds=check.seeds(20), **options)
        mean = z.mean(axis=0)[[list(classes.queries).index(classes.query[0])]]
        label = f"growths by Eq. 110, SGD with {name}, eta_Y/eta_Z = 100, mean of 20 runs"
        check.equal(label, *companions(classes, mean), tolerance=0.02, role="beyond")
    check.curve = Curve(
        np.array(RATIOS),
        {f"{name} gradient": np.array(v) for name, v in worst.items()},
        "eta_Y / eta_Z",
        "largest error of a growth / dominant growth",
        log_y=True,
    )


def _first_logits(classes: SequenceClasses, **options: Any) -> FloatArray:
    """The first class's row of Z along a flow (time, S)."""
    return flow_logits(classes, times=FINE_TIMES, **options).sel(query=classes.query[0]).values


def _check_unequal_race(check: Check) -> None:
    """Eq. 110 and the growth of r for two unequal classes, modified gradient."""
    classes, rate = unequal_classes(), check.setting.lr_y
    leader, second = (int(np.searchsorted(classes.contextual_tokens, token)) for token in classes.distinct_tokens(0))
    for ratio in UNEQUAL_RATIOS:
        z = _first_logits(classes, lr_y=rate, lr_z=rate / ratio, decoder_gradient="modified")
        name = f"two unequal classes, modified gradient, eta_Y/eta_Z = {ratio:g}"
        check.equal(f"growths by Eq. 110, {name}", *companions(classes, z), tolerance=0.02, role="beyond")
        check.positive(f"growth of r, {name}", np.diff(z[:, leader] - z[:, second]), role="beyond")


@claim(
    where="Theorem 3, Eqs. 12 and 115 to 117",
    category="error",
    wrong_factor=1.5,
    needs=("several classes", "distinct tokens", "common tokens"),
    assumes=("fast_decoder",),
)
def equation_12(check: Check) -> None:
    r"""$\exp(2 f(0)^2 B_n) \le \chi \le \exp(2 B_n)$ for the dominant token, $B_n = \eta_Z \int \xi_n$.

    Conditions: those of Theorem 3; time in steps of batch 1

    Correction: $\exp(2 f(0)^2 P(n) B_n) \le \chi \le \exp(2 P(n) B_n)$ with $B_n = \eta_Z \int \xi_{nl}$: per step
    class $n$ is drawn with probability $P(n)$, and the drive is the dominant token's own, which falls short of $\xi_n$
    by as much as attention has moved; it then holds at any rates while $\xi_{nl} \ge 0$ and $f \ge f(0)$

    Check: Drives measured along flows and integrated over 1 to 10^9 steps; eta_Y/eta_Z of the setting, then 1.

    Both bounds come from ln chi = 2 P(n) eta_Z int f^2 xi_nl with f(0) <= f <= 1.  The upper one is as loose as 1/f^2.
    """
    for gradient, role in GRADIENT_ROLES:
        growth, exact, bounds = _bounded_growth(check, gradient, check.setting.lr_z)
        label = f"ln chi against 2 P(n) eta_Z int f^2 xi of the token, {gradient} gradient"
        check.equal(label, exact, growth, tolerance=1e-3, role="corrected")
        for name, (least, most) in bounds.items():
            form_role: Role = role if name == PUBLISHED else "contrast" if name == WITH_WEIGHT else "corrected"
            check.at_least(f"ln chi from below, {name}, {gradient} gradient", growth, least, role=form_role)
            label = f"ln chi from above, {name}, {gradient} gradient"
            check.at_most(label, growth, most, role=form_role, wrong_factor=20.0)
    growth, exact, bounds = _bounded_growth(check, "true", check.setting.lr_y)
    label = "ln chi against 2 P(n) eta_Z int f^2 xi of the token, true gradient, eta_Y = eta_Z"
    check.equal(label, exact, growth, tolerance=1e-3, role="corrected")
    label = f"ln chi from below, {WITH_DRIVE}, true gradient, eta_Y = eta_Z"
    check.at_least(label, growth, bounds[WITH_DRIVE][0], role="corrected")


def _bounded_growth(
    check: Check, gradient: DecoderGradient, lr_z: float
) -> tuple[FloatArray, FloatArray, dict[str, tuple[FloatArray, FloatArray]]]:
    """ln chi of the dominant token along a flow, the integral that gives it, and its bounds with each form of B_n."""
    classes = check.setting.classes
    leader, weight = dominant_column(classes), float(classes.weights[0])
    times = FINE_TIMES * 0.5 / check.setting.lr_y  # time runs in units of 1/eta_Y
    states, result = trajectory(classes, times=times, lr_y=check.setting.lr_y, lr_z=lr_z, decoder_gradient=gradient)
    measured = [state.measured for state in states]
    f = np.array([state.direction[0, leader] for state in states])
    drive, start = np.array([m.token_drive[0, leader] for m in measured]), float(f[0])
    whole = lr_z * integral(np.array([m.drive[0] for m in measured]), times)
    own, exact = lr_z * integral(drive, times), 2 * weight * lr_z * integral(f**2 * drive, times)
    late = FINE_TIMES >= 100  # before that f^2 has gained less than the error of the quadrature
    bounds = {
        PUBLISHED: theory.growth_factor_bounds(whole, start),
        WITH_WEIGHT: theory.growth_factor_bounds(whole, start, weight=weight),
        WITH_DRIVE: theory.growth_factor_bounds(own, start, weight=weight),
    }
    growth = 2 * result["attention_logits"].sel(query=classes.query[0]).values[0, :, leader]
    logs = {name: (np.log(b.least)[late], np.log(b.most)[late]) for name, b in bounds.items()}
    return growth[late], exact[late], logs


@claim(where="Theorem 3, Eq. 112", category="misprint", depends_on="nothing")
def equation_112(check: Check) -> None:
    r"""The relative gain of the dominant token grows at the rate $r(0) \exp(2 (z - z(0))) \dot z$.

    Correction: there is a factor 2, from differentiating Eq. 111

    Check: dr/dt of Eq. 111 by central differences, for a logit that grows like ln(1 + t).
    """
    t, step = np.linspace(0.1, 5, 50), 1e-5
    initial = float(theory.relative_gain(0.4, 0.1))

    def gain(time: FloatArray) -> FloatArray:
        return theory.relative_gain_after(initial, theory.growth_factor(np.log1p(time)))

    measured = (gain(t + step) - gain(t - step)) / (2 * step)
    printed = initial * theory.growth_factor(np.log1p(t)) / (1 + t)
    check.equal("dr/dt as printed", printed, measured, tolerance=1e-6)
    check.equal("dr/dt with the factor 2", 2 * printed, measured, tolerance=1e-6, role="corrected")
