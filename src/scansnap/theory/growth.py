"""How fast the decoder grows: h* step by step, h in continuous time (Lemmas 5 to 8, Appendix D.2 and D.3).

With only class n drawn, the logits of class n are w_n = (M - 1) h* zeta_n after s updates (Lemma 5), where

    h*(s) = h*(s-1) + eta_Y / (M - 1 + exp(M h*(s-1))),     h*(0) = 0                                       (Eq. 33)
    dh/dt = eta_Y / (M - 1 + exp(M h)),                     h(0)  = 0                                       (Eq. 44)
    exp(M h) + (M - 1) M h = M eta_Y t + 1                                                                  (Eq. 45)

Time here is the number of updates of one class: per-class time t/K when K classes are drawn in turn.

Eq. 45 solved
-------------
Let y = M h, s = M eta_Y t, A = (s + 1)/(M - 1).  Then exp(y) = (M - 1)(A - y); with v = A - y this is
v + ln v = A - ln(M - 1), so v = omega(A - ln(M - 1)) with Wright's omega, and

    M h = A - omega(A - ln(M - 1)) = ln(M - 1) + ln omega(A - ln(M - 1)).

The first form loses all digits at both ends: early on h is far below A, late A is far above h.  The second form keeps
them late.  Two Newton steps on expm1(y) + (M - 1) y = s, which is Eq. 45 less one on both sides, restore them early on:
the error after a step is at most the square of the error before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.theory.overlap import Bounds, Form
from scansnap.validation.checks import FloatArray, numbers, sizes
from scansnap.validation.validate import formula


@formula
def decoder_growth(t: ArrayLike, *, vocab_size: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """h(t): Eq. 45 in closed form, t in updates of one class.  Broadcasts over all arguments.

    >>> print(theory.decoder_growth([1, 1e3, 1e15], vocab_size=1000, lr_y=0.5).round(6))
    [0.0005   0.013096 0.040753]
    """
    from scipy.special import wrightomega  # takes long to import

    t = numbers("t", t, least=0)
    size = sizes("vocab_size", vocab_size, least=2)
    rate = numbers("lr_y", lr_y, least=0)
    with np.errstate(over="ignore"):
        s = size * rate * t
    if not np.isfinite(s).all():
        raise InputError("vocab_size * lr_y * t overflows: give a smaller time.")
    log_rest = np.log(size - 1)
    y = log_rest + np.log(wrightomega((s + 1) / (size - 1) - log_rest))
    for _ in range(2):
        y = y - (np.expm1(y) + (size - 1) * y - s) / (np.exp(y) + size - 1)
    return (y / size)[()]


@formula
def growth_time(growth: ArrayLike, *, vocab_size: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """The time at which h reaches `growth`: Eq. 45 solved for t.

    >>> print(theory.growth_time(0.01, vocab_size=1000, lr_y=0.5).round(1))
    64.0
    """
    h = numbers("growth", growth, least=0)
    size = sizes("vocab_size", vocab_size, least=2)
    rate = numbers("lr_y", lr_y, above=0)
    with np.errstate(over="ignore"):  # where exp overflows, the time is infinite
        return ((np.expm1(size * h) + (size - 1) * size * h) / (size * rate))[()]


@formula
def decoder_growth_steps(steps: int, *, vocab_size: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """h*(0), ..., h*(steps) (Eq. 33) along the first axis; further axes broadcast over `vocab_size` and `lr_y`.

    >>> print(theory.decoder_growth_steps(3, vocab_size=10, lr_y=0.5).round(4))
    [0.     0.05   0.097  0.1399]
    """
    count = int(sizes("steps", steps, least=0))
    size, rate = np.broadcast_arrays(sizes("vocab_size", vocab_size, least=2), numbers("lr_y", lr_y, least=0))
    h = np.zeros((count + 1, *size.shape))
    for s in range(count):
        h[s + 1] = h[s] + growth_rate(h[s], vocab_size=size, lr_y=rate)
    return h


def growth_rate(growth: ArrayLike, *, vocab_size: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """dh/dt as a function of h (Eq. 44); also what one step adds to h* (Eq. 33)."""
    size = np.asarray(vocab_size, np.float64)
    return np.asarray(lr_y, np.float64) / (size - 1 + np.exp(size * np.asarray(growth, np.float64)))


@formula
def residual_size(growth: ArrayLike, *, vocab_size: ArrayLike) -> FloatArray:
    """(M - 1)/(M - 1 + exp(M h)): the residual e_n - alpha_n is this times zeta_n (Lemma 5).

    >>> print(theory.residual_size([0.0, 0.01], vocab_size=1000).round(4))
    [0.999  0.0434]
    """
    size = sizes("vocab_size", vocab_size, least=2)
    h = numbers("growth", growth, least=0)
    with np.errstate(over="ignore"):
        return ((size - 1) / (size - 1 + np.exp(size * h)))[()]


@formula
def shift_start(*, vocab_size: ArrayLike, lr_y: ArrayLike, form: Form = "exact") -> FloatArray:
    """s_1 = 2 (1 + omega_1) ln M / eta_Y of Remark 2; from there on h is of order ln(M eta_Y s)/M.

    Published: 2 ln(1 + omega_1)/eta_Y, when exp(M h) has hardly begun to grow.

    >>> print(theory.shift_start(vocab_size=1000, lr_y=0.5).round(1))
    36.5
    """
    omega_1 = growth_crossings(vocab_size=vocab_size).omega_1
    rate = numbers("lr_y", lr_y, above=0)
    if form == "published":
        return (2 * np.log1p(omega_1) / rate)[()]
    return (2 * (1 + omega_1) * np.log(sizes("vocab_size", vocab_size, least=4)) / rate)[()]


@formula
def shift_bounds(growth: ArrayLike, *, vocab_size: ArrayLike, lr_y: ArrayLike) -> Bounds:
    """Bounds of the time c by which h* is ahead of h, h*(s) = h(s + c), from `growth` = h*(s) (Lemma 7 a, Remark 2).

    Let T be the inverse of h, so that s + c(s) = T(h*(s)); y = M h*, R = M - 1 + e^y and p = e^y/R.  A step adds
    d = M eta_Y/R <= eta_Y to y, and with Eq. 45 for T it adds to the shift

        c(s + 1) - c(s) = (e^y (e^d - 1) + (M - 1) d)/(M eta_Y) - 1 = p (e^d - 1 - d)/d.

    Compare G = 1/2 ln(R/M), to which the step adds 1/2 ln(1 + p (e^d - 1)).  That is at most p (e^d - 1)/2, and at
    least p d/2, being concave in p with the values 0 at p = 0 and d/2 at p = 1.  So the ratio of the two steps lies
    between 2 (e^d - 1 - d)/(d (e^d - 1)), which falls with d, and 2 (e^d - 1 - d)/d^2, which rises.  As d <= eta_Y and
    c(0) = G(0) = 0,

        2 (e^x - 1 - x)/(x (e^x - 1)) G(s)  <=  c(s)  <=  2 (e^x - 1 - x)/x^2 G(s),        x = eta_Y,

    which is (1 - eta_Y/6) G and (1 + eta_Y/3) G to first order.  The differences lose all digits for small x.  Kummer's
    function 1F1(1; 3; x) = 2 (e^x - 1 - x)/x^2 = e^x 1F1(2; 3; -x) keeps them: the factors are
    1F1(2; 3; -x) x/(1 - e^-x) and 1F1(1; 3; x).  SciPy takes forever for huge x, so that the differences serve from
    x = 1 on, with 1F1(2; 3; -x) = 2 (1 - (1 + x) e^-x)/x^2.  Hence

    - up to s = ln M/eta_Y, where e^(M h) is about 0.567 M (v = e^-v), c is about 1/2 ln 1.567 = 0.22 whatever M;
    - late R is about M eta_Y s, so that c grows like 1/2 ln(eta_Y s), without limit.

    >>> lower, upper = theory.shift_bounds(0.002, vocab_size=1000, lr_y=5.0)
    >>> print(lower.round(2), upper.round(2))
    0.0 0.04
    """
    from scipy.special import hyp1f1  # takes long to import

    size, rate = sizes("vocab_size", vocab_size, least=2), numbers("lr_y", lr_y, above=0)
    ahead = np.log1p(np.expm1(size * numbers("growth", growth, least=0)) / size) / 2
    small, large = np.minimum(rate, 1.0), np.maximum(rate, 1.0)
    with np.errstate(over="ignore"):
        falling = np.where(rate < 1, hyp1f1(2, 3, -small), 2 * (1 - (1 + large) * np.exp(-large)) / large / large)
        rising = np.where(rate < 1, hyp1f1(1, 3, small), 2 * (np.expm1(large) - large) / large / large)
    return Bounds((falling * rate / -np.expm1(-rate) * ahead)[()], (rising * ahead)[()])


class GrowthCrossings(NamedTuple):
    """Where exp(M h) = (M - 1) M h: at h = M^-(2 - omega_0) and at h = (1 + omega_1) ln M / M (Lemma 8)."""

    omega_0: FloatArray
    omega_1: FloatArray


@formula
def growth_crossings(*, vocab_size: ArrayLike) -> GrowthCrossings:
    """omega_0 and omega_1 of Lemma 8.

    With y = M h the crossings solve -y exp(-y) = -1/(M - 1): y = -W(-1/(M - 1)) on the two real branches of Lambert's
    function.  They exist for M - 1 >= e, so from M = 4 on.

    >>> print([omega.round(4).item() for omega in theory.growth_crossings(vocab_size=1000)])
    [0.0003, 0.3198]
    """
    from scipy.special import lambertw  # takes long to import

    size = sizes("vocab_size", vocab_size, least=4)
    early = -lambertw(-1 / (size - 1), 0).real
    late = -lambertw(-1 / (size - 1), -1).real
    omega_0 = (early - np.log1p(-1 / size)) / np.log(size)  # Eq. 50: ln(M y)/ln M, and M y = exp(y) M/(M - 1)
    return GrowthCrossings(omega_0[()], (late / np.log(size) - 1)[()])
