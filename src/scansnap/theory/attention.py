"""How attention logits move, given the gradient from the decoder (Section 5, Lemma 4, Theorem 2, Corollary 2).

With g_n = gamma (iota_n f_n - sum_{n'} beta_{nn'} f_n') the expected batch-1 step moves row m of Z along

    dz_m/dt = eta_Z gamma sum_{n in psi^-1(m)} P(n) diag(f_n) sum_{n' != n} beta_{nn'} (f_n f_n^T - I) f_n'    (Eq. 10)

where P(n) is the probability of drawing class n.  The published Eq. 10 has no P(n): it sums the classes of a query as
if all of them were drawn in one step (`form="published"`); in steps of batch 1 that is K times too fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.theory.form import Form
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers, square
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
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    push = b @ f  # (K, L) sum_{n'} beta_{nn'} f_n', the diagonal of beta being zero
    along = (f * push).sum(axis=1, keepdims=True)
    each = lr_z * speed * _weights(weights, len(f), form)[:, None] * f * (along * f - push)
    velocity = np.zeros((len(ids), f.shape[1]))
    np.add.at(velocity, row, each)
    return velocity


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
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    velocity = np.zeros(len(ids))
    has = f[:, token] > 0  # a class without the token does not move it
    np.add.at(velocity, row[has], (-lr_z * _weights(weights, len(f), form) * (1 - f[:, token] ** 2) * xi)[has])
    return velocity


def _weights(weights: ArrayLike | None, count: int, form: Form) -> FloatArray:
    if form == "published":
        return np.ones(count)
    return np.full(count, 1 / count) if weights is None else numbers("weights", weights, above=0)


@formula
def token_kinds(probs: ArrayLike) -> NDArray[np.str_]:
    """For each token: distinct (in one class), common (in several) or absent (in none), from P(l|n).

    >>> print(theory.token_kinds([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    ['common' 'distinct' 'distinct']
    """
    count = (matrix("probs", probs) > 0).sum(axis=0)
    return np.select([count == 1, count > 1], ["distinct", "common"], "absent")


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


@dataclass(frozen=True)
class Symmetry:
    """The conditions of Corollary 2, except the fourth, Z(0) = 0, which belongs to a run.

    >>> print(theory.symmetry([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], query=[5, 6]).single_query)
    False
    """

    single_query: bool  # (1) one query for all classes
    matching_distinct: bool  # (2) the classes' distinct tokens have the same probabilities, up to order
    shared_common: bool  # (3) every common token occurs in all classes with one probability

    @property
    def holds(self) -> bool:
        return self.single_query and self.matching_distinct and self.shared_common


@formula
def symmetry(probs: ArrayLike, *, query: Ids, tolerance: float = 1e-9) -> Symmetry:
    """Whether classes meet conditions (1) to (3) of Corollary 2, probabilities compared to `tolerance`.

    >>> print(theory.symmetry([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], query=[5, 5]))
    Symmetry(single_query=True, matching_distinct=True, shared_common=True)
    """
    p = matrix("probs", probs)
    kinds = token_kinds(p)
    distinct = [np.sort(row[(kinds == "distinct") & (row > 0)]) for row in p]
    matching = all(len(d) == len(distinct[0]) and np.allclose(d, distinct[0], 0, tolerance) for d in distinct)
    common = p[:, kinds == "common"]
    return Symmetry(
        single_query=len(np.unique(np.asarray(query))) == 1,
        matching_distinct=matching,
        shared_common=bool(np.allclose(common, common[:1], 0, tolerance)),
    )
