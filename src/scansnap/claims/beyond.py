"""What scansnap adds where the paper leaves off: the exact drive under true SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import simpson

from scansnap import theory
from scansnap.claims.check import Check, Curve, Role, Setting
from scansnap.claims.claim import claim
from scansnap.claims.phases import section_6_setting
from scansnap.claims.population import FloatArray, State
from scansnap.claims.symmetry import symmetric_arguments
from scansnap.data.synthetic import synthetic
from scansnap.dynamics.flow import flow
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head
from scansnap.theory.reduced_dynamics import DecoderGradient

TIMES = np.geomspace(1, 1e12, 97)


@claim(
    "Symmetric classes under true SGD obey $3 D + 2 G$ equations, whatever $K$, $M$ and the ratio of the rates.",
    where="theory.symmetric_flow; not in the paper",
    conditions="symmetric classes, $Y(0) = Z(0) = 0$, population dynamics",
    setting=section_6_setting,
    wrong_factor=1.001,
    needs=("several classes", "a distinct token", "common tokens", "symmetric classes"),
)
def symmetric_drive(check: Check) -> None:
    """z of common and distinct tokens against the whole flow, 1 to 10^12 steps, eta_Y/eta_Z of the setting and 1."""
    classes = check.setting.classes
    row = int(np.flatnonzero(classes.queries == classes.query[0])[0])
    common = np.searchsorted(classes.contextual_tokens, classes.common_tokens)
    distinct = np.searchsorted(classes.contextual_tokens, classes.distinct_tokens(0))
    lines: dict[str, FloatArray] = {}
    for lr_z in dict.fromkeys((check.setting.lr_z, check.setting.lr_y)):
        reduced = theory.symmetric_flow(TIMES, **symmetric_arguments(classes), lr_y=check.setting.lr_y, lr_z=lr_z)
        result = one_head(
            flow(classes, lr_y=check.setting.lr_y, lr_z=lr_z, times=TIMES, record=("attention_logits",), progress=False)
        )
        z = result["attention_logits"].values[0, :, row]
        ratio = f"eta_Y/eta_Z = {check.setting.lr_y / lr_z:g}"
        check.equal(f"z of common tokens, {ratio}", reduced.common_logits, z[:, common], tolerance=1e-4)
        check.equal(f"z of distinct tokens, {ratio}", reduced.distinct_logits, z[:, distinct], tolerance=1e-4)
        if lr_z == check.setting.lr_z and len(common) == 1:
            overlap = float(reduced.overlap[0])
            constant = theory.phase_constant(overlap, num_classes=classes.num_classes)
            published = theory.common_logit(
                TIMES,
                vocab_size=classes.vocab_size,
                num_classes=classes.num_classes,
                lr_y=check.setting.lr_y,
                lr_z=lr_z,
                constant=constant,
            )
            check.equal(
                "z of the common token by Theorem 4", published, z[:, common[0]], tolerance=0.05, role="contrast"
            )
            lines["Theorem 4, exact form"] = published
        lines |= {f"flow, {ratio}": z[:, common[0]], f"symmetric equations, {ratio}": reduced.common_logits[:, 0]}
    check.curve = Curve(TIMES, lines, "steps", "logit of a common token")


def small_setting() -> Setting:
    return Setting(synthetic(num_query=1, next_per_query=3, num_common=2, num_distinct=3), lr_y=0.7, lr_z=0.4)


@claim(
    r"Under true SGD $z_l = (\eta_Z/\eta_Y) \lvert Y_l\rvert^2/2 - \eta_Z \int \sum_n P(n) f_{nl}^2 (w_n \cdot r_n) "
    r"\, dt$, token by token.",
    where="theory.measured; not in the paper",
    conditions="population dynamics of one query from $Y(0) = Z(0) = 0$",
    setting=small_setting,
    wrong_factor=1.01,
    needs=("one query",),
)
def energy_law(check: Check) -> None:
    """The right side along a flow of 60 steps, by Simpson's rule on 601 states; the modified gradient in contrast."""
    classes = check.setting.classes
    times = np.linspace(0, 60, 601)
    roles: dict[DecoderGradient, Role] = {"true": "assumed", "modified": "contrast"}
    for gradient, role in roles.items():
        result = one_head(
            flow(
                classes,
                lr_y=check.setting.lr_y,
                lr_z=check.setting.lr_z,
                times=times,
                decoder_gradient=gradient,
                record=("attention_logits", "decoder"),
                rtol=1e-10,
                atol=1e-12,
                progress=False,
            )
        )
        states = [
            State(classes, result["decoder"].values[0, i], result["attention_logits"].values[0, i])
            for i in range(len(times))
        ]
        share = [classes.weights @ (s.direction**2 * s.measured.logit_gain[:, None]) for s in states]
        energy = (states[-1].decoder ** 2).sum(axis=1) / 2
        predicted = check.setting.lr_z * (energy / check.setting.lr_y - simpson(share, x=times, axis=0))
        z = states[-1].attention_logits[0]
        check.equal(f"z after 60 steps, {gradient} gradient", predicted, z, tolerance=1e-4, role=role, floor=1e-7)
        if gradient == "true":
            check.curve = Curve.against(z, {"the law": predicted}, "z of a token after 60 steps")


@claim(
    r"Finite sequences push attention towards frequent tokens, common or not, by $f^2 E\lvert u\rvert^2 - E[u^2]$ of "
    "order $1/T$.",
    where="theory.finite_length_drive; not in the paper",
    conditions="true SGD, early in training; first order in $1/T$",
    wrong_factor=1.3,
    assumes=("many_tokens",),
)
def finite_length(check: Check) -> None:
    """z after 8 steps of batch 4096 at small rates, mean of 64 runs: T = 500 against the prediction and the limit."""
    classes = check.setting.classes
    logits = {}
    for length in (500, np.inf):
        z = one_head(
            train(
                classes,
                lr_y=0.02,
                lr_z=0.1,
                steps=8,
                batch_size=4096,
                seq_len=length,
                seeds=check.seeds(64),
                dtype="float64",
                record_every=8,
                record=("attention_logits",),
                progress=False,
            )
        )["attention_logits"].values[:, -1]
        logits[length] = z.mean(axis=0)[np.argsort(classes.queries)]
    arguments: dict[str, Any] = {
        "query": classes.query,
        "weights": classes.weights,
        "vocab_size": classes.vocab_size,
        "lr_y": 0.02,
        "lr_z": 0.1,
    }
    limit = theory.early_logits(8, check.setting.probs, **arguments)
    finite = theory.early_logits(8, check.setting.probs, **arguments, seq_len=500)
    check.equal("z at T = 500", finite, logits[500], tolerance=0.1)
    check.equal("z at T -> infinity", limit, logits[np.inf], tolerance=0.02)
    check.equal("z at T = 500, by the limit alone", limit, logits[500], tolerance=0.1, role="contrast")
    check.curve = Curve.against(
        logits[500], {"first order in 1/T": finite, "T -> infinity": limit}, "z of a token at T = 500"
    )
