"""When a distinct token stops gaining: the decoder lags behind attention (beyond Theorem 2).

Theorem 2 takes the gradient of a decoder that has learned with today's attention (Theorem 1).  In truth it has learned
with all earlier attention too.  Under the modified gradient with equally likely classes, and B = F (F^T F)^-1,

    dY/dt = (eta_Y/K) sum_n B_n r_n^T.

Residuals r_n of different classes are orthogonal up to 1/M (q_0/q_1 = -1/(M - 1)), and r_n = rho zeta_n.  Let y be
defined by dy/dt = (eta_Y/K) q_1 rho.  So what class n sends back is an integral over its past,

    g_n = Y r_n = rho J_n,     J_n = int_0^y B_n dy',     xi_nl = g_nl/f_nl - f_n . g_n = rho (J_nl/f_nl - f_n . J_n).

The own logit is f_n . J_n, which is y with attention fixed and nearly so for weak overlaps; then rho is the same for
all classes and y = M h(t/K) (Lemma 6).  With attention fixed J_n = y B_n, f_n . B_n = 1, and B_nl = f_nl (1 - E'_nn)
for a token l that only class n has: xi_nl = -E'_nn rho y > 0, which is Theorem 2.  While attention moves, J_nl/f_nl
weighs the past by f_nl(y')/f_nl(y).  It falls short for a token whose f has grown, as those of distinct tokens have,
and is too large for one whose f has shrunk, as that of the common token has: the lag works against the theorem.  With
kappa = eta_Z/eta_Y

    dz_l/dy = kappa sum_n f_nl (J_nl - f_nl f_n . J_n)       over the classes of the query,          dJ_n/dy = B_n

(up to q_1), which in terms of tau = sqrt(kappa) y and sqrt(kappa) J has no kappa left: z is a function of tau and of
the classes alone.  To first order z is in proportion to tau^2, so that the lag is -E'_nn y times a multiple of tau^2: a
token's drive changes sign, if ever, at a tau* that the classes determine, that is at

    M h(t/K) = tau* sqrt(eta_Y/eta_Z),         in the logarithmic phase   t = K/(M eta_Y) exp(tau* sqrt(eta_Y/eta_Z)).

So Theorem 2 holds at any time for a ratio that is large enough, and at no ratio for all times, unless tau* is infinite.
A lag opposes what caused it, so falls in symmetric classes are small, but they occur (common 0.35, distinct 0.35, 0.1,
0.1, 0.1).  Where classes differ, one may move the common token further than another can follow.

Under true SGD B is F, the terms of leading order cancel, and what is left is of order 1/M: tau* does not apply there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.theory.attention import token_kinds
from scansnap.theory.growth import growth_time
from scansnap.theory.integration import integrate
from scansnap.theory.overlap import directions
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers, sizes, vector
from scansnap.validation.validate import formula

MOST = 100.0
"""The largest tau: it takes K/(M eta_Y) 10^43 steps at eta_Y = eta_Z."""

LATEST = 20.0
"""The tau up to which a fall is looked for: at eta_Y/eta_Z = 100 it takes K/(M eta_Y) 10^87 steps, at equal rates only
K/(M eta_Y) 5·10^8."""

ROUNDING = 1e-8
"""The share of tau that a drive must be below zero by, or it is rounding: classes that overlap no other have none."""


class LaggedAttention(NamedTuple):
    """Attention behind which the decoder lags, at each tau."""

    attention_logits: FloatArray  # (n, Q, L), rows in increasing order of query id
    token_drive: FloatArray  # (n, K, L) sqrt(kappa) xi_nl / rho, NaN where class n has no token l


@formula
def lagged_attention(tau: ArrayLike, *, probs: ArrayLike, query: Ids) -> LaggedAttention:
    """z and the drives under the modified gradient at tau = M h(t/K) sqrt(eta_Z/eta_Y), for equally likely classes.

    `probs` is P(l|n).  To leading order in 1/M, and in the overlaps, which tau needs: the own logit f_n . J_n is taken
    for y.

    >>> lagged = theory.lagged_attention([1.0, 2.0], probs=[[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], query=[5, 5])
    >>> print(lagged.attention_logits[:, 0].round(3))
    [[-0.138  0.069  0.069]
     [-0.343  0.171  0.171]]
    """
    p, when = matrix("probs", probs), vector("tau", tau, least=0)
    if (np.diff(when) <= 0).any() or when[-1] > MOST:
        raise InputError(f"tau must be increasing numbers of at most {MOST:g}, such as [0.1, 1, 10].")
    if np.linalg.matrix_rank(directions(p)) < len(p):
        raise InputError("the rows of probs are not linearly independent: the modified gradient needs that they are.")
    if np.size(query) != len(p):
        raise InputError(f"query has {np.size(query)} ids and probs {len(p)} rows: give one query for each class.")
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    in_row = (row == np.arange(len(ids))[:, None]).astype(float)  # (Q, K)
    (count, width), rows = p.shape, len(ids)

    def parts(state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """z, f and J."""
        z, past = state[: rows * width].reshape(rows, width), state[rows * width :].reshape(count, width)
        return z, directions(p, z[row]), past

    def velocity(now: float, state: FloatArray) -> FloatArray:
        _, f, past = parts(state)
        turn = f * (past - f * (f * past).sum(axis=1, keepdims=True))
        return np.concatenate([(in_row @ turn).ravel(), np.linalg.solve(f @ f.T, f).ravel()])

    start, advice = np.zeros((rows + count) * width), "give a smaller tau, or classes that overlap less"
    states = integrate(velocity, start, when, rtol=1e-9, atol=1e-12, advice=advice)
    logits, drives = [], []
    for state in states:
        z, f, past = parts(state)
        logits.append(z)
        share = np.divide(past, f, out=np.full_like(f, np.nan), where=f > 0)
        drives.append(share - (f * past).sum(axis=1, keepdims=True))
    return LaggedAttention(np.array(logits), np.array(drives))


@formula
def first_fall(probs: ArrayLike, *, query: Ids, vocab_size: int, lr_y: float, lr_z: float) -> FloatArray:
    """When each class's drive on a distinct token first turns negative (K x L), in steps; infinite if it does not.

    Under the modified gradient, for equally likely classes.  NaN where the token is not distinct to the class; infinite
    also where tau* exceeds `LATEST`.

    >>> unequal = [[0.5, 0.4, 0.1, 0.0, 0.0], [0.1, 0.0, 0.0, 0.7, 0.2]]
    >>> for ratio in (10, 100):
    ...     fall = theory.first_fall(unequal, query=[59, 59], vocab_size=4000, lr_y=0.5, lr_z=0.5 / ratio)
    ...     print([f"{time:.2g}" for time in fall[0, 1:3]])
    ['26', '30']
    ['6.8e+05', '6.4e+06']
    """
    p, rate = matrix("probs", probs), float(numbers("lr_y", lr_y, above=0))
    size = sizes("vocab_size", vocab_size, least=2)
    tau = np.linspace(0, LATEST, 1001)[1:]
    drive = lagged_attention(tau, probs=p, query=query).token_drive
    falls = drive < -ROUNDING * tau[:, None, None]
    at = np.argmax(falls, axis=0)
    before, after = (np.take_along_axis(drive, i[None], axis=0)[0] for i in (np.maximum(at - 1, 0), at))
    turn = tau[at] - (tau[1] - tau[0]) * np.divide(after, after - before, out=np.zeros_like(after), where=at > 0)
    growth = turn * np.sqrt(rate / numbers("lr_z", lr_z, above=0))
    with np.errstate(over="ignore"):
        time = len(p) * growth_time(growth / size, vocab_size=size, lr_y=rate)
    distinct = (p > 0) & (token_kinds(p) == "distinct")
    return np.where(distinct, np.where(falls.any(axis=0), time, np.inf), np.nan)
