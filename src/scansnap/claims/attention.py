"""Theorem 2 and Corollary 2: which tokens gain attention and which lose it."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap import theory
from scansnap.claims.check import GRADIENT_ROLES, Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray, State, trajectory
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import synthetic
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head
from scansnap.theory.reduced_dynamics import DecoderGradient

Entries = tuple[Any, ...]

TIMES = np.geomspace(1, 1e9, 28)


def _velocities(
    check: Check, classes: SequenceClasses, gradient: DecoderGradient
) -> tuple[FloatArray, FloatArray, list[State], xr.Dataset]:
    """dz/dt of distinct and of common tokens along a flow (one entry per time, query and token), states and result."""
    states, result = trajectory(
        classes, times=TIMES, lr_y=check.setting.lr_y, lr_z=check.setting.lr_z, decoder_gradient=gradient
    )
    rates = np.array([state.velocity()[1] for state in states])  # (time, Q, S)
    distinct, common = _tokens(classes)
    return rates[:, *distinct], rates[:, *common], states, result


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


def _tokens(classes: SequenceClasses) -> tuple[Entries, Entries]:
    """Entries (query row, token column) of Z that belong to distinct and to common tokens of a query's classes."""
    kinds = classes.kinds_of(classes.contextual_tokens)
    probs = classes.probs[:, classes.contextual_tokens]
    occurs = np.array([np.any(probs[classes.of_query(int(q))] > 0, axis=0) for q in classes.queries])
    return np.nonzero(occurs & (kinds == "distinct")), np.nonzero(occurs & (kinds == "common"))


def _trained(check: Check, **options: Any) -> FloatArray:
    """Z of twenty runs of 100 steps of batch 128 at eta_Y = eta_Z = 1 (the published size), float64."""
    result = one_head(
        train(
            check.setting.classes,
            lr_y=1.0,
            lr_z=1.0,
            steps=100,
            batch_size=128,
            seeds=check.seeds(20),
            dtype="float64",
            record_every=100,
            record=("attention_logits",),
            progress=False,
            **options,
        )
    )
    return result["attention_logits"].values[:, -1]


@claim(
    "Distinct tokens gain attention at all times, and a single common token loses it.",
    where="Theorem 2, Eqs. 97 to 100",
    category="too strong",
    conditions=r"Assumption 2, modified gradient, $T \to \infty$; $\eta_Y \gg \eta_Z$, read as the leading order in "
    r"$\eta_Z/\eta_Y$; to gain is $dz/dt > 0$, of the logit and not of the share",
    wrong_factor=-1.0,
    correction=r"at a finite $\eta_Y/\eta_Z$ a distinct token gains until $M h(t/K)$ is $\sqrt{\eta_Y/\eta_Z}$ times a "
    "number that depends on the classes alone (theory.first_fall): the decoder lags behind attention; in symmetric "
    "classes falls were seen under the modified gradient only",
    needs=("a distinct token", "common tokens"),
    assumes=("weak_overlap", "no_vanishing_overlap", "independent_classes", "fast_decoder"),
)
def theorem_2(check: Check) -> None:
    """Signs of dz/dt at 28 times from 1 to 10^9 steps, and of the change of shares; the same for two unequal classes,
    and when the first token falls there; signs of z after sampled training with finite T and momentum."""
    classes = check.setting.classes
    distinct, common = _tokens(classes)
    lines = {}
    for gradient, role in GRADIENT_ROLES:
        gain, loss, states, result = _velocities(check, classes, gradient)
        check.positive(f"dz/dt of distinct tokens, {gradient} gradient", gain, role=role)
        if len(classes.common_tokens) == 1:
            check.positive(f"-dz/dt of the common token, {gradient} gradient", -loss, role=role)
        shares = np.diff(result["attention"].values[0], axis=0)[:, _own_tokens(classes)]
        check.positive(f"growth of distinct tokens' shares, {gradient} gradient", shares, role="contrast")
        lines[f"{gradient} gradient"] = _worst_drive(classes, states)
    lines |= _check_unequal(check)
    sampled: dict[str, dict[str, Any]] = {
        "T = 128, equal rates": {"seq_len": 128},
        "T = 128, equal rates and momentum 0.9": {"seq_len": 128, "momentum": 0.9},
        "T = 20,000, equal rates": {"seq_len": 20_000},
    }
    for name, options in sampled.items():
        z = _trained(check, **options)
        check.positive(f"z of distinct tokens, SGD with {name}", z[:, *distinct], role="beyond", allowed=0.01)
        if len(common[0]):
            check.positive(f"-z of common tokens, SGD with {name}", -z[:, *common], role="beyond", allowed=0.01)
    check.curve = Curve(TIMES, lines, "steps", "least drive xi of a distinct token over the largest (below 0 it loses)")


def _own_tokens(classes: SequenceClasses) -> NDArray[np.bool_]:
    """Where token l is distinct to class n (K x S)."""
    ids = classes.contextual_tokens
    return (classes.probs[:, ids] > 0) & (classes.kinds_of(ids) == "distinct")


def _worst_drive(classes: SequenceClasses, states: list[State]) -> FloatArray:
    """The least xi_nl of a distinct token at each state, over the largest: all have the sign of dz/dt."""
    drive = np.array([state.measured.token_drive[_own_tokens(classes)] for state in states])
    return drive.min(axis=1) / np.abs(drive).max(axis=1)


def _check_unequal(check: Check) -> dict[str, FloatArray]:
    """Two unequal classes: signs up to 10^9 steps, and M h where a distinct token first falls, found on a grid.

    Returns the worst drives with the modified gradient.
    """
    lines = {}
    classes, rate = unequal_classes(), check.setting.lr_y
    sizes: dict[str, Any] = {"vocab_size": classes.vocab_size, "lr_y": rate}
    probs = classes.probs[:, classes.contextual_tokens]
    distinct, _ = _tokens(classes)
    for ratio in UNEQUAL_RATIOS:
        fall = np.nanmin(theory.first_fall(probs, query=classes.query, **sizes, lr_z=rate / ratio))
        growth = classes.vocab_size * float(theory.decoder_growth(fall / classes.num_classes, **sizes))
        for gradient, _ in GRADIENT_ROLES:
            grid = growth * np.geomspace(0.8, 1.1 if gradient == "modified" else 1.5, 32)
            near = classes.num_classes * theory.growth_time(grid / classes.vocab_size, **sizes)
            times = np.sort(np.concatenate([TIMES, near]))
            states, result = trajectory(classes, times=times, lr_y=rate, lr_z=rate / ratio, decoder_gradient=gradient)
            drive = np.array([state.velocity()[1][distinct] for state in states])
            name = f"two unequal classes, {gradient} gradient, eta_Y/eta_Z = {ratio:g}"
            stated = np.isin(times, TIMES)
            check.positive(f"dz/dt of distinct tokens, {name}", drive[stated], role="beyond")
            if gradient == "modified":
                shares = np.diff(result["attention"].values[0, stated], axis=0)[:, _own_tokens(classes)]
                check.positive(f"growth of distinct tokens' shares, {name}", shares, role="contrast")
                lines[name] = _worst_drive(classes, [states[i] for i in np.flatnonzero(stated)])
            first = times[int(np.argmax((drive < 0).any(axis=1)))]  # one does fall up to the end of the grid
            measured = classes.vocab_size * float(theory.decoder_growth(first / classes.num_classes, **sizes))
            check.equal(
                f"M h at the first fall, {name}",
                growth,
                measured,
                tolerance=0.03,
                role="corrected" if gradient == "modified" else "contrast",
            )
    return lines


def symmetric_setting() -> Setting:
    """Three classes of one query, each with three common and 44 distinct tokens, M = 1600: Assumption 2 is met."""
    return Setting(synthetic(num_query=1, next_per_query=3, num_common=3, num_distinct=44, vocab_size=1600))


@claim(
    "With symmetric classes of one query all common tokens lose attention.",
    where="Corollary 2, Eqs. 101 to 107",
    category="holds",
    conditions="Assumption 2, one query, matching distinct tokens, common tokens of equal probability, $Z(0) = 0$",
    setting=symmetric_setting,
    wrong_factor=-1.0,
    needs=("several classes", "common tokens", "one query", "symmetric classes"),
    assumes=("weak_overlap", "no_vanishing_overlap", "fast_decoder"),
)
def corollary_2(check: Check) -> None:
    """Signs of dz/dt along flows; then with two queries, and with common tokens of unequal probability."""
    classes = check.setting.classes
    shape = theory.symmetry(classes.probs[:, classes.contextual_tokens], query=classes.query)
    check.positive(
        "conditions (1) to (3) met",
        np.array([shape.single_query, shape.matching_distinct, shape.shared_common]) - 0.5,
        role="contrast",
    )
    lines = {}
    for gradient, role in GRADIENT_ROLES:
        _, loss, _, result = _velocities(check, classes, gradient)
        z = result["attention_logits"].values[0]
        check.positive(f"-dz/dt of common tokens, {gradient} gradient", -loss, role=role)
        lines[f"{gradient} gradient"] = z[:, *_tokens(classes)[1]].mean(axis=1)
        if gradient == "modified" and shape.holds:
            lists = [np.searchsorted(classes.contextual_tokens, classes.distinct_tokens(n)) for n in range(2)]
            check.equal("z of matching distinct tokens", z[:, 0, lists[0]], z[:, 0, lists[1]], tolerance=1e-6)
    two = synthetic(num_query=2, next_per_query=2, num_common=3, num_distinct=44, vocab_size=1600)
    check.positive("-dz/dt with two queries, true gradient", -_velocities(check, two, "true")[1], role="beyond")
    uneven = _uneven()
    _, loss, *_ = _velocities(check, uneven, "modified")
    check.positive("-dz/dt, a common token ten times rarer in one class, modified gradient", -loss, role="beyond")
    check.curve = Curve(TIMES, lines, "steps", "attention logit z (mean over common tokens)")


def _uneven() -> SequenceClasses:
    """The symmetric setting with one common token ten times rarer in the first class."""
    base = symmetric_setting().classes
    probs = base.probs
    probs[0, 0] /= 10
    probs[0] /= probs[0].sum()
    return SequenceClasses(probs=probs, query=base.query, next_token=base.next_token, vocab_size=base.vocab_size)
