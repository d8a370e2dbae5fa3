"""Metrics of attention.

Pure functions of arrays whose last axis is the token; the labeled versions are in `results/measure.py`.
Attention is c_n (Eq. 5): non-negative, summing to one over the tokens of a class.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import Values
from scansnap.validation.validate import formula


@formula
def entropy(weights: Values) -> NDArray[np.float64]:
    """Entropy in nats of weights renormalized to sum to one; NaN where they sum to zero."""
    w = np.ascontiguousarray(weights, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # 0/0
        p = w / w.sum(-1, keepdims=True)
    return -(p * np.log(p, out=np.zeros_like(p), where=p > 0)).sum(-1)


@formula
def top_k_mass(attention: Values, k: int) -> NDArray[np.float64]:
    """The share of attention on the k most attended tokens."""
    a = np.asarray(attention, dtype=np.float64)
    if not 1 <= k <= a.shape[-1]:
        raise InputError(f"k is {k}: give a number of tokens from 1 to {a.shape[-1]}.")
    return np.partition(a, -k, axis=-1)[..., -k:].sum(-1)


@formula
def sparsity(attention: Values) -> NDArray[np.float64]:
    """1 - 1/(N sum_l c_l^2) over N tokens: 0 for uniform attention, 1 - 1/N for a single token.

    1 / sum_l c_l^2 is the participation ratio, the number of tokens that attention is effectively spread over.
    """
    a = np.asarray(attention, dtype=np.float64)
    total = a.sum(-1)
    square = (a**2).sum(-1)
    effective = np.divide(total**2, square, out=np.full_like(square, np.nan), where=square > 0)
    return 1.0 - effective / a.shape[-1]


@formula
def rate_of_change(attention: Values, times: ArrayLike) -> NDArray[np.float64]:
    """Half the l1 distance between successive records per unit of time; records on the second-last axis.

    The first record has nothing before it and gets NaN.  Half the l1 distance is the attention that moved.
    """
    a = np.asarray(attention, dtype=np.float64)
    t = np.asarray(times, dtype=np.float64)
    if t.shape != a.shape[-2:-1] or (np.diff(t) <= 0).any():
        raise InputError(f"times has shape {t.shape}: give one increasing time for each of {a.shape[-2]} records.")
    moved = 0.5 * np.abs(np.diff(a, axis=-2)).sum(-1) / np.diff(t)
    return np.concatenate([np.full((*moved.shape[:-1], 1), np.nan), moved], axis=-1)
