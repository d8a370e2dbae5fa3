"""What scansnap adds where the paper leaves off: the exact drive under true SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.integrate import simpson

from scansnap import theory
from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.phases import section_6_setting
from scansnap.claims.population import FloatArray, flow_logits, symmetric_flow, trained, trajectory
from scansnap.data.synthetic import synthetic

TIMES = np.geomspace(1, 1e12, 97)


@claim(
    where="theory.symmetric_flow; not in the paper",
    setting=section_6_setting,
    wrong_factor=1.001,
    needs=("several classes", "a distinct token", "common tokens", "symmetric classes"),
)
def symmetric_drive(check: Check) -> None:
    """Symmetric classes under true SGD obey $3 D + 2 G$ equations, whatever $K$, $M$ and the ratio of the rates.

    Conditions: symmetric classes, $Y(0) = Z(0) = 0$, population dynamics

    Check: z of common and distinct tokens against the whole flow, 1 to 10^12 steps, eta_Y/eta_Z of the setting and 1.
    """
    classes = check.setting.classes
    common = np.searchsorted(classes.contextual_tokens, classes.common_tokens)
    distinct = np.searchsorted(classes.contextual_tokens, classes.distinct_tokens(0))
    lines: dict[str, FloatArray] = {}
    for lr_z in dict.fromkeys((check.setting.lr_z, check.setting.lr_y)):
        rates: dict[str, Any] = {"lr_y": check.setting.lr_y, "lr_z": lr_z}
        reduced = symmetric_flow(check.setting, TIMES, **rates)
        z = flow_logits(classes, times=TIMES, **rates).sel(query=classes.query[0]).values
        ratio = f"eta_Y/eta_Z = {check.setting.lr_y / lr_z:g}"
        check.equal(f"z of common tokens, {ratio}", reduced.common_logits, z[:, common], tolerance=1e-4)
        check.equal(f"z of distinct tokens, {ratio}", reduced.distinct_logits, z[:, distinct], tolerance=1e-4)
        lines |= {f"flow, {ratio}": z[:, common[0]], f"symmetric equations, {ratio}": reduced.common_logits[:, 0]}
    check.curve = Curve(TIMES, lines, "steps", "logit of a common token")


@claim(
    where="theory.measured; not in the paper",
    setting=lambda: Setting(synthetic(num_query=1, next_per_query=3, num_common=2, num_distinct=3), lr_y=0.7, lr_z=0.4),
    needs=("one query",),
)
def energy_law(check: Check) -> None:
    r"""Under true SGD $z_l = (\eta_Z/\eta_Y) \lvert Y_l\rvert^2/2 - \eta_Z \int \sum_n P(n) f_{nl}^2 (w_n \cdot r_n) \,
    dt$, token by token.

    Conditions: population dynamics of one query from $Y(0) = Z(0) = 0$

    Check: The right side along a flow of 60 steps, by Simpson's rule on 601 states.
    """
    classes = check.setting.classes
    times = np.linspace(0, 60, 601)
    states, _ = trajectory(classes, times=times, **check.setting.rates, rtol=1e-10, atol=1e-12)
    share = [classes.weights @ (s.direction**2 * s.measured.logit_gain[:, None]) for s in states]
    energy = (states[-1].decoder ** 2).sum(axis=1) / 2
    predicted = check.setting.lr_z * (energy / check.setting.lr_y - simpson(share, x=times, axis=0))
    z = states[-1].attention_logits[0]
    check.equal("z after 60 steps, true gradient", predicted, z, tolerance=1e-4, floor=1e-7)


@claim(
    where="theory.finite_length_drive; not in the paper",
    wrong_factor=1.3,
    needs=("no positions",),
    assumes=("many_tokens",),
)
def finite_length(check: Check) -> None:
    r"""Finite sequences push attention towards frequent tokens, common or not, by $f^2 E\lvert u\rvert^2 - E[u^2]$ of
    order $1/T$.

    Conditions: true SGD, early in training; first order in $1/T$

    Check: z after 8 steps of batch 4096 at small rates, mean of 64 runs: T = 500 against the prediction and the limit.
    """
    classes = check.setting.classes
    rates: dict[str, Any] = {"lr_y": 0.02, "lr_z": 0.1}
    options: dict[str, Any] = {"batch_size": 4096, "seeds": check.seeds(64), "dtype": "float64"}
    logits = {}
    for length in (500, np.inf):
        z = trained(classes, "attention_logits", steps=8, seq_len=length, **rates, **options)
        logits[length] = z.mean(axis=0)[np.argsort(classes.queries)]
    arguments = {"query": classes.query, "weights": classes.weights, "vocab_size": classes.vocab_size, **rates}
    limit = theory.early_logits(8, check.setting.probs, **arguments)
    finite = theory.early_logits(8, check.setting.probs, **arguments, seq_len=500)
    check.equal("z at T = 500", finite, logits[500], tolerance=0.1)
    check.equal("z at T -> infinity", limit, logits[np.inf], tolerance=0.02)
    check.equal("z at T = 500, by the limit alone", limit, logits[500], tolerance=0.1, role="contrast")
