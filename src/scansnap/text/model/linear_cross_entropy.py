"""Cross-entropy of a linear decoder over a large vocabulary, with its gradients.

With hidden states H (N, d), decoder W (V, d), b (V,), targets y, and logits L = H W^T + b, the loss is the mean over
rows of log Z_i - L_{i y_i}, Z_i = sum_v exp L_iv.  With P = exp(L)/Z and one-hot targets 1_y its gradients are

    dH = (P - 1_y) W / N,        dW = (P - 1_y)^T H / N,        db = (P - 1_y)^T 1 / N,

which together with the logits are three large products.  Autograd computes the same, but keeps the logits, the
log-probabilities and the gradients of both in separate arrays (N, V); here there is one.  The gradient of the decoder
is written directly to `weight.grad` and `bias.grad` and *overwrites* them: allocating and copying another array would
cost as much as the softmax.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class LinearCrossEntropy(ABC):
    """The loss of one decoder.  Each call reuses its arrays, so `backward` must come before the next call."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter, dtype: torch.dtype) -> None:
        """`dtype` is the type of the large products and of the logits; sums have the decoder's type."""
        self.weight, self.bias, self.dtype = weight, bias, dtype
        self.calls = 0

    def __call__(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of hidden states (N, d) and their targets (N,)."""
        return _LinearCrossEntropy.apply(hidden, targets, self)

    @abstractmethod
    def evaluate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of the losses, without gradients."""

    @abstractmethod
    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean loss; keeps what `backward` needs."""

    @abstractmethod
    def backward(self, hidden: Tensor, factor: Tensor) -> Tensor:
        """Return dH and set `weight.grad` and `bias.grad`, all multiplied by `factor`."""


def gradient_array(parameter: nn.Parameter) -> Tensor:
    """`parameter.grad`, allocated if there is none."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter)
    return parameter.grad


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, targets, loss):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(hidden)
        loss.calls += 1
        ctx.loss, ctx.call = loss, loss.calls
        return loss.forward(hidden, targets)

    @staticmethod
    def backward(ctx, factor):  # type: ignore[no-untyped-def]
        (hidden,) = ctx.saved_tensors
        if ctx.call != ctx.loss.calls:
            raise RuntimeError("the loss was called again before backward: call backward before the next batch.")
        return ctx.loss.backward(hidden, factor), None, None
