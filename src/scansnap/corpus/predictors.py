"""How to predict which tokens will win a query's attention: an open list of methods, and the options of `predict`.

A method turns a `Reading` of a text into one number for each query and token, larger for tokens that it expects to gain
more.  There are two: `settled`, a closed form, and `population`, which follows the dynamics.

The method `population` takes expected steps of Y on what has been counted of a text, however long they are.  Y follows
dY/dtau = C - E[f alpha^T] with tau = eta_Y t, and alpha = softmax(f Y) depends on all of f.  If tokens come
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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from scansnap.corpus.batches import YZ_BATCH_SIZE, YZ_WINDOW
from scansnap.validation.argument_types import ArgumentType, MemberType, SequenceType, read_number
from scansnap.validation.checks import integer, is_list
from scansnap.validation.options import Options, option
from scansnap.validation.user_code import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from scansnap.corpus.readings import Reading

ROWS_AT_ONCE = 1024
"""Rows of an M x M matrix that are worked on at once."""

FIRST_TIME = 1 / 512
"""The first time of `Population`, as a share of the last: Y is then close to one straight step from zero."""
LARGEST_CHANGE = 0.5
"""The most that a logit changes in one pass: attention exp(z) changes by a part of itself."""
PASSES = 6
"""The most passes at one time."""


@dataclass(frozen=True)
class TrainingPlan:
    """Rates and updates of the training that a prediction is about, as `train_text` takes them."""

    lr_y: float
    lr_z: float
    steps: int

    @property
    def ratio(self) -> float:
        """eta_Y / eta_Z."""
        return self.lr_y / self.lr_z

    @property
    def time(self) -> float:
        """tau = eta_Y t at the end: how far an expected gradient of size one takes an entry of Y."""
        return self.lr_y * self.steps


class Predictor(Protocol):
    """A method of prediction; `matrices` is the number of M x M matrices that it holds in memory, if more than one.

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
    P(n) of next tokens, which Y learns first; `prior` says how far it has come.  With time = prior = 0, Y has made one
    expected step from 0: that is the first gradient of Z, which starts the competition.
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


@PREDICTORS.register("population")
@dataclass(frozen=True)
class Population:
    """Z at the end of the training: expected steps of Y and Z in turn, with no number to choose.

    Y moves as derived above (`advance`).  z_m moves with dz_m/dtau = (eta_Z/eta_Y) E[dz_m], at this Y, the prediction
    softmax(b) and the attention that z_m has got by then: the trapezoidal rule over the times, in passes that change a
    logit by at most `LARGEST_CHANGE`.  After `PASSES` of them z_m oscillates about what this Y asks for, and the next
    time is taken.  C and E[f^2] are read again with this attention.  So the ratio decides how far attention has moved
    by the time a row of Y settles, and a token that has won is read more and settles sooner.  Attention of other
    queries stays uniform.
    """

    matrices: ClassVar[int] = 2
    """Y, and C or D."""
    times: int = 12
    """Steps of Y, at times that grow by the same factor up to that of the plan."""

    def gains(self, reading: Reading) -> Tensor:
        plan, shares = reading.plan, reading.next_shares
        times = [0.0, *np.geomspace(plan.time * FIRST_TIME, plan.time, self.times).tolist()]
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
                part = min(left, LARGEST_CHANGE / max(float(gain.abs().max()), 1e-30))
                logits += part * gain
                left -= part
                if left <= 0:
                    break
        return logits


WORDS = SequenceType(ArgumentType(), "words")


@dataclass(frozen=True)
class QueriesType(ArgumentType):
    """How many queries, or which."""

    wanted = "a number of words, or words"

    def check(self, name: str, value: Any) -> int | tuple[str, ...]:
        words: tuple[str, ...] = WORDS.check(name, value) if is_list(value) else ()
        return words or integer(name, value, least=1)

    def read(self, name: str, text: str) -> Any:
        return read_number(name, text, int, self.wanted) if text.isdigit() else text.split(",")

    def plain(self, value: Any) -> Any:
        return value if isinstance(value, int) else list(value)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Options):
    """What is predicted, and how.

    >>> ss.PredictOptions(queries=5).tokens
    3000
    """

    queries: int | tuple[str, ...] = field(
        default=30,
        metadata=option("The number of queries, the most frequent words of the text, or the words.", QueriesType()),
    )
    tokens: int = field(default=3000, metadata=option("Most frequent tokens that are ranked.", least=2))
    least: int = field(default=10, metadata=option("How often a token must precede the query to be ranked.", least=1))
    method: str | Predictor = field(
        default="settled",
        metadata=option(f"How to predict: {', '.join(PREDICTORS)}, or your own.", MemberType(PREDICTORS)),
    )
    lr_y: float = field(
        default=30.0,
        metadata=option(
            "Learning rate of Y in the training to predict, for population and the times of scan and snap.",
            least=1e-12,
            most=1e12,
        ),
    )
    lr_z: float | None = field(
        default=None,
        metadata=option(
            "Learning rate of Z in the training to predict, for population", least=1e-12, most=1e12, none="is lr_y"
        ),
    )
    steps: int | None = field(
        default=None,
        metadata=option(
            f"Updates of the training to predict, of {YZ_BATCH_SIZE} windows each, for population",
            least=1,
            most=10**12,
            none="makes one pass over the text",
        ),
    )
    window: int = field(
        default=YZ_WINDOW,
        metadata=option("Tokens in a window of the text; counts have their own.", least=3),
    )
    control: bool = field(
        default=False,
        metadata=option("Also predict from the text with next tokens shuffled over the occurrences of each query."),
    )
    seed: int = field(default=0, metadata=option("Seed of the shuffle.", least=0))
    device: Literal["cpu", "cuda"] = field(default="cpu", metadata=option("Where to compute."))

    def plan(self, num_tokens: int) -> TrainingPlan:
        """The training that is predicted, of a text of `num_tokens` tokens."""
        pass_ = max(1, num_tokens // self.window // YZ_BATCH_SIZE)
        lr_z = self.lr_y if self.lr_z is None else self.lr_z
        return TrainingPlan(self.lr_y, lr_z, pass_ if self.steps is None else self.steps)
