"""Effects of sampling: how often a class is drawn (Lemmas 10 to 12), what finite sequences show (Lemmas 2, 18)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.growth import decoder_growth, growth_crossings
from scansnap.validation.checks import FloatArray, numbers, probability, sizes
from scansnap.validation.validate import formula

CountForm = Literal["exact", "loose", "remark"]
DeviationForm = Literal["exact", "published", "proved"]


@formula
def count_radius(num_steps: ArrayLike, *, failure: ArrayLike, form: CountForm = "exact") -> FloatArray:
    """How far the draws of one class can be from their rounded-up mean, except with probability `failure` (delta).

    "exact": sqrt(N/2 ln(2/delta)) + 1 (Lemma 10, first bound).  "loose": sqrt(N ln(2/delta)), its second bound, which
    is larger only for N ln(2/delta) > 1/(1 - 1/sqrt(2))^2 = 11.66.  "remark": the Delta = ceil(sqrt(N ln(1/delta)))
    that D.1 and Remark 4 use from there on; they lose the two in ln(2/delta), so that it vanishes as delta -> 1.

    >>> print(theory.count_radius(1000, failure=0.05).round(1))
    43.9
    """
    steps, delta = sizes("num_steps", num_steps, least=1), probability("failure", failure)
    if form == "exact":
        return (np.sqrt(steps / 2 * np.log(2 / delta)) + 1)[()]
    if form == "loose":
        return np.sqrt(steps * np.log(2 / delta))[()]
    return np.ceil(np.sqrt(steps * np.log(1 / delta)))[()]


@formula
def growth_deviation(mean_count: ArrayLike, radius: ArrayLike) -> FloatArray:
    """A bound of |h(N_n) - h(Nbar)| / h(Nbar) for |N_n - Nbar| <= radius: radius/Nbar (Lemma 11, Eq. 61).

    h is concave with h(0) = 0, so h(x)/x falls: the relative deviation of h is at most that of the count, whatever M
    and eta_Y.  The constant, which the text leaves open, is one.

    >>> print(theory.growth_deviation(100, 20))
    0.2
    """
    return (numbers("radius", radius, least=0) / numbers("mean_count", mean_count, above=0))[()]


@formula
def residual_deviation(
    mean_count: ArrayLike, radius: ArrayLike, *, vocab_size: ArrayLike, lr_y: ArrayLike, form: DeviationForm = "exact"
) -> FloatArray:
    """A bound of sigma', the relative deviation of the residual, for |N_n - Nbar| <= radius (Lemma 11, Eq. 62).

    "published": eta_Y radius/3, or radius/Nbar once Nbar >= s_1 + radius with s_1 = 2 (1 + omega_1) ln M / eta_Y; the
    text writes the second with an open constant, which this form takes to be one.  "exact" evaluates the residual at
    both ends of the interval, between which it is monotone.  "proved" is a bound on both sides of the mean:

    Let y = M h and R = M - 1 + e^y, so that the residual is (M-1)/R and dR/ds = M eta_Y e^y/R <= M eta_Y.  From s_1 on
    e^y >= (M - 1) y (Lemma 8), so Eq. 45 gives M eta_Y s + 1 <= 2 e^y < 2 R.  Hence, with D = radius,

        1 - R(Nbar)/R(Nbar + D) <= M eta_Y D/R(Nbar + D) <= 2 D/(Nbar + D),
        R(Nbar)/R(Nbar - D) - 1 <= M eta_Y D/R(Nbar - D) <= 2 D/(Nbar - D).

    The constant two is the one in the text's own proof, and the best: where e^y = (M - 1) y, just before s_1, the
    change over D/Nbar tends to 2/(1 + 1/y)^2 as D -> 0, and y grows with M.  Earlier, d ln R/ds = M eta_Y e^y/R^2 <=
    M eta_Y/(4 (M - 1)) =: k bounds the change by k D <= eta_Y D/3 above the mean and by e^(k D) - 1 below it.  At all
    times R >= M and dR/ds <= M eta_Y bound it by eta_Y D on both sides: this is Corollary 1's bound of sigma, with the
    constant one.

    >>> print(theory.residual_deviation(100, 20, vocab_size=1000, lr_y=0.5).round(3))
    0.316
    """
    mean, width = numbers("mean_count", mean_count, above=0), numbers("radius", radius, least=0)
    size, rate = sizes("vocab_size", vocab_size, least=4), numbers("lr_y", lr_y, above=0)
    if form != "exact":
        late = mean >= 2 * (1 + growth_crossings(vocab_size=size).omega_1) * np.log(size) / rate + width
        if form == "published":
            return np.where(late, width / mean, rate * width / 3)[()]
        exponent = np.where(late, 0.0, rate * size / (4 * (size - 1)) * width)
        with np.errstate(over="ignore"):
            bound = np.where(late, 2 * width / np.where(late, mean - width, 1.0), np.expm1(exponent))
            return np.minimum(bound, rate * width)[()]

    def inverse_residual(count: FloatArray) -> FloatArray:
        return size - 1 + np.exp(size * decoder_growth(count, vocab_size=size, lr_y=rate))

    middle = inverse_residual(mean)
    below, above = inverse_residual(np.maximum(mean - width, 0)), inverse_residual(mean + width)
    return np.maximum(middle / below - 1, 1 - middle / above)[()]


@formula
def logits_deviation(num_steps: ArrayLike, *, num_classes: ArrayLike, failure: ArrayLike) -> FloatArray:
    """The scale K/sqrt(N) sqrt(ln(K/delta)) of theta_n, up to a constant that the paper leaves open (Lemma 12).

    >>> print(theory.logits_deviation(1e4, num_classes=10, failure=0.05).round(3))
    0.23
    """
    steps, classes = sizes("num_steps", num_steps, least=1), sizes("num_classes", num_classes, least=1)
    return (classes / np.sqrt(steps) * np.sqrt(np.log(classes / probability("failure", failure))))[()]


@formula
def frequency_radius(seq_len: ArrayLike, *, failure: ArrayLike) -> FloatArray:
    """How far a token's frequency among T - 1 can be from P(l|n), except with probability `failure` (Eq. 136).

    >>> print(theory.frequency_radius(128, failure=0.05).round(3))
    0.121
    """
    length = sizes("seq_len", seq_len, least=2)
    return np.sqrt(np.log(2 / probability("failure", failure)) / (2 * (length - 1)))[()]
