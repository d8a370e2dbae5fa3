"""How a gradient moves its matrix: SGD with momentum, Adam, sign-SGD, normalised SGD.

A rule sees g, the gradient of J by each entry of the whole matrix.  Of columns and rows that are merged the engine
holds the gradient of a group of k entries, which is k times that of each (`model/compact.py`); `share` = 1/k turns one
into the other.  All entries of a group have equal gradients and so move together under every rule here.

    sgd               v <- mu v + g,   X <- X + eta v                                   (mu = 0 without momentum)
    adam              Kingma and Ba's, with its usual constants
    sign_sgd          X <- X + eta sign(g)                                              (no step where g = 0)
    normalised_sgd    X <- X + eta g / |g|_F,  Y and Z each by the norm of its M x M gradient (no step where it is 0)

The last two forget the size of the gradient, entry by entry or as a whole, and so the slowing down that Theorem 1's
gamma(t) puts into SGD: attention cannot snap for want of a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from scansnap.dynamics.options import ADAM_BETAS, ADAM_EPSILON, TrainOptions


class UpdateRule(Protocol):
    """Moves one matrix (R, ., .) in place; what it remembers are tensors of the same shape."""

    @property
    def memory(self) -> Mapping[str, Tensor]:
        """What it remembers, by name."""

    def move(self, matrix: Tensor, gradient: Tensor, share: Tensor | None, rate: Tensor, step: Tensor) -> None:
        """`gradient` is of groups; `rate` (R, 1, 1) is eta; `step` counts the updates made, on the device."""


def make_rule(options: TrainOptions, matrix: Tensor) -> UpdateRule:
    """The rule that the options name, for a matrix of that shape."""
    if options.optimizer == "sgd":
        return Momentum(matrix, options.momentum)
    if options.optimizer == "adam":
        return Adam(matrix)
    return SignSGD() if options.optimizer == "sign_sgd" else NormalisedSGD()


class Momentum:
    """SGD, with momentum where it is not zero."""

    def __init__(self, matrix: Tensor, momentum: float) -> None:
        self._momentum = momentum
        self._velocity = torch.zeros_like(matrix)
        self.memory = {"velocity": self._velocity}

    def move(self, matrix: Tensor, gradient: Tensor, share: Tensor | None, rate: Tensor, step: Tensor) -> None:
        torch.add(gradient, self._velocity, alpha=self._momentum, out=self._velocity)
        matrix.addcmul_(self._velocity, rate if share is None else rate * share)


class Adam:
    """Adam on each entry's own gradient."""

    def __init__(self, matrix: Tensor) -> None:
        self._mean, self._square = torch.zeros_like(matrix), torch.zeros_like(matrix)
        self.memory = {"velocity": self._mean, "square": self._square}

    def move(self, matrix: Tensor, gradient: Tensor, share: Tensor | None, rate: Tensor, step: Tensor) -> None:
        beta_1, beta_2 = ADAM_BETAS
        g = gradient if share is None else gradient * share
        self._mean.mul_(beta_1).add_(g, alpha=1 - beta_1)
        self._square.mul_(beta_2).addcmul_(g, g, value=1 - beta_2)
        count = (step + 1).double()
        first = (1 / (1 - beta_1**count)).to(g.dtype)
        second = (1 / torch.sqrt(1 - beta_2**count)).to(g.dtype)
        matrix += rate * first * self._mean / (self._square.sqrt() * second + ADAM_EPSILON)


class SignSGD:
    """Every entry that has a gradient moves by eta."""

    memory: Mapping[str, Tensor] = {}

    def move(self, matrix: Tensor, gradient: Tensor, share: Tensor | None, rate: Tensor, step: Tensor) -> None:
        matrix.addcmul_(gradient.sign(), rate)


class NormalisedSGD:
    """The whole M x M matrix moves by eta; a group of k entries of gradient G/k has k (G/k)^2 = G (G/k) of the norm."""

    memory: Mapping[str, Tensor] = {}

    def move(self, matrix: Tensor, gradient: Tensor, share: Tensor | None, rate: Tensor, step: Tensor) -> None:
        g = gradient if share is None else gradient * share
        norm = (gradient * g).sum((1, 2), keepdim=True).sqrt()
        matrix.addcmul_(g, torch.where(norm > 0, rate / norm, 0.0))
