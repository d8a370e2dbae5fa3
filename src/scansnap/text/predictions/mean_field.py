"""Expected steps of Y on what has been counted of a text, however long they are.

Y follows dY/dtau = C - E[f alpha^T] with tau = eta_Y t, and alpha = softmax(f Y) depends on all of f.  If tokens come
independently, the expected logits of the occurrences with token l are those of all occurrences and what l adds:

    b = s Y,   alpha^l = softmax(b + a_l Y[l]),   a_l = E[f_l^2]/s_l - s_l = Var(f_l)/s_l,   E[f_l alpha] ~ s_l alpha^l

So a row learns what b does not say already, and rests where a_l Y[l, n] = log P(n|l) - b_n, up to a constant.  A token
that is nearly always there has a small a_l.

Rows of frequent tokens and columns of frequent next tokens move fast, so that a step of length h is implicit in each
entry and in b, which all rows share.  With D = 1 + h s_l a_l alpha^l_n and beta the mean of alpha^l, weighted by s,

    (diag D_n + h beta_n s s^T) dY_n = h (C - s_l alpha^l)_n        for each column n,

which the formula of Sherman and Morrison solves: with U = h (C - s_l alpha^l)/D,

    dY = U - s/D (s U) h beta / (1 + h beta s^2/D).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ROWS_AT_ONCE = 1024


def advance(decoder: Tensor, drive: Tensor, squares: Tensor, step: float) -> Tensor:
    """Move Y = `decoder` in place by a step of length h, and return b after it.

    `drive` is C, which is overwritten by D, and `squares` is E[f_l^2] (M,).
    """
    sums = drive.sum(1)
    own = (squares / sums.clamp(min=1e-30) - sums).clamp(min=0.0)  # a
    bias = sums @ decoder
    moved, damping, mean = (drive.new_zeros(len(sums)) for _ in range(3))
    parts = [part.split(ROWS_AT_ONCE) for part in (decoder, drive, sums[:, None], own[:, None])]
    for y, c, s, a in zip(*parts, strict=True):
        alpha = (a * y).add_(bias).softmax(1)
        mean += (s * alpha).sum(0)
        residual = c.sub_(s * alpha).mul_(step)
        denominator = alpha.mul_(step * s * a).add_(1.0)
        residual /= denominator
        y += residual
        moved += (s * residual).sum(0)
        damping += (s**2 / denominator).sum(0)
        c.copy_(denominator)
    shared = step * mean / sums.sum()
    shared *= moved / (1 + shared * damping)
    for y, c, s, _ in zip(*parts, strict=True):
        y -= s * shared / c
    return sums @ decoder
