"""Lemmas 5 to 9: how the decoder grows when attention is fixed."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import solve_ivp

from scansnap import theory
from scansnap.claims.check import GRADIENT_ROLES, Check, Curve
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray, trajectory
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head
from scansnap.theory.growth import growth_rate


@claim(
    r"With one class drawn again and again, its logits are $(M - 1) h^*(s) \zeta_n$ and $h^*$ follows Eq. 33.",
    where="Lemma 5, Eqs. 31 to 33",
    category="holds",
    conditions="$Y(0) = 0$, attention fixed",
    wrong_factor=1 + 1e-6,
)
def lemma_5(check: Check) -> None:
    """400 updates of the engine on the first class alone, with lr_z = 0."""
    classes = check.setting.classes
    alone = SequenceClasses.from_supports(
        tokens=[classes.support(0)],
        probs=[classes.support_probs(0)],
        query=classes.query[:1],
        next_token=classes.next_token[:1],
        vocab_size=classes.vocab_size,
    )
    result = one_head(
        train(
            alone,
            lr_y=check.setting.lr_y,
            lr_z=0.0,
            steps=400,
            batch_size=None,
            seq_len=math.inf,
            dtype="float64",
            record_every=20,
            record=("loss", "decoder"),
            progress=False,
        )
    )
    f = theory.directions(alone.probs[:, alone.contextual_tokens])[0]
    w = f @ result["decoder"].values[0]  # (steps, M)
    h = theory.decoder_growth_steps(400, vocab_size=classes.vocab_size, lr_y=check.setting.lr_y)[::20]
    zeta = theory.centered_one_hot(alone.next_token, vocab_size=classes.vocab_size)[0]
    check.equal("w_n(s)", (classes.vocab_size - 1) * h[:, None] * zeta, w, tolerance=1e-9)
    loss = -np.log1p(-theory.residual_size(h, vocab_size=classes.vocab_size))
    check.equal("loss, from 1 - alpha_n", loss, result["loss"].values[0], tolerance=1e-9)
    own = alone.next_token[0]
    check.curve = Curve(
        result["step"].values.astype(float),
        {
            "Lemma 5": (classes.vocab_size - 1) * h * zeta[own],
            "trained": w[:, own],
        },
        "updates of one class",
        "logit of its next token",
        log_x=False,
        dots=("trained",),
    )


@claim(
    r"In continuous time $h$ obeys $\exp(M h) + (M - 1) M h = M \eta_Y t + 1$.",
    where="Lemma 6, Eqs. 44 and 45",
    category="sharpened",
    wrong_factor=1 + 1e-6,
    depends_on="K, M and the rates",
)
def lemma_6(check: Check) -> None:
    """The closed form against a numerical solution of Eq. 44 from 0.1 to 10^9 updates."""
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


@claim(
    r"$0 \le h^* - h \le 2 \eta_Y / M$ at every step, and the gap goes to zero.",
    where="Lemma 7",
    category="holds",
    wrong_factor=12.0,
    assumes=("decoder_rate",),
    depends_on="K, M and the rates",
)
def lemma_7(check: Check) -> None:
    """Every one of 20,000 steps, at the setting's rate and at ten times it; the picture shows the first."""
    size = check.setting.classes.vocab_size
    for rate in (check.setting.lr_y, 10 * check.setting.lr_y):
        steps = theory.decoder_growth_steps(20_000, vocab_size=size, lr_y=rate)
        gap = steps - theory.decoder_growth(np.arange(20_001), vocab_size=size, lr_y=rate)
        check.positive(f"h* - h + rounding at eta_Y = {rate:g}", gap + 1e-12 * steps + 1e-300)
        check.at_most(f"h* - h at eta_Y = {rate:g}", gap, 2 * rate / size)
        check.at_most(f"what is left of the gap at the end, eta_Y = {rate:g}", gap[-1] / gap.max(), 0.02)
    rate = check.setting.lr_y
    gap = theory.decoder_growth_steps(20_000, vocab_size=size, lr_y=rate) - theory.decoder_growth(
        np.arange(20_001), vocab_size=size, lr_y=rate
    )
    check.curve = Curve(
        np.arange(1.0, 20_001),
        {"h* - h": gap[1:], "2 eta_Y / M": np.full(20_000, 2 * rate / size)},
        "updates of one class",
        "gap",
        log_y=True,
    )


@claim(
    r"$\exp(M h) \le (M - 1) M h$ exactly between $h = M^{-(2 - w_0)}$ and $h = (1 + w_1) \ln M / M$, $w_1$ of order "
    r"$\ln \ln M / \ln M$.",
    where="Lemma 8, Eqs. 50 and 51",
    category="holds",
    conditions=r"$M \gg 100$",
    wrong_factor=3.0,
    assumes=("many_tokens",),
    depends_on="K, M and the rates",
)
def lemma_8(check: Check) -> None:
    """M from 100 to 10^6: the sign on both sides of both crossings, and the sizes of omega_0 and omega_1."""
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
    order = np.argsort(size)
    check.curve = Curve(
        size[order],
        {
            "omega_1": omega_1[order],
            "2 lnln M / ln M": 2 * scale[order],
            "lnln M / (2 ln M)": scale[order] / 2,
            "omega_0": omega_0[order],
            "2/(M^0.99 ln M)": (2 / (size**0.99 * np.log(size)))[order],
        },
        "M",
        "omega_0, omega_1 and their bounds",
        log_y=True,
    )


@claim(
    r"The speed $\gamma$ rises like $\eta_Y t/K$ up to $K \ln M/\eta_Y$ and falls like $K \ln(M \eta_Y t/K)/(\eta_Y "
    "t)$ later.",
    where="Lemma 9, Eqs. 52 to 57",
    category="holds",
    conditions=r"modified gradient, attention fixed, $t \ge 1$ (Remark 3)",
    wrong_factor=5.0,
    assumes=("uniform_classes", "many_tokens", "decoder_rate", "independent_classes"),
)
def lemma_9(check: Check) -> None:
    """Two-sided bounds from Eqs. 54 and 57; gamma measured along flows with attention fixed, both decoder gradients."""
    classes, rate = check.setting.classes, check.setting.lr_y
    arguments = {"vocab_size": classes.vocab_size, "num_classes": classes.num_classes, "lr_y": rate}
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
