"""Directions of attention and how much they overlap: F, E, E' and their spectra (Section 4, Lemmas 13 to 17).

    c~_nl = P(l|n) exp(z_nl),     f_n = c~_n / |c~_n|_2,     F^T F = I + E,     E' = I - (I + E)^{-1}

E has zeros on its diagonal and f_n . f_n' >= 0 off it.  Appendix D.1 defines E' with the opposite sign
(the text from which this was made drops the minus sign of (I + E)^{-1} - I, which is supplied here), but from Eq. 28 on
the paper uses it as here; `form="published"` is the definition of D.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers, sizes, square
from scansnap.validation.validate import formula

Form = Literal["exact", "published"]
"""A formula as it is, and as the paper prints it."""


class Bounds(NamedTuple):
    """Two-sided bounds of a quantity."""

    least: FloatArray
    most: FloatArray


def class_weights(weights: ArrayLike | None, count: int) -> FloatArray:
    """P(n) of each class (K,); uniform if absent."""
    return np.full(count, 1 / count) if weights is None else numbers("weights", weights, above=0)


def sum_by_query(query: Ids, values: FloatArray) -> FloatArray:
    """The sums of rows of `values` (K x ...) over the classes of each query (Q x ...), in increasing order of id."""
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    total = np.zeros((len(ids), *values.shape[1:]))
    np.add.at(total, row, values)
    return total


def logits_gradient(direction: FloatArray, gradient: FloatArray) -> FloatArray:
    """diag(f) (I - f f^T) g along the last axis: how z moves where g is sent back to the direction f (Lemma 1)."""
    return direction * (gradient - direction * (direction * gradient).sum(axis=-1, keepdims=True))


@formula
def directions(probs: ArrayLike, logits: ArrayLike = 0.0) -> FloatArray:
    """f_n as the rows of a K x L matrix, from P(l|n) and z (a row for all classes, or one row per class).

    Logits are taken relative to the largest one that occurs in a class, so that none overflows.

    >>> print(theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]).round(3))
    [[0.707 0.707 0.   ]
     [0.707 0.    0.707]]
    """
    p = matrix("probs", probs)
    z = np.broadcast_to(numbers("logits", logits), p.shape)
    if (p < 0).any() or not (p > 0).any(axis=1).all():
        raise InputError("probs has a negative entry or a row of zeros: give each class its tokens' probabilities.")
    present = np.where(p > 0, z, -np.inf)
    c = p * np.exp(present - present.max(axis=1, keepdims=True))
    return c / np.linalg.norm(c, axis=1, keepdims=True)


@formula
def overlaps(direction: ArrayLike) -> FloatArray:
    """E = F^T F - I, with an exact zero diagonal.

    >>> print(theory.overlaps(theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])).round(3))
    [[0.  0.5]
     [0.5 0. ]]
    """
    f = matrix("direction", direction)
    e = f @ f.T
    np.fill_diagonal(e, 0.0)
    return e


@formula
def layer_overlaps(attention: ArrayLike, *, vocab_size: int) -> FloatArray:
    """Overlaps (K x K, zero diagonal) of the directions that LayerNorm gives, from c_n (K x L, rows that sum to one).

    LayerNorm subtracts from each of the M entries their mean, 1/M as the c_n sum to one, and the products lose 1/M:

        f_n . f_n' = (c_n . c_n' - 1/M) / sqrt((|c_n|^2 - 1/M)(|c_n'|^2 - 1/M)).

    So the overlaps differ by O(1/M) from those of l2 normalization, and classes without a common token get a negative
    one: E >= 0, which Appendix D.5 uses, does not carry over.

    >>> print(theory.layer_overlaps([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], vocab_size=100).round(3))
    [[0.   0.49]
     [0.49 0.  ]]
    """
    c = matrix("attention", attention)
    size = sizes("vocab_size", vocab_size, least=2)
    products = c @ c.T - 1 / size
    squares = np.diag(products)
    if not (squares > 0).all():
        raise InputError("a class attends to all tokens alike: LayerNorm leaves it no direction.")
    e = products / np.sqrt(np.outer(squares, squares))
    np.fill_diagonal(e, 0.0)
    return e


@formula
def inverse_overlaps(overlap: ArrayLike, *, form: Form = "exact") -> FloatArray:
    """E' = I - (I + E)^{-1} (Lemma 14); the published form is minus that, as printed in D.1.

    >>> print(theory.inverse_overlaps([[0.0, 0.5], [0.5, 0.0]]).round(3))
    [[-0.333  0.667]
     [ 0.667 -0.333]]
    """
    e = square("overlap", overlap)
    try:
        # (I + E)^{-1} E, which equals I - (I + E)^{-1} and is precise for a small E.
        inverse = np.linalg.solve(np.eye(len(e)) + e, e)
    except np.linalg.LinAlgError:
        raise InputError(
            "I + E cannot be inverted: two classes have the same direction, which Assumption 2 excludes."
        ) from None
    inverse = (inverse + inverse.T) / 2
    return inverse if form == "exact" else -inverse


@formula
def eigenvalues(overlap: ArrayLike) -> FloatArray:
    """lambda_1, ..., lambda_K of E, the largest in absolute value first.

    >>> print(theory.eigenvalues(0.2 * (1 - np.eye(3))).round(3))
    [ 0.4 -0.2 -0.2]
    """
    spectrum = np.asarray(np.linalg.eigvalsh(square("overlap", overlap)), np.float64)
    return spectrum[np.argsort(-np.abs(spectrum), kind="stable")]


@formula
def diagonal_bound(overlap: ArrayLike, *, form: Form = "exact") -> float:
    """A lower bound of -E'_nn = sum_k lambda_k^2 u_nk^2/(1 + lambda_k): min |lambda_i|^2/(1 + |lambda_1|) (Eq. 93).

    Published: with 1 - |lambda_1| in the denominator, which is too large.  By how much: let m = min |lambda_i| and
    x = -E'_nn.  Since sum_k u_nk^2/(1 + lambda_k) = 1 - E'_nn, x >= m^2 (1 + x), so x >= m^2/(1 - m^2), and the printed
    bound is at most (1 - m^2)/(1 - |lambda_1|) times x.  With |lambda_1| < 1/K that is below 1/(1 - 1/K) <= 1.5 for
    K >= 3, and for K = 2, where m = |lambda_1| = o is the overlap, it is 1 + o: the supremum is 1.5, as o -> 1/2.

    >>> print(round(theory.diagonal_bound([[0.0, 0.1], [0.1, 0.0]]), 5))
    0.00909
    """
    spectrum = np.abs(eigenvalues(overlap))
    return float(spectrum[-1] ** 2 / (1 + spectrum[0] if form == "exact" else 1 - spectrum[0]))


@dataclass(frozen=True)
class OverlapBounds:
    """The quantities of Lemmas 13, 15 and 17 and their bounds; each `*_most` bounds the field before it."""

    largest_overlap: float  # max |E_ij|
    largest_overlap_most: float  # |lambda_1| (Lemma 13)
    largest_inverse: float  # max |lambda_i(E')|
    largest_inverse_most: float  # |lambda_1| / (1 - |lambda_1|) (Lemma 15)
    largest_difference: float  # max |E'_ij - E_ij|
    largest_difference_most: float  # lambda_1^2 / (1 - |lambda_1|) (Lemma 17)


@formula
def overlap_bounds(overlap: ArrayLike) -> OverlapBounds:
    """Lemmas 13, 15 and 17 for one E; the bounds are infinite for |lambda_1| >= 1, where the lemmas say nothing.

    >>> print(round(theory.overlap_bounds([[0.0, 0.1], [0.1, 0.0]]).largest_inverse_most, 4))
    0.1111
    """
    e = square("overlap", overlap)
    inverse = inverse_overlaps(e)
    top = float(np.abs(eigenvalues(e)[0]))
    series = 1 / (1 - top) if top < 1 else np.inf  # 1 + |lambda_1| + |lambda_1|^2 + ...
    return OverlapBounds(
        largest_overlap=float(np.abs(e).max()),
        largest_overlap_most=top,
        largest_inverse=float(np.abs(eigenvalues(inverse)[0])),
        largest_inverse_most=top * series,
        largest_difference=float(np.abs(inverse - e).max()),
        largest_difference_most=top**2 * series,
    )
