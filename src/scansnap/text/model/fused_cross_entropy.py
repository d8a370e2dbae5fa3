"""`linear_cross_entropy.py` on a GPU: logits are written once and read once between the products.

The kernel that computes them also stores, for each block of tokens, what is needed for Z.  One pass then replaces them
by the errors P - 1_y and sums these for db.  dH and dW are products of the errors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scansnap.runtime.machine import has_triton
from scansnap.text.model.linear_cross_entropy import LinearCrossEntropy, gradient_array

ROWS, TOKENS, DEPTH = 64, 128, 32
"""The part of the logits that one program computes, and how much of the width it reads at once."""


def fused_kernels_run(weight: Tensor) -> bool:
    """Whether there is a GPU with tf32 instructions, Triton to compile for it, and a decoder in float32."""
    if not (weight.is_cuda and weight.dtype == torch.float32 and has_triton()) or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(weight.device) >= (8, 0)


class FusedCrossEntropy(LinearCrossEntropy):
    """The loss of one decoder in float32."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(weight, bias, dtype)
        self._rounded = None if dtype == weight.dtype else torch.empty_like(weight, dtype=dtype)
        self._errors = self._empty(0)
        self._totals = weight.new_empty(0)  # sums of the errors over blocks of rows

    @torch.no_grad()
    def evaluate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of the losses, without gradients."""
        _, losses = self._normalize(hidden, targets, self._empty(len(hidden)))
        return losses.sum()

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean loss; keeps what `backward` needs."""
        from scansnap.text.model.triton_cross_entropy import make_errors

        count = len(hidden)
        if len(self._errors) != _padded(count, ROWS):
            self._errors = self._empty(count)
            self._totals = hidden.new_empty(len(self._errors) // ROWS, self._errors.shape[1])
        normalizers, losses = self._normalize(hidden, targets, self._errors)
        make_errors[(len(self._totals), self._errors.shape[1] // TOKENS)](
            self._errors,
            targets,
            normalizers,
            self._totals,
            count,
            self._errors.shape[1],
            ROWS=ROWS,
            TOKENS=TOKENS,
            num_warps=4,
        )
        return losses.mean()

    def backward(self, hidden: Tensor, factor: Tensor) -> Tensor:
        """Return dH and set `weight.grad` and `bias.grad`, all multiplied by `factor`."""
        weight, bias = gradient_array(self.weight), gradient_array(self.bias)
        share = factor / len(hidden)
        errors, right = self._errors[: len(hidden), : len(weight)], (hidden * share).to(self.dtype)
        if self._rounded is None:
            torch.mm(errors.T, right, out=weight)
        else:
            weight.copy_(errors.T @ right)
        torch.sum(self._totals[:, : len(bias)], 0, out=bias).mul_(share)
        decoder = self.weight.detach() if self._rounded is None else self._rounded
        return (errors @ decoder).to(hidden.dtype).mul_(share)

    def _empty(self, count: int) -> Tensor:
        """An array for the logits, then the errors, padded to whole blocks."""
        return self.weight.new_empty(_padded(count, ROWS), _padded(len(self.weight), TOKENS), dtype=self.dtype)

    def _normalize(self, hidden: Tensor, targets: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """log Z and the losses (N,); the logits are written to `logits`."""
        from scansnap.text.model.triton_cross_entropy import make_logits, normalize

        count, width = hidden.shape
        decoder = self.weight.detach() if self._rounded is None else self._rounded.copy_(self.weight.detach())
        rows, blocks = len(logits) // ROWS, logits.shape[1] // TOKENS
        tops, sums = hidden.new_empty(2, blocks, count).unbind()
        make_logits[(rows, blocks)](
            hidden.to(self.dtype).contiguous(),
            decoder,
            self.bias.detach(),
            logits,
            tops,
            sums,
            count,
            len(decoder),
            logits.shape[1],
            WIDTH=width,
            ROWS=ROWS,
            TOKENS=TOKENS,
            DEPTH=DEPTH,
            PRECISION="tf32x3",
            num_warps=4,
            num_stages=3,
        )
        normalizers, losses = hidden.new_empty(2, count).unbind()
        normalize[(rows * ROWS // 4,)](
            logits,
            targets,
            tops,
            sums,
            normalizers,
            losses,
            count,
            logits.shape[1],
            blocks,
            ROWS=4,
            BLOCKS=1 << (blocks - 1).bit_length(),
        )
        return normalizers, losses


def _padded(count: int, block: int) -> int:
    return -(-count // block) * block
