"""A bias by relative position as a prior on contextual tokens (Section 7).

A bias b_g, added to the attention logits of all positions of bucket g, multiplies their weights by exp(b_g).  For T ->
infinity the buckets hold sizes[g] P_g(l|n) of each token, so that attention is that of classes with

    P(l|n) = sum_g w_g P_g(l|n),      w_g in proportion to sizes[g] exp(b_g).

Where P_g does not depend on g this is P(l|n) again, whatever the bias.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.validation.checks import FloatArray, numbers
from scansnap.validation.validate import formula


@formula
def position_prior(part_probs: ArrayLike, *, sizes: ArrayLike, bias: ArrayLike) -> FloatArray:
    """The P(l|n) to which a fixed bias is equivalent, from P_g(l|n) with buckets on the last axis.

    >>> print(theory.position_prior([[[0.8, 0.2], [0.2, 0.8]]], sizes=[1, 1], bias=[1.0, 0.0]).round(3))
    [[0.639 0.361]]
    """
    p, s, b = np.asarray(part_probs, np.float64), numbers("sizes", sizes, above=0), numbers("bias", bias)
    if p.shape[-1:] != s.shape or s.shape != b.shape:
        raise InputError(
            f"part_probs ends in {p.shape[-1:]}, sizes has {s.shape} and bias {b.shape}: give one per bucket."
        )
    weights = s * np.exp(b - b.max())
    return p @ (weights / weights.sum())
