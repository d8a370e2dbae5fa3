"""The residual connection of Section 7: v_n = LN(f_n + e_m) in place of f_n, where m = psi(n) is the query.

Where m is not itself a contextual token f_n + e_m has length sqrt(2) and

    v_n . v_n' = (f_n . f_n' + 1[psi(n) = psi(n')]) / 2,

half of what the paper gives for beta_nn'.  Theorem 1 requires of the f_n only that Y is read through them, so that
beta_nn' = E'_nn' with E' = I - (V^T V)^{-1}.  Within a query the off-diagonal entries of V^T V are one half or more,
which is not small: E' is not E.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError, short_repr
from scansnap.theory.decoder import backpropagated_gradient
from scansnap.theory.form import Form
from scansnap.theory.overlap import overlaps
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers
from scansnap.validation.validate import formula


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
        v = residual_directions(direction, index)
        beta = np.eye(len(v)) - np.linalg.inv(v @ v.T)
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
    share = np.full(len(f), 1 / len(f)) if weights is None else numbers("weights", weights, above=0)
    each = -lr_z * speed * share[:, None] / length * f * (pull - f * (f * pull).sum(axis=1, keepdims=True))
    ids, row = np.unique(index, return_inverse=True)
    velocity = np.zeros((len(ids), f.shape[1]))
    np.add.at(velocity, row, each)
    return velocity
