"""The reversal curse: statements of Zhu et al. (NeurIPS 2024) and of the identity bridge, against exact dynamics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from scansnap import theory
from scansnap.claims.check import Check, Curve, Role
from scansnap.claims.systems import quiet_flow, quiet_train, system_claim
from scansnap.papers.reversal.system import (
    FactoredReversal,
    Facts,
    Reversal,
    answer_probability,
    residual_answer_probability,
)
from scansnap.papers.reversal.theory import asked_loss_rise, asked_probability, asked_weight_variance, early_exponent
from scansnap.validation.checks import FloatArray

ZHU = "Zhu et al., NeurIPS 2024"
BRIDGE = "identity bridge (arXiv 2602.02470)"
LONG_TIMES: FloatArray = np.logspace(0, 60, 13)


def _split(facts: Facts, run: xr.Dataset, name: str) -> tuple[FloatArray, FloatArray]:
    """A quantity of classes at trained and at asked sentences (..., n), (..., n')."""
    values = run[name].values.astype(np.float64)
    return values[..., : len(facts.trained)], values[..., len(facts.trained) :]


@system_claim(where=f"{ZHU}, one-layer transformer", category="sharpened", wrong_factor=1.01)
def reversal_chance(check: Check) -> None:
    r"""In (Y, Z) from a zero start the reversed probability stays $1/M$, and $1 - p$ of trained sentences falls like
    $1/(\eta_Y t)$, $t$ in updates of a sentence.

    Conditions: zero start of the rows of Y that no trained sentence gives; no residual connection

    Check: 170 sentences and M = 202: 4,000 expected updates, flows to 10^60, sampled SGD, momentum and Adam.

    The context is one token, so f = e_given: only a sentence's own updates move its row of Y.  Then M h of Eq. 45 is
    the gap between the answer's logit and the others, 1 - p = (M - 1)/(M - 1 + exp(M h)), and the rows of tokens
    that are never given do not move at all.
    """
    facts = Facts(pairs=100, both=70)
    classes, K, M = facts.classes, len(facts.trained), len(facts.names)
    expected: dict[str, Any] = {"seq_len": math.inf, "batch_size": None, "dtype": "float64", "lr_z": 1.0}
    record = ("loss", answer_probability)
    run = quiet_train(classes, lr_y=float(K), steps=4000, record_every=1000, record=record, **expected)
    h = theory.decoder_growth_steps(4000, vocab_size=M, lr_y=1.0)[::1000]
    check.equal("1 - p of trained sentences", _wrong(h, M), -np.expm1(-run["loss"].values[0]), tolerance=1e-9)
    check.equal("asked probability times M", 1.0, M * _split(facts, run, "answer_probability")[1], tolerance=1e-12)
    small = Facts(pairs=6, both=3)
    M, K = len(small.names), len(small.trained)
    long = quiet_flow(small.classes, lr_y=1.0, lr_z=1.0, times=LONG_TIMES, record=record)
    wrong = -np.expm1(-long["loss"].values[0])
    exact = _wrong(theory.decoder_growth(LONG_TIMES / K, vocab_size=M, lr_y=1.0), M)
    check.equal("(1 - p) t along the flow to 10^60", exact * LONG_TIMES, wrong * LONG_TIMES, tolerance=1e-4)
    check.equal(
        "(1 - p) t M / ((M - 1) K) from 10^10 on", 1.0, (wrong * LONG_TIMES * M / (M - 1) / K)[2:], tolerance=1e-6
    )
    rules: dict[str, dict[str, Any]] = {
        "SGD": {"lr_y": 1.0},
        "momentum 0.9": {"lr_y": 1.0, "momentum": 0.9},
        "Adam": {"lr_y": 0.1, "optimizer": "adam"},
    }
    for name, options in rules.items():
        sampled = quiet_train(
            classes,
            **options,
            lr_z=0.1,
            steps=300,
            batch_size=16,
            seq_len=3,
            seeds=check.seeds(4),
            record=record,
            record_every=300,
        )
        asked = _split(facts, sampled, "answer_probability")[1] * len(facts.names)
        check.equal(f"asked probability times M, sampled, {name}", 1.0, asked, tolerance=1e-12, role="beyond")
    lines = {"trained, 1 - p": wrong, "exact": exact, "asked": _split(small, long, "answer_probability")[1][0, :, 0]}
    check.curve = Curve(LONG_TIMES, lines, "steps", "probability", log_y=True)


def _wrong(growth: FloatArray, vocab_size: int) -> FloatArray:
    """1 - p for a gap of M h between the answer's logit and the others."""
    return np.asarray(1 / (1 + np.exp(vocab_size * growth) / (vocab_size - 1)), np.float64)


@system_claim(where="derived here, for the setting of Zhu et al.", wrong_factor=1.01)
def reversal_residual(check: Check) -> None:
    r"""With a residual connection the reversed probability falls below chance, like $t^{-1/(n+1)}$ with $n$ trained
    sentences of the relation that is asked about.

    Conditions: zero start, $T \to \infty$, at least one trained sentence with that relation

    Check: Flows to 10^60 in four random settings against three equations in `theory.py`; no sentence, in contrast.

    Every sentence adds one vector to the row of its given token and to that of its relation.  The relation's row
    so learns which tokens are answers to it, and rules out those that never were.
    """
    rng = check.rng()
    lines: dict[str, FloatArray] = {}
    for _ in range(4):
        both = int(rng.integers(1, 5))
        facts = Facts(pairs=both + int(rng.integers(1, 4)), both=both)
        sizes = {"vocab_size": len(facts.names), "num_classes": len(facts.trained)}
        name = f"{both} trained sentences of the relation, M = {len(facts.names)}"
        run = _residual_flow(facts)
        asked = _split(facts, run, "residual_answer_probability")[1][0].T
        _, predicted = asked_probability(LONG_TIMES, trained=both, **sizes)
        check.equal(f"ln p of what is asked, {name}", np.log(predicted), np.log(asked), tolerance=1e-4)
        slope = np.log(asked[:, -1] / asked[:, -3]) / np.log(LONG_TIMES[-1] / LONG_TIMES[-3])
        check.equal(f"slope of ln p in ln t from 10^50 to 10^60, {name}", -1 / (both + 1), slope, tolerance=1e-4)
        check.positive(f"1/M less p of what is asked, {name}", 1 / sizes["vocab_size"] - asked)
        lines |= {f"n = {both}": asked[0]}
    one_way = Facts(pairs=4, both=0)
    never = _split(one_way, _residual_flow(one_way), "residual_answer_probability")[1] * len(one_way.names)
    check.equal("M p if the relation has no trained sentence", 1.0, never, tolerance=1e-12, role="contrast")
    check.curve = Curve(LONG_TIMES, lines, "steps", "asked probability", log_y=True)


def _residual_flow(facts: Facts) -> xr.Dataset:
    record = ("loss", residual_answer_probability)
    return quiet_flow(facts.classes, lr_y=1.0, lr_z=1.0, times=LONG_TIMES, residual=True, record=record)


# --- the bilinear model ----------------------------------------------------------------------------------------------

TIMES = np.array([0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4])


def _bilinear(check: Check, system: Reversal, seeds: int = 8) -> xr.Dataset:
    """The flow of a bilinear model, rates in updates of a sentence."""
    rate = float(len(system.trained))
    record = ("loss", "asked_loss", "asked_weight")
    return quiet_flow(system, lr_theta=rate, times=TIMES, seeds=check.seeds(seeds), record=record)


def _gap(run: xr.Dataset, tokens: int) -> FloatArray:
    """D (time,): by how much an answer's weight exceeds the others', from the mean loss."""
    loss = run["loss"].values.mean(0)
    return np.asarray(np.log((tokens - 1) / np.expm1(loss)), np.float64)


@system_claim(where=f"{ZHU}, bilinear model", category="too strong", wrong_factor=2.0)
def reversal_bilinear_loss(check: Check) -> None:
    r"""In the bilinear model the reversed loss over its start tends to 1 as the width $d$ grows.

    Conditions: a fixed time

    Correction: averaged over embeddings the reversed loss rises by $n D^2 (1/V + 1/d) / (2 d) - D/d$ with $D \approx
    \ln t$: at a fixed width it grows without bound, and stays near its start only while $\ln^2 t$ is far below $d$

    Check: Flows of 20 pairs, 10 trained both ways, at widths from 512 to 2^20; and to 10^12 at width 64.

    The rise is a mean over 64 seeds.  The asked loss of a run has two kinds of noise, from the mean over the
    vocabulary, D sqrt(n) / (V sqrt(d n')), and from its answers, D sqrt(n) / (d sqrt(n')).  The standard error of
    the mean is then about 7% of the rise at both widths.  The formula took two corrections, and widths, seeds and the
    tolerance of 25% were changed with them, after seeing seeds 0 and 2 to 8 of the check.  On three unseen sets
    (9 to 11) the rise was 9% below to 17% above the prediction; with seed 0 it is 8% above it on average, so the
    formula may be a few percent low, and the check may fail by chance in about one of a hundred sets.
    """
    ratios = {}
    for power, seeds in ((9, 64), (10, 64), (11, 8), (20, 8)):
        system = Reversal(pairs=20, both=10, width=2**power)
        run = _bilinear(check, system, seeds)
        V, n = len(system.entities), len(system.trained)
        ratios[power] = run["asked_loss"].values / math.log(V)
        if power <= 10:
            rise = run["asked_loss"].values.mean(0)[-1] - math.log(V)
            predicted = asked_loss_rise(_gap(run, V)[-1], width=2**power, tokens=V, trained=n)
            label = f"rise of the reversed loss, width 2^{power}"
            check.equal(label, predicted, rise, tolerance=0.25, role="corrected")
    spread = [np.abs(ratio - 1).max() for ratio in ratios.values()]
    check.positive("largest distance from 1 falls as the width grows", -np.diff(spread))
    check.at_most("largest distance from 1 at width 2^20", spread[-1], 1e-3, wrong_factor=10.0)
    late = quiet_flow(
        Reversal(pairs=8, both=4, width=64),
        lr_theta=12.0,
        times=[1e3, 1e6, 1e9, 1e12],
        seeds=check.seeds(4),
        record=("asked_loss",),
    )["asked_loss"].values / math.log(16)
    check.at_most("the same at width 64 for ever (to 10^12)", np.abs(late - 1), 0.5, role="beyond")
    check.positive("reversed loss keeps growing at width 64", np.diff(late, axis=1), role="corrected")
    lines = {f"d = 2^{power}": ratio.mean(0) for power, ratio in ratios.items()}
    check.curve = Curve(TIMES, lines, "updates of a sentence", "reversed loss / its start")


@system_claim(where=f"{ZHU}, bilinear model", category="too strong", wrong_factor=1.3)
def reversal_bilinear_spread(check: Check) -> None:
    r"""In the bilinear model the spread of reversed weights goes like $1/d$.

    Conditions: $d$ below the square of the vocabulary

    Correction: the variance is $D^2 [(n(1 - 1/V) + 1)/d^2 + n/(V^2 d)]$: the spread goes like $1/d$ for $d < V^2$ and
    like $1/\sqrt{d}$ beyond

    Check: The standard deviation of reversed weights after 10^4 updates, 8 seeds, at widths from 2^7 to 2^20.
    """
    widths, measured, predicted = 2.0 ** np.array([7, 9, 16, 20]), [], []
    for width in widths:
        system = Reversal(pairs=20, both=10, width=int(width))
        run = _bilinear(check, system)
        V, n = len(system.entities), len(system.trained)
        measured.append(run["asked_weight"].values[:, -1].astype(np.float64).std())
        predicted.append(math.sqrt(asked_weight_variance(_gap(run, V)[-1], width=width, tokens=V, trained=n)))
    check.equal("spread, width by width", predicted, measured, tolerance=0.2, role="corrected")
    slopes = np.diff(np.log(measured)) / np.diff(np.log(widths))
    check.equal("slope of ln spread in ln d, d from 2^7 to 2^9 (V² = 1,600)", -1.0, slopes[0], tolerance=0.12)
    check.equal("the same from 2^16 to 2^20", -1.0, slopes[-1], tolerance=0.12, role="beyond")
    check.equal("the same against -1/2", -0.5, slopes[-1], tolerance=0.12, role="corrected")
    lines = {"measured": np.array(measured), "predicted": np.array(predicted)}
    check.curve = Curve(widths, lines, "width d", "spread of reversed weights", log_y=True)


@system_claim(where=f"{ZHU}, bilinear model", category="sharpened", wrong_factor=1.05)
def reversal_bilinear_law(check: Check) -> None:
    r"""Along the flow of the bilinear model $L_{rev}(t)/L_{rev}(0) \geq (L(t)/L(0))^\epsilon$, for any $\epsilon$ if
    the width is large enough.

    Conditions: zero start, Gaussian embeddings wider than the vocabulary

    Check: The least exponent along flows of 8 seeds in three settings, at widths 4V to 4^5 V, against its value at time
    0.

    Both losses start at ln V, and the exponent ln(L_rev/L_rev(0)) / ln(L/L(0)) starts at the ratio of their slopes,
    <dL_rev, dL> / |dL|^2.  That is noise of size 1/sqrt(d).  Where it is positive it only falls from there.
    """
    rng, least = check.rng(), []
    for _ in range(3):
        both = int(rng.integers(1, 8))
        pairs = both + int(rng.integers(2, 8))
        exponents = []
        for factor in (4, 64, 1024):
            system = Reversal(pairs=pairs, both=both, width=2 * pairs * factor)
            run = _bilinear(check, system)
            trained, asked = (run[name].values / math.log(2 * pairs) for name in ("loss", "asked_loss"))
            first = early_exponent(
                system.data(np.array(check.seeds(8), np.uint64), None)["embedding"], system.trained, system.asked
            )
            name = f"{pairs} pairs, {both} both ways, width {system.width}"
            exponent = np.log(asked) / np.log(trained)
            check.equal(f"exponent at the start, {name}", first, exponent[:, 0], tolerance=0.02)
            up = first > 0
            bound = trained[up] ** first[up, None]
            check.at_least(f"reversed loss over its start, {name}", asked[up], bound * (1 - 1e-9))
            exponents.append(float(np.maximum(exponent.max(1), 0).mean()))
        least.append(exponents)
    check.positive("the least exponent falls as the width grows 16-fold", -np.diff(least, axis=1))
    lines = {f"setting {i + 1}": np.array(values) for i, values in enumerate(least)}
    check.curve = Curve(np.array([4.0, 64.0, 1024.0]), lines, "width over vocabulary", "least exponent", log_y=True)


# --- chains and the identity bridge ----------------------------------------------------------------------------------


@system_claim(where=f"{ZHU}, chain of thought", category="holds", wrong_factor=-1.0)
def reversal_chain(check: Check) -> None:
    r"""Learning $A \to B$ and $B \to C$ does not teach $A \leadsto C$.

    Conditions: zero start

    Check: (Y, Z) with and without a residual connection, some or no chains trained as wholes; the bilinear model.

    All chains that are only asked are alike: a permutation of their C leaves the row of A and that of the relation as
    they are.  So their answers tie, and each has at most 1/n' of the probability.
    """
    for both in (0, 2):
        facts = Facts(pairs=5, both=both, task="chain")
        M, alike = len(facts.names), len(facts.asked)
        times = (
            LONG_TIMES if both == 0 else LONG_TIMES[:1] * np.array([1.0, 10.0, 100.0, 1e3])
        )  # the row of A soon settles between B and C
        plain = quiet_flow(facts.classes, lr_y=1.0, lr_z=1.0, times=times, record=(answer_probability,))
        asked = _split(facts, plain, "answer_probability")[1]
        check.positive(f"1/M less p of A ⇝ C, {both} chains trained", 1 / M - asked)
        residual = _split(facts, _residual_flow(facts), "residual_answer_probability")[1]
        role: Role = "assumed" if both == 0 else "beyond"
        check.positive(f"1/n' less p of A ⇝ C, residual connection, {both} trained", 1 / alike - residual)
        check.positive(f"1/M less p of A ⇝ C, residual connection, {both} trained", 1 / M - residual, role=role)
    system = Reversal(pairs=8, both=0, width=1024, task="chain")
    rise = _bilinear(check, system)["asked_loss"].values - math.log(len(system.entities))
    check.positive("rise of the loss of A ⇝ C from 10 updates on, bilinear model", rise[:, 2:])


@system_claim(where=BRIDGE, category="too strong", wrong_factor=-1.0)
def reversal_identity_bridge(check: Check) -> None:
    r"""Training on $A = A$ too breaks the reversal curse.

    Conditions: a factored matrix $\Theta = PQ^T$ from a small start, identities of both $A$ and $B$

    Correction: it takes a product of matrices and the identities of given tokens and answers alike: $\Theta$ itself,
    (Y, Z), or the identities of $A$ or of $B$ alone leave the curse as it is; and only the choice among candidates is
    learned: the probability of the answer still falls, since $B$ predicts itself

    Check: The share of asked pairs answered right among all A, for factored and plain matrices and (Y, Z).

    From a small start P and Q grow along the leading singular vectors of the gradient at zero.  For a pair (A, B) that
    is [[1, 1], [0, 1]] less a constant: rows A, B; columns A, B.  Its leading left and right vectors have entries of
    one sign, so the entry (B, A), which is never trained, grows with (A, B): in the ratio 0.382 = 1/phi^2, phi the
    golden ratio.  Without the identity of A or of B the matrix is [[0, 1], [0, 1]], [[1, 1], [0, 0]] or
    [[0, 1], [0, 0]]; its leading vectors have a zero at (B, A).  Late, a product of two matrices prefers a small sum
    of singular values, and for a filled-in [[1, 1], [x, 1]] that is least at x = 1.
    """
    times = np.array([30.0, 60.0, 100.0, 300.0, 1e3, 1e4])
    lines: dict[str, FloatArray] = {}
    for identity in ("all", "A", "B", "none"):
        system = FactoredReversal(pairs=6, both=0, width=None, identity=identity, rank=12, scale=1e-3)
        run = quiet_flow(system, lr_theta=1.0, times=times, seeds=check.seeds(3))
        right = run["asked_accuracy"].values
        lines[f"P Q', identities: {identity}"] = right.mean(0)
        if identity == "all":
            check.positive("accuracy above 0.9 from 100 on, both identities", right[:, 2:] - 0.9)
        else:
            check.positive(f"0.4 less accuracy, identities: {identity}", 0.4 - right[:, -1], role="corrected")
    forward, reversed_ = _early_blocks(check)
    golden = (1 + math.sqrt(5)) / 2
    check.equal("early weights B to A against A to B", forward / golden**2, reversed_, tolerance=0.02, role="corrected")
    plain = Reversal(pairs=6, both=0, width=None, identity="all")
    untouched = quiet_flow(plain, lr_theta=1.0, times=times)
    lines["Theta itself"] = untouched["asked_accuracy"].values[0]
    check.positive("accuracy above 0.9 for Theta itself", untouched["asked_accuracy"].values - 0.9, role="beyond")
    facts = Facts(pairs=4, both=2, identity="all")
    asked = _split(facts, _residual_flow(facts), "residual_answer_probability")[1]
    check.positive("1/n' less p in (Y, Z) with identities", 1 / len(facts.asked) - asked, role="corrected")
    check.curve = Curve(times, lines, "time", "share of asked pairs answered right")


def _early_blocks(check: Check) -> tuple[FloatArray, FloatArray]:
    """Theta from A to B and from B to A while all weights are below 0.01, from a start of 1e-8."""
    pairs = 6
    system = FactoredReversal(pairs=pairs, both=0, width=None, identity="all", rank=12, scale=1e-8)
    options: dict[str, Any] = {"seeds": check.seeds(1), "record": ("p", "q"), "rtol": 1e-8, "atol": 1e-14}
    run = quiet_flow(system, lr_theta=1.0, times=np.arange(50.0, 251.0, 10.0), **options)
    theta = run["p"].values[0] @ run["q"].values[0].swapaxes(1, 2)
    last = theta[np.abs(theta).max((1, 2)) < 0.01][-1]
    return last[:pairs, pairs:], last[pairs:, :pairs]
