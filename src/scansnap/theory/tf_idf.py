"""TF-IDF weights of sequence classes: the reading of attention that the authors' slides suggest.

A class is a document: term frequency P(l|n), inverse document frequency ln(K/|Omega(l)|).  Scan and snap agree with it
in sign (tokens of all classes get nothing, tokens of one class get most) and depart from it in amount: attention
weights frequent tokens more than in proportion, and ever more so as training goes on (Theorem 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.checks import FloatArray, matrix


def tf_idf(probs: ArrayLike) -> FloatArray:
    """P(l|n) ln(K/|Omega(l)|), rows scaled to sum to one (rows of classes without a rarer token stay zero)."""
    p = matrix("probs", probs)
    documents = (p > 0).sum(axis=0)
    weight = p * np.log(len(p) / np.maximum(documents, 1))
    total = weight.sum(axis=1, keepdims=True)
    return np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
