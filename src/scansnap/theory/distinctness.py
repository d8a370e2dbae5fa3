"""How distinct a token is for a next token, by degrees: Theorem 2 where classes share every token.

G_DT(n) holds the tokens of class n alone.  If every token occurs with every next token it is empty, and the paper has
no winners to name.  Its dynamics have them still.  From Y = Z = 0 and while all predictions are 1/M, Lemma 1 moves the
logits of class n's query by eta_Z P(n) eta_Y t/M (see `early_logits`) times

    d_nl = f_nl (f_nl rho_n - h_nl),     h_n = sum_{n' != n} P(n') f_n',     rho_n = f_n . h_n.

Let delta be the share of token l's weight that is class n's: a posterior with the directions f as likelihoods,

    delta_nl = P(n) f_nl / sum_{n'} P(n') f_n'l,     so that     h_nl = P(n) f_nl (1 - delta_nl)/delta_nl.

Then every token moves as Eq. 98 has it for distinct ones, with a drive of its own that grows with delta alone:

    d_nl = f_nl^2 xi_nl,     xi_nl = rho_n - P(n) (1 - delta_nl)/delta_nl.

This is why `distinctness` is delta and no other measure of association:

- delta_nl = 1 exactly if l is in G_DT(n), and then xi_nl = rho_n is the paper's drive of the class (Theorem 2 a);
- within a class, a more distinct token gains more for its size f_nl^2, and it gains at all exactly if
  delta_nl > P(n)/(P(n) + rho_n): such tokens are *favored*;
- f_n . (f_n rho_n - h_n) = 0, so sum_l d_nl = 0: unless nothing moves, some tokens are favored and some are not.

Nothing moves at this order if no other class shares a token (rho_n = 0, and all tokens are distinct) or if all classes
are alike.  Where classes of several queries have the same next token, they push each other the other way: P(n') counts
(1 - M) P(n') in h_n, and in delta the weight of one next token is that of all its classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.theory.overlap import directions
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, numbers, sizes
from scansnap.validation.validate import formula

ROUNDING = 1e-9


@formula
def distinctness(probs: ArrayLike, *, weights: ArrayLike | None = None, next_token: Ids | None = None) -> FloatArray:
    """delta_nl (K x L) from P(l|n): 1 for tokens of one next token, 0 for tokens that the class does not have.

    `weights` are P(n), uniform if absent; without `next_token` every class has its own.

    >>> print(theory.distinctness([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    [[0.5 1.  0. ]
     [0.5 0.  1. ]]
    """
    f = directions(probs)
    weighted, same = _weights(weights, len(f)) * f, _same(next_token, len(f))
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
    return f * (f * (f * other).sum(axis=1, keepdims=True) - other) + 0.0  # no -0 for absent tokens


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
    return push @ (_weights(weights, len(f)) * f)


def _same(next_token: Ids | None, classes: int) -> FloatArray:
    """1 for pairs of classes with the same next token (K x K)."""
    ids = np.arange(classes) if next_token is None else np.asarray(next_token)
    return (ids[:, None] == ids).astype(np.float64)


def _weights(weights: ArrayLike | None, classes: int) -> FloatArray:
    """P(n) as a column."""
    return (np.full(classes, 1 / classes) if weights is None else numbers("weights", weights, above=0))[:, None]
