"""How a gradient moves its matrix: SGD with momentum, Adam, sign-SGD, normalized SGD, or a rule of your own.

A rule sees g, the gradient of J by each entry of the whole matrix.  For merged columns and rows the engine holds the
gradient of a group of k entries, which is k times that of each entry (`model/compact.py`); multiplying by `share` = 1/k
gives g.  All entries of a group have equal gradients and so move together under every rule that treats entries alike.

    sgd               v <- mu v + g,   X <- X + eta v                                   (mu = 0 without momentum)
    adam              Kingma and Ba's, with its usual constants
    sign_sgd          X <- X + eta sign(g)                                              (no step where g = 0)
    normalized_sgd    X <- X + eta g / |g|_F,  Y and Z each by the norm of its M x M gradient (no step where it is 0)

The last two ignore the size of the gradient, entry by entry or as a whole, and so the slowdown that Theorem 1's
gamma(t) puts into SGD: attention cannot snap for lack of a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from scansnap.base.open_list import OpenList

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Update:
    """What a rule sees of one matrix, for all runs, at one update."""

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
    def gradient_norm(self) -> Tensor:
        """|g|_F over all entries of the M x M matrix (R, 1, 1).

        A group of k entries whose gradient is G has k (G/k)^2 = G (G/k) of its square.
        """
        return (self.group_gradient * self.gradient).sum((1, 2), keepdim=True).sqrt()


class UpdateRule(Protocol):
    """A rule by which a matrix moves; it holds only settings, and the engine holds its memory.

    Settings that results should name are fields of a dataclass, or public attributes.  A rule whose `move` reads
    nothing on the host may set `capturable = True`: then a GPU captures it once and replays it.
    """

    @property
    def memory(self) -> tuple[str, ...]:
        """Names of the arrays it remembers for a matrix: each has the matrix's shape and starts at zero."""

    def move(self, update: Update) -> None:
        """Move `update.matrix` by one step."""


def memory_of(rule: UpdateRule) -> tuple[str, ...]:
    """What a rule remembers; nothing by default."""
    return getattr(rule, "memory", ())


OPTIMIZERS: OpenList[UpdateRule] = OpenList("optimizer", "move")


@OPTIMIZERS.register("sgd")
@dataclass(frozen=True)
class SGD:
    """SGD, with momentum if it is not zero."""

    momentum: float = 0.0
    memory = ("velocity",)
    capturable = True

    def move(self, update: Update) -> None:
        import torch

        velocity = update.memory["velocity"]
        torch.add(update.group_gradient, velocity, alpha=self.momentum, out=velocity)
        update.matrix.addcmul_(velocity, update.rate if update.share is None else update.rate * update.share)


@OPTIMIZERS.register("adam")
@dataclass(frozen=True)
class Adam:
    """Adam on each entry's own gradient."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    memory = ("velocity", "square")
    capturable = True

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
    capturable = True

    def move(self, update: Update) -> None:
        update.matrix.addcmul_(update.group_gradient.sign(), update.rate)


@OPTIMIZERS.register("normalized_sgd")
@dataclass(frozen=True)
class NormalizedSGD:
    """The whole M x M matrix moves by eta."""

    memory = ()
    capturable = True

    def move(self, update: Update) -> None:
        import torch

        norm = update.gradient_norm
        update.matrix.addcmul_(update.gradient, torch.where(norm > 0, update.rate / norm, 0.0))
