"""Lemmas 5 to 9, Remarks 2 and 3: how the decoder grows when attention is fixed, in steps and in continuous time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from scansnap import theory
from scansnap.claims.check import FORM_ROLES, GRADIENT_ROLES, Check, Curve
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray, trajectory
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head
from scansnap.theory.growth import growth_rate

SIZES = np.array([1e2, 1e3, 1e4, 1e6, 1e9])


@claim(where="Lemma 5, Eqs. 31 to 33", category="holds", wrong_factor=1 + 1e-6)
def lemma_5(check: Check) -> None:
    r"""With one class drawn again and again, its logits are $(M - 1) h^*(s) \zeta_n$ and $h^*$ follows Eq. 33.

    Conditions: $Y(0) = 0$, attention fixed

    Check: 400 updates of the engine on the first class alone, with lr_z = 0.
    """
    classes = check.setting.classes
    alone = SequenceClasses(
        probs=classes.probs[:1],
        query=classes.query[:1],
        next_token=classes.next_token[:1],
        vocab_size=classes.vocab_size,
    )
    options: dict[str, Any] = {"lr_y": check.setting.lr_y, "lr_z": 0.0, "batch_size": None, "seq_len": math.inf}
    options |= {"dtype": "float64", "record_every": 20, "record": ("loss", "decoder"), "progress": False}
    result = one_head(train(alone, steps=400, **options))
    f = theory.directions(alone.probs[:, alone.contextual_tokens])[0]
    w = f @ result["decoder"].values[0]  # (steps, M)
    h = theory.decoder_growth_steps(400, vocab_size=classes.vocab_size, lr_y=check.setting.lr_y)[::20]
    zeta = theory.centered_one_hot(alone.next_token, vocab_size=classes.vocab_size)[0]
    check.equal("w_n(s)", (classes.vocab_size - 1) * h[:, None] * zeta, w, tolerance=1e-9)
    loss = -np.log1p(-theory.residual_size(h, vocab_size=classes.vocab_size))
    check.equal("loss, from 1 - alpha_n", loss, result["loss"].values[0], tolerance=1e-9)
    own = alone.next_token[0]
    lines = {"Lemma 5": (classes.vocab_size - 1) * h * zeta[own], "trained": w[:, own]}
    labels = "updates of one class", "logit of its next token"
    check.curve = Curve(result["step"].values.astype(float), lines, *labels, log_x=False, dots=("trained",))


@claim(where="Lemma 6, Eqs. 44 and 45", category="sharpened", wrong_factor=1 + 1e-6, depends_on="K, M and the rates")
def lemma_6(check: Check) -> None:
    r"""In continuous time $h$ obeys $\exp(M h) + (M - 1) M h = M \eta_Y t + 1$.

    Check: The closed form against a numerical solution of Eq. 44 from 0.1 to 10^9 updates.
    """
    size, rate = check.setting.classes.vocab_size, check.setting.lr_y
    times = np.geomspace(0.1, 1e9, 41)
    solution = solve_ivp(
        lambda x, h: growth_rate(h, vocab_size=size, lr_y=rate) * np.exp(x),
        (math.log(1e-6), math.log(times[-1])),
        [rate * 1e-6 / size],
        t_eval=np.log(times),
        rtol=1e-11,
        atol=1e-18,
        method="DOP853",
    )
    h = theory.decoder_growth(times, vocab_size=size, lr_y=rate)
    check.equal("h(t)", h / solution.y[0], 1.0, tolerance=1e-8)
    check.curve = Curve(
        times, {"closed form": size * h, "integrated": size * solution.y[0]}, "updates of one class", "M h"
    )


@claim(where="Lemma 7", category="holds", wrong_factor=2.0, assumes=("decoder_rate",), depends_on="K, M and the rates")
def lemma_7(check: Check) -> None:
    r"""$0 \le h^* - h \le 2 \eta_Y / M$ at every step, and the gap goes to zero.

    Check: Every one of 20,000 steps: the printed bound, eleven times the largest gap, and bounds of the gap's own size.

    h*(s) = h(s + c) with c between its bounds (`theory.shift_bounds`), and h is concave: the gap is between c times
    the slope at h* and c times the slope at h.
    """
    size, rate = check.setting.classes.vocab_size, check.setting.lr_y
    steps = theory.decoder_growth_steps(20_000, vocab_size=size, lr_y=rate)[1:]
    h = theory.decoder_growth(np.arange(1, 20_001), vocab_size=size, lr_y=rate)
    bounds = theory.shift_bounds(steps, vocab_size=size, lr_y=rate)
    gap, rounding = steps - h, 1e-12 * steps
    least, most = (
        growth_rate(at, vocab_size=size, lr_y=rate) * shift for at, shift in ((steps, bounds.least), (h, bounds.most))
    )
    check.positive("h* - h + rounding", gap + rounding)
    check.at_most("h* - h against 2 eta_Y / M", gap, 2 * rate / size, wrong_factor=11.0)
    check.at_most("h* - h against its upper bound", gap, most + rounding)
    check.at_least("h* - h against its lower bound", gap + rounding, least)
    check.positive("fall of the gap after its maximum", -np.diff(gap[gap.argmax() :]))
    check.curve = Curve(
        np.arange(1.0, 20_001),
        {"h* - h": gap, "2 eta_Y / M": np.full(20_000, 2 * rate / size), "upper bound": most},
        "updates of one class",
        "gap",
        log_y=True,
    )


@claim(
    where="Lemma 8, Eqs. 50 and 51",
    category="holds",
    wrong_factor=3.0,
    assumes=("many_tokens",),
    depends_on="K, M and the rates",
)
def lemma_8(check: Check) -> None:
    r"""$\exp(M h) \le (M - 1) M h$ exactly between $h = M^{-(2 - w_0)}$ and $h = (1 + w_1) \ln M / M$, $w_1$ of order
    $\ln \ln M / \ln M$.

    Conditions: $M \gg 100$

    Check: M from 100 to 10^6: the sign on both sides of both crossings, and the sizes of omega_0 and omega_1.
    """
    size = np.array([100.0, 1e3, 1e4, 1e5, 1e6, max(100.0, check.setting.classes.vocab_size)])
    omega_0, omega_1 = theory.growth_crossings(vocab_size=size)
    low, high = size ** -(2 - omega_0), (1 + omega_1) * np.log(size) / size

    def above(h: FloatArray) -> FloatArray:
        return np.exp(size * h) - (size - 1) * size * h

    check.positive("outside the interval", np.concatenate([above(low * 0.999), above(high * 1.001)]))
    check.positive("inside the interval", -np.concatenate([above(low * 1.001), above(high * 0.999)]))
    check.at_most("omega_0 against 2/(M^0.99 ln M)", omega_0, 2 / (size**0.99 * np.log(size)))
    scale = np.log(np.log(size)) / np.log(size)
    check.at_most("omega_1 against 2 lnln M / ln M", omega_1, 2 * scale)
    check.at_least("omega_1 against lnln M / (2 ln M)", omega_1, scale / 2)


@claim(
    where="Lemma 9, Eqs. 52 to 57",
    category="holds",
    wrong_factor=2.5,
    assumes=("uniform_classes", "many_tokens", "decoder_rate", "independent_classes"),
)
def lemma_9(check: Check) -> None:
    r"""The speed $\gamma$ rises like $\eta_Y t/K$ up to $K \ln M/\eta_Y$ and falls like $K \ln(M \eta_Y t/K)/(\eta_Y
    t)$ later.

    Conditions: modified gradient, attention fixed, $t \ge 1$ (Remark 3)

    Check: Two-sided bounds from Eqs. 54 and 57; gamma measured along flows with attention fixed, both decoder
    gradients.
    """
    classes, rate = check.setting.classes, check.setting.lr_y
    arguments = {**check.setting.sizes, "lr_y": rate}
    first, second = float(theory.scan_end(**arguments)), float(theory.snap_start(**arguments))
    times = np.unique(np.concatenate([np.geomspace(1, first, 25), np.geomspace(second, 1e12, 25)]))
    early, late = times <= first, times >= second
    lines = {}
    for gradient, role in GRADIENT_ROLES:
        states, _ = trajectory(classes, times=times, lr_y=rate, lr_z=0.0, decoder_gradient=gradient)
        gamma = np.array([state.measured.speed.mean() for state in states])
        lines[f"measured, {gradient} gradient"] = gamma
        scan, snap = theory.speed_scanning(times[early], **arguments), theory.speed_snapping(times[late], **arguments)
        check.at_most(f"gamma while scanning, {gradient} gradient", gamma[early], scan.most, role=role)
        check.at_least(f"gamma while scanning, from below, {gradient} gradient", gamma[early], scan.least, role=role)
        check.at_most(f"gamma after the snap, {gradient} gradient", gamma[late], snap.most, role=role)
        check.at_least(f"gamma after the snap, from below, {gradient} gradient", gamma[late], snap.least, role=role)
    check.curve = Curve(
        times,
        {"Eq. 85": theory.speed(times, **arguments), **lines},
        "steps",
        "speed gamma",
        log_y=True,
        marks={"t'_0": first, "t_0": second},
    )


def _shift(steps: int, *, vocab_size: float, lr_y: float) -> tuple[FloatArray, FloatArray]:
    """c with h*(s) = h(s + c) and h*(s), for s from 1 to `steps`."""
    growth = theory.decoder_growth_steps(steps, vocab_size=vocab_size, lr_y=lr_y)[1:]
    return theory.growth_time(growth, vocab_size=vocab_size, lr_y=lr_y) - np.arange(1, steps + 1), growth


@claim(where="Lemma 7 (a), second sentence", category="sharpened", wrong_factor=1.4, depends_on="K, M and the rates")
def lemma_7_shift(check: Check) -> None:
    r"""There is a $c$ of order one with $h^*(s) \le h(s + c)$ for all $s \le \ln M/\eta_Y$.

    Conditions: $\eta_Y$ of order one

    Check: The shift c at ln M/eta_Y, where it is largest, for M from 100 to 10^9; the bounds of theory.shift_bounds.
    """
    rate = check.setting.lr_y
    last, least, most = np.empty((3, len(SIZES)))
    for i, size in enumerate(SIZES):
        shift, growth = _shift(max(1, int(math.log(size) / rate)), vocab_size=size, lr_y=rate)
        bounds = theory.shift_bounds(growth, vocab_size=size, lr_y=rate)
        last[i], least[i], most[i] = shift[-1], bounds.least[-1], bounds.most[-1]
    check.at_most("largest c against its upper bound, which does not depend on M", last, most)
    check.at_least("largest c against its lower bound", last, least)


@claim(where="Remark 2", category="too strong", wrong_factor=1.7, depends_on="K, M and the rates")
def remark_2(check: Check) -> None:
    r"""With a constant $c$ of order $\ln M$, $h(s) \le h^*(s) \le h(s + c)$ for all $s > s_1$.

    Conditions: $\eta_Y$ of order one, $s$ up to $M^2/(2 \eta_Y)$, which the text does not say; it calls itself a
    qualitative estimation

    Correction: the shift $c$ is $\frac{1}{2} \ln((M - 1 + e^{M h^*})/M)$ up to a factor $1 + O(\eta_Y)$
    (theory.shift_bounds), which grows like $\frac{1}{2} \ln(\eta_Y s)$: no constant is enough, $\ln M$ is up to about
    $s = M^2/\eta_Y$, and $h^* - h$ falls like $\ln s/s$; the text's $h^* - h = O(\ln M/(M t))$ leaves out what each
    step adds to the gap

    Check: The shift c at every step with M = 100 up to ten times M^2/eta_Y, and its bounds there and in the setting.
    """
    rate, m = check.setting.lr_y, 100
    for which, size, steps in (
        ("M = 100", m, math.ceil(1e5 / rate)),
        ("the setting", check.setting.classes.vocab_size, 20_000),
    ):
        shift, growth = _shift(steps, vocab_size=size, lr_y=rate)
        s = np.arange(1.0, steps + 1)
        bounds = theory.shift_bounds(growth, vocab_size=size, lr_y=rate)
        check.at_most(f"c against its upper bound, {which}", shift, bounds.most + 1e-9 * s, role="corrected")
        check.at_least(f"c against its lower bound, {which}", shift + 1e-9 * s, bounds.least, role="corrected")
        if which == "M = 100":
            early = s <= m**2 / (2 * rate)
            check.at_most("c against ln M up to M^2/(2 eta_Y), M = 100", shift[early], math.log(m))
            check.at_most("c against ln M later, M = 100", shift[~early], math.log(m), role="beyond")
            places = np.unique(np.geomspace(1, steps, 61).astype(int)) - 1
            check.curve = Curve(
                s[places],
                {
                    "c": shift[places],
                    "1/2 ln((M - 1 + e^(M h*))/M)": np.log((m - 1 + np.exp(m * growth[places])) / m) / 2,
                    "ln M": np.full(len(places), math.log(m)),
                },
                "updates of one class, M = 100",
                "c with h*(s) = h(s + c)",
                marks={"M^2/eta_Y": m**2 / rate},
            )


@claim(where="Remark 2, last step", category="misprint", wrong_factor=1.1, depends_on="K, M and the rates")
def remark_2_start(check: Check) -> None:
    r"""$h$ is of order $\ln(M \eta_Y s)/M$ from $s_1 = 2 \ln(1 + w_1)/\eta_Y$ on.

    Correction: $s_1 = 2 (1 + w_1) \ln M / \eta_Y$, as in Lemma 9; for the remark's conclusion see remark_2

    Check: Whether exp(M h) has overtaken (M - 1) M h, on which the order rests, at s_1 as printed and as it should be.
    """
    size, rate = check.setting.classes.vocab_size, check.setting.lr_y
    for form, role in FORM_ROLES:
        start = theory.shift_start(vocab_size=size, lr_y=rate, form=form)
        h = float(theory.decoder_growth(start, vocab_size=size, lr_y=rate))
        ratio = math.exp(size * h) / ((size - 1) * size * h)
        check.at_least(f"exp(M h)/((M - 1) M h) at s_1, {form} form", ratio, 1.0, role=role)


@claim(where="Remark 3", category="sharpened", wrong_factor=1.5, depends_on="K, M and the rates")
def remark_3(check: Check) -> None:
    r"""For $M \gg 100$ and $\eta_Y \gg M^{-0.99}$, $\exp(M h) - (M - 1) M h$ has a single zero from the first update
    on.

    Conditions: $M \gg 100$, $M^{-0.99} \ll \eta_Y < 1$

    Check: h(1) against the lower zero of Lemma 8, and changes of sign from the first update on, for M from 100 to 10^9.

    At the lower zero e^y = (M - 1) y with y = M h, so y = 1/(M - 1) + O(M^-2), and by Eq. 45 it is passed when
    M eta_Y t = e^y - 1 + (M - 1) y = 2 (M - 1) y - 1 = 1 + O(1/M).  So at t = 1 it is behind exactly if eta_Y exceeds
    (1 + O(1/M))/M, which is less than the remark asks for.
    """
    low = SIZES ** -(2 - theory.growth_crossings(vocab_size=SIZES).omega_0)
    least = theory.growth_time(low, vocab_size=SIZES, lr_y=1.0)  # the rate at which h(1) is the lower zero
    first = theory.decoder_growth(1.0, vocab_size=SIZES, lr_y=1.01 * least)
    check.at_least("h(1) over the lower zero, 1.01 times the least rate", first / low, 1.0)
    for name, rate in {"ten times M^-0.99": 10 * SIZES**-0.99, "1.01 times the least rate": 1.01 * least}.items():
        times = np.geomspace(1, 1e3 * np.log(SIZES) / rate, 2001)
        scaled = SIZES * theory.decoder_growth(times, vocab_size=SIZES, lr_y=rate)
        signs = np.exp(scaled) > (SIZES - 1) * scaled
        check.equal(f"zeros from the first update on, {name}", 1.0, np.diff(signs, axis=0).sum(axis=0), tolerance=1e-9)
    too_slow = theory.decoder_growth(1.0, vocab_size=SIZES, lr_y=0.99 * least)
    check.at_most("h(1) over the lower zero, 0.99 of the least rate", too_slow / low, 1.0)
    check.equal("M times the least rate", 1.0, SIZES * least, tolerance=0.03)


@claim(where="Remark 3, first sentence", category="misprint", wrong_factor=1.1, depends_on="K, M and the rates")
def remark_3_order(check: Check) -> None:
    r"""$1/M^{1 - w_0} > 1/M^{0.99}$, where $w_0 \ll 0.01$.

    Conditions: $M \gg 100$

    Correction: $1/M^{1 - w_0} < 1/M^{0.99}$, as $w_0 < 0.01$; $\eta_Y \gg M^{-0.99}$, which the paper assumes from
    there on, is enough for the remark, and more than enough

    Check: M^(1 - w_0) and M^0.99 for M from 100 to 10^9.
    """
    size = np.unique(np.append(SIZES, max(100.0, check.setting.classes.vocab_size)))
    ratio = size ** (0.01 - theory.growth_crossings(vocab_size=size).omega_0)
    check.at_most("M^(1 - w_0)/M^0.99", ratio, 1.0)
    check.at_least("M^(1 - w_0)/M^0.99, the other way round", ratio, 1.0, role="corrected")
