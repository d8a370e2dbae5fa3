"""Common tokens that look distinct in a small data set (Section 9), by counting.

Each of N sequences belongs to class k with probability P(k) and then has token l with probability
p_kl = 1 - (1 - P(l|k))^(T-1).  So in all N sequences

    l occurs in no sequence of a class other than n   with probability   (1 - b)^N,      b = sum_{k != n} P(k) p_kl,
    l occurs in no sequence at all                    with probability   (1 - a - b)^N,  a = P(n) p_nl,

and the difference, (1 - b)^N (1 - (1 - a/(1 - b))^N), is the probability that in the data class n has l and no other
class does.  Weighted by P(l|n) and summed over the tokens that more than one class really has, it is the share of class
n's attention that, before any training, seems to be on distinct tokens and is not.  Probabilities of rare tokens are
all small differences from one, which exponentials and logarithms near one keep.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.validation.checks import FloatArray, matrix, numbers
from scansnap.validation.validate import formula


@formula
def spurious_share(probs: ArrayLike, *, weights: ArrayLike, seq_len: int, num_sequences: int) -> FloatArray:
    """The expected share of each class's tokens (K,) that are common but look distinct in a data set of N sequences.

    `probs` is P(l|n) (K x L), `weights` P(n); `seq_len` is T, so that a sequence has T - 1 contextual tokens.

    >>> print(theory.spurious_share(ss.syn_small().probs, weights=[0.5, 0.5], seq_len=8, num_sequences=16).round(3))
    [0.023 0.023]
    """
    p = matrix("probs", probs)
    w = numbers("weights", weights, above=0)
    common = (p > 0).sum(axis=0) > 1
    p = p[:, common]
    own = w[:, None] * _complement_of_power(p, seq_len - 1)  # (K, L): a
    others = own.sum(axis=0) - own  # b
    seen = _complement_of_power(np.minimum(own / (1 - others), 1.0), num_sequences)
    return (p * np.exp(num_sequences * np.log1p(-others)) * seen).sum(axis=1)


def _complement_of_power(x: FloatArray, power: int) -> FloatArray:
    """1 - (1 - x)^power, also for x = 1."""
    from scipy.special import xlog1py  # takes long to import

    return -np.expm1(xlog1py(power, -x))
