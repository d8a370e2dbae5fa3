"""The values of gamma, iota, beta and xi in training itself, for any state (Y, Z) and either decoder gradient.

Theorem 1 derives g_n = gamma (iota_n f_n - sum beta_{nn'} f_n') for a decoder trained by the modified gradient with
attention held fixed.  The same quantities can be computed for any Y:

    w_n = Y^T f_n,   r_n = e_n - softmax(w_n),   g_n = Y r_n
    gamma_n    = w_n . r_n / q_1                     (Theorem 1: wbar_n . r_n = q_1 gamma)
    coefficients of g_n in the f_k by least squares:  gamma iota_n at n, -gamma beta_{nn'} at n'
    xi_n       = gamma iota_n - f_n . g_n            (= gamma sum beta_{nn'} f_n . f_n' if g_n lies in their span)
    xi_nl      = g_nl / f_nl - f_n . g_n             token by token

The last needs no theorem: Lemma 1 says that class n moves z_l by eta_Z P(n) f_nl^2 xi_nl, whatever Y is.  Eq. 98, and
with it Theorem 3, holds as far as xi_nl is the same for all distinct tokens l of n.

An exact law of true SGD
------------------------
dY_l/dt = eta_Y sum_n P(n) f_nl r_n, so with the energy E_l = |Y_l|^2 / 2 of row l of Y,

    dE_l/dt = eta_Y sum_n P(n) f_nl g_nl,        and Lemma 1 is
    dz_l/dt = (eta_Z/eta_Y) dE_l/dt - eta_Z sum_n P(n) f_nl^2 (w_n . r_n).

With one query, a token gains attention exactly while its decoder row gains energy faster than in proportion to its
share f_nl^2 of what class n's logits gain.  The law holds for all classes, all rates and all times, but not for the
modified gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.decoder import centered_products
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers
from scansnap.validation.validate import formula


@dataclass(frozen=True)
class MeasuredGradient:
    """The quantities of Theorem 1 at a state of training.

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> print(theory.measured_gradient(f, np.zeros((3, 8)), next_token=[6, 7]).speed)
    [0. 0.]
    """

    speed: FloatArray  # (K,) gamma_n
    iota: FloatArray  # (K,)
    beta: FloatArray  # (K, K), zero diagonal
    drive: FloatArray  # (K,) xi_n
    token_drive: FloatArray  # (K, L) xi_nl, NaN where class n has no token l
    misfit: FloatArray  # (K,) |g_n - its fit by the f_k| / |g_n|
    gradient: FloatArray  # (K, L) g_n
    logit_gain: FloatArray  # (K,) w_n . r_n


@formula
def measured_gradient(direction: ArrayLike, decoder: ArrayLike, *, next_token: Ids) -> MeasuredGradient:
    """gamma, iota, beta and xi for directions f_n (K x L) and decoder rows Y (L x M) of the same L tokens.

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> decoder = theory.decoder(f, theory.decoder_logits([10, 10], next_token=[6, 7], vocab_size=8, lr_y=0.5))
    >>> state = theory.measured_gradient(f, decoder, next_token=[6, 7])
    >>> print(state.speed.round(3), state.drive.round(3))
    [0.679 0.679] [0.333 0.333]
    """
    from scipy.special import softmax  # takes long to import

    f, y = matrix("direction", direction), matrix("decoder", decoder)
    columns = np.asarray(next_token)
    q_1, _ = centered_products(vocab_size=y.shape[1])
    w = f @ y  # (K, M)
    r = -softmax(w, axis=1)
    own = np.arange(len(f)), columns
    r[own] = 0.0
    r[own] = -r.sum(axis=1)  # 1 - alpha_n as the sum of the others, which is precise late in training
    g = r @ y.T  # (K, L)
    gain = (w * r).sum(axis=1)
    coefficient = np.linalg.lstsq(f.T, g.T, rcond=None)[0].T  # (K, K), row n: g_n in the f_k
    misfit = np.linalg.norm(g - coefficient @ f, axis=1) / np.maximum(np.linalg.norm(g, axis=1), 1e-300)
    speed = gain / q_1
    scale = np.where(speed == 0, np.nan, speed)
    beta = -coefficient / scale[:, None]
    iota = np.diag(coefficient) / scale
    np.fill_diagonal(beta, 0.0)
    along = (f * g).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        token_drive = np.where(f > 0, g / f - along[:, None], np.nan)
    return MeasuredGradient(speed, iota, beta, np.diag(coefficient) - along, token_drive, misfit, g, gain)


@formula
def energy_velocity(
    direction: ArrayLike,
    measured: MeasuredGradient,
    *,
    query: Ids,
    weights: ArrayLike,
    lr_z: float,
) -> tuple[FloatArray, FloatArray]:
    """The two parts of dz/dt in the energy law, each Q x L: the gain from row energies, and the loss to shares.

    Their difference is dz/dt, for any decoder; under true SGD the first is (eta_Z/eta_Y) dE_l/dt summed over queries.

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> decoder = theory.decoder(f, theory.decoder_logits([10, 10], next_token=[6, 7], vocab_size=8, lr_y=0.5))
    >>> state = theory.measured_gradient(f, decoder, next_token=[6, 7])
    >>> gain, loss = theory.energy_velocity(f, state, query=[5, 5], weights=[0.5, 0.5], lr_z=0.5)
    >>> print((gain - loss).round(3))
    [[-0.083  0.042  0.042]]
    """
    f = matrix("direction", direction)
    ids, row = np.unique(np.asarray(query), return_inverse=True)
    p = numbers("weights", weights, above=0)[:, None]
    gained, shared = np.zeros((len(ids), f.shape[1])), np.zeros((len(ids), f.shape[1]))
    np.add.at(gained, row, lr_z * p * f * measured.gradient)
    np.add.at(shared, row, lr_z * p * f**2 * measured.logit_gain[:, None])
    return gained, shared
