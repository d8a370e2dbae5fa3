"""TF-IDF weights of sequence classes, which the authors' slides compare attention with.

A class is a document, with term frequency P(l|n) and inverse document frequency ln(K/|Omega(l)|).  Scan and snap agree
with TF-IDF in sign (tokens of all classes get nothing, tokens of one class get most) but not in amount: attention
weights frequent tokens more than in proportion, and increasingly so during training (Theorem 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.validation.checks import FloatArray, matrix
from scansnap.validation.validate import formula


@formula
def tf_idf(probs: ArrayLike) -> FloatArray:
    """P(l|n) ln(K/|Omega(l)|), with rows scaled to sum to one (a class without a rarer token has a row of zeros).

    >>> print(theory.tf_idf([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    [[0. 1. 0.]
     [0. 0. 1.]]
    """
    p = matrix("probs", probs)
    documents = (p > 0).sum(axis=0)
    weight = p * np.log(len(p) / np.maximum(documents, 1))
    total = weight.sum(axis=1, keepdims=True)
    return np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
