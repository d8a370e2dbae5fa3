"""The speed of learning and its two phases (Lemma 9), and what they do to attention (Theorem 4, Appendix F).

Time is in steps of batch 1 with K classes drawn uniformly, so h is taken at t/K.

    gamma(t) = (M - 1)^2 h(t/K) / (M - 1 + exp(M h(t/K)))                                                   (Eq. 85)
    Gamma(t) = eta_Z int_0^t gamma = (eta_Z/eta_Y) K (M - 1)^2 h(t/K)^2 / 2                                 (Eq. 128)

because gamma dt = K (M - 1)^2 h dh / eta_Y.  Theorem 4 takes a single common token with

    dz/dt = -eta_Z gamma e^(4z) / C_0,        xi_n = gamma e^(4z) / C_0,      z(0) = 0             (Eqs. 118, 119)

so that e^(-4z) = 1 + 4 Gamma / C_0 and

    B_n(t) = eta_Z int_0^t xi_n = int_0^Gamma dG / (C_0 + 4 G) = 1/4 ln(1 + 4 Gamma(t)/C_0) = -z(t)

of a token that moves as Eqs. 118 and 119 say.  They are of leading order in the overlap and neglect that the decoder
lags behind attention: -z of the flow itself, with the modified gradient, is that of `lagged_attention`.

The published B_n is 1/4 ln(C_0 + 4 Gamma), which lacks -1/4 ln C_0, so that B_n(0) is not 0 (Eq. 124).  The poster and
the slides also lack the factor 1/4.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.growth import decoder_growth, growth_time, residual_size, shift_start
from scansnap.theory.overlap import Bounds, Form
from scansnap.validation.checks import FloatArray, numbers, sizes
from scansnap.validation.validate import formula

GrowthForm = Literal["exact", "published", "poster"]
ConstantForm = Literal["leading", "initial", "published"]


@formula
def speed(t: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """gamma(t) (Eq. 85, with t/K not rounded up).

    >>> print(theory.speed([1e1, 1e2, 1e3], vocab_size=1000, num_classes=10, lr_y=0.5).round(3))
    [0.499 4.306 0.261]
    """
    size = sizes("vocab_size", vocab_size, least=2)
    h = decoder_growth(_per_class(t, num_classes), vocab_size=size, lr_y=lr_y)
    return ((size - 1) * h * residual_size(h, vocab_size=size))[()]


@formula
def speed_scanning(t: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> Bounds:
    """Bounds of gamma for t <= t'_0 (Eq. 54): x/4 <= gamma <= x with x = eta_Y t/K + 1/M, linear in t.

    The two factors 1 + Delta of Eq. 54 lie between 1 and 2 once h > M^-(2 - omega_0), in practice from t = 1 on.

    >>> lower, upper = theory.speed_scanning(50, vocab_size=1000, num_classes=10, lr_y=0.5)
    >>> print(lower.round(2), upper.round(2))
    0.63 2.5
    """
    size = sizes("vocab_size", vocab_size, least=2)
    most = numbers("lr_y", lr_y, least=0) * _per_class(t, num_classes) + 1 / size
    return Bounds((most / 4)[()], most[()])


@formula
def speed_snapping(t: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> Bounds:
    """Bounds of gamma for t >= t_0 (Eq. 57), of order K ln(M eta_Y t/K) / (eta_Y t).

    With S = M eta_Y t/K + 1 and both 1/Delta between 0 and 1: gamma lies between (M-1)^2/M ln(S/2)/(2S) and
    (M-1)^2/M 2 ln(S)/S.

    >>> lower, upper = theory.speed_snapping(1e6, vocab_size=1000, num_classes=10, lr_y=0.5)
    >>> print(lower.round(6), upper.round(6))
    0.00017 0.000708
    """
    size = sizes("vocab_size", vocab_size, least=2)
    total = size * numbers("lr_y", lr_y, above=0) * _per_class(t, num_classes) + 1
    front = (size - 1) ** 2 / (size * total)
    return Bounds((front * np.log(total / 2) / 2)[()], (front * 2 * np.log(total))[()])


@formula
def scan_end(*, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """t'_0 = K ln M / eta_Y: up to here attention scans.

    >>> print(theory.scan_end(vocab_size=1000, num_classes=10, lr_y=0.5).round(1))
    138.2
    """
    size, classes = sizes("vocab_size", vocab_size, least=2), sizes("num_classes", num_classes, least=1)
    return (classes * np.log(size) / numbers("lr_y", lr_y, above=0))[()]


@formula
def snap_start(*, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """t_0 = 2 (1 + omega_1) K ln M / eta_Y: from here on attention has snapped.

    >>> print(theory.snap_start(vocab_size=1000, num_classes=10, lr_y=0.5).round(1))
    364.7
    """
    return (sizes("num_classes", num_classes, least=1) * shift_start(vocab_size=vocab_size, lr_y=lr_y))[()]


@formula
def accumulated_speed(
    t: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike, lr_z: ArrayLike
) -> FloatArray:
    """Gamma(t) (Eq. 128).

    >>> print(theory.accumulated_speed(1e4, vocab_size=1000, num_classes=10, lr_y=0.5, lr_z=0.05).round(2))
    85.58
    """
    size, classes = sizes("vocab_size", vocab_size, least=2), sizes("num_classes", num_classes, least=1)
    h = decoder_growth(_per_class(t, classes), vocab_size=size, lr_y=lr_y)
    return _accumulated(h, size, classes, numbers("lr_y", lr_y, above=0), numbers("lr_z", lr_z, least=0))[()]


@formula
def growth_bound(
    t: ArrayLike,
    *,
    vocab_size: ArrayLike,
    num_classes: ArrayLike,
    lr_y: ArrayLike,
    lr_z: ArrayLike,
    constant: ArrayLike,
    form: GrowthForm = "exact",
) -> FloatArray:
    """B_n(t) = eta_Z int xi_n, with `constant` = C_0.  Per step class n gains P(n) B_n: see `growth_factor_bounds`.

    `form`: "exact" is 1/4 ln(1 + 4 Gamma/C_0); "published" is Eq. 129, 1/4 ln(C_0 + 4 Gamma); "poster" is
    ln(C_0 + 4 Gamma).

    >>> setting = dict(vocab_size=1000, num_classes=10, lr_y=0.5, lr_z=0.05)
    >>> print(theory.growth_bound([1e2, 1e6], **setting, constant=2.0).round(3))
    [0.802 1.438]
    """
    c = numbers("constant", constant, above=0)
    total = accumulated_speed(t, vocab_size=vocab_size, num_classes=num_classes, lr_y=lr_y, lr_z=lr_z)
    return _bound(total, c, form)


@formula
def growth_bound_phases(
    t: ArrayLike,
    *,
    vocab_size: ArrayLike,
    num_classes: ArrayLike,
    lr_y: ArrayLike,
    lr_z: ArrayLike,
    constant: ArrayLike,
    form: GrowthForm = "exact",
) -> FloatArray:
    """B_n(t) by Eq. 14: h has its leading order in each phase; NaN between t'_0 and t_0, which Eq. 14 leaves out.

    h(t/K) = eta_Y t/(M K) up to t'_0 and ln(M eta_Y t/K)/M from t_0 on.

    >>> setting = dict(vocab_size=1000, num_classes=10, lr_y=0.5, lr_z=0.05)
    >>> print(theory.growth_bound_phases([1e1, 1e6], **setting, constant=2.0).round(3))
    [0.056 1.438]
    """
    size, classes = sizes("vocab_size", vocab_size, least=2), sizes("num_classes", num_classes, least=1)
    rate = numbers("lr_y", lr_y, above=0)
    c = numbers("constant", constant, above=0)
    time = _per_class(t, classes)
    first = scan_end(vocab_size=size, num_classes=1, lr_y=rate)
    second = snap_start(vocab_size=size, num_classes=1, lr_y=rate)
    early = rate * time / size
    late = np.log(np.maximum(size * rate * time, 1)) / size
    h = np.where(time < first, early, np.where(time >= second, late, np.nan))
    return _bound(_accumulated(h, size, classes, rate, numbers("lr_z", lr_z, least=0)), c, form)


@formula
def growth_bound_late(
    t: ArrayLike,
    *,
    vocab_size: ArrayLike,
    num_classes: ArrayLike,
    lr_y: ArrayLike,
    lr_z: ArrayLike,
    constant: ArrayLike = 1.0,
    form: Form = "exact",
) -> FloatArray:
    """B_n(t) for large t (Eq. 132): 1/2 ln ln(M eta_Y t/K) + 1/4 ln(2 K (M-1)^2 / (M^2 nu)), nu = eta_Y/eta_Z.

    The exact form subtracts 1/4 ln C_0, which the published one leaves to its factor 1 + o(1); NaN until M eta_Y t/K
    exceeds one.

    >>> print(theory.growth_bound_late(1e30, vocab_size=1000, num_classes=10, lr_y=0.5, lr_z=0.05).round(3))
    2.318
    """
    size, classes = sizes("vocab_size", vocab_size, least=2), sizes("num_classes", num_classes, least=1)
    rate = numbers("lr_y", lr_y, above=0)
    ratio = rate / numbers("lr_z", lr_z, above=0)
    x = size * rate * _per_class(t, classes)
    log_log = np.log(np.log(np.where(x > 1, x, np.nan)))
    bound = log_log / 2 + np.log(2 * classes * (size - 1) ** 2 / (size**2 * ratio)) / 4
    if form == "exact":
        bound = bound - np.log(numbers("constant", constant, above=0)) / 4
    return bound[()]


@formula
def late_time(
    *,
    vocab_size: ArrayLike,
    num_classes: ArrayLike,
    lr_y: ArrayLike,
    lr_z: ArrayLike,
    constant: ArrayLike = 1.0,
    form: Form = "exact",
) -> FloatArray:
    """The time at which C_0 = 4 Gamma: `growth_bound_late` holds where ln(M eta_Y t/K) is far beyond its value there.

    4 Gamma must outgrow C_0: ln(M eta_Y t/K) >> sqrt(nu C_0/(2K)), nu = eta_Y/eta_Z.  They are equal at
    K/(M eta_Y) exp(sqrt(nu C_0/(2K))).  A large multiple of this time is not enough, since the logarithm has to be
    large: for nu = 2500, C_0 = 3, K = 10, M = 1000 the late form is 42% off at 10^3 times it and 21% at 10^6 times.
    Published: exp(1/sqrt(2 nu))/(M eta_Y), which equals this up to K and C_0 if
    nu is inverted, as in the caption of Figure 9.

    >>> setting = dict(vocab_size=1000, num_classes=10, lr_y=0.5, lr_z=0.05)
    >>> print(theory.late_time(**setting, constant=1000.0).round(1))
    102837103.0
    """
    size, classes = sizes("vocab_size", vocab_size, least=2), sizes("num_classes", num_classes, least=1)
    rate = numbers("lr_y", lr_y, above=0)
    ratio = rate / numbers("lr_z", lr_z, above=0)
    if form == "published":
        return (np.exp(1 / np.sqrt(2 * ratio)) / (size * rate))[()]
    root = np.sqrt(ratio * numbers("constant", constant, above=0) / (2 * classes))
    with np.errstate(over="ignore"):  # beyond all times
        return (classes / (size * rate) * np.exp(root))[()]


@formula
def rate_order_time(*, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """The time from which on a slower decoder has the larger B_n, at a fixed eta_Z (Section 6 c, Appendix F b).

    At fixed t and eta_Z, B_n is an increasing function of h(t/K)^2/eta_Y (Eq. 129), and h depends on s = M eta_Y t/K
    alone.  So B_n falls as eta_Y rises where d ln h/d ln s < 1/2.  With y = M h, s = e^y - 1 + (M - 1) y (Eq. 45) and
    dy/ds = 1/(e^y + M - 1), this is 2 s < y (e^y + M - 1), that is

        (M - 1) y < (y - 2) e^y + 2.

    The difference of the two sides is convex in y and vanishes at y = 0, where the left side leads: there is one
    turning point, before which the faster decoder has the larger B_n.  At t_0, where e^y = (M - 1) y, the inequality
    holds for y >= 3, so from M = 8 on the turning point lies before t_0.  Of two rates at one time t beyond t_0 of the
    slower one, all rates between them are past their turning points: (c) holds for Theorem 4's B_n.

    >>> print(theory.rate_order_time(vocab_size=1000, num_classes=10, lr_y=0.5).round(1))
    172.1
    """
    size = sizes("vocab_size", vocab_size, least=2)
    y = 2 + np.log(size)  # beyond the root: Newton's method descends on it, as the difference is convex
    for _ in range(30):
        y = y - ((y - 2) * np.exp(y) + 2 - (size - 1) * y) / ((y - 1) * np.exp(y) - (size - 1))
    return (sizes("num_classes", num_classes, least=1) * growth_time(y / size, vocab_size=size, lr_y=lr_y))[()]


@formula
def common_logit(
    t: ArrayLike,
    *,
    vocab_size: ArrayLike,
    num_classes: ArrayLike,
    lr_y: ArrayLike,
    lr_z: ArrayLike,
    constant: ArrayLike,
) -> FloatArray:
    """z(t) of the single common token (Eq. 122): minus the exact B_n.

    >>> setting = dict(vocab_size=1000, num_classes=10, lr_y=0.5, lr_z=0.05)
    >>> print(theory.common_logit(1e6, **setting, constant=2.0).round(3))
    -1.438
    """
    return -growth_bound(
        t, vocab_size=vocab_size, num_classes=num_classes, lr_y=lr_y, lr_z=lr_z, constant=constant, form="exact"
    )


@formula
def phase_constant(overlap: ArrayLike, *, num_classes: ArrayLike, form: ConstantForm = "leading") -> FloatArray:
    """C_0 from the overlap o = f_n . f_n' at the start.

    xi_n = gamma sum_{n'} beta (f_n . f_n'), K - 1 terms, and dz/dt = -eta_Z xi_n (1 - o).

    - "leading": both factors are taken for the overlap o e^(2z), as in Eq. 13: C_0 = 1/((K-1) o^2), to leading order in
      K o.  The default, as Theorem 4 needs the e^(4z) that comes with it.
    - "initial": with Theorem 1's beta = o/((1 - o)(1 + (K-1) o)), up to 1/M, dz/dt at z = 0 has C_0 =
      (1 + (K-1) o)/((K-1) o^2).  It is larger by 1 + (K-1) o, and right at the start only.
    - "published": rho_0^4/K, with o = 1/rho_0^2, which is 1/(K o^2).

    >>> print(theory.phase_constant(0.24, num_classes=10).round(3))
    1.929
    >>> print(theory.phase_constant(0.24, num_classes=10, form="initial").round(3))
    6.096
    """
    o = numbers("overlap", overlap, above=0)
    classes = sizes("num_classes", num_classes, least=2)
    terms = classes - (form != "published")
    return ((1 + (terms * o if form == "initial" else 0.0)) / (terms * o**2))[()]


def _accumulated(
    h: FloatArray, size: FloatArray, classes: FloatArray, lr_y: FloatArray, lr_z: FloatArray
) -> FloatArray:
    """Gamma = eta_Z/eta_Y K (M - 1)^2 h^2/2 (Eq. 128)."""
    return lr_z / lr_y * classes * (size - 1) ** 2 * h**2 / 2


def _bound(accumulated: FloatArray, constant: FloatArray, form: GrowthForm) -> FloatArray:
    """B_n from Gamma and C_0 in one of its three forms."""
    if form == "exact":
        return (np.log1p(4 * accumulated / constant) / 4)[()]
    return (np.log(constant + 4 * accumulated) / (4 if form == "published" else 1))[()]


def _per_class(t: ArrayLike, num_classes: ArrayLike) -> FloatArray:
    return numbers("t", t, least=0) / sizes("num_classes", num_classes, least=1)
