"""How attention logits move, given the gradient from the decoder, and which tokens gain (Sections 5 and 7).

Lemma 4 and Theorem 2
---------------------
With g_n = gamma (iota_n f_n - sum_{n'} beta_{nn'} f_n') the expected batch-1 step moves row m of Z along

    dz_m/dt = eta_Z gamma sum_{n in psi^-1(m)} P(n) diag(f_n) sum_{n' != n} beta_{nn'} (f_n f_n^T - I) f_n'    (Eq. 10)

where P(n) is the probability of drawing class n.  The published Eq. 10 has no P(n): it sums the classes of a query as
if all of them were drawn in one step (`form="published"`); in steps of batch 1 that is K times too fast.

The race among the distinct tokens of one class (Theorem 3)
-----------------------------------------------------------
For tokens l, l' distinct to class n, c~_l = P(l|n) exp(z_l) and

    r_{l/l'}(t) = c~_l^2 / c~_l'^2 - 1                          relative gain
    chi_l(t)    = exp(2 (z_l(t) - z_l(0)))                      growth factor

If each distinct token's logit moves at a rate proportional to its own c~_l^2 (Eq. 98), then e^(-2z_l) dz_l is the same
for all of them up to c~_l(0)^2, and integrating gives (Eqs. 110, 111)

    1 - 1/chi_l = (r_{l/l'}(0) + 1) (1 - 1/chi_l'),             r_{l/l'}(t) = r_{l/l'}(0) chi_l(t).

So one growth factor determines all the others.  Eq. 98 requires g_nl to be proportional to f_nl over the distinct
tokens of a class: this is true for a decoder that has forgotten how attention was distributed before (eta_Y >> eta_Z,
or the modified gradient with attention fixed), and an approximation otherwise: the decoder lags behind
(`lagged_attention`), by more the more a token has gained, so that late and in unequal classes the order
r(t) = r(0) chi(t) can turn.

The residual connection (Section 7)
-----------------------------------
The layer reads v_n = LN(f_n + e_m) in place of f_n, where m = psi(n) is the query.  Where m is not itself a contextual
token f_n + e_m has length sqrt(2) and

    v_n . v_n' = (f_n . f_n' + 1[psi(n) = psi(n')]) / 2,

half of what the paper gives for beta_nn'.  Theorem 1 requires of the f_n only that Y is read through them, so that
beta_nn' = E'_nn' with E' = I - (V^T V)^{-1}.  Within a query the off-diagonal entries of V^T V are one half or more,
which is not small: E' is not E.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError, short_repr
from scansnap.theory.decoder import backpropagated_gradient
from scansnap.theory.overlap import (
    Bounds,
    Form,
    class_weights,
    inverse_overlaps,
    logits_gradient,
    overlaps,
    sum_by_query,
)
from scansnap.theory.tokens import symmetry, token_kinds
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers, square, vector
from scansnap.validation.validate import formula


@formula
def logits_velocity(
    direction: ArrayLike,
    beta: ArrayLike,
    *,
    query: Ids,
    speed: float,
    lr_z: float,
    weights: ArrayLike | None = None,
    form: Form = "exact",
) -> FloatArray:
    """dz/dt (Q x L) by Eq. 10, one row per query in increasing order of id; `weights` are P(n), uniform if absent.

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> beta = theory.inverse_overlaps(theory.overlaps(f))
    >>> print(theory.logits_velocity(f, beta, query=[5, 5], speed=0.1, lr_z=0.5).round(4))
    [[-0.0083  0.0042  0.0042]]
    """
    f, b = matrix("direction", direction), square("beta", beta)
    push = b @ f  # (K, L) sum_{n'} beta_{nn'} f_n', the diagonal of beta being zero
    return sum_by_query(query, -lr_z * speed * _weights(weights, len(f), form)[:, None] * logits_gradient(f, push))


@formula
def distinct_velocity(
    direction: ArrayLike, drive: ArrayLike, *, lr_z: float, weights: ArrayLike | None = None, form: Form = "exact"
) -> FloatArray:
    """dz/dt (K x L) of tokens distinct to class n: eta_Z P(n) f_nl^2 xi_n (Eq. 98).

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> print(theory.distinct_velocity(f, [0.1, 0.1], lr_z=0.5).round(4))
    [[0.0125 0.0125 0.    ]
     [0.0125 0.     0.0125]]
    """
    f = matrix("direction", direction)
    xi = np.broadcast_to(numbers("drive", drive), len(f))
    return lr_z * (_weights(weights, len(f), form) * xi)[:, None] * f**2


@formula
def single_common_velocity(
    direction: ArrayLike,
    drive: ArrayLike,
    token: int,
    *,
    query: Ids,
    lr_z: float,
    weights: ArrayLike | None = None,
    form: Form = "exact",
) -> FloatArray:
    """dz/dt (Q,) of the only common token: -eta_Z sum_n P(n) (1 - f_nl^2) xi_n over a query's classes (Eq. 100).

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> print(theory.single_common_velocity(f, [0.1, 0.1], 0, query=[5, 5], lr_z=0.5).round(4))
    [-0.025]
    """
    f = matrix("direction", direction)
    xi = np.broadcast_to(numbers("drive", drive), len(f))
    has = f[:, token] > 0  # a class without the token does not move it
    return sum_by_query(query, has * -lr_z * _weights(weights, len(f), form) * (1 - f[:, token] ** 2) * xi)


def _weights(weights: ArrayLike | None, count: int, form: Form) -> FloatArray:
    """P(n), which the published forms leave out."""
    return np.ones(count) if form == "published" else class_weights(weights, count)


@formula
def fates(probs: ArrayLike, *, query: Ids, tolerance: float = 1e-9) -> NDArray[np.str_]:
    """What the paper predicts for each token in each query's row of Z (Q x L, rows in increasing order of query id).

    - "gains": a token distinct to a class of the query that overlaps some other class (Theorem 2 a; without any overlap
      xi_n is zero and nothing moves).
    - "loses": the only common token there is, where a class of the query that has it also has a distinct one (Theorem 2
      b); or a common token of symmetric classes with one query (Corollary 2).
    - "unsaid": other tokens of the query's classes.  "absent": tokens that its classes do not have.

    >>> print(theory.fates([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], query=[5, 5]))
    [['loses' 'gains' 'gains']]
    """
    p = matrix("probs", probs)
    kinds = token_kinds(p)
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    overlapping = np.any(p[:, kinds == "common"] > 0, axis=1).tolist()
    own = np.any(p[:, kinds == "distinct"] > 0, axis=1).tolist()
    symmetric = symmetry(p, query=query, tolerance=tolerance).holds
    fate = np.full((len(ids), p.shape[1]), "absent", "U6")
    for n, present in enumerate(p > 0):
        of_query = fate[row[n]]
        of_query[present & (of_query == "absent")] = "unsaid"
        if overlapping[n]:
            of_query[present & (kinds == "distinct")] = "gains"
        if symmetric or (own[n] and (kinds == "common").sum() == 1):
            of_query[present & (kinds == "common")] = "loses"
    return fate


@formula
def relative_gain(
    prob: ArrayLike, other_prob: ArrayLike, logit: ArrayLike = 0.0, other_logit: ArrayLike = 0.0
) -> FloatArray:
    """r_{l/l'|n} from P(l|n), P(l'|n) and the two logits; precise also where the tokens are nearly level.

    >>> print(theory.relative_gain(0.4, 0.2))
    3.0
    """
    p, q = numbers("prob", prob, above=0), numbers("other_prob", other_prob, above=0)
    difference = numbers("logit", logit) - numbers("other_logit", other_logit)
    return np.expm1(2 * (np.log(p / q) + difference))[()]


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


@formula
def growth_factor_bounds(bound: ArrayLike, initial_direction: ArrayLike, *, weight: ArrayLike = 1.0) -> Bounds:
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
        return Bounds(np.exp(2 * f**2 * b)[()], np.exp(2 * b)[()])


@formula
def residual_directions(direction: ArrayLike, query: Ids) -> FloatArray:
    """v_n = (f_n + e_m)/|f_n + e_m| (K x L) for directions f_n over L tokens; `query` is the index of m among them.

    >>> print(theory.residual_directions([[0.6, 0.8, 0.0]], [2]).round(3))
    [[0.424 0.566 0.707]]
    """
    f = matrix("direction", direction).copy()
    index = np.asarray(query)
    if index.shape != (len(f),) or (index < 0).any() or (index >= f.shape[1]).any():
        raise InputError(
            f"query is {short_repr(index.tolist())}: give each of {len(f)} classes an index below {f.shape[1]}."
        )
    f[np.arange(len(f)), index] += 1.0
    return f / np.linalg.norm(f, axis=1, keepdims=True)


@formula
def residual_beta(direction: ArrayLike, query: Ids, *, form: Form = "exact") -> FloatArray:
    """beta_nn' (K x K, zero diagonal): "published" is f_n . f_n' + 1[psi(n) = psi(n')], "exact" is E' of the v_n.

    >>> f = theory.directions([[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0]])
    >>> print(theory.residual_beta(f, [3, 3]).round(3))
    [[0.    1.714]
     [1.714 0.   ]]
    """
    index = np.asarray(query)
    if form == "published":
        beta = overlaps(direction) + (index[:, None] == index)
    else:
        beta = inverse_overlaps(overlaps(residual_directions(direction, index)))
    np.fill_diagonal(beta, 0.0)
    return beta


@formula
def residual_velocity(
    direction: ArrayLike,
    query: Ids,
    *,
    vocab_size: int,
    speed: float = 1.0,
    lr_z: float = 1.0,
    weights: ArrayLike | None = None,
) -> FloatArray:
    """dz/dt (Q x L) with a residual connection and the modified gradient; its sign says which tokens gain.

    The decoder reads v_n = (f_n + e_m)/s_n with s_n = |f_n + e_m|, so Theorem 1 gives
    g_n = gamma (iota_n v_n - sum_{n'} beta_{nn'} v_n') with beta of the overlaps of the v_n.  Back through both
    normalizations and the softmax,

        dz_m/dt = eta_Z sum_{n of m} P(n) f_n o (I - f_n f_n^T) (I - v_n v_n^T) g_n / s_n.

    Let no query be a contextual token.  Then s_n = sqrt(2), v_n is f_n/sqrt(2) on the contextual tokens, and
    (I - f_n f_n^T) f_n = 0 removes iota_n v_n and the part along v_n:

        dz_ml/dt = eta_Z gamma/2 sum_{n of m} P(n) f_nl sum_{n' != n} beta_{nn'} [(f_n . f_n') f_nl - f_n'l],

    which is Eq. 10 at half the speed.  A token l that class n alone has within its query (locally distinct) gains
    exactly if

        f_nl sum_{n' != n} beta_{nn'} f_n . f_n'  >  sum_{n' of other queries} beta_{nn'} f_n'l.

    The right side is zero unless another query has the token too; where one has, the token gains or loses depending on
    its weight.  In `local_common`, with f^2 = s for the token shared across queries and q for the locally common one,
    V^T V has the overlaps a = (1 + q)/2 within a query and b = s/2 across, and up to 1/M the criterion is
    beta_a q > beta_b (1 - s).  For small s this is s < 2 q a (1 - a^2)/(1 + a^2): the token gains while s is below
    about 0.6 q.

    >>> f = theory.directions([[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0]])
    >>> print(theory.residual_velocity(f, [3, 3], vocab_size=100).round(3))
    [[-0.219  0.11   0.11   0.   ]]
    """
    f = matrix("direction", direction)
    index = np.asarray(query)
    v = residual_directions(f, index)
    length = np.sqrt(2 + 2 * f[np.arange(len(f)), index])[:, None]  # |f_n + e_m|
    _, beta = backpropagated_gradient(overlaps(v), vocab_size=vocab_size)
    pull = beta @ v
    pull -= v * (v * pull).sum(axis=1, keepdims=True)
    share = class_weights(weights, len(f))[:, None]
    return sum_by_query(index, -lr_z * speed * share / length * logits_gradient(f, pull))
