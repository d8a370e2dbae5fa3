"""Attention sinks in formulas (`system.py` has the models).

Let e = 1 - b be the attention that does not go to the sink.  Late, e = L exp(-alpha), delta = beta + e xi c is small
and KL = Var_p(delta) / 2.  With C the mean of c over contexts, the loss is

    Var_p(beta + e xi C) / 2 + e^2 S / 2,      S = xi^2 E Var_p(c - C).

beta relaxes at a rate that does not fall, so beta = -e xi C up to a constant, and only the second term is left: what
contexts do not share cannot be canceled.  It pushes alpha, with de/dalpha = -e:

    dalpha/dt = eta e^2 S = eta S L^2 exp(-2 alpha),      alpha = ln(2 eta S L^2 t) / 2,
    e = 1 / sqrt(2 eta S t),      |beta| = e xi |C - mean C|,      loss = e^2 S / 2 = 1 / (4 eta t):

the excess loss is the same whatever the data.  If S = 0, as with one context, beta cancels everything and alpha stops.

If beta is frozen at beta_0, delta is linear in b and KL is convex in delta, so the loss is convex in b.  All attention
goes to the sink exactly if its slope toward the sink is not positive at b = 1:

    (softmax(ln p + beta_0) - p) . (xi C - beta_0) >= 0.

At beta_0 = 0 this is an equality, and the sink grows, with E Var_p(c) in place of E Var_p(c - C).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.validation.checks import FloatArray, numbers
from scansnap.validation.validate import formula


class LateSink(NamedTuple):
    """A sink at late times."""

    logit: FloatArray  # alpha
    value_norm: FloatArray  # |beta|, mean subtracted
    excess_loss: FloatArray


@formula
def late_sink(
    t: ArrayLike,
    *,
    target: ArrayLike,
    frequency: ArrayLike,
    context: int,
    copying: float,
    lr_alpha: float = 1.0,
    frozen: bool = False,
) -> LateSink:
    """The sink's logit, its value's norm and the excess loss at late times, for frequencies c (contexts x tokens).

    `frozen` is for a value that stays zero.

    >>> from scansnap.papers.sinks.theory import late_sink
    >>> print(late_sink(1e6, target=[0.5, 0.5], frequency=[[1, 0], [0, 1]], context=10, copying=2.0).excess_loss)
    2.5e-07
    """
    t, p, c = numbers("t", t, above=0), numbers("target", target), numbers("frequency", frequency)
    shared = c.mean(0) * (not frozen)
    centered = c - shared - ((c - shared) @ p)[:, None]
    S = copying**2 * (centered**2 @ p).mean()
    if S <= 0:
        raise InputError("all contexts have the same frequencies: no sink grows; give contexts that differ.")
    rest = 1 / np.sqrt(2 * lr_alpha * S * t)
    norm = rest * copying * np.linalg.norm(shared - np.mean(shared))
    return LateSink(np.log(context / rest), norm, 1 / (4 * lr_alpha * t))


def frozen_slope(target: FloatArray, frequency: FloatArray, value: FloatArray, *, copying: float) -> FloatArray:
    """(softmax(ln p + beta_0) - p) . (xi C - beta_0) of each run (R,): a sink with this frozen value grows if >= 0."""
    from scipy.special import softmax  # takes long to import

    moved = softmax(np.log(target) + value, -1) - target
    return np.asarray((moved * (copying * frequency.mean(1) - value)).sum(-1), np.float64)
