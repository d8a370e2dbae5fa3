"""Which tokens of P(l|n) are distinct, common or spurious, and how distinct each token is.

Degrees of distinctness: Theorem 2 where classes share every token
------------------------------------------------------------------
G_DT(n) holds the tokens of class n alone.  If every token occurs with every next token it is empty, and the paper has
no winners to name.  Its dynamics have them still.  From Y = Z = 0 and while all predictions are 1/M, Lemma 1 moves the
logits of class n's query by eta_Z P(n) eta_Y t/M (see `early_logits`) times

    d_nl = f_nl (f_nl o_n - h_nl),     h_n = sum_{n' != n} P(n') f_n',     o_n = f_n . h_n.

Let D be the share of token l's weight that is class n's: a posterior with the directions f as likelihoods,

    D_nl = P(n) f_nl / sum_{n'} P(n') f_n'l,     so that     h_nl = P(n) f_nl (1 - D_nl)/D_nl.

Then every token moves as Eq. 98 has it for distinct ones, with a drive of its own that grows with D alone:

    d_nl = f_nl^2 xi_nl,     xi_nl = o_n - P(n) (1 - D_nl)/D_nl.

This is why `distinctness` is D and no other measure of association:

- D_nl = 1 exactly if l is in G_DT(n), and then xi_nl = o_n is the paper's drive of the class (Theorem 2 a);
- within a class, a more distinct token gains more for its size f_nl^2, and it gains at all exactly if
  D_nl > P(n)/(P(n) + o_n): such tokens are *favored*;
- f_n . (f_n o_n - h_n) = 0, so sum_l d_nl = 0: unless nothing moves, some tokens are favored and some are not.

Nothing moves at this order if no other class shares a token (o_n = 0, and all tokens are distinct) or if all classes
are alike.  Where classes of several queries have the same next token, they push each other the other way: P(n') counts
(1 - M) P(n') in h_n, and in D the weight of one next token is that of all its classes.

Common tokens that look distinct in a small data set (Section 9)
----------------------------------------------------------------
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

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError
from scansnap.theory.overlap import class_weights, directions, logits_gradient
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers, sizes
from scansnap.validation.validate import formula


@formula
def token_kinds(probs: ArrayLike) -> NDArray[np.str_]:
    """For each token: distinct (in one class), common (in several) or absent (in none), from P(l|n).

    >>> print(theory.token_kinds([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    ['common' 'distinct' 'distinct']
    """
    count = (matrix("probs", probs) > 0).sum(axis=0)
    return np.select([count == 1, count > 1], ["distinct", "common"], "absent")


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


@formula
def tf_idf(probs: ArrayLike) -> FloatArray:
    """P(l|n) ln(K/|Omega(l)|), with rows scaled to sum to one (a class without a rarer token has a row of zeros).

    The authors' slides compare attention with it.  A class is a document, P(l|n) the term frequency.  Scan and snap
    agree with TF-IDF in sign (tokens of all classes get nothing, tokens of one class get most) but not in amount:
    attention weights frequent tokens more than in proportion, and increasingly so during training (Theorem 3).

    >>> print(theory.tf_idf([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    [[0. 1. 0.]
     [0. 0. 1.]]
    """
    p = matrix("probs", probs)
    documents = (p > 0).sum(axis=0)
    weight = p * np.log(len(p) / np.maximum(documents, 1))
    total = weight.sum(axis=1, keepdims=True)
    return np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)


ROUNDING = 1e-9


@formula
def distinctness(probs: ArrayLike, *, weights: ArrayLike | None = None, next_token: Ids | None = None) -> FloatArray:
    """D_nl (K x L) from P(l|n): 1 for tokens of one next token, 0 for tokens that the class does not have.

    `weights` are P(n), uniform if absent; without `next_token` every class has its own.

    >>> print(theory.distinctness([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    [[0.5 1.  0. ]
     [0.5 0.  1. ]]
    """
    f = directions(probs)
    weighted, same = class_weights(weights, len(f))[:, None] * f, _same(next_token, len(f))
    own, rest = same @ weighted, (1 - same) @ weighted  # rest is 0 for distinct tokens, without rounding
    return np.divide(own, own + rest, out=np.zeros_like(f), where=f > 0)


@formula
def early_drive(
    probs: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    next_token: Ids | None = None,
    vocab_size: int | None = None,
) -> FloatArray:
    """d_nl (K x L), whose sign says whether class n moves token l up or down at first; rows sum to zero.

    `vocab_size` is M, by default the number of columns; it matters only where classes have the same next token.

    >>> print(theory.early_drive([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    [[-0.125  0.125  0.   ]
     [-0.125  0.     0.125]]
    """
    f = directions(probs)
    other = _others(f, weights, next_token, vocab_size)
    return 0.0 - logits_gradient(f, other)  # no -0 for absent tokens


@formula
def favored(
    probs: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    next_token: Ids | None = None,
    vocab_size: int | None = None,
) -> NDArray[np.bool_]:
    """Whether each token is favored by each class (K x L): distinct to its next token, or moved up by it at first.

    A drive that is rounding of the two terms that it is the difference of counts as none.

    >>> print(theory.favored([[0.6, 0.4], [0.4, 0.6]]))
    [[ True False]
     [False  True]]
    """
    f = directions(probs)
    other = _others(f, weights, next_token, vocab_size)
    up = f * (f * other).sum(axis=1, keepdims=True)
    gains = up - other > ROUNDING * (np.abs(up) + np.abs(other))
    return (f > 0) & (gains | (distinctness(probs, weights=weights, next_token=next_token) == 1))


def _others(f: FloatArray, weights: ArrayLike | None, next_token: Ids | None, vocab_size: int | None) -> FloatArray:
    """h_n (K x L)."""
    count = f.shape[1] if vocab_size is None else int(sizes("vocab_size", vocab_size, least=1))
    push = 1.0 - count * _same(next_token, len(f))
    np.fill_diagonal(push, 0.0)  # f_n itself would be projected away, and leave rounding
    return push @ (class_weights(weights, len(f))[:, None] * f)


def _same(next_token: Ids | None, classes: int) -> FloatArray:
    """1 for pairs of classes with the same next token (K x K)."""
    ids = np.arange(classes) if next_token is None else np.asarray(next_token)
    return (ids[:, None] == ids).astype(np.float64)


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


@formula
def position_prior(part_probs: ArrayLike, *, sizes: ArrayLike, bias: ArrayLike) -> FloatArray:
    """The P(l|n) to which a fixed bias is equivalent, from P_g(l|n) with buckets on the last axis (Section 7).

    A bias b_g, added to the attention logits of all positions of bucket g, multiplies their weights by exp(b_g).  For
    T -> infinity the buckets hold sizes[g] P_g(l|n) of each token, so that attention is that of classes with

        P(l|n) = sum_g w_g P_g(l|n),      w_g in proportion to sizes[g] exp(b_g).

    Where P_g does not depend on g this is P(l|n) again, whatever the bias.

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
