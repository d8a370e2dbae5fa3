"""How a gradient moves its matrix: SGD with momentum, Adam, sign-SGD, normalized SGD, or a rule of your own; schedules.

A rule sees g, the gradient of J by each entry of the whole matrix.  For merged columns and rows the engine holds the
gradient of a group of k entries, which is k times that of each entry (`systems/yz/compact.py`);
multiplying by `share` = 1/k gives g.  All entries of a group have equal gradients and so move together under every
rule that treats entries alike.

    sgd               v <- mu v + g,   X <- X + eta v                                   (mu = 0 without momentum)
    adam              Kingma and Ba's, with its usual constants
    sign_sgd          X <- X + eta sign(g)                                              (no step where g = 0)
    normalized_sgd    X <- X + eta g / |g|_F,  Y and Z each by the norm of its M x M gradient (no step where it is 0)

The last two ignore the size of the gradient, entry by entry or as a whole, and so the slowdown that Theorem 1's
gamma(t) puts into SGD: attention cannot snap for lack of a gradient.

A schedule of learning rates returns the factor that multiplies them, given the fraction of training completed (0 to 1).
It depends on nothing else, so a run can resume anywhere: the update after k of n updates uses share(k/n) of the rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError, short_repr
from scansnap.runtime.machine import needs_torch
from scansnap.validation.user_code import Registry, called
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Update:
    """The arguments of an update rule: one matrix, its gradient and the rule's memory, for all runs.

    >>> class Slowing:
    ...     def move(self, update: ss.Update) -> None:
    ...         update.matrix.add_(update.rate / (1 + update.step) * update.gradient)
    >>> ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, optimizer=Slowing()).sizes["step"]
    6
    """

    matrix: Tensor  # (R, ., .) to be moved in place
    group_gradient: Tensor  # the gradient of groups of merged entries
    share: Tensor | None  # 1/k for groups of k entries; None where nothing is merged
    rate: Tensor  # (R, 1, 1) eta
    step: Tensor  # updates made before this one
    memory: Mapping[str, Tensor]  # what the rule remembers, to be changed in place

    @property
    def gradient(self) -> Tensor:
        """g, the gradient of J by each entry: parameters move along it."""
        return self.group_gradient if self.share is None else self.group_gradient * self.share

    @property
    def folded(self) -> Tensor:
        """sqrt(k) g: the whole gradient in an orthonormal basis, with its norms, products and singular values.

        The basis has one unit vector along each group of merged rows and columns.  A rule that mixes entries works
        with this, and moves the matrix by what it gets, unfolded.
        """
        return self.group_gradient if self.share is None else self.group_gradient * self.share.sqrt()

    def unfold(self, step: Tensor) -> Tensor:
        """Each entry's part of a step in the basis of `folded`: the step divided by sqrt(k)."""
        return step if self.share is None else step * self.share.sqrt()

    @property
    def gradient_norm(self) -> Tensor:
        """|g| over all entries of the block, in the shape of the rate.

        A group of k entries whose gradient is G has k (G/k)^2 = G (G/k) of its square.
        """
        return (self.group_gradient * self.gradient).flatten(1).sum(1).sqrt().view_as(self.rate)


class UpdateRule(Protocol):
    """An update rule for a matrix.  It holds only settings; the engine holds its memory.

    Fields of a dataclass and public attributes are stored with the result as its settings.

    >>> class SignSgd:
    ...     def move(self, update: ss.Update) -> None:
    ...         update.matrix.add_(update.rate * update.gradient.sign())
    >>> ss.train("syn-small", lr_y=0.1, lr_z=0.1, steps=5, optimizer=SignSgd()).sizes["step"]
    6
    """

    @property
    def memory(self) -> tuple[str, ...]:
        """Names of the arrays it remembers for a matrix: each has the matrix's shape and starts at zero."""

    def move(self, update: Update) -> None:
        """Move `update.matrix` by one step."""


def memory_of(rule: UpdateRule) -> tuple[str, ...]:
    """What a rule remembers; nothing by default."""
    return getattr(rule, "memory", ())


def check_rule(rule: UpdateRule) -> None:
    """Try two steps of a user's own rule on a small matrix, with three of its columns merged and separate.

    They must end the same.  A fourth column stands for no entries, as padding does.
    """
    with needs_torch("an optimizer of your own"):
        import torch

    name = f"the optimizer {type(rule).__name__}"
    words = memory_of(rule)
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) for word in words):
        raise InputError(
            f"{name} has memory = {short_repr(words)}: give a tuple of names, such as ('momentum',) or ()."
        )
    count = torch.tensor([1.0, 1, 3, 0], dtype=torch.float64)
    every = torch.tensor([0, 1, 2, 2, 2])
    slopes = torch.linspace(-1, 2, 24, dtype=torch.float64).sin().reshape(2, 3, 4) * (count > 0)
    ends = []
    for share, slope in ((torch.where(count > 0, 1 / count, 0), slopes * count), (None, slopes[..., every])):
        matrix = torch.zeros_like(slope)
        memory = {word: torch.zeros_like(slope) for word in words}
        for step in range(2):
            update = Update(matrix, slope.roll(step, 0), share, torch.full((2, 1, 1), 0.1), torch.tensor(step), memory)
            returned = called(name, rule.move, update)
        if returned is not None and not matrix.any():
            raise InputError(f"{name}: move returns a value and leaves the matrix: change update.matrix in place.")
        if not torch.isfinite(matrix).all():
            raise InputError(f"{name} moves entries to numbers that are not finite where gradients are 0 or up to 3.")
        ends.append(matrix)
    merged, separate = ends
    if not torch.allclose(merged[..., every], separate, rtol=1e-6, atol=1e-9):
        raise InputError(
            f"{name} moves merged entries otherwise than the entries that they stand for: a rule that mixes entries "
            "must take update.folded for the gradient, and move the matrix by update.unfold(step)."
        )


OPTIMIZERS: Registry[UpdateRule] = Registry("optimizer", "move")
"""Update rules by name: `optimizer=`.

>>> "adam" in ss.OPTIMIZERS
True
"""


@validated
@OPTIMIZERS.register("sgd")
@dataclass(frozen=True)
class SGD:
    """SGD, with momentum if it is not zero.

    >>> ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, optimizer=ss.SGD(momentum=0.5)).sizes["step"]
    6
    """

    momentum: float = 0.0
    memory = ("velocity",)

    def move(self, update: Update) -> None:
        import torch

        velocity = update.memory["velocity"]
        torch.add(update.group_gradient, velocity, alpha=self.momentum, out=velocity)
        update.matrix.addcmul_(velocity, update.rate if update.share is None else update.rate * update.share)


@validated
@OPTIMIZERS.register("adam")
@dataclass(frozen=True)
class Adam:
    """Adam on each entry's own gradient.

    >>> ss.train("syn-small", lr_y=0.1, lr_z=0.1, steps=5, optimizer=ss.Adam(beta_2=0.99)).sizes["step"]
    6
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    memory = ("velocity", "square")

    def move(self, update: Update) -> None:
        import torch

        g, mean, square = update.gradient, update.memory["velocity"], update.memory["square"]
        mean.mul_(self.beta_1).add_(g, alpha=1 - self.beta_1)
        square.mul_(self.beta_2).addcmul_(g, g, value=1 - self.beta_2)
        count = (update.step + 1).double()
        first = (1 / (1 - self.beta_1**count)).to(g.dtype)
        second = (1 / torch.sqrt(1 - self.beta_2**count)).to(g.dtype)
        update.matrix.add_(update.rate * first * mean / (square.sqrt() * second + self.epsilon))


@OPTIMIZERS.register("sign_sgd")
@dataclass(frozen=True)
class SignSGD:
    """Every entry that has a gradient moves by eta."""

    memory = ()

    def move(self, update: Update) -> None:
        update.matrix.addcmul_(update.group_gradient.sign(), update.rate)


@OPTIMIZERS.register("normalized_sgd")
@dataclass(frozen=True)
class NormalizedSGD:
    """The whole M x M matrix moves by eta."""

    memory = ()

    def move(self, update: Update) -> None:
        import torch

        norm = update.gradient_norm
        update.matrix.addcmul_(update.gradient, torch.where(norm > 0, update.rate / norm, 0.0))


# --- schedules ----------


class Schedule(Protocol):
    """A learning-rate schedule: the factor on the rates, given the fraction of training completed (0 to 1).

    >>> class Halved:
    ...     def share(self, done: float) -> float:
    ...         return 1.0 if done < 0.5 else 0.5
    >>> ss.TextOptions(schedule=Halved()).schedule.share(0.7)
    0.5
    """

    def share(self, done: float) -> float:
        """The share of the rates to use when the fraction `done` of the run, from 0 to 1, is done."""
        ...


SCHEDULES: Registry[Schedule] = Registry("schedule", "share")
"""Every schedule by name.

>>> ss.SCHEDULES.member("linear").share(0.5)
0.5
"""


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant:
    """The full rates to the end."""

    def share(self, done: float) -> float:
        return 1.0


@SCHEDULES.register("linear")
@dataclass(frozen=True)
class Linear:
    """Rates that fall in a straight line from the full ones to the share `end`."""

    end: float = 0.0

    def share(self, done: float) -> float:
        return 1.0 - (1.0 - self.end) * done


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine:
    """Rates that fall to zero along half a wave of the cosine."""

    def share(self, done: float) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * done))


def rate_shares(schedule: str | Schedule, steps: int, done: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of the rates that an update uses, given how many of `steps` updates precede it."""
    member = SCHEDULES.member(schedule)
    if isinstance(member, Constant):
        return np.ones(len(done))
    shares = np.array([member.share(min(step / max(steps, 1), 1.0)) for step in done.tolist()], np.float64)
    if not (np.isfinite(shares) & (shares >= 0)).all():
        raise InputError(
            f"the schedule {SCHEDULES.label(schedule)} gives the share {shares.min()}: it must return a finite number "
            "from 0."
        )
    return shares
