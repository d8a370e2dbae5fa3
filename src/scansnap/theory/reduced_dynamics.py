"""Exact population dynamics in few equations: symmetric classes, and attention with a decoder that lags behind.

Symmetric classes: the exact drive under true SGD
-------------------------------------------------
Classes as in Corollary 2: each has D distinct tokens with probabilities p_1 .. p_D, all share G common tokens with
probabilities q_1 .. q_G, and a query has k of the K classes (k = K in the corollary; Syn-Small and Syn-Medium have
k = 1 and 2).  From Y = Z = 0 the classes stay interchangeable, so that

- the row of Y of a distinct token has one value u at its own class's next token, one value v at the K - 1 other next
  tokens, and one at the M - K tokens that are never next;
- the row of Y of a common token has one value b at all K next tokens, and one at the others;
- rows of Y and Z sum to zero, which fixes the values at the tokens that are never next.

That leaves 3 D + 2 G variables: u, v, z of each distinct token, b, z of each common one.  K and M enter as numbers.
With f = c~/|c~| over the D + G tokens, w = -(u + (K-1) v)/(M-K), w' = -K b/(M-K) and logits

    A = f.u + f.b   (own),        B = f.v + f.b   (another next token),        C = f.w + f.w'   (any other)

let a_B, a_C be the probabilities of one token of the latter kinds and R = (K-1) a_B + (M-K) a_C = 1 - alpha_n.  Then

    du/dt = (eta_Y/K) f R          dv/dt = -(eta_Y/K) f a_B          db/dt = (eta_Y/K) f (M-K) a_C
    g     = u R - (K-1) v a_B - (M-K) w a_C   (distinct),            (b - w')(M-K) a_C   (common)
    dz/dt = (eta_Z/K) f (g - f (f.g))         (distinct),     k times that               (common)

This is Lemma 1 with its expectation written out: there is no approximation in the ratio of the rates, in M, K or the
overlap.  It shows where the published theory departs from SGD.  A common token's row of Y is a bias toward next tokens,
which is learned only as long as a_C lasts, so the push on z fades first as (M - K) a_C -> 0 and not with the published
beta ~ f_n . f_n'.  Early on beta_{nn'} = 1/M, so z falls like e^(2z) and not like e^(4z).

The modified gradient (Lemma 3) replaces f_n by column n of F (F^T F)^{-1} = x f_n + y sum_k f_k, with o = sum of the
common f^2, x = 1/(1 - o), y = -o x/(1 + (K-1) o).

When a distinct token stops gaining: the decoder lags behind attention (beyond Theorem 2)
-----------------------------------------------------------------------------------------
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

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.theory.growth import growth_time
from scansnap.theory.overlap import directions, logits_gradient
from scansnap.theory.tokens import token_kinds
from scansnap.validation.argument_types import Ids, NumberType
from scansnap.validation.checks import FloatArray, matrix, numbers, sizes, vector
from scansnap.validation.validate import formula

MOST_EVALUATIONS = 200_000
"""Equations are given up after this many evaluations: some thirty times what the figures need."""


def integrate(
    velocity: Callable[[float, FloatArray], FloatArray],
    start: FloatArray,
    ends: FloatArray,
    *,
    rtol: float,
    atol: float,
    advice: str,
) -> FloatArray:
    """The state (n, size) at increasing `ends`, from `start` at 0; what cannot be integrated is refused with advice."""
    from scipy.integrate import solve_ivp  # takes long to import

    evaluations = itertools.count()

    def counted(x: float, state: FloatArray) -> FloatArray:
        if next(evaluations) == MOST_EVALUATIONS:
            raise InputError(f"the equations take more than {MOST_EVALUATIONS:,} evaluations: {advice}.")
        return velocity(x, state)

    solution = solve_ivp(
        counted, (0.0, max(ends[-1], 1e-12)), start, method="DOP853", t_eval=ends, rtol=rtol, atol=atol
    )
    if len(solution.t) < len(ends):  # `y` is no array where the first step fails
        raise InputError(f"the equations cannot be integrated to their end: {advice}.")
    return np.asarray(solution.y).T


DecoderGradient = Literal["true", "modified"]


Tolerance = Annotated[float, NumberType({"least": 1e-30, "most": 0.1})]


@dataclass(frozen=True)
class SymmetricTrajectory:
    """The solution at each time (axis 0)."""

    times: FloatArray  # (n,) steps of batch 1
    distinct_logits: FloatArray  # (n, D) z of a class's distinct tokens
    common_logits: FloatArray  # (n, G) z of the common tokens
    distinct_attention: FloatArray  # (n, D) c_l, which sums to one with the next
    common_attention: FloatArray  # (n, G)
    overlap: FloatArray  # (n,) f_n . f_n'
    residual: FloatArray  # (n,) 1 - alpha_n
    logit_gain: FloatArray  # (n,) w_n . r_n = q_1 gamma
    distinct_drive: FloatArray  # (n, D) xi_nl; dz_l/dt = (eta_Z/K) f_l^2 xi_nl
    common_drive: FloatArray  # (n, G) the same; dz/dt = (eta_Z k/K) f^2 xi, negative while the token loses


@formula
def symmetric_flow(
    times: ArrayLike,
    *,
    distinct_probs: ArrayLike,
    common_probs: ArrayLike,
    num_classes: int,
    vocab_size: int,
    lr_y: float,
    lr_z: float,
    classes_per_query: int | None = None,
    decoder_gradient: DecoderGradient = "true",
    rtol: Tolerance = 1e-10,
    atol: Tolerance = 1e-12,
) -> SymmetricTrajectory:
    """Integrate the reduced equations in log time from Y = Z = 0 and return them at increasing `times`.

    >>> flow = theory.symmetric_flow(
    ...     [1e2, 1e6], distinct_probs=[0.3, 0.2], common_probs=[0.5], num_classes=3, vocab_size=100, lr_y=0.5, lr_z=0.5
    ... )
    >>> print(flow.common_logits.round(3).ravel())
    [-0.529 -0.916]
    """
    system = _System(
        vector("distinct_probs", distinct_probs, above=0),
        vector("common_probs", common_probs, above=0),
        int(sizes("num_classes", num_classes, least=2)),
        int(sizes("vocab_size", vocab_size, least=3)),
        float(numbers("lr_y", lr_y, above=0)),
        float(numbers("lr_z", lr_z, least=0)),
        int(sizes("classes_per_query", num_classes if classes_per_query is None else classes_per_query, least=1)),
        decoder_gradient == "modified",
    )
    if system.size <= system.classes:
        raise InputError(f"vocab_size is {vocab_size}: give more tokens than the {num_classes} next tokens.")
    if system.classes % system.per_query:
        raise InputError(
            f"classes_per_query is {classes_per_query}: it must divide the number of classes, {num_classes}."
        )
    when = vector("times", times, least=0)
    if (np.diff(when) <= 0).any():
        raise InputError("times must be increasing numbers of steps, such as [1, 1e3, 1e6].")
    # The state changes with the logarithm of t: with t = s (e^x - 1) the rates stay bounded, as in `scansnap.flow`.
    scale = 1 / max(system.lr_y, system.lr_z)
    ends = np.log1p(when / scale)
    states = integrate(
        lambda x, state: system.velocity(state) * scale * np.exp(x),
        np.zeros(3 * len(system.p) + 2 * len(system.q)),
        ends,
        rtol=rtol,
        atol=atol,
        advice="lower lr_z, raise rtol, or ask for earlier times",
    )
    observed = [system.observe(state) for state in states]
    return SymmetricTrajectory(when, *(np.array(values) for values in zip(*observed, strict=True)))


@dataclass(frozen=True)
class _System:
    p: FloatArray  # (D,)
    q: FloatArray  # (G,)
    classes: int
    size: int
    lr_y: float
    lr_z: float
    per_query: int
    modified: bool

    def _parts(self, state: FloatArray) -> list[FloatArray]:
        d, g = len(self.p), len(self.q)
        return np.split(state, np.cumsum([d, d, g, d]))  # u, v, b, z of distinct, z of common tokens

    def _forward(self, state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float, float, float, float]:
        """f over distinct then common tokens, c, g, and a_B, a_C, R, w_n . r_n."""
        u, v, b, z, z_common = self._parts(state)
        count, rest = self.classes, self.size - self.classes
        w, w_common = -(u + (count - 1) * v) / rest, -count * b / rest
        logits = np.concatenate([z, z_common])
        c = np.concatenate([self.p, self.q]) * np.exp(logits - logits.max())
        f = c / np.linalg.norm(c)
        of_distinct, of_common = f[: len(self.p)], f[len(self.p) :]
        a, b_, c_ = (of_distinct @ x + of_common @ y for x, y in ((u, b), (v, b), (w, w_common)))
        top = max(a, b_, c_)
        weights = np.exp(np.array([a, b_, c_]) - top)
        total = weights @ (1, count - 1, rest)
        a_b, a_c = weights[1] / total, weights[2] / total
        r = (count - 1) * a_b + rest * a_c
        g = np.concatenate([u * r - (count - 1) * v * a_b - rest * w * a_c, (b - w_common) * rest * a_c])
        return f, c / c.sum(), g, a_b, a_c, r, a * r - (count - 1) * b_ * a_b - rest * c_ * a_c

    def velocity(self, state: FloatArray) -> FloatArray:
        f, _, g, a_b, a_c, r, _ = self._forward(state)
        count, rest, d = self.classes, self.size - self.classes, len(self.p)
        own, other, common = r, -a_b, rest * a_c  # residual at the own, at another next token; their sum over classes
        if self.modified:
            overlap = float(f[d:] @ f[d:])
            x = 1 / (1 - overlap)
            y = -overlap * x / (1 + (count - 1) * overlap)
            own, other = x * own + y * common, x * other + y * common
            common *= x + count * y
        step = self.lr_y / count
        turn = logits_gradient(f, g) * self.lr_z / count
        return np.concatenate(
            [step * f[:d] * own, step * f[:d] * other, step * f[d:] * common, turn[:d], self.per_query * turn[d:]]
        )

    def observe(self, state: FloatArray) -> tuple[FloatArray | float, ...]:
        """The fields of `SymmetricTrajectory` after `times`."""
        f, c, g, _, _, r, gain = self._forward(state)
        z, z_common = self._parts(state)[3:]
        d = len(self.p)
        xi = g / f - f @ g
        return z, z_common, c[:d], c[d:], f[d:] @ f[d:], r, gain, xi[:d], xi[d:]


LATEST_TAU = 100.0
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
    if (np.diff(when) <= 0).any() or when[-1] > LATEST_TAU:
        raise InputError(f"tau must be increasing numbers of at most {LATEST_TAU:g}, such as [0.1, 1, 10].")
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
        turn = logits_gradient(f, past)
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
