"""Lemmas 10, 11, 12 and 18, Remark 4, Corollary 1: the effects of drawing classes and tokens at random."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, poisson

from scansnap import theory
from scansnap.claims.check import Check, Role
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray, trained
from scansnap.data.sampling import sample_counts

FAILURES = np.array([0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-12])
"""Chances delta at which bounds are compared with exact quantiles; the smaller, the nearer Hoeffding's bound comes."""


def least_radius(trials: int, prob: ArrayLike) -> FloatArray:
    """How far a binomial count is from its mean, but for a chance of delta/2 on each side, exactly, for `FAILURES`."""
    chance = np.asarray(prob)[..., None]
    above = binom.isf(FAILURES / 2, trials, chance) - trials * chance
    return np.maximum(above, trials * chance - binom.ppf(FAILURES / 2, trials, chance))


@claim(where="Lemma 10, Eq. 58", category="too strong", wrong_factor=1.25, depends_on="K, M and the rates")
def lemma_10(check: Check) -> None:
    r"""A class is drawn $N P(n)$ times up to $\sqrt{N/2 \ln(2/\delta)} + 1 < \sqrt{N \ln(2/\delta)}$, but for a chance
    $\delta$.

    Conditions: $N \ln(2/\delta) > 11.66$ for the second bound, which the text does not say

    Check: The first bound against exact binomial quantiles at N = 1000, delta from 1/2 to 10^-12; the order of the two
    bounds just above the limit of the condition, and below it.
    """
    steps, count = 1000, check.setting.classes.num_classes
    radius = least_radius(steps, 1 / count) + math.ceil(steps / count) - steps / count
    check.at_most(
        "distance of a count from its mean, first bound", radius, theory.count_radius(steps, failure=FAILURES)
    )
    cases: tuple[tuple[int, float, Role], ...] = ((6, 0.2, "assumed"), (5, 0.5, "beyond"))
    for steps, delta, role in cases:
        first = theory.count_radius(steps, failure=delta)
        second = theory.count_radius(steps, failure=delta, form="loose")
        check.at_most(f"first bound against the second, N = {steps}, delta = {delta}", first, second, role=role)


@claim(where="Remark 4, Eq. 60", category="holds", wrong_factor=1.6, depends_on="K, M and the rates")
def remark_4(check: Check) -> None:
    r"""With $N \gg K^2$ and but for a chance $\delta$, $\lvert N_n - \bar N\rvert$ is at most $\Delta = \lceil \sqrt{N
    \ln(1/\delta)}\rceil \ll \bar N$.

    Conditions: classes drawn uniformly; all of them at once for $\delta$ up to 1/2

    Check: Delta against the distance that one count, and the largest of all, keeps but for a chance delta, exactly, at
    N = 10 K^2, K from 2 to 30, delta from 1/2 to 10^-6; Delta/Nbar at N = 100 K^2.

    Lemma 10's ln(2/delta) has become ln(1/delta), which costs nothing: N_n is a whole number and Nbar rounds N/K up, so
    |N_n - Nbar| > Delta implies |N_n - N/K| >= Delta, of which Hoeffding's bound is 2 exp(-2 Delta^2/N) <= 2 delta^2,
    at most delta for delta <= 1/2, and at most delta/K, which serves all classes at once, for delta <= 1/(2K).  Beyond
    that it is checked: all classes at once for delta <= 1/2, not at delta = 0.95.  Delta is about sqrt(2) times what
    Hoeffding's bound asks for, so that it is never nearer than that to an exact distance.
    """
    deltas, sizes = FAILURES[:-1], (2, 3, 10, 30)
    steps = 10 * np.array(sizes) ** 2
    radius = theory.count_radius(steps[:, None], failure=deltas, form="remark")
    together = np.array([[_largest_distance(10 * k**2, k, delta) for delta in deltas] for k in sizes])
    single = np.array([least_radius(n, 1 / k)[:-1] for n, k in zip(steps.tolist(), sizes, strict=True)])
    check.at_most("distance of one count from its mean", single, radius)
    check.at_most("largest distance of all counts from their mean", together, radius)
    many = float(theory.count_radius(9000, failure=0.95, form="remark"))
    check.at_most("the same, delta = 0.95, K = 30", _largest_distance(9000, 30, 0.95), many, role="contrast")
    own = check.setting.classes.num_classes
    ratio = theory.count_radius(100 * own**2, failure=0.1, form="remark") / (100 * own)
    check.at_most("Delta/Nbar at N = 100 K^2, delta = 0.1", ratio, 0.2)


def _largest_distance(steps: int, classes: int, delta: float) -> int:
    """The least whole number that none of |N_n - Nbar| exceeds, but for a chance delta."""
    most = 2 * math.ceil(steps / classes)
    return bisect_left(range(most), x=True, key=lambda radius: _some_outside(steps, classes, radius) <= delta)


def _some_outside(steps: int, classes: int, radius: int) -> float:
    """The chance that some of N_1 .. N_K is further than the radius from Nbar, exactly.

    Multinomial counts are independent Poisson counts given their sum: the chance that all are inside is that of sums of
    Poisson counts cut off at both ends, over that of the sum.
    """
    mean = math.ceil(steps / classes)
    least = max(0, mean - radius)
    inside = poisson.pmf(np.arange(least, mean + radius + 1), steps / classes)
    total = np.ones(1)
    for _ in range(classes):
        total = np.convolve(total, inside)
    place = steps - classes * least
    chance = total[place] if place < len(total) else 0.0
    return float(1 - chance / poisson.pmf(steps, steps))


@claim(
    where="Corollary 1, sampling, with Eq. 71",
    category="sharpened",
    wrong_factor=3.0,
    assumes=("uniform_classes", "decoder_rate"),
    depends_on="K, M and the rates",
)
def corollary_1_sigma(check: Check) -> None:
    r"""But for a chance $\delta$ $\lvert \sigma\rvert$ is of order $\eta_Y \sqrt{N \ln(1/\delta)}$, and $K/\sqrt{N}
    \sqrt{\ln(1/\delta)}$ later.

    Conditions: later means $N \ge K (\sqrt{N \ln(1/\delta)} + 2 (1 + w_1) \ln M/\eta_Y)$; one class at a time

    Check: The largest |sigma| within Delta of the mean at N from 90 to 30,000.

    The constants are proved where |N_n - Nbar| <= Delta, so but for a chance delta (Remark 4): sigma <= eta_Y Delta at
    all times and 2 Delta/(Nbar - Delta) later (`theory.residual_deviation`).  Lemma 11's eta_Y Delta/3 fails below the
    mean, the corollary's order does not.  sigma > -1 as the residual is positive.
    """
    size, classes, rate = check.setting.classes.vocab_size, check.setting.classes.num_classes, check.setting.lr_y
    snap, delta = float(theory.shift_start(vocab_size=size, lr_y=rate)), 0.1
    for steps in (90, 300, 1000, 3000, 30_000):
        mean, radius = math.ceil(steps / classes), float(theory.count_radius(steps, failure=delta, form="remark"))
        counts = np.append(np.linspace(max(0.0, mean - radius), mean + radius, 401), mean)
        residual = theory.residual_size(theory.decoder_growth(counts, vocab_size=size, lr_y=rate), vocab_size=size)
        late = steps >= classes * (math.sqrt(steps * math.log(1 / delta)) + snap)
        bound, words = (
            (2 * radius / (mean - radius), "2 Delta/(Nbar - Delta)") if late else (rate * radius, "eta_Y Delta")
        )
        label = f"largest |sigma| within Delta of the mean against {words}, N = {steps}"
        check.at_most(label, np.abs(residual / residual[-1] - 1), bound)


@claim(
    where="Lemma 11, Eqs. 61 and 62",
    category="sharpened",
    wrong_factor=2.5,
    assumes=("uniform_classes", "decoder_rate"),
    depends_on="K, M and the rates",
)
def lemma_11(check: Check) -> None:
    r"""$h(N_n)$ and the residual stay near their values at the mean count: relative deviations $\Delta/\bar N$ and
    $\sigma'$.

    Conditions: $N \gg K^2$, $\Delta \ll \bar N$; the text has $\lesssim$, so that constants are left open

    Correction: with constants: $\sigma' \le \eta_Y \Delta/3$ above the mean, and below it the lesser of $\eta_Y \Delta$
    and $e^{k \Delta} - 1$, $k = M \eta_Y/(4 (M-1))$; later $\sigma' \le 2 \Delta/(\bar N + \Delta)$ above the mean and
    $2 \Delta/(\bar N - \Delta)$ below

    Check: All counts within the radius of the mean, early and late: the proved bounds, and the printed ones in
    contrast.
    """
    own, classes, rate = check.setting.classes.vocab_size, check.setting.classes.num_classes, check.setting.lr_y
    # In the last case Delta is a tenth of Nbar, and eta_Y Delta large enough to break the printed bound below the mean.
    cases = ((own, rate, 90), (own, rate, 30_000), (own, 0.01, 7000), (10**12, 0.2025 / classes, 150 * classes**2))
    deviations, printed = [], []
    for size, rate, steps in cases:
        mean, radius = steps / classes, float(theory.count_radius(steps, failure=0.1))
        if radius >= mean:
            continue  # the lemma says nothing
        name = f"N = {steps}, eta_Y = {rate:g}" + (f", M = {size:g}" if size != own else "")
        inside = np.linspace(mean - radius, mean + radius, 401)
        h = theory.decoder_growth(inside, vocab_size=size, lr_y=rate)
        middle = float(theory.decoder_growth(mean, vocab_size=size, lr_y=rate))
        deviations.append(np.abs(h / middle - 1).max() / float(theory.growth_deviation(mean, radius)))
        change = np.abs(theory.residual_size(h, vocab_size=size) / theory.residual_size(middle, vocab_size=size) - 1)
        published, proved = (
            float(theory.residual_deviation(mean, radius, vocab_size=size, lr_y=rate, form=form))
            for form in ("published", "proved")
        )
        check.at_most(f"sigma' against its bound, {name}", change, proved)
        printed.append(change[inside < mean].max() / published)
    check.at_most("|h(N_n)/h(Nbar) - 1| over Delta/Nbar, all cases", deviations, 1.0)
    check.at_most("sigma' below the mean over the printed bound, all cases", printed, 1.0, role="contrast")


@claim(
    where="Lemma 12",
    category="holds",
    wrong_factor=2.5,
    assumes=("uniform_classes", "independent_classes", "decoder_rate"),
)
def lemma_12(check: Check) -> None:
    r"""Sampled training gives $W = (I + \Theta) \bar W$ with $\lvert \theta_n\rvert$ of order $K/\sqrt{N}
    \sqrt{\ln(K/\delta)}$.

    Conditions: modified gradient, attention fixed, $N \gg K^2$

    Check: theta from the logits of each class's own next token, forty runs of 900 batch-1 steps, at a rate so small
    that h is still in proportion to time: there theta is largest, and the bound is nearest.
    """
    steps, classes = 900, check.setting.classes
    rate = 0.5 * math.log(classes.vocab_size) * classes.num_classes / steps
    logits = theory.directions(check.setting.probs) @ sampled_decoder(check, runs=40, steps=steps, lr_y=rate)
    own = logits[:, np.arange(classes.num_classes), classes.next_token]
    mean = theory.decoder_growth(steps / classes.num_classes, vocab_size=classes.vocab_size, lr_y=rate)
    theta = own / ((classes.vocab_size - 1) * mean) - 1
    scale = theory.logits_deviation(steps, num_classes=classes.num_classes, failure=0.05)
    check.at_most("|theta_n|, all runs", np.abs(theta), scale)
    spread = math.sqrt((classes.num_classes - 1) / steps)
    check.equal("standard deviation of theta_n, that of N_n over its mean", spread, theta.std(), tolerance=0.3)


def sampled_decoder(check: Check, *, runs: int, steps: int, **options: Any) -> FloatArray:
    """Y (runs x S x M) after batch-1 training, by default with the modified gradient and attention fixed."""
    fixed = {"lr_y": check.setting.lr_y, "lr_z": 0.0, "decoder_gradient": "modified"}
    sampled: dict[str, Any] = {"batch_size": 1, "seq_len": math.inf, "dtype": "float64", "seeds": check.seeds(runs)}
    return trained(check.setting.classes, "decoder", steps=steps, **sampled, **{**fixed, **options})


@claim(where="Lemma 18, Eq. 136", category="holds", wrong_factor=1.15, needs=("no positions",))
def lemma_18(check: Check) -> None:
    r"""A token's frequency in a sequence is within $\sqrt{\ln(2/\delta)/(2(T-1))}$ of $P(l|n)$, but for a chance
    $\delta$.

    Check: The bound against exact binomial quantiles for the setting's tokens and for P = 1/2, where it is nearest; the
    spread of frequencies in 4,000 sequences of the engine's sampler; both at T = 128 and at T = 4096.
    """
    classes = check.setting.classes
    for length in (128, 4096):
        probs = np.append(classes.token_probs, 0.5)
        bound = theory.frequency_radius(length, failure=FAILURES)
        least = least_radius(length - 1, probs) / (length - 1)
        check.at_most(f"distance of a frequency from its probability, T = {length}", least, bound)
        counts, owner = sample_counts(classes, num=4000, seq_len=length, seed=length + check.seeds(1)[0])
        occurs = classes.probs[owner] > 0
        expected = classes.probs[owner][occurs]
        spread = (counts[occurs] / (length - 1) - expected) / np.sqrt(expected * (1 - expected) / (length - 1))
        check.equal(
            f"spread of sampled frequencies over the binomial one, T = {length}", 1.0, spread.std(), tolerance=0.02
        )
