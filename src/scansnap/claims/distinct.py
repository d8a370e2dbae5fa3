"""Theorem 3: the race among the distinct tokens of a class, and its error as attention learns faster."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import cumulative_simpson

from scansnap import theory
from scansnap.claims.attention import UNEQUAL_RATIOS, unequal_classes
from scansnap.claims.check import GRADIENT_ROLES, Check, Curve, Role
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray, trajectory
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.flow import flow
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head
from scansnap.theory.reduced_dynamics import DecoderGradient

TIMES = np.geomspace(1, 1e9, 181)
RATIOS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
PUBLISHED, WITH_WEIGHT, WITH_DRIVE = "published B_n", "B_n with P(n)", "B_n with P(n) and the token's drive"
"""Three readings of B_n in Eq. 12."""


def companions(classes: SequenceClasses, attention_logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Growth of the first class's distinct tokens (time, D): predicted from the dominant one's (Eq. 110), and measured.

    Both are in units of the dominant token's own growth.  `attention_logits` (time, S) is the class's row of Z over
    the contextual tokens, from Z(0) = 0.
    """
    ids = classes.distinct_tokens(0)
    probs = classes.support_probs(0)[np.isin(classes.support(0), ids)]
    z = attention_logits[:, np.searchsorted(classes.contextual_tokens, ids)]
    leader = z[:, [int(np.argmax(probs))]]
    chi = theory.companion_growth(theory.relative_gain(probs.max(), probs), theory.growth_factor(leader))
    return np.log(chi) / 2 / leader, z / leader


def dominant_column(classes: SequenceClasses) -> int:
    """The column of Z of the first class's most probable distinct token."""
    ids = classes.distinct_tokens(0)
    probs = classes.support_probs(0)[np.isin(classes.support(0), ids)]
    return int(np.searchsorted(classes.contextual_tokens, ids[int(np.argmax(probs))]))


@claim(
    r"One growth factor gives all distinct tokens of a class: $r(t) = r(0) \chi(t)$; the dominant token's $f$ grows.",
    where="Theorem 3, Eqs. 11 and 108 to 114",
    category="too strong",
    conditions=r"to leading order in $\eta_Z/\eta_Y$; Eq. 98, which the modified gradient with attention fixed implies",
    wrong_factor=1.05,
    correction=r"at a finite $\eta_Y/\eta_Z$ up to a time that grows with it, as for Theorem 2; later the less "
    "probable token may catch up with the dominant one",
    needs=("distinct tokens", "common tokens"),
    assumes=("fast_decoder", "independent_classes"),
)
def theorem_3(check: Check) -> None:
    """The identity along flows from 1 to 10^9 steps: both decoder gradients, eta_Y/eta_Z from 1000 down to 1, which are
    the claim's own; for two unequal classes too, and there the order of two distinct tokens."""
    classes, rate = check.setting.classes, check.setting.lr_y
    row = int(np.flatnonzero(classes.queries == classes.query[0])[0])
    worst: dict[str, list[float]] = {}
    for gradient, _ in GRADIENT_ROLES:
        for ratio in RATIOS:
            z = one_head(
                flow(
                    classes,
                    times=TIMES,
                    lr_y=rate,
                    lr_z=rate / ratio,
                    decoder_gradient=gradient,
                    record=("attention_logits",),
                    progress=False,
                )
            )["attention_logits"].values[0, :, row]
            role: Role = "assumed" if gradient == "modified" and ratio == RATIOS[0] else "beyond"
            predicted, measured = companions(classes, z)
            check.equal(
                f"growths by Eq. 110, {gradient} gradient, eta_Y/eta_Z = {ratio:g}",
                predicted,
                measured,
                tolerance=0.02,
                role=role,
            )
            worst.setdefault(gradient, []).append(float(np.abs(predicted - measured).max()))
            if ratio == RATIOS[0]:
                leader = dominant_column(classes)
                f = [theory.directions(check.setting.probs[:1], logits)[0, leader] for logits in z]
                check.positive(f"growth of the dominant f, {gradient} gradient", np.diff(f), role=role)
    _check_unequal(check)
    sampled: dict[str, dict[str, Any]] = {"momentum 0.9": {"momentum": 0.9}, "T = 128": {"seq_len": 128}}
    for name, options in sampled.items():
        z = one_head(
            train(
                classes,
                lr_y=0.1,
                lr_z=0.001,
                steps=400,
                seeds=check.seeds(20),
                dtype="float64",
                record_every=400,
                progress=False,
                record=("attention_logits",),
                **{"batch_size": 128, "seq_len": np.inf, **options},
            )
        )["attention_logits"].values[:, -1, row]
        predicted, measured = companions(classes, z.mean(axis=0)[None])
        check.equal(
            f"growths by Eq. 110, SGD with {name}, eta_Y/eta_Z = 100, mean of 20 runs",
            predicted,
            measured,
            tolerance=0.02,
            role="beyond",
        )
    check.curve = Curve(
        np.array(RATIOS),
        {f"{name} gradient": np.array(v) for name, v in worst.items()},
        "eta_Y / eta_Z",
        "largest error of a growth / dominant growth",
        log_y=True,
    )


def _check_unequal(check: Check) -> None:
    """Eq. 110 and the growth of r for two unequal classes, modified gradient."""
    classes, rate = unequal_classes(), check.setting.lr_y
    leader, second = (int(np.searchsorted(classes.contextual_tokens, token)) for token in classes.distinct_tokens(0))
    for ratio in UNEQUAL_RATIOS:
        z = one_head(
            flow(
                classes,
                times=TIMES,
                lr_y=rate,
                lr_z=rate / ratio,
                decoder_gradient="modified",
                record=("attention_logits",),
                progress=False,
            )
        )["attention_logits"].values[0, :, 0]
        name = f"two unequal classes, modified gradient, eta_Y/eta_Z = {ratio:g}"
        check.equal(f"growths by Eq. 110, {name}", *companions(classes, z), tolerance=0.02, role="beyond")
        check.positive(f"growth of r, {name}", np.diff(z[:, leader] - z[:, second]), role="beyond")


@claim(
    r"$\exp(2 f(0)^2 B_n) \le \chi \le \exp(2 B_n)$ for the dominant token, $B_n = \eta_Z \int \xi_n$.",
    where="Theorem 3, Eqs. 12 and 115 to 117",
    category="error",
    conditions="those of Theorem 3; time in steps of batch 1",
    wrong_factor=1.5,
    correction=r"$B_n = P(n) \eta_Z \int \xi_{nl}$: per step class $n$ is drawn with probability $P(n)$, and the "
    r"drive is that of the dominant token $l$ itself; the class's $\xi_n$ exceeds it by as much as attention has "
    r"moved, more than $f^2$ gains; it then holds at any ratio of the rates at which $\xi_{nl} \ge 0$ and $f(t) \ge "
    "f(0)$, as here",
    needs=("several classes", "distinct tokens", "common tokens"),
    assumes=("fast_decoder",),
)
def equation_12(check: Check) -> None:
    """Drives measured along flows and integrated over 1 to 10^9 steps; eta_Y/eta_Z of the setting, then 1 to 1000."""
    for gradient, role in GRADIENT_ROLES:
        growth, bounds = _bounded_growth(check, gradient, check.setting.lr_z)
        for name, (least, most) in bounds.items():
            reading_role: Role = role if name == PUBLISHED else "contrast" if name == WITH_WEIGHT else "corrected"
            check.at_least(f"ln chi from below, {name}, {gradient} gradient", growth, least, role=reading_role)
            check.at_most(f"ln chi from above, {name}, {gradient} gradient", growth, most, role=reading_role)
    lines: dict[str, list[float]] = {}
    ratios = (1.0, 10.0, 100.0, 1000.0)
    for ratio in ratios:
        growth, bounds = _bounded_growth(check, "true", check.setting.lr_y / ratio)
        for name, (least, _) in bounds.items():
            reading_role = "corrected" if name == WITH_DRIVE else "contrast"
            check.at_least(
                f"ln chi from below, {name}, true gradient, eta_Y/eta_Z = {ratio:g}", growth, least, role=reading_role
            )
            lines.setdefault(f"lower bound, {name}", []).append(float((least / growth).max()))
        lines.setdefault(f"upper bound, {WITH_WEIGHT} (least)", []).append(
            float((bounds[WITH_WEIGHT][1] / growth).min())
        )
    check.curve = Curve(
        np.array(ratios),
        {name: np.array(values) for name, values in lines.items()},
        "eta_Y / eta_Z",
        "bound / ln chi, true gradient (largest; a lower bound holds below 1)",
        log_y=True,
    )


def _bounded_growth(
    check: Check, gradient: DecoderGradient, lr_z: float
) -> tuple[FloatArray, dict[str, tuple[FloatArray, FloatArray]]]:
    """ln chi of the dominant token along a flow, and its bounds with each reading of B_n."""
    classes = check.setting.classes
    row = int(np.flatnonzero(classes.queries == classes.query[0])[0])
    leader, weight = dominant_column(classes), float(classes.weights[0])
    times = TIMES * 0.5 / check.setting.lr_y  # time runs in units of 1/eta_Y
    states, result = trajectory(classes, times=times, lr_y=check.setting.lr_y, lr_z=lr_z, decoder_gradient=gradient)
    measured = [state.measured for state in states]
    start = float(states[0].direction[0, leader])
    whole = lr_z * _integral(np.array([m.drive[0] for m in measured]), times)
    own = lr_z * _integral(np.array([m.token_drive[0, leader] for m in measured]), times)
    late = TIMES >= 100  # before that f^2 has gained less than the error of the quadrature
    bounds = {
        PUBLISHED: theory.growth_factor_bounds(whole, start),
        WITH_WEIGHT: theory.growth_factor_bounds(whole, start, weight=weight),
        WITH_DRIVE: theory.growth_factor_bounds(own, start, weight=weight),
    }
    growth = 2 * result["attention_logits"].values[0, :, row, leader]
    return growth[late], {name: (np.log(b.least)[late], np.log(b.most)[late]) for name, b in bounds.items()}


def _integral(drive: FloatArray, times: FloatArray) -> FloatArray:
    """int drive dt = int drive t d ln t up to each time; before the first time drive is in proportion to t."""
    return cumulative_simpson(drive * times, x=np.log(times), initial=0) + drive[0] * times[0] / 2


@claim(
    r"The relative gain of the dominant token grows at the rate $r(0) \exp(2 (z - z(0))) \dot z$.",
    where="Theorem 3, Eq. 112",
    category="misprint",
    correction="there is a factor 2, from differentiating Eq. 111",
    depends_on="nothing",
)
def equation_112(check: Check) -> None:
    """dr/dt of Eq. 111 by central differences, for a logit that grows like ln(1 + t)."""
    t, step = np.linspace(0.1, 5, 50), 1e-5
    initial = float(theory.relative_gain(0.4, 0.1))

    def gain(time: FloatArray) -> FloatArray:
        return theory.relative_gain_after(initial, theory.growth_factor(np.log1p(time)))

    measured = (gain(t + step) - gain(t - step)) / (2 * step)
    printed = initial * theory.growth_factor(np.log1p(t)) / (1 + t)
    check.equal("dr/dt as printed", printed, measured, tolerance=1e-6)
    check.equal("dr/dt with the factor 2", 2 * printed, measured, tolerance=1e-6, role="corrected")
    check.curve = Curve(
        t,
        {"measured": measured, "as printed": printed, "with the factor 2": 2 * printed},
        "t, for z = ln(1 + t)",
        "dr/dt",
        log_x=False,
        dots=("measured",),
    )
