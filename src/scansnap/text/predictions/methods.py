"""How to say beforehand which tokens will win: an open list of methods.

A method turns a `Reading` of a text into one number for each query and token, larger for tokens that it expects to gain
more.  Besides three that follow the dynamics there are those that any such method must beat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from scansnap.text.predictions.mean_field import ROWS_AT_ONCE, advance
from scansnap.validation.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from scansnap.text.predictions.reading import Reading

FIRST = 1 / 512
"""The first time of `Population`, as a share of the last: Y is then close to one straight step from zero."""
LARGEST = 0.5
"""The most that a logit changes in one pass: attention exp(z) changes by a part of itself."""
PASSES = 6
"""The most passes at one time."""


class Predictor(Protocol):
    """A method of prediction; if it holds more than one M x M matrix at a time, `matrices` says how many.

    >>> class Even:
    ...     def gains(self, reading: ss.Reading):
    ...         return 0 * reading.pair_counts()
    >>> ss.predict("example", queries=("the",), least=50, method=Even()).sizes["query"]
    1
    """

    def gains(self, reading: Reading) -> Tensor:
        """(Q, M) for the queries of the reading."""


PREDICTORS: Registry[Predictor] = Registry("prediction method", "gains")
"""Methods of prediction by name: `method=`.

>>> "settled" in ss.PREDICTORS
True
"""


@PREDICTORS.register("first_drive")
@dataclass(frozen=True)
class FirstDrive:
    """The first gradient of Z: with Z = 0 let Y make one expected step from 0.

    At Y = 0 the prediction is alpha = 1/M, so the step leaves Y proportional to C - s/M; to first order in eta_Y the
    prediction is still 1/M when Z's gradient is taken.  Later steps differ, but this one starts the competition.
    """

    def gains(self, reading: Reading) -> Tensor:
        drive = reading.decoder_drive()
        shares = reading.next_shares
        alpha = shares.new_full(shares.shape, 1 / len(shares))
        return reading.attention_drive(drive.addr_(drive.sum(1), alpha, alpha=-1), alpha)


@PREDICTORS.register("settled")
@dataclass(frozen=True)
class Settled:
    """The gradient of Z once the decoder's frequent rows have settled.

    Y follows dY/dt = eta_Y (C - s alpha(Y)^T).  A frequent token's row and a frequent next token's column move fast and
    soon stop, which one straight step does not show: it makes them ever larger.  An implicit step of length
    tau = eta_Y t does.  The entry's own curvature is d(s_l alpha_n)/dY[l, n] = E[f_l^2 alpha_n (1 - alpha_n)], at most
    s_l alpha_n, so

        Y = tau (C - s alpha^T) / (1 + tau s alpha^T),

    which is C - s alpha^T for rare tokens and P(n|l)/alpha_n - 1 for frequent ones.  alpha goes from 1/M to the shares
    P(n) of next tokens, which Y learns first; `prior` says how far it has come.
    """

    time: float = 1000.0
    """tau."""
    prior: float = 0.75
    """0 for 1/M, 1 for P(n)."""

    def gains(self, reading: Reading) -> Tensor:
        drive = reading.decoder_drive()
        shares = reading.next_shares
        alpha = self.prior * shares + (1 - self.prior) / len(shares)
        sums = drive.sum(1)
        for rows, s in zip(drive.split(ROWS_AT_ONCE), sums.split(ROWS_AT_ONCE), strict=True):
            product = s.outer(alpha)
            rows.sub_(product).div_(product.mul_(self.time).add_(1.0))
        return reading.attention_drive(drive, alpha)


@PREDICTORS.register("population")
@dataclass(frozen=True)
class Population:
    """Z at the end of the training: expected steps of Y and Z in turn, with no number to choose.

    Y moves as `mean_field.py` derives.  z_m moves with dz_m/dtau = (eta_Z/eta_Y) E[dz_m], at this Y, the prediction
    softmax(b) and the attention that z_m has got by then: the trapezoidal rule over the times, in passes that change a
    logit by at most `LARGEST`.  After `PASSES` of them z_m goes to and fro about what this Y asks for, and the next
    time is taken.  C and E[f^2] are read again with this attention.  So the ratio decides how far attention
    has moved by the time a row of Y settles, and a token that has won is read more and settles sooner.  Attention to
    queries that are not asked about stays even.
    """

    matrices: ClassVar[int] = 2
    """Y, and C or D."""
    times: int = 12
    """Steps of Y, at times that grow by the same factor up to that of the plan."""

    def gains(self, reading: Reading) -> Tensor:
        plan, shares = reading.plan, reading.next_shares
        times = [0.0, *np.geomspace(plan.time * FIRST, plan.time, self.times).tolist()]
        decoder = shares.new_zeros(len(shares), len(shares))
        logits = shares.new_zeros(len(reading.queries), len(shares))
        for before, now, after in zip(times, times[1:], [*times[2:], times[-1]], strict=False):
            attention = logits if bool(logits.any()) else None
            drive, squares = reading.decoder_drive(attention), reading.mean_squares(attention)
            alpha = advance(decoder, drive, squares, now - before).softmax(0)
            del drive  # as large as Y
            left = (after - before) / 2 / plan.ratio
            for _ in range(PASSES):
                gain = reading.attention_drive(decoder, alpha, logits)
                part = min(left, LARGEST / max(float(gain.abs().max()), 1e-30))
                logits += part * gain
                left -= part
                if left <= 0:
                    break
        return logits


@PREDICTORS.register("theorem_3")
@dataclass(frozen=True)
class Theorem3:
    """c(l, m) D(l): distinct tokens gain (Theorem 2), those first that occur more often with the query (Theorem 3).

    D(l) = sum_n P(n|l) log P(n|l)/P(n), with P(n|l) = C[l, n]/s_l, is how distinct a token is, in nats.
    """

    def gains(self, reading: Reading) -> Tensor:
        drive = reading.decoder_drive()
        log_shares = reading.next_shares.log()
        distinctness = drive.new_zeros(len(drive))
        for rows, part in zip(drive.split(ROWS_AT_ONCE), distinctness.split(ROWS_AT_ONCE), strict=True):
            shares = rows / rows.sum(1, keepdim=True)
            part.copy_((shares * (shares.log() - log_shares)).nan_to_num().sum(1))  # 0 log 0 = 0
        return reading.pair_counts() * distinctness


@PREDICTORS.register("cooccurrence")
@dataclass(frozen=True)
class Cooccurrence:
    """c(l, m): what precedes the query most."""

    def gains(self, reading: Reading) -> Tensor:
        return reading.pair_counts()


@PREDICTORS.register("frequency")
@dataclass(frozen=True)
class Frequency:
    """P(l): what is frequent, whatever the query."""

    def gains(self, reading: Reading) -> Tensor:
        return reading.next_shares.expand(len(reading.queries), -1)


@PREDICTORS.register("pmi")
@dataclass(frozen=True)
class PMI:
    """log P(l|m) / P(l): what precedes the query more often than other tokens."""

    def gains(self, reading: Reading) -> Tensor:
        counts = reading.pair_counts()
        return (counts / counts.sum(1, keepdim=True)).log() - reading.next_shares.log()
