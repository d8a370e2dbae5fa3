"""Lemma 3's decoder gradient in compiled code.

The gradient of a sequence of class n moves Y along v + m_n instead of v, with m_n = V A e_n, A = (V^T V)^{-1} - I and
the columns of V the directions of the classes for T -> infinity (`gradients.py`).  With X_n the sum of the residuals of
the sequences of class n, that adds

    sum_n m_n X_n^T = sum_n' v_n' R_n'^T,      R = (V^T V)^{-1} X - X,

which is one more sequence for each class, with the residual R_n.  Coefficients w take the place of directions v as in
`readout.py`: v_n . v_n' = sum_l w_nl w_n'l - w_n0 w_n'0.
"""

from __future__ import annotations

import math

from scansnap.dynamics.compiled.loops import add_row, rare
from scansnap.dynamics.compiled.readout import class_boost, directions, further_slots


@rare
def add_modification(plan, scratch, y, v, z, probs):
    """Add the modification to the gradient v, from the X_n in `residuals`; whether V^T V has an inverse.

    probs (1, K, W) are the P(l|n).
    """
    num_classes, stride, further = plan.support.shape[0], plan.slots.shape[1], further_slots(plan)
    f, coefficients, dense, change = scratch.f, scratch.coefficients, scratch.dense, scratch.residuals
    single = probs.shape[0]  # 1, but not as a literal
    for n in range(num_classes):
        for row in range(y.shape[0]):
            dense[n, row] = 0
        class_boost(plan, scratch, z, n)
        for head in range(plan.heads):
            directions(plan, scratch, z, n, head, probs, single - 1, n, single)
            for w in range(plan.size[n] + further):
                coefficients[n, head * stride + w] = f[head * stride + w, 0]
                dense[n, plan.slots[n * plan.heads + head, w]] += f[head * stride + w, 0]
    if not _decompose(plan, dense, scratch.gram):
        return False
    _solve(scratch.gram, change, scratch.solution)
    for n in range(num_classes):
        for j in range(y.shape[1]):
            change[n, j] = scratch.solution[n, j] - change[n, j]
        for head in range(plan.heads):
            for w in range(plan.size[n] + further):
                add_row(v, plan.slots[n * plan.heads + head, w], coefficients[n, head * stride + w], change, n)
    return True


@rare
def _decompose(plan, dense, gram):
    """Cholesky's triangle of V^T V, whose diagonal is H; False if it is singular up to rounding."""
    for j in range(gram.shape[0]):
        for i in range(j, gram.shape[0]):
            total = 0.0
            for row in range(dense.shape[1]):
                total += plan.row_sign[row] * dense[i, row] * dense[j, row]
            for k in range(j):
                total -= gram[i, k] * gram[j, k]
            if i == j and not total > 1e-13 * plan.heads:
                return False
            gram[i, j] = math.sqrt(total) if i == j else total / gram[j, j]
    return True


@rare
def _solve(triangle, right, x):
    """x = (L L^T)^{-1} right."""
    size = triangle.shape[0]
    for i in range(size):
        for j in range(x.shape[1]):
            total = float(right[i, j])
            for k in range(i):
                total -= triangle[i, k] * x[k, j]
            x[i, j] = total / triangle[i, i]
    for i in range(size - 1, -1, -1):
        for j in range(x.shape[1]):
            for k in range(i + 1, size):
                x[i, j] -= triangle[k, i] * x[k, j]
            x[i, j] /= triangle[i, i]
