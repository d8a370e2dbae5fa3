"""The race among the distinct tokens of one class (Theorem 3).

For tokens l, l' distinct to class n, c~_l = P(l|n) exp(z_l) and

    r_{l/l'}(t) = c~_l^2 / c~_l'^2 - 1                          relative gain
    chi_l(t)    = exp(2 (z_l(t) - z_l(0)))                      growth factor

If each distinct token's logit moves at a rate proportional to its own c~_l^2 (Eq. 98), then e^(-2z_l) dz_l is the same
for all of them up to c~_l(0)^2, and integrating gives (Eqs. 110, 111)

    1 - 1/chi_l = (r_{l/l'}(0) + 1) (1 - 1/chi_l'),             r_{l/l'}(t) = r_{l/l'}(0) chi_l(t).

So one growth factor determines all the others.  Eq. 98 requires g_nl to be proportional to f_nl over the distinct
tokens of a class: this is true for a decoder that has forgotten how attention was distributed before (eta_Y >> eta_Z,
or the modified gradient with attention fixed), and an approximation otherwise: the decoder lags behind (`lag.py`), by
more the more a token has gained, so that late and in unequal classes the order r(t) = r(0) chi(t) can turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.validation.checks import FloatArray, numbers, vector
from scansnap.validation.validate import formula


@formula
def relative_gain(
    prob: ArrayLike, other_prob: ArrayLike, logit: ArrayLike = 0.0, other_logit: ArrayLike = 0.0
) -> FloatArray:
    """r_{l/l'|n} from P(l|n), P(l'|n) and the two logits; precise also where the tokens are nearly level.

    >>> print(theory.relative_gain(0.4, 0.2))
    3.0
    """
    p, q = numbers("prob", prob, above=0), numbers("other_prob", other_prob, above=0)
    apart = numbers("logit", logit) - numbers("other_logit", other_logit)
    return np.expm1(2 * (np.log(p / q) + apart))[()]


@formula
def growth_factor(logit: ArrayLike, initial_logit: ArrayLike = 0.0) -> FloatArray:
    """chi_l = exp(2 (z_l(t) - z_l(0))).

    >>> print(theory.growth_factor(0.5).round(3))
    2.718
    """
    with np.errstate(over="ignore"):
        return np.exp(2 * (numbers("logit", logit) - numbers("initial_logit", initial_logit)))[()]


@formula
def relative_gain_after(initial_gain: ArrayLike, growth: ArrayLike) -> FloatArray:
    """r_{l/l'|n}(t) = r_{l/l'|n}(0) chi_l(t) (Eqs. 11, 111).

    >>> print(theory.relative_gain_after(3.0, 2.0))
    6.0
    """
    return (numbers("initial_gain", initial_gain, above=-1) * numbers("growth", growth, above=0))[()]


@formula
def companion_growth(initial_gain: ArrayLike, growth: ArrayLike) -> FloatArray:
    """chi_l' from chi_l and r_{l/l'|n}(0) (Eq. 110): all distinct tokens of a class follow from one.

    1/chi_l' = 1 - (1 - 1/chi_l)/(r + 1).  NaN where no growth of l' is possible with such a chi_l: a token that is
    behind (r < 0) cannot grow beyond 1/chi_l = -r.

    >>> print(theory.companion_growth(3.0, 1.2).round(4))
    1.0435
    """
    r = numbers("initial_gain", initial_gain, above=-1)
    chi = numbers("growth", growth, above=0)
    rest = (r + 1 / chi) / (r + 1)
    with np.errstate(divide="ignore"):
        return np.where(rest > 0, 1 / rest, np.nan)[()]


@formula
def dominant(probs: ArrayLike, logits: ArrayLike = 0.0) -> int | None:
    """The index of the token that is ahead of all others in c~ at the start, or None if two are level.

    >>> print(theory.dominant([0.2, 0.5, 0.3]), theory.dominant([0.5, 0.5]))
    1 None
    """
    p = vector("probs", probs, above=0)
    score = np.log(p) + np.broadcast_to(numbers("logits", logits), p.shape)
    order = np.argsort(-score)
    level = len(order) > 1 and score[order[0]] - score[order[1]] <= 1e-12
    return None if level else int(order[0])


class GrowthRange(NamedTuple):
    """Two-sided bound of a growth factor."""

    least: FloatArray
    most: FloatArray


@formula
def growth_factor_bounds(bound: ArrayLike, initial_direction: ArrayLike, *, weight: ArrayLike = 1.0) -> GrowthRange:
    """exp(2 f^2 B) <= chi <= exp(2 B) for the dominant token (Eq. 12); `initial_direction` is f_{n l_0}(0).

    B = weight * bound.  With `bound` = B_n = eta_Z int xi_n, as `growth_bound` gives it, `weight` is P(n): in steps of
    batch 1 class n is drawn with that probability.  The default weight of one is the published form, whose lower bound
    fails.  With `bound` = eta_Z int xi_nl of the token itself, dz_l = weight f_nl^2 d(bound) by Lemma 1, so the lower
    bound follows at any ratio of the rates if xi_nl >= 0 and f_nl(t) >= f_nl(0) at all times, and the upper one from
    xi_nl >= 0 and f_nl <= 1.

    >>> lower, upper = theory.growth_factor_bounds(0.5, 0.8)
    >>> print(lower.round(3), upper.round(3))
    1.896 2.718
    """
    b = numbers("weight", weight, above=0) * numbers("bound", bound)
    f = numbers("initial_direction", initial_direction, above=0)
    with np.errstate(over="ignore"):
        return GrowthRange(np.exp(2 * f**2 * b)[()], np.exp(2 * b)[()])
