"""`linear_cross_entropy.py` in blocks of the vocabulary: for any device and precision, and fast on a CPU.

Let l = (H W^T + b) / log 2, so that Z_i = sum_v 2^l_iv: powers of two are faster than powers of e.  For any shift s_i
of the rows let

    E = 2^(l - s),    z_i = sum of row i of E,    so that log Z_i = (log2 z_i + s_i) log 2;

then P - 1_y = (E - z 1_y)/z, where E - z 1_y differs from E in one entry of each row, and

    dH = (E - z 1_y) W / (z N),      dW = (E - z 1_y)^T (H / (z N)),      db = (E - z 1_y)^T (1 / (z N)):

E is computed and used in blocks of the vocabulary and never normalized, since 1/z is applied to the thin side of each
product.

The shift only has to keep the powers within the range of floats.  The target's own logit does so, with z_i =
exp(loss_i), unless a row's loss exceeds about 70 nats.  It is known before the products, so it is added with the bias
and costs nothing.  Where it fails, everything is computed again with the row's largest logit, which takes the product
twice.

A block is small enough to stay in a processor's cache between its product and its exponential, the arrays are
allocated once, and neither logits nor probabilities are stored twice.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scansnap.text.model.linear_cross_entropy import LinearCrossEntropy, gradient_array

CPU_BLOCK = 6000
"""The most tokens in a block on a CPU: 700 rows of it take 16 MB.  A GPU takes all tokens at once."""

ALIGNED = 32
"""Rows of a block start at multiples of this many numbers: unaligned, products take a fifth longer.  (They take nearly
as long if rows are a power of two apart, which blocks of equal size seldom are.)"""

LARGEST = 2.0**100
"""The largest z with the target's logit as the shift: near 2^128 powers overflow and 1/z loses its digits."""


class BlockedCrossEntropy(LinearCrossEntropy):
    """The loss of one decoder."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter, dtype: torch.dtype = torch.float32) -> None:
        """`dtype` is the type of the large products and of the logits; sums and scales have the decoder's type."""
        super().__init__(weight, bias, dtype)
        tokens = len(weight)
        count = -(-tokens // CPU_BLOCK) if weight.device.type == "cpu" else 1
        size = _aligned(-(-tokens // count))
        self._blocks = [slice(i, min(i + size, tokens)) for i in range(0, tokens, size)]
        self._powers: list[Tensor] = []  # E of each block
        self._scale = weight.new_empty(0)  # 1/(z N), (N, 1)
        self._rounded: Tensor | None = None
        if (
            dtype != weight.dtype
        ):  # the decoder is copied anyway, so bias and shift enter the products as columns of the copy
            width = weight.shape[1]
            self._rounded = weight.new_zeros(len(weight), -(-(width + 2) // 16) * 16, dtype=dtype)  # W, b, 1, 0 ...
            self._rounded[:, width + 1] = 1.0

    @torch.no_grad()
    def evaluate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of the losses, without gradients."""
        return self._normalize(hidden, targets, None)[0].sum()

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean loss; keeps what `backward` needs."""
        count = len(hidden)
        if not self._powers or len(self._powers[0]) != count:
            self._powers = [self._empty(count, part) for part in self._blocks]
        losses, z = self._normalize(hidden, targets, self._powers)
        self._scale = 1 / (z * count)
        rows = torch.arange(count, device=hidden.device)
        for part, e in zip(self._blocks, self._powers, strict=True):
            inside = (targets >= part.start) & (targets < part.stop)
            place = (rows, (targets - part.start).clamp(0, e.shape[1] - 1))
            e[place] = torch.where(inside, (e[place].to(z.dtype) - z.squeeze(1)).to(e.dtype), e[place])
        return losses.mean()

    def backward(self, hidden: Tensor, factor: Tensor) -> Tensor:
        """Return dH and set `weight.grad` and `bias.grad`, all multiplied by `factor`."""
        decoder, weight, bias = self.weight.detach(), gradient_array(self.weight), gradient_array(self.bias)
        width = hidden.shape[1]
        gradient, scale = torch.zeros_like(hidden), self._scale * factor
        right = hidden * scale if self._rounded is None else self._columns(hidden * scale, scale)
        for part, e in zip(self._blocks, self._powers, strict=True):
            if self._rounded is None:
                torch.mm(e.T, right, out=weight[part])
                bias[part] = (scale.T @ e).squeeze(0)
                gradient.addmm_(e, decoder[part])
            else:
                both = e.T @ right
                weight[part], bias[part] = both[:, :width], both[:, width]
                gradient += e @ self._rounded[part, :width]
        return gradient.mul_(scale)

    def _normalize(self, hidden: Tensor, targets: Tensor, powers: list[Tensor] | None) -> tuple[Tensor, Tensor]:
        """The losses (N,) and z (N, 1); E is written to `powers`, unless that is None."""
        left, target_logits = self._operands(hidden, targets)
        shift = target_logits.to(self.dtype).to(target_logits.dtype)  # as the products will round it
        z = None
        if hidden.device.type == "cpu":  # a GPU would have to wait to see whether the guess was good
            z = self._add_up(left, shift, powers)
        if z is None or not bool((z < LARGEST).all()):
            shift = self._largest(left)
            z = self._add_up(left, shift, powers)
        return (z.log2() + (shift - target_logits)).squeeze(1) * math.log(2), z

    def _operands(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The left factor of the logits' product, and the targets' logits l (N, 1), rounded as those in Z are."""
        hidden, weight, bias = (x.detach() for x in (hidden / math.log(2), self.weight, self.bias / math.log(2)))
        if self._rounded is None:
            return hidden, (hidden * weight[targets]).sum(1, keepdim=True) + bias[targets, None]
        self._rounded[:, : weight.shape[1]] = weight
        self._rounded[:, weight.shape[1]] = bias
        left = self._columns(hidden, 1.0)
        return left, (left.to(weight.dtype) * self._rounded[targets].to(weight.dtype)).sum(1, keepdim=True)

    def _columns(self, hidden: Tensor, beside: Tensor | float) -> Tensor:
        """Hidden states and a column `beside` them, rounded, and padded with zeros to the rounded decoder's width."""
        assert self._rounded is not None
        count, width = hidden.shape
        columns = hidden.new_zeros(count, self._rounded.shape[1], dtype=self.dtype)
        columns[:, :width] = hidden
        columns[:, width : width + 1] = beside
        return columns

    def _empty(self, count: int, part: slice) -> Tensor:
        size = part.stop - part.start
        return self.weight.new_empty(count, _aligned(size), dtype=self.dtype)[:, :size]

    def _logits(self, left: Tensor, shift: Tensor, part: slice, out: Tensor) -> Tensor:
        """l - s for one block."""
        if self._rounded is None:
            torch.sub(self.bias.detach()[part] / math.log(2), shift, out=out)
            return out.addmm_(left, self.weight.detach()[part].T)
        width = self.weight.shape[1]
        left[:, width + 1 : width + 2] = -shift
        return torch.mm(left, self._rounded[part].T, out=out)

    def _add_up(self, left: Tensor, shift: Tensor, powers: list[Tensor] | None) -> Tensor:
        """z; E is written to `powers`, unless that is None."""
        z = torch.zeros_like(shift)
        for k, part in enumerate(self._blocks):
            out = self._empty(len(left), part) if powers is None else powers[k]
            z += self._logits(left, shift, part, out).exp2_().sum(1, keepdim=True, dtype=z.dtype)
        return z

    def _largest(self, left: Tensor) -> Tensor:
        """Each row's largest logit l, (N, 1), rounded as the products round it."""
        zeros = self.weight.new_zeros(len(left), 1)
        tops = [self._logits(left, zeros, part, self._empty(len(left), part)).amax(1) for part in self._blocks]
        return torch.stack(tops).amax(0)[:, None].to(zeros.dtype)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
