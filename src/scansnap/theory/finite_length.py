"""What finite sequences do to attention: they add a drive, which the limit T -> infinity leaves out.

In a sequence of T - 1 tokens the counts fluctuate, and with them the direction f = f_n + u + ...: to first order

    u = (I - f_n f_n^T) diag(e^z) eps / |c~|,     Cov(eps) = (diag(p) - p p^T)/(T - 1),     c~_l = p_l e^(z_l).

Take a decoder that answers class n with g = gamma fbar, fbar = E[f] (its leading part).  Lemma 1 then moves z_l by the
mean of f_l (g_l - f_l f.g).  Since |f| = 1, f . fbar = 1 - |u|^2/2 - E|u|^2/2, and to first order in 1/T

    E[f_l (fbar_l - f_l f . fbar)] = f_nl^2 E|u|^2 - E[u_l^2].

A token gains if its share f_nl^2 of the direction exceeds its share of the direction's variance.  As u_l^2 goes like
p_l and f_nl^2 like p_l^2, frequent tokens gain and rare ones lose, common or not.  Under true SGD this competes with
the drive between classes, which starts at 1/M.  For equally likely classes a rare token loses f_nl^2/(T p) to the
fluctuations (`direction_variance`), a distinct one gains f_nl^2 sum_{n'} f_n . f_n'/M from the other classes, and a
common one loses of order f_nl^2/M to them (`early_logits`, second term).  So the limit T -> infinity describes the
start of training for a common token once T is well above M/p, but for a distinct one once T is well above
M/(p sum_{n'} f_n . f_n').  The first order needs T p well above one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.distinctness import early_drive
from scansnap.theory.overlap import directions
from scansnap.validation.argument_types import Ids, Length
from scansnap.validation.checks import FloatArray, matrix, numbers, sizes
from scansnap.validation.validate import formula


@formula
def direction_variance(probs: ArrayLike, logits: ArrayLike = 0.0, *, seq_len: int) -> FloatArray:
    """E[u_l^2] (K x L), to first order in 1/T, for tokens drawn independently from `probs`.

    With M = (I - f f^T) diag(f/p) the covariance is M (diag(p) - p p^T) M^T/(T-1), and M p = 0, so that
    E[u_l^2] = sum_k M_lk^2 p_k/(T-1); writing v_k = f_k^2/p_k it is (v_l - 2 f_l^2 v_l + f_l^2 sum_k f_k^2 v_k)/(T-1).

    >>> print(theory.direction_variance([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], seq_len=128).round(4))
    [[0.0039 0.0039 0.    ]
     [0.0039 0.     0.0039]]
    """
    p = matrix("probs", probs)
    f = directions(p, logits)
    v = np.divide(f**2, p, out=np.zeros_like(f), where=p > 0)
    length = sizes("seq_len", seq_len, least=2) - 1
    return (v - 2 * f**2 * v + f**2 * (f**2 * v).sum(axis=1, keepdims=True)) / length


@formula
def finite_length_drive(probs: ArrayLike, logits: ArrayLike = 0.0, *, seq_len: int) -> FloatArray:
    """f_nl^2 E|u|^2 - E[u_l^2] (K x L): times eta_Z P(n) gamma it is what finite T adds to dz_l/dt.

    >>> print(theory.finite_length_drive([[0.6, 0.4]], seq_len=128).round(5))
    [[ 0.00269 -0.00269]]
    """
    spread = direction_variance(probs, logits, seq_len=seq_len)
    return directions(probs, logits) ** 2 * spread.sum(axis=1, keepdims=True) - spread


@formula
def early_logits(
    steps: ArrayLike,
    probs: ArrayLike,
    *,
    query: Ids,
    weights: ArrayLike,
    vocab_size: int,
    lr_y: float,
    lr_z: float,
    seq_len: Length = np.inf,
) -> FloatArray:
    """z (..., Q, L) of true SGD while all predictions are still 1/M, from Y = Z = 0.

    Then Y(t) = eta_Y t sum_n P(n) f_n (e_n - 1/M)^T and g_n = eta_Y t (P(n) f_n - sum_k P(k) f_k/M), so that

        z(t) = eta_Y eta_Z t^2/2 sum_n P(n) [P(n) (1 - 1/M) drive_n(T) + d_n/M]

    with the drive d_n of `early_drive`, up to the finite-T corrections of the second term, which are smaller by 1/M.
    Discrete steps replace t^2 by t (t - 1).

    >>> probs = [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
    >>> setting = dict(query=[5, 5], weights=[0.5, 0.5], vocab_size=1000, lr_y=0.5, lr_z=0.5)
    >>> print(theory.early_logits([10], probs, **setting).round(6))
    [[[-0.001406  0.000703  0.000703]]]
    """
    t = sizes("steps", steps, least=0)
    p, share = matrix("probs", probs), numbers("weights", weights, above=0)[:, None]
    cross = early_drive(p, weights=weights) / vocab_size
    own = 0.0 if np.isinf(seq_len) else (1 - 1 / vocab_size) * share * finite_length_drive(p, seq_len=int(seq_len))
    each = share * (own + cross)
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    by_query = np.zeros((len(ids), p.shape[1]))
    np.add.at(by_query, row, each)
    return lr_y * lr_z * (t * (t - 1) / 2)[..., None, None] * by_query
