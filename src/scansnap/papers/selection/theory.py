"""Max-margin token selection: what attention trained alone converges to, and how fast.

Tarzanagh, Li, Zhang and Oymak (NeurIPS 2023) train p in f(X) = v'X' softmax(XWp); Li et al. (AISTATS 2024) train W for
next-token prediction.  Input i has T tokens with keys k_it (the rows of XW; if W is trained, the matrices x_it z_i')
and scores gamma_it = y_i v'x_it.  With attention a_i = softmax(K_i theta) and f_i = sum_t a_it gamma_it, the flow of
the mean logistic loss is

    d theta/dt = eta/n sum_i sigma(-f_i) sum_t a_it (gamma_it - f_i) k_it.                                           (1)

The law of the gaps
-------------------
Let attention select token alpha_i of every input.  Late, a_il = exp(-d_il' theta) with d_il = k_i,alpha - k_il, and
with w_i = sigma(-gamma_i,alpha) and Delta_il = gamma_i,alpha - gamma_il, (1) becomes

    d theta/dt = eta/n sum_il w_i Delta_il exp(-d_il' theta) d_il.                                                   (2)

Try theta = s ln t + rho: the left side is s/t.  Terms with d_il's = 1 are of order 1/t and those with a larger margin
vanish faster.  So s = sum_il lambda_il d_il with lambda_il = eta w_i Delta_il exp(-d_il' rho)/n >= 0, on constraints
d_il's >= 1 that are active: these are the optimality conditions of min |s| subject to d_il's >= 1, the ATT-SVM, and

    d_il' theta = ln(eta w_i Delta_il t/(n lambda_il))      for each support vector (lambda_il > 0).                 (3)

Speed.  The angle to s closes like 1/ln t, because rho stays, and 1 - cosine like 1/ln^2 t.  (3) itself comes to hold
faster.  Constraints with the least margin m > 1 above the active ones add terms of relative size t^(1-m).  An error e
of rho obeys de/d ln t = -H e with H = sum_il lambda_il d_il d_il', so it falls like t^-mu with the least eigenvalue mu
of H on the span of the support vectors (H s = s, so mu <= 1).  Together: t^-min(m-1, mu) (`MaxMargin.speed`).

One-hot keys (one input, L tokens): d_l = e_1 - e_l, s_1 = (L-1)/L, s_l = -1/L, every lambda_l is 1/L, and mu = 1/L.  So
z_1 - z_l = ln(eta w L (gamma_1 - gamma_l) t).  From uniform attention there is more.  Let U_l = exp(z_1 - z_l) - 1.  By
(1), with gamma_l - f = (gamma_1 - f) - Delta_l,

    dU_l/dt = eta sigma(-f) a_1 (Delta_l + (gamma_1 - f) U_l),                U_l(0) = 0,

which is the same equation for every U_l/Delta_l.  So exp(z_1 - z_l) = 1 + (gamma_1 - gamma_l) X(t) at all times.

A path that is known exactly
----------------------------
Tarzanagh et al. draw one input with keys (-a, 1), (1, 0), (0, 0) and scores gamma_1 > gamma_2 = gamma_3 (a = 0.1).  The
two losing tokens have equal scores, so at all times the ratio of their terms in (1) is exp(p_x), and with s = -p_x

    dp_y/ds = (e^s + 1)/(a e^s + 1 + a),        p_y - s/(1+a) - ln(a e^s + 1 + a)/(a (1+a)) = constant.              (4)

The margin of (1, 0) is 1 + a/(1+a^2): nearly active if a is small.  It pushes p beyond the ATT-SVM's direction
(-a, 1)/(1+a^2) for as long as t^(-a/(1+a^2)) is not small.  As s grows, (4) gives the distance that p keeps from the
line of that direction, `plane_offset`; the angle falls back to zero like that distance over |p|.  At a = 0 the second
constraint is active with lambda = 0, the path is p_y = e^s + s + constant, and the distance grows like ln ln t.

Next-token prediction
---------------------
One query, one-hot keys: p(y|X) = c_y e^{z_y}/sum_l c_l e^{z_l} with counts c of the tokens in the context, and the next
token y is in it.  This is Luce's choice model, and its likelihood is concave in z.  The token-priority graph has an
edge from y to every other token of the context.  Within a strongly connected component the maximum likelihood is finite
(`component_logits`); between components no finite z is best, and by the argument above z follows s ln t, where s has
the least norm among vectors that are constant on components and fall by at least 1 along edges between them
(`component_direction`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError
from scansnap.validation.checks import FloatArray, matrix, number, numbers, vector
from scansnap.validation.validate import formula

SUPPORT = 1e-9
"""Multipliers above this are those of support vectors; so much above 1 a margin is not active."""


class MaxMargin(NamedTuple):
    """The solution of min |s|^2/2 subject to D s >= h."""

    direction: FloatArray  # s
    multipliers: FloatArray  # lambda >= 0 with s = D' lambda
    margins: FloatArray  # D s

    @property
    def objective(self) -> float:
        """|s|^2/2, which solvers print."""
        return float(self.direction @ self.direction) / 2

    @property
    def support(self) -> NDArray[np.bool_]:
        """Which constraints hold the solution in place."""
        return self.multipliers > SUPPORT

    @property
    def next_margin(self) -> float:
        """The least margin above 1, on which the speed of convergence depends; infinity if all are 1."""
        return float(self.margins[self.margins > 1 + SUPPORT].min(initial=np.inf))

    def speed(self, differences: ArrayLike) -> float:
        """The power of 1/t with which the law of the gaps comes to hold: min(m - 1, mu)."""
        rows = matrix("differences", differences)[self.support] * np.sqrt(self.multipliers[self.support])[:, None]
        modes = np.linalg.eigvalsh(rows @ rows.T)
        return min(self.next_margin - 1, float(modes[modes > SUPPORT].min()))


@formula
def max_margin(differences: ArrayLike, *, least: ArrayLike = 1.0) -> MaxMargin | None:
    """The ATT-SVM: the shortest s with D s >= `least`, or None if there is no such s.

    Least-distance programming (Lawson and Hanson, chapter 23): with E = [D'; h'] and e = (0, ..., 0, 1), the
    nonnegative u that minimizes |E u - e| has s = D'u/(1 - h'u), and there is no s if the residual is zero.

    >>> from scansnap.papers.selection.theory import max_margin
    >>> print(max_margin([[-1.1, 1.0], [-0.1, 1.0]]).objective.__round__(5))
    0.49505
    """
    from scipy.optimize import nnls

    rows = matrix("differences", differences)
    bounds = np.broadcast_to(numbers("least", least), len(rows))
    weights, _ = nnls(np.vstack([rows.T, bounds]), np.r_[np.zeros(rows.shape[1]), 1.0], maxiter=30 * len(rows) + 100)
    rest = 1.0 - float(bounds @ weights)
    if rest < 1e-12:
        return None
    multipliers = weights / rest
    direction = rows.T @ multipliers
    return MaxMargin(direction, multipliers, rows @ direction)


@formula
def key_differences(keys: ArrayLike, selected: ArrayLike) -> FloatArray:
    """d_il = k_i,selected - k_il for all other tokens l, input after input: (n (T-1) x d) of keys (n x T x d)."""
    rows, chosen = numbers("keys", keys), np.asarray(selected, np.int64)
    own = rows[np.arange(len(rows)), chosen]
    return (own[:, None] - rows)[np.arange(rows.shape[1]) != chosen[:, None]]


@formula
def score_gaps(scores: ArrayLike, selected: ArrayLike) -> FloatArray:
    """Delta_il = gamma_i,selected - gamma_il in the order of `key_differences`."""
    rows = matrix("scores", scores)
    return key_differences(rows[..., None], selected)[:, 0]


@formula
def support_gaps(t: float, solution: MaxMargin, scores: ArrayLike, selected: ArrayLike, *, rate: float) -> FloatArray:
    """(3): d_il' theta of the support vectors at time t, in the order of `key_differences`."""
    rows, chosen = matrix("scores", scores), np.asarray(selected, np.int64)
    own = rows[np.arange(len(rows)), chosen]
    weight = np.repeat(1 / (1 + np.exp(own)), rows.shape[1] - 1) / len(rows)
    pull = (weight * score_gaps(rows, chosen))[solution.support]
    return np.log(rate * pull / solution.multipliers[solution.support]) + np.log(t)


@formula
def one_hot_logits(t: ArrayLike, *, scores: ArrayLike, rate: float) -> FloatArray:
    """z(t) late, with one-hot keys from a zero start (..., L): z_1 - z_l = ln(eta w L (gamma_1 - gamma_l) t).

    >>> from scansnap.papers.selection.theory import one_hot_logits
    >>> print(one_hot_logits(1e9, scores=[1.0, 0.5], rate=1.0).round(4))
    [ 9.705 -9.705]
    """
    gamma, time = vector("scores", scores), numbers("t", t, above=0)
    best = int(gamma.argmax())
    others = np.arange(len(gamma)) != best
    gaps = np.zeros((*time.shape, len(gamma)))
    slope = rate * len(gamma) / (1 + np.exp(gamma[best])) * (gamma[best] - gamma[others])
    gaps[..., others] = np.log(slope) + np.log(time)[..., None]
    return gaps.mean(-1, keepdims=True) - gaps  # the sum of z does not change


@formula
def plane_height(s: ArrayLike, *, lean: float) -> FloatArray:
    """p_y of the path (4) as a function of s = -p_x, up to a constant; `lean` is a."""
    a, left = number("lean", lean, least=0), numbers("s", s)
    if a == 0:
        return left + np.exp(left)
    return left / (1 + a) + np.logaddexp(left + np.log(a), np.log1p(a)) / (a * (1 + a))


@formula
def plane_offset(*, lean: float, start: ArrayLike = (0.0, 0.0)) -> float:
    """How far p ends beyond the line of the ATT-SVM's direction; below zero if it never crosses that line."""
    a, (x, y) = number("lean", lean, least=0), vector("start", start)
    if a == 0:
        return np.inf
    constant = y - float(plane_height(-x, lean=a))
    return float(-(np.log(a) / (1 + a) + a * constant) / np.hypot(1, a))


@formula
def plane_turn(*, lean: float, start: ArrayLike = (0.0, 0.0)) -> tuple[float, float]:
    """The angle in degrees beyond the ATT-SVM's direction at which the path turns back, and |p| there.

    The direction turns where s/p_y is largest: p_y = s dp_y/ds.
    """
    from scipy.optimize import brentq

    a, (x, y) = number("lean", lean, least=0), vector("start", start)
    constant = y - float(plane_height(-x, lean=a))

    def height(s: float) -> float:
        return constant + float(plane_height(s, lean=a))

    def turning(s: float) -> float:
        return height(s) - s * (1 + np.exp(-s)) / (a + (1 + a) * np.exp(-s))

    if not turning(-x) > 0 > turning(60.0):
        raise InputError(f"the path from ({x:g}, {y:g}) with lean {a:g} does not turn: start on the positive y axis.")
    s = float(brentq(turning, -x, 60.0, xtol=1e-13))
    return float(np.degrees(np.arctan2(s, height(s)) - np.arctan(a))), float(np.hypot(s, height(s)))


@formula
def priority_components(counts: ArrayLike, target: ArrayLike) -> NDArray[np.int64]:
    """The strongly connected component of each token in the token-priority graph of contexts (n x M) and next tokens.

    >>> from scansnap.papers.selection.theory import priority_components
    >>> components = priority_components([[1, 1, 1], [1, 1, 0]], [0, 1])
    >>> bool(components[0] == components[1] != components[2])
    True
    """
    from scipy.sparse.csgraph import connected_components

    return connected_components(_edges(counts, target), directed=True, connection="strong")[1].astype(np.int64)


def _edges(counts: ArrayLike, target: ArrayLike) -> NDArray[np.bool_]:
    """Which token has priority over which: the next token over every other token of its context (M x M)."""
    rows, chosen = matrix("counts", counts), np.asarray(target, np.int64)
    edges = np.zeros((rows.shape[1], rows.shape[1]), bool)
    np.logical_or.at(edges, chosen, rows > 0)
    np.fill_diagonal(edges, val=False)
    return edges


@formula
def component_basis(components: ArrayLike) -> FloatArray:
    """An orthonormal basis (M x M): columns with contrasts within components, then one for the mean of each component.

    Tokens of one component have the same entries, to the last bit, in all columns of means.
    """
    from scipy.linalg import helmert  # takes long to import

    labels = np.asarray(components, np.int64)
    members = labels == np.unique(labels)[:, None]
    contrasts = [np.zeros((len(labels), count - 1)) for count in members.sum(1)]
    for columns, inside in zip(contrasts, members, strict=True):
        columns[inside] = helmert(inside.sum()).T
    return np.hstack([*contrasts, (members / np.sqrt(members.sum(1, keepdims=True))).T])


@formula
def component_direction(counts: ArrayLike, target: ArrayLike) -> FloatArray:
    """s (M,): the shortest vector that is constant on components and falls by at least 1 along edges between them.

    A vector with the value q_c/sqrt(size_c) on component c has the norm of q.
    """
    labels, edges = priority_components(counts, target), _edges(counts, target)
    scale = 1 / np.sqrt(np.bincount(labels))
    pairs = labels[np.argwhere(edges)]
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    if not len(pairs):
        return np.zeros(len(labels))
    each = np.eye(len(scale)) * scale
    solution = max_margin(each[pairs[:, 0]] - each[pairs[:, 1]])
    assert solution is not None  # the graph of components has no cycle
    return (solution.direction * scale)[labels]


@formula
def component_logits(counts: ArrayLike, target: ArrayLike, weight: ArrayLike) -> FloatArray:
    """The limits of z (M,) within components, with a mean of zero in each: Luce's choice model by maximum likelihood.

    Contexts are cut to the component of their next token.  If all contexts of a component then have the same counts,
    z_a - z_b = ln(f_a/c_a) - ln(f_b/c_b) with the frequencies f as next tokens.
    """
    labels, chosen = priority_components(counts, target), np.asarray(target, np.int64)
    rows = matrix("counts", counts) * (labels == labels[chosen][:, None])
    share = vector("weight", weight, above=0)
    inner = component_basis(labels)[:, : -(labels.max() + 1)]  # the contrasts
    u = np.zeros(inner.shape[1])
    for _ in range(200):
        odds = rows * np.exp(inner @ u)
        probs = odds / odds.sum(1, keepdims=True)
        slope = share @ (inner[chosen] - probs @ inner)
        curvature = inner.T @ (np.diag(share @ probs) - (probs * share[:, None]).T @ probs) @ inner
        step = np.linalg.solve(curvature, slope)
        u += step / max(1.0, float(np.abs(step).max(initial=0.0)))
        if np.abs(step).max(initial=0.0) < 1e-13:
            break
    return inner @ u
