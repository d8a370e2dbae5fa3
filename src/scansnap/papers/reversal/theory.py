"""The reversal curse in formulas (`system.py` has the models).

Residual connection, (Y, Z), zero start
---------------------------------------
Let a relation m have n trained sentences, with different given tokens and answers, drawn with probability 1/K each;
M tokens in all.  Every gradient adds the same vector to the rows of its given token and of its relation, so
Y_m = sum of Y_given over the sentences of m at every step.  By symmetry a sentence has three kinds of logit: of its own
answer, of the n - 1 other answers (lower by D_1) and of the M - n other tokens (lower by D_2), with probabilities
p, q, r.  With rates in units of eta_Y / K, rows move by residuals over sqrt(2), and logits are rows over sqrt(2):

    dD_1 = (1 - p + q) / 2,      dD_2 = ((M + 1) r + 1 - p) / 2,      1 - p = (n - 1) q + (M - n) r,

and Y_m lifts answers over other tokens by d delta = M r / 2 in logits.  A given token that no sentence trains has the
row zero.  Asked with relation m for a token that is no answer of m, its probability is

    p_asked = 1 / (n exp(delta) + M - n):  below 1/M as soon as delta > 0.

Late, q = p exp(-D_1), r = p exp(-D_2) with p = 1, and ln(r/q) moves by (q - (M + 1) r) / 2: r/q goes to 1/(M + 1).
Then dD_1 = q M (n + 1) / (2 (M + 1)), so q = 2 (M + 1) / (M (n + 1) t), and d delta = M r / 2 = 1 / ((n + 1) t):
p_asked falls like t^(-1/(n+1)), forever.

Bilinear model
--------------
For wide embeddings G = E E' is the identity plus N(0, 1/d), and C is that of d -> infinity: C_xy = D (1[y = answer(x)]
- 1/V) for each of n given tokens x, with D the gap between the answer's weight and the others.  The weight of an asked
pair (b, a), where b is never given and a is never an answer, is D sum_x G_bx (G_{answer(x) a} - mean_y G_ya).  G_ya
has mean 1/V over y from G_aa = 1, and fluctuates by 1/sqrt(d).  The sentence a -> b is among those trained and gives
D G_ab^2.  So the mean is D/d, and

    variance = D^2 [ (n (1 - 1/V) + 1) / d^2 + n / (V^2 d) ]:

the standard deviation goes like 1/d while d < V^2, and like 1/sqrt(d) beyond.  The loss of what is asked rises by half
the variance of the weights of b over tokens, less the mean weight D/d of the answer.  The n answers among V tokens have
the weight D G_bx, and sum_x G_bx G_{answer(x) y} adds a variance of D^2 n / d^2 for every y.  So the loss rises by

    n D^2 (1/V + 1/d) / (2 d) - D/d

on average over draws: it first falls, until D is about 2 V/n, and then rises.  D grows like ln t, so at fixed d the
loss over its start does not stay near 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.validation.checks import FloatArray, numbers, sizes
from scansnap.validation.validate import formula


@formula
def asked_probability(
    t: ArrayLike, *, trained: int, vocab_size: int, num_classes: int, lr_y: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """1 - p of trained sentences and p of asked ones along the flow with a residual connection, at increasing times.

    `trained` is the number of trained sentences with the relation that is asked about.

    >>> from scansnap.papers.reversal.theory import asked_probability
    >>> print(*(f"{p:.4g}" for p in asked_probability([1e30, 1e40], trained=4, vocab_size=18, num_classes=12)[1]))
    3.28e-08 3.28e-10
    """
    from scipy.integrate import solve_ivp

    n, M = int(sizes("trained", trained, least=1)), int(sizes("vocab_size", vocab_size, least=2))
    times = np.atleast_1d(numbers("t", t, above=0)) * lr_y / num_classes

    def slope(log_time: float, state: FloatArray) -> FloatArray:
        q, r = _others(state, n, M)
        wrong = (n - 1) * q + (M - n) * r
        return np.exp(log_time) * np.array([wrong + q, (M + 1) * r + wrong, M * r]) / 2

    begin = min(np.log(times[0]), 0.0) - 25  # before it, everything moves linearly in time
    solution = solve_ivp(slope, (begin, np.log(times[-1])), np.zeros(3), "LSODA", np.log(times), rtol=1e-10, atol=1e-13)
    q, r = _others(solution.y, n, M)
    return (n - 1) * q + (M - n) * r, 1 / (n * np.exp(solution.y[2]) + M - n)


def _others(state: FloatArray, n: int, M: int) -> tuple[FloatArray, FloatArray]:
    """The probabilities of another answer and of another token."""
    q, r = np.exp(-state[0]), np.exp(-state[1])
    total = 1 + (n - 1) * q + (M - n) * r
    return q / total, r / total


@formula
def asked_weight_variance(gap: ArrayLike, *, width: ArrayLike, tokens: int, trained: int) -> FloatArray:
    """The variance of the weights of asked pairs in the bilinear model, for wide embeddings.

    `gap` is D, by how much an answer's weight exceeds the others; `trained` is n.

    >>> from scansnap.papers.reversal.theory import asked_weight_variance
    >>> print(asked_weight_variance(10.0, width=[100, 1000], tokens=40, trained=30).round(4))
    [0.3213 0.0049]
    """
    D, d = numbers("gap", gap), numbers("width", width, above=0)
    return (D**2 * ((trained * (1 - 1 / tokens) + 1) / d**2 + trained / (tokens**2 * d)))[()]


@formula
def asked_loss_rise(gap: ArrayLike, *, width: ArrayLike, tokens: int, trained: int) -> FloatArray:
    """The mean rise of the asked loss in the bilinear model, for wide embeddings: n D^2 (1/V + 1/d) / (2 d) - D/d.

    >>> from scansnap.papers.reversal.theory import asked_loss_rise
    >>> print(asked_loss_rise([1.0, 12.0], width=1000, tokens=40, trained=30).round(4))
    [-0.0006  0.0442]
    """
    D, d = numbers("gap", gap), numbers("width", width, above=0)
    return (trained * D**2 * (1 / tokens + 1 / d) / (2 * d) - D / d)[()]


def early_exponent(embedding: FloatArray, trained: NDArray[np.int64], asked: NDArray[np.int64]) -> FloatArray:
    """The exponent with which the asked loss follows the trained loss at first: (d ln L_asked) / (d ln L) at time 0.

    Both losses start at ln V.  L moves by -|dL/dTheta|^2 and the asked loss by -<dL_asked/dTheta, dL/dTheta>.
    `embedding` is (R, V, D); `trained` and `asked` list sentences (given, relation, answer).
    """
    own, other = (_gradient(embedding, facts) for facts in (trained, asked))
    return np.asarray((own * other).sum((1, 2)) / (own**2).sum((1, 2)), np.float64)


def _gradient(embedding: FloatArray, facts: NDArray[np.int64]) -> FloatArray:
    """-dL/dTheta (R, D, D) at Theta = 0, where every probability is 1/V."""
    toward = embedding[:, facts[:, 2]] - embedding.mean(1, keepdims=True)
    return np.asarray(embedding[:, facts[:, 0]].swapaxes(1, 2) @ toward / len(facts), np.float64)
