"""Theorems 1 and 5, Corollary 1 and Remark 1: the decoder, and the gradient that it sends back."""

from __future__ import annotations

from typing import Any

import numpy as np

from scansnap import theory
from scansnap.claims.check import GRADIENT_ROLES, Check, Curve, Role, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import PopulationState, symmetric_flow, trajectory
from scansnap.claims.sampling import sampled_decoder
from scansnap.data.synthetic import single_common
from scansnap.theory.reduced_dynamics import DecoderGradient


@claim(
    where="Theorem 1, Eqs. 9 and 81 to 90",
    category="fails under true SGD",
    needs=("several classes",),
    assumes=(
        "weak_overlap",
        "no_vanishing_overlap",
        "independent_classes",
        "uniform_classes",
        "many_tokens",
        "decoder_rate",
    ),
)
def theorem_1(check: Check) -> None:
    r"""The gradient sent back is $\gamma (\iota_n f_n - \sum_{n'} \beta_{nn'} f_{n'})$, $\beta$ near $E'$, and the
    drive $\xi_n$ is positive.

    Conditions: Assumption 2, modified gradient, attention fixed, $M^{-0.99} \ll \eta_Y < 1$, $t \gg K^2$

    Check: gamma, beta and xi read off the states of flows with attention fixed, from 100 to 10^9 steps.
    """
    classes = check.setting.classes
    times = np.geomspace(100, 1e9, 15)
    e = theory.overlaps(theory.directions(check.setting.probs))
    iota, beta = theory.backpropagated_gradient(e, vocab_size=classes.vocab_size)
    gamma = theory.speed(times, **check.setting.sizes, lr_y=check.setting.lr_y)
    lines = {"Theorem 1": theory.drive(e, beta, speed=gamma).mean(axis=1)}
    for gradient, role in GRADIENT_ROLES:
        states, _ = trajectory(classes, times=times, lr_y=check.setting.lr_y, lr_z=0.0, decoder_gradient=gradient)
        measured = [state.measured for state in states]
        name = f"{gradient} gradient"
        # beta comes first: it drives attention, and true SGD changes it most.
        check.equal(f"beta, {name}", beta, [m.beta for m in measured], tolerance=1e-3, role=role)
        check.equal(f"gamma, {name}", gamma[:, None] / [m.speed for m in measured], 1.0, tolerance=1e-3, role=role)
        check.equal(f"iota, {name}", iota, [m.iota for m in measured], tolerance=1e-3, role=role)
        xi = np.array([m.drive for m in measured])
        check.positive(f"xi_n, {name}", xi, role=role)
        lines[f"measured, {name}"] = xi.mean(axis=1)
    off = ~np.eye(len(e), dtype=bool)
    check.equal("beta against E' alone", theory.inverse_overlaps(e)[off], beta[off], tolerance=0.05, role="contrast")
    check.curve = Curve(times, lines, "steps", "drive xi_n (mean over classes)", log_y=True)


@claim(
    where="Theorem 5, Eq. 70", category="fails under true SGD", wrong_factor=1.0001, assumes=("independent_classes",)
)
def theorem_5(check: Check) -> None:
    r"""After $N$ sampled steps $Y = F (I - E')(I + \Theta) \bar W$.

    Conditions: modified gradient, attention fixed, $Y(0) = 0$

    Check: Ten runs of 1,000 batch-1 steps. W is matched with (M - 1) h*(N_n) zeta_n for whole N_n that add up to N.
    """
    steps = 1000
    classes, f = check.setting.classes, theory.directions(check.setting.probs)
    logits = f @ sampled_decoder(check, runs=10, steps=steps)
    grown = theory.decoder_growth_steps(steps, vocab_size=classes.vocab_size, lr_y=check.setting.lr_y)
    own = logits[:, np.arange(classes.num_classes), classes.next_token] / (classes.vocab_size - 1)
    counts = np.abs(own[..., None] - grown).argmin(axis=-1)
    zeta = theory.centered_one_hot(classes.next_token, vocab_size=classes.vocab_size)
    predicted = (classes.vocab_size - 1) * grown[counts][..., None] * zeta
    check.equal("W with whole counts N_n", predicted, logits, tolerance=1e-8)
    check.equal("sum of the counts", counts.sum(axis=1), steps, tolerance=1e-12)
    cases: tuple[tuple[DecoderGradient, float, Role], ...] = (
        ("modified", 0.0, "assumed"),
        ("true", 0.0, "beyond"),
        ("modified", check.setting.lr_y, "beyond"),
    )
    closed = np.array([theory.decoder(f, w) for w in predicted])
    for gradient, lr_z, role in cases:
        measured = sampled_decoder(check, runs=10, steps=steps, lr_z=lr_z, decoder_gradient=gradient)
        label = f"Y, {gradient} gradient" + (", attention learned at eta_Z = eta_Y" if lr_z else "")
        check.equal(label, closed, measured, tolerance=1e-6, role=role)


@claim(
    where="Corollary 1, the residual, Eqs. 71 to 73",
    category="sharpened",
    assumes=("uniform_classes", "independent_classes", "decoder_rate"),
)
def corollary_1(check: Check) -> None:
    r"""The residual is $(M-1)/(M-1+\exp(M h)) \zeta_n$, and $\lvert e_n - \alpha_n\rvert \le \epsilon$ after
    $O(K/(\epsilon \eta_Y) \ln(M/\epsilon))$ steps.

    Conditions: modified gradient, attention fixed

    Check: |e_n - alpha_n| along flows with attention fixed, and at the times predicted for eps = 0.1, 0.01, 10^-4.
    """
    classes = check.setting.classes
    arguments: dict[str, Any] = {**check.setting.sizes, "lr_y": check.setting.lr_y}
    eps = np.array([0.1, 0.01, 1e-4])
    exact = theory.steps_to_reach(eps, **arguments)
    times = np.unique(np.concatenate([np.geomspace(1, 1e9, 37), exact]))
    order = theory.steps_to_reach(eps, **arguments, form="published")
    check.at_most("exact time against the published order", exact, order, role="contrast")
    lines = {"Corollary 1": theory.residual_norm(times, **arguments)}
    for gradient, role in GRADIENT_ROLES:
        states, _ = trajectory(classes, times=times, lr_y=check.setting.lr_y, lr_z=0.0, decoder_gradient=gradient)
        norms = np.array([np.linalg.norm(state.measured.residual, axis=1) for state in states])
        lines[f"measured, {gradient} gradient"] = norms.mean(axis=1)
        ratio = lines["Corollary 1"][:, None] / norms
        check.equal(f"|e_n - alpha_n|, {gradient} gradient", ratio, 1.0, tolerance=1e-4, role=role)
        reached = norms[np.searchsorted(times, exact)].max(axis=1) / eps
        label = f"|e_n - alpha_n| / eps at the time predicted, {gradient} gradient"
        check.equal(label, 1.0, reached, tolerance=1e-4, role=role)
    check.curve = Curve(times, lines, "steps", "|e_n - alpha_n|", log_y=True)


@claim(
    where="Remark 1, Eqs. 40 to 43", category="error", needs=("several classes", "common tokens", "symmetric classes")
)
def remark_1(check: Check) -> None:
    r"""Under true SGD with equal overlaps $\rho$, $w_n = (1 - \rho)(M-1) h^*(N/K) \zeta_n$: a rate smaller by $1 -
    \rho$.

    Conditions: true SGD, attention fixed, equal overlaps

    Correction: the $\zeta_n$ of $K < M$ classes do not add up to zero: the own logit starts at $1 - \rho (K-1)/(M-1)$
    of its rate without overlaps, and for few classes in many tokens is $(M-1) h(N/K)$ all along, without $1 - \rho$;
    the overlap raises all next tokens together (theory.symmetric_flow with lr_z = 0); for $K = M$ the rate is $(1 -
    \rho) \eta_Y$, as the remark concludes, but $h$ at that rate is not $1 - \rho$ times $h$, as Eq. 43 has it

    Check: Logits along the true flow with attention fixed, from 10 to 10^6 steps.
    """
    classes = check.setting.classes
    times = np.geomspace(10, 1e6, 11)
    states, result = trajectory(classes, times=times, lr_y=check.setting.lr_y, lr_z=0.0)
    f = states[0].direction
    rho = float(theory.overlaps(f)[0, 1])
    published = theory.shared_overlap_logits(
        times, rho, next_token=classes.next_token, **check.setting.sizes, lr_y=check.setting.lr_y
    )
    measured = np.array([f @ state.decoder for state in states])
    check.equal("logits w_n, published", published, measured, tolerance=0.02)
    size, own = classes.vocab_size, measured[:, 0, classes.next_token[0]]
    plain = (size - 1) * theory.decoder_growth(times / classes.num_classes, vocab_size=size, lr_y=check.setting.lr_y)
    check.equal("own logit by h without the overlap", plain / own, 1.0, tolerance=2e-3, role="corrected")
    start = PopulationState(classes, 0 * states[0].decoder, 0 * states[0].attention_logits)
    moved = classes.num_classes * (f @ start.velocity()[0])[0, classes.next_token[0]]
    rate = (1 - 1 / size) * theory.shared_overlap_rate(rho, **check.setting.sizes)
    label = "rate of the own logit at the start, 1 - rho (K-1)/(M-1)"
    check.equal(label, rate, moved, tolerance=1e-9, role="corrected")
    reduced = symmetric_flow(check.setting, times, lr_y=check.setting.lr_y, lr_z=0.0)
    loss = result["loss"].values[0]
    check.equal("loss, symmetric equations", -np.log1p(-reduced.residual) / loss, 1.0, tolerance=1e-4, role="corrected")
    check.curve = Curve(
        times,
        {
            "published, (1 - rho)(M-1) h": published[:, 0, classes.next_token[0]],
            "true SGD, own next token": own,
            "true SGD, another next token": measured[:, 0, classes.next_token[1]],
        },
        "steps",
        "logit of class 1",
    )


def weak_setting() -> Setting:
    """The default classes with 155 distinct tokens each, whose overlap is 0.017."""
    return Setting(single_common(num_classes=3, num_distinct=155, vocab_size=1600))


@claim(
    where="Section 4, after Theorem 1",
    category="fails under true SGD",
    setting=weak_setting,
    wrong_factor=1.1,
    needs=("several classes", "a distinct token", "common tokens", "symmetric classes"),
)
def effective_rate(check: Check) -> None:
    r"""With equal overlaps Theorem 1 still holds under true SGD, with a smaller effective learning rate.

    Conditions: true SGD, attention fixed, equal overlaps

    Correction: $\beta$ does not depend on the rate, and under true SGD it starts at $1/M$ and not at $E'$: the drive is
    that of the symmetric equations (theory.symmetric_flow with lr_z = 0)

    Check: beta of the true flow with attention fixed, 10 to 10^6 steps, for overlaps as weak as lambda_1 = 0.034.
    """
    classes = check.setting.classes
    times = np.geomspace(10, 1e6, 11)
    states, _ = trajectory(classes, times=times, lr_y=check.setting.lr_y, lr_z=0.0)
    measured = [state.measured for state in states]
    _, published = theory.backpropagated_gradient(theory.overlaps(states[0].direction), vocab_size=classes.vocab_size)
    beta = np.array([m.beta[0, 1] for m in measured])
    check.equal("beta, Theorem 1 at any rate", published[0, 1] / beta, 1.0, tolerance=0.05)
    reduced = symmetric_flow(check.setting, times, lr_y=check.setting.lr_y, lr_z=0.0)
    distinct = np.searchsorted(classes.contextual_tokens, classes.distinct_tokens(0))
    drives = np.array([m.token_drive[0, distinct] for m in measured])
    ratio = reduced.distinct_drive / drives
    check.equal("drive of distinct tokens, symmetric equations", ratio, 1.0, tolerance=0.01, role="corrected")
    check.curve = Curve(
        times,
        {
            "beta, true SGD": beta,
            "Theorem 1": np.full(len(times), published[0, 1]),
            "1/M": np.full(len(times), 1 / classes.vocab_size),
        },
        "steps",
        "beta_nn'",
        log_y=True,
    )
