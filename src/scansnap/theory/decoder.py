"""The decoder in closed form, the gradient it sends back (Appendix D.4, D.5), and both measured at any state.

    zeta_n = M/(M-1) (e_n - 1/M),     q_1 = zeta_n . zeta_n = M/(M-1),     q_0 = zeta_n . zeta_n' = -M/(M-1)^2
    W = F^T Y = (I + Theta) Wbar,     wbar_n = (M - 1) h(N/K) zeta_n                              (Lemmas 5, 12)
    Y = F (I - E')(I + Theta) Wbar                                                             (Theorem 5, Eq. 70)
    e_n - alpha_n = (M - 1)/(M - 1 + exp(M h)) (1 + sigma) zeta_n                            (Corollary 1, Eq. 71)

theta_n and sigma_n are the effects of sampling: with class n drawn N_n times instead of N/K, 1 + theta_n =
h(N_n)/h(N/K), and 1 + sigma_n is the same ratio for the residual.

The gradient sent back
----------------------
g_n = Y (e_n - alpha_n) = (1 + sigma_n) gamma F (I - E')(I + Theta) [q_0, ..., q_1 at n, ..., q_0]^T.  The coefficient
of f_n' in it, n' != n, is gamma (1 + sigma_n) times

    (1 - E'_{n'n'}) (1 + theta_n') q_0 - E'_{n'n} (1 + theta_n) q_1 - sum_{k != n, n'} E'_{n'k} (1 + theta_k) q_0

and beta_{nn'} is minus that, (1 + sigma_n) times

    q_1 (1 + theta_n) E'_{nn'} - q_0 [(1 + theta_n') - sum_{k != n} (1 + theta_k) E'_{kn'}].

The published Eq. 88 has + q_0 (1 + theta_n') instead, with a wrong sign; the sum over k is as printed.  Since q_0 < 0
the exact form is the larger one: beta_{nn'} -> 1/M and not -1/M as the overlaps vanish.

Then xi_n = gamma (-q_1 E'_nn - q_0 sum_{k != n} E'_nk) > 0 (Theorem 1 a) for every class that overlaps another, if
|lambda_1| < 1/K; no lower bound on |lambda_i| is needed.  Proof: no entry of E exceeds |lambda_1| < 1/K (Lemma 13), so
the row sums r = E 1 are below one, and (E r)_n = sum_k E_nk r_k <= r_n max r < r_n where r_n > 0: (E - E^2) 1 >= 0.
Hence E' 1 = (E - E^2) 1 + E^2 (E - E^2) 1 + ... >= 0, strictly where r_n > 0, and with E'_nn <= 0 (Lemma 16) both
terms of xi_n are positive.  Without |lambda_1| < 1/K the sign can be lost: if one class overlaps four others by 0.4
(|lambda_1| = 0.8) and a sixth overlaps the first by 1e-4, then xi < 0 for the sixth at M = 1600.

The same quantities at any state of training
--------------------------------------------
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
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scansnap.theory.growth import decoder_growth, growth_time, residual_size
from scansnap.theory.overlap import Form, inverse_overlaps, overlaps, sum_by_query
from scansnap.validation.argument_types import Ids
from scansnap.validation.checks import FloatArray, matrix, numbers, sizes, square
from scansnap.validation.validate import formula


@formula
def centered_one_hot(token: Ids, *, vocab_size: int) -> FloatArray:
    """zeta_n = M/(M-1) (e_n - 1/M) for each of the tokens, along the last axis.

    >>> print(theory.centered_one_hot([0], vocab_size=4).round(3))
    [[ 1.    -0.333 -0.333 -0.333]]
    """
    ids = np.asarray(token)
    zeta = np.full((*ids.shape, vocab_size), -1 / (vocab_size - 1))
    np.put_along_axis(zeta, ids[..., None], 1.0, axis=-1)
    return zeta


class CenteredProducts(NamedTuple):
    """Inner products of the zeta_n."""

    same: FloatArray  # q_1
    other: FloatArray  # q_0


@formula
def centered_products(*, vocab_size: ArrayLike) -> CenteredProducts:
    """q_1 = 1 + 1/(M-1) and q_0 = -M/(M-1)^2.

    >>> print(*(float(q) for q in theory.centered_products(vocab_size=5)))
    1.25 -0.3125
    """
    size = sizes("vocab_size", vocab_size, least=2)
    return CenteredProducts((size / (size - 1))[()], (-size / (size - 1) ** 2)[()])


@formula
def decoder_logits(counts: ArrayLike, *, next_token: Ids, vocab_size: int, lr_y: float) -> FloatArray:
    """W (K x M): the logits w_n = (M - 1) h(N_n) zeta_n of each class after it was drawn `counts` = N_n times.

    Equal counts N/K give Wbar (Lemma 12); rounding N/K up, as the text does, is left to the caller.

    >>> print(theory.decoder_logits([10, 10], next_token=[0, 1], vocab_size=4, lr_y=0.5).round(2))
    [[ 1.94 -0.65 -0.65 -0.65]
     [-0.65  1.94 -0.65 -0.65]]
    """
    zeta = centered_one_hot(np.asarray(next_token), vocab_size=vocab_size)
    h = decoder_growth(counts, vocab_size=vocab_size, lr_y=lr_y)
    return (vocab_size - 1) * np.broadcast_to(h, len(zeta))[:, None] * zeta


@formula
def decoder(direction: ArrayLike, logits: ArrayLike) -> FloatArray:
    """Y (L x M) = F (I - E') W, the solution of the modified dynamics for fixed attention (Theorem 5, Eq. 70).

    >>> f = theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    >>> w = theory.decoder_logits([10, 10], next_token=[0, 1], vocab_size=4, lr_y=0.5)
    >>> print(theory.decoder(f, w).shape)
    (3, 4)
    """
    f = matrix("direction", direction)
    w = matrix("logits", logits)
    return f.T @ (w - inverse_overlaps(overlaps(f)) @ w)


class SamplingFactors(NamedTuple):
    """theta_n and sigma_n: relative deviations caused by how often each class was drawn."""

    theta: FloatArray
    sigma: FloatArray


@formula
def sampling_factors(counts: ArrayLike, *, vocab_size: int, lr_y: float) -> SamplingFactors:
    """theta_n of Theorem 5 and sigma_n of Corollary 1 for classes drawn `counts` times, relative to the mean count.

    >>> theta, sigma = theory.sampling_factors([90, 110], vocab_size=1000, lr_y=0.5)
    >>> print(theta.round(3), sigma.round(3))
    [-0.012  0.011] [ 0.137 -0.108]
    """
    count, rate = numbers("counts", counts, least=0), numbers("lr_y", lr_y, above=0)
    h = decoder_growth(count, vocab_size=vocab_size, lr_y=rate)
    mean = decoder_growth(count.mean(), vocab_size=vocab_size, lr_y=rate)
    residuals = residual_size(h, vocab_size=vocab_size) / residual_size(mean, vocab_size=vocab_size)
    return SamplingFactors(h / mean - 1, residuals - 1)


class BackpropagatedGradient(NamedTuple):
    """g_n = gamma (iota_n f_n - sum_{n'} beta_{nn'} f_n') (Theorem 1); beta has a zero diagonal."""

    iota: FloatArray  # (K,)
    beta: FloatArray  # (K, K)


@formula
def backpropagated_gradient(
    overlap: ArrayLike,
    *,
    vocab_size: int,
    theta: ArrayLike = 0.0,
    sigma: ArrayLike = 0.0,
    form: Form = "exact",
) -> BackpropagatedGradient:
    """iota_n and beta_{nn'} (Eqs. 86, 88); the published form has q_0 (1 + theta_n') in beta with the printed sign.

    >>> e = theory.overlaps(theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    >>> print(theory.backpropagated_gradient(e, vocab_size=1000)[1].round(3))
    [[0.    0.669]
     [0.669 0.   ]]
    """
    e = square("overlap", overlap)
    inverse = inverse_overlaps(e)
    count = len(e)
    q_1, q_0 = centered_products(vocab_size=vocab_size)
    drawn = 1 + np.broadcast_to(np.asarray(theta, np.float64), count)
    scale = 1 + np.broadcast_to(np.asarray(sigma, np.float64), count)
    # coefficient[k, n] of f_k in g_n: (I - E') (I + Theta) (q_0 everywhere, q_1 at n).
    factors = np.full((count, count), q_0) + (q_1 - q_0) * np.eye(count)
    mixing = (np.eye(count) - inverse) * drawn
    coefficient = (mixing @ factors) * scale
    iota = np.diag(coefficient).copy()
    beta = -coefficient.T
    if form == "published":
        beta = beta + 2 * q_0 * scale[:, None] * drawn
    np.fill_diagonal(beta, 0.0)
    return BackpropagatedGradient(iota, beta)


@formula
def drive(overlap: ArrayLike, beta: ArrayLike, *, speed: ArrayLike) -> FloatArray:
    """xi_n = gamma sum_{n' != n} beta_{nn'} f_n . f_n' (Theorem 1), along the last axis; `speed` is gamma.

    >>> e = theory.overlaps(theory.directions([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    >>> print(theory.drive(e, theory.backpropagated_gradient(e, vocab_size=1000)[1], speed=0.1).round(4))
    [0.0334 0.0334]
    """
    e, b = square("overlap", overlap), square("beta", beta)
    return np.asarray(speed, np.float64)[..., None] * (b * e).sum(axis=1)


@formula
def shared_overlap_logits(
    t: ArrayLike, overlap: float, *, next_token: Ids, vocab_size: int, num_classes: int, lr_y: float
) -> FloatArray:
    """W (..., K x M) of true SGD with all overlaps equal, by Remark 1 (Eq. 43): (1 - rho)(M-1) h(t/K) zeta_n.

    There is only the published form, which has two errors.  Eq. 43 needs sum_n zeta_n = 0, which is so for K = M alone;
    for K < M the own logit follows plain h(t/K), and `symmetric_flow` with lr_z = 0 is exact.  For K = M,
    dw_n/dt = (1 - rho) (eta_Y/K) (e_n - alpha_n): h at the rate (1 - rho) eta_Y, as the remark concludes, but that is
    not (1 - rho) h, as Eq. 43 has it.

    >>> print(theory.shared_overlap_logits(50, 0.2, next_token=[0, 1], vocab_size=4, num_classes=2, lr_y=0.5).round(2))
    [[ 2.21 -0.74 -0.74 -0.74]
     [-0.74  2.21 -0.74 -0.74]]
    """
    time = numbers("t", t, least=0) / sizes("num_classes", num_classes, least=1)
    h = decoder_growth(time, vocab_size=vocab_size, lr_y=lr_y)
    zeta = centered_one_hot(np.asarray(next_token), vocab_size=vocab_size)
    return (1 - overlap) * (vocab_size - 1) * np.asarray(h)[..., None, None] * zeta


@formula
def shared_overlap_rate(overlap: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike) -> FloatArray:
    """The rate of the own logit at the start of true SGD with equal overlaps, over that without any (Remark 1).

    By Eqs. 41 and 42 dw_n/dt = (eta_Y/K) [(e_n - alpha_n) + rho sum_{k != n} (e_k - alpha_k)].  With all alpha = 1/M
    its entry n is (eta_Y/K) [1 - 1/M - rho (K - 1)/M], that is (eta_Y/K) (1 - 1/M) times

        1 - rho (K - 1)/(M - 1),

    which is the remark's 1 - rho for K = M, and one up to rho K/M for few classes in a large vocabulary.

    >>> print(theory.shared_overlap_rate(0.2, vocab_size=1000, num_classes=10).round(3))
    0.998
    """
    size, classes = sizes("vocab_size", vocab_size, least=2), sizes("num_classes", num_classes, least=1)
    return (1 - numbers("overlap", overlap, least=0) * (classes - 1) / (size - 1))[()]


@formula
def residual_norm(t: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike) -> FloatArray:
    """|e_n - alpha_n|_2 after t steps of batch 1 (Corollary 1 without its sampling factor).

    >>> print(theory.residual_norm([0, 1e2, 1e4], vocab_size=1000, num_classes=10, lr_y=0.5).round(4))
    [0.9995 0.8845 0.002 ]
    """
    size = sizes("vocab_size", vocab_size, least=2)
    time = numbers("t", t, least=0) / sizes("num_classes", num_classes, least=1)
    h = decoder_growth(time, vocab_size=size, lr_y=lr_y)
    return (residual_size(h, vocab_size=size) * np.sqrt(size / (size - 1)))[()]


@formula
def steps_to_reach(
    residual: ArrayLike, *, vocab_size: ArrayLike, num_classes: ArrayLike, lr_y: ArrayLike, form: Form = "exact"
) -> FloatArray:
    """Steps of batch 1 until |e_n - alpha_n|_2 falls to `residual` (Corollary 1).

    Exact: exp(M h) = (M - 1)(sqrt(q_1)/eps - 1) put into Eq. 45, which is K/eta_Y (1/eps + ln(M/eps)) to leading order.
    Published: the bound K/(eps eta_Y) ln(M/eps), a product in place of that sum.

    >>> print(theory.steps_to_reach(0.1, vocab_size=1000, num_classes=10, lr_y=0.5).round(1))
    361.8
    """
    eps = numbers("residual", residual, above=0)
    size = sizes("vocab_size", vocab_size, least=2)
    classes = sizes("num_classes", num_classes, least=1)
    rate = numbers("lr_y", lr_y, above=0)
    if form == "published":
        return (classes / (eps * rate) * np.log(size / eps))[()]
    boost = (size - 1) * (np.sqrt(size / (size - 1)) / eps - 1)  # exp(M h); below one the start is close enough
    h = np.log(np.maximum(boost, 1.0)) / size
    return (classes * growth_time(h, vocab_size=size, lr_y=rate))[()]


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
    residual: FloatArray  # (K, M) r_n = e_n - alpha_n


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
    return MeasuredGradient(speed, iota, beta, np.diag(coefficient) - along, token_drive, misfit, g, gain, r)


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
    p = numbers("weights", weights, above=0)[:, None]
    gained = sum_by_query(query, lr_z * p * f * measured.gradient)
    return gained, sum_by_query(query, lr_z * p * f**2 * measured.logit_gain[:, None])
