"""Common tokens that look distinct in a small data set (Section 9), by counting.

Each of N sequences belongs to class k with probability P(k) and then lacks token l with probability
q_kl = (1 - P(l|k))^(T-1).  So in all N sequences

    l occurs in no sequence of a class other than n   with probability   (P(n) + sum_{k != n} P(k) q_kl)^N,
    l occurs in no sequence at all                    with probability   (sum_k P(k) q_kl)^N,

and the difference is the probability that in the data class n has l and no other class does.  Weighted by P(l|n) and
summed over the tokens that more than one class really has, it is the share of class n's attention that, before any
training, seems to be on distinct tokens and is not.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from scansnap.base.checks import FloatArray, matrix, numbers
from scansnap.base.door import formula


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
    absent = (1 - p) ** (seq_len - 1)  # (K, L)
    nowhere = w @ absent  # (L,)
    nowhere_else = nowhere + w[:, None] * (1 - absent)  # (K, L): sequences of class n may have it
    return (p * (nowhere_else**num_sequences - nowhere**num_sequences)).sum(axis=1)
