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

from scansnap.base.errors import InputError
from scansnap.theory.checks import FloatArray, Form, check_form, matrix
from scansnap.theory.overlap import overlaps


def residual_directions(direction: ArrayLike, query: ArrayLike) -> FloatArray:
    """v_n = (f_n + e_m)/|f_n + e_m| (K x L) for directions f_n over L tokens; `query` is the index of m among them."""
    f = matrix("direction", direction).copy()
    index = np.asarray(query)
    if index.shape != (len(f),) or (index < 0).any() or (index >= f.shape[1]).any():
        raise InputError(f"query is {index.tolist()}: give each of {len(f)} classes an index below {f.shape[1]}.")
    f[np.arange(len(f)), index] += 1.0
    return f / np.linalg.norm(f, axis=1, keepdims=True)


def residual_beta(direction: ArrayLike, query: ArrayLike, *, form: Form = "exact") -> FloatArray:
    """beta_nn' (K x K, zero diagonal): "published" is f_n . f_n' + 1[psi(n) = psi(n')], "exact" is E' of the v_n."""
    check_form(form)
    index = np.asarray(query)
    if form == "published":
        beta = overlaps(direction) + (index[:, None] == index)
    else:
        v = residual_directions(direction, index)
        beta = np.eye(len(v)) - np.linalg.inv(v @ v.T)
    np.fill_diagonal(beta, 0.0)
    return beta
