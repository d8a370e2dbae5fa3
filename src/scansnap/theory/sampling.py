"""Effects of sampling: how often a class is drawn (Lemmas 10 to 12), what finite sequences show (Lemmas 2, 18).

The drive that finite sequences add
-----------------------------------
In a sequence of T - 1 tokens the counts fluctuate, and with them the direction f = f_n + u + ...: to first order

    u = (I - f_n f_n^T) diag(e^z) eps / |c~|,     Cov(eps) = (diag(p) - p p^T)/(T - 1),     c~_l = p_l e^(z_l).

Take a decoder that answers class n with g = gamma fbar, fbar = E[f] (its leading part).  Lemma 1 then moves z_l by the
mean of f_l (g_l - f_l f.g).  Since |f| = 1, f . fbar = 1 - |u|^2/2 - E|u|^2/2, and to first order in 1/T

    E[f_l (fbar_l - f_l f . fbar)] = f_nl^2 E|u|^2 - E[u_l^2].

A token gains if its share f_nl^2 of the direction exceeds its share of the direction's variance.  As u_l^2 goes like
p_l and f_nl^2 like p_l^2, frequent tokens gain and rare ones lose, common or not.  Under true SGD this competes with
the drive between classes, which starts at 1/M.  For equally likely classes a rare token loses f_nl^2/(T p) to the
fluctuations (`direction_variance`), a distinct one gains f_nl^2 sum_{n'} f_n . f_n'/M from the other classes, and a
common one loses of order f_nl^2/M to them (`early_logits`, second term).  So the limit T -> infinity describes the
start of training for a common token once T is well above M/p, but for a distinct one once T is well above
M/(p sum_{n'} f_n . f_n').  The first order needs T p well above one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.growth import decoder_growth, residual_size, shift_start
from scansnap.theory.overlap import directions, sum_by_query
from scansnap.theory.tokens import early_drive
from scansnap.validation.argument_types import Ids, Length
from scansnap.validation.checks import FloatArray, matrix, numbers, probability, sizes
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
        late = mean >= shift_start(vocab_size=size, lr_y=rate) + width
        if form == "published":
            return np.where(late, width / mean, rate * width / 3)[()]
        exponent = np.where(late, 0.0, rate * size / (4 * (size - 1)) * width)
        with np.errstate(over="ignore"):
            bound = np.where(late, 2 * width / np.where(late, mean - width, 1.0), np.expm1(exponent))
            return np.minimum(bound, rate * width)[()]

    below, middle, above = (
        residual_size(decoder_growth(count, vocab_size=size, lr_y=rate), vocab_size=size)
        for count in (np.maximum(mean - width, 0), mean, mean + width)
    )
    return np.maximum(below / middle - 1, 1 - above / middle)[()]


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


@formula
def direction_variance(probs: ArrayLike, logits: ArrayLike = 0.0, *, seq_len: int) -> FloatArray:
    """E[u_l^2] (K x L), to first order in 1/T, for tokens drawn independently from `probs`.

    With M = (I - f f^T) diag(f/p) the covariance is M (diag(p) - p p^T) M^T/(T-1), and M p = 0, so that
    E[u_l^2] = sum_k M_lk^2 p_k/(T-1); writing v_k = f_k^2/p_k it is (v_l - 2 f_l^2 v_l + f_l^2 sum_k f_k^2 v_k)/(T-1).

    >>> print(theory.direction_variance([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], seq_len=128).round(4))
    [[0.0039 0.0039 0.    ]
     [0.0039 0.     0.0039]]
    """
    p = matrix("probs", probs)
    f = directions(p, logits)
    v = np.divide(f**2, p, out=np.zeros_like(f), where=p > 0)
    length = sizes("seq_len", seq_len, least=2) - 1
    return (v - 2 * f**2 * v + f**2 * (f**2 * v).sum(axis=1, keepdims=True)) / length


@formula
def finite_length_drive(probs: ArrayLike, logits: ArrayLike = 0.0, *, seq_len: int) -> FloatArray:
    """f_nl^2 E|u|^2 - E[u_l^2] (K x L): times eta_Z P(n) gamma it is what finite T adds to dz_l/dt.

    >>> print(theory.finite_length_drive([[0.6, 0.4]], seq_len=128).round(5))
    [[ 0.00269 -0.00269]]
    """
    spread = direction_variance(probs, logits, seq_len=seq_len)
    return directions(probs, logits) ** 2 * spread.sum(axis=1, keepdims=True) - spread


@formula
def early_logits(
    steps: ArrayLike,
    probs: ArrayLike,
    *,
    query: Ids,
    weights: ArrayLike,
    vocab_size: int,
    lr_y: float,
    lr_z: float,
    seq_len: Length = np.inf,
) -> FloatArray:
    """z (..., Q, L) of true SGD while all predictions are still 1/M, from Y = Z = 0.

    Then Y(t) = eta_Y t sum_n P(n) f_n (e_n - 1/M)^T and g_n = eta_Y t (P(n) f_n - sum_k P(k) f_k/M), so that

        z(t) = eta_Y eta_Z t^2/2 sum_n P(n) [P(n) (1 - 1/M) drive_n(T) + d_n/M]

    with the drive d_n of `early_drive`, up to the finite-T corrections of the second term, which are smaller by 1/M.
    Discrete steps replace t^2 by t (t - 1).

    >>> probs = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
    >>> setting = dict(query=[5, 5], weights=[0.5, 0.5], vocab_size=1000, lr_y=0.5, lr_z=0.5)
    >>> print(theory.early_logits([10], probs, **setting).round(6))
    [[[-0.001406  0.000703  0.000703]]]
    """
    t = sizes("steps", steps, least=0)
    p, share = matrix("probs", probs), numbers("weights", weights, above=0)[:, None]
    cross = early_drive(p, weights=weights) / vocab_size
    own = 0.0 if np.isinf(seq_len) else (1 - 1 / vocab_size) * share * finite_length_drive(p, seq_len=int(seq_len))
    return lr_y * lr_z * (t * (t - 1) / 2)[..., None, None] * sum_by_query(query, share * (own + cross))
