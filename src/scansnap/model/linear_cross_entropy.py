"""Cross-entropy of a linear decoder over a large vocabulary, with its gradients, in blocks of the vocabulary.

With hidden states H (N, d), decoder W (V, d), b (V,) and targets y, the loss is the mean over rows of
log Z_i - (H W^T + b)_{i y_i}.  For a block B of the vocabulary let m_iB be the largest logit of row i in it and

    E_B = exp(H W_B^T + b_B - m_B),    s_iB = sum of row i of E_B,    r_iB = exp(m_iB - max_B m_iB).

Then Z_i exp(-max_B m_iB) = sum_B r_iB s_iB =: z_i, and with one-hot targets 1_y

    dH = (sum_B (r_B/z) E_B W_B - W_y)/N,      dW_B = E_B^T (r_B H / z)/N,      db_B = E_B^T (r_B / z)/N,

the last two less H/N and 1/N in the rows of the targets, exactly: no block is ever normalised, since its row scales
r_B/z go to the thin side of each product.  With one block, r = 1, the targets' rows are had by taking z off their
entries of E; with several that could overflow, since z/r_B has no bound.  A block is small enough to stay in a
processor's cache between its product and its exponential, the arrays are made once, and neither logits nor
probabilities are stored twice.  The gradient of the decoder goes straight to `weight.grad` and `bias.grad`, *in place
of* what was there: a copy of it, and the memory for one, would cost as much as the softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CPU_BLOCK = 4096
"""Entries of the vocabulary in a block on a CPU: 700 rows of it take 11 MB.  A GPU takes all at once."""


class LinearCrossEntropy:
    """The loss of one decoder.  Its arrays are used again by each call, so `backward` must come before the next."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter, dtype: torch.dtype = torch.float32) -> None:
        """`dtype` is that of the large products and of the logits; sums and scales are in float32 whatever it is."""
        self.weight, self.bias, self.dtype = weight, bias, dtype
        self.block = CPU_BLOCK if weight.device.type == "cpu" else len(weight)
        self.blocks = [slice(i, min(i + self.block, len(weight))) for i in range(0, len(weight), self.block)]
        self.rounded = None if dtype == weight.dtype else torch.empty_like(weight, dtype=dtype)
        self.exponentials: list[Tensor] = []  # E_B of each block

    def __call__(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of hidden states (N, d) and their targets (N,)."""
        return _LinearCrossEntropy.apply(hidden, targets, self)

    @torch.no_grad()
    def evaluate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of the losses, learning nothing."""
        logits = self._logits(hidden.to(self.dtype), self._decoder(), slice(None))
        return nn.functional.cross_entropy(logits.to(hidden.dtype), targets, reduction="sum")

    def _decoder(self) -> Tensor:
        return self.weight.detach() if self.rounded is None else self.rounded.copy_(self.weight.detach())

    def _logits(self, hidden: Tensor, decoder: Tensor, part: slice, out: Tensor | None = None) -> Tensor:
        bias = self.bias.detach()[part].to(self.dtype)
        return torch.addmm(bias, hidden, decoder[part].T, out=out)

    def forward(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, its gradient at `hidden`, and each block's row scales r_B / (z N), (blocks, N, 1)."""
        count = len(hidden)
        if not self.exponentials or len(self.exponentials[0]) != count:
            self.exponentials = [hidden.new_empty(count, b.stop - b.start, dtype=self.dtype) for b in self.blocks]
        decoder = self._decoder()
        rounded = hidden.to(self.dtype)
        largest, sums, mixed = [], [], []
        logits = hidden.new_zeros(count)  # of the targets, rounded as those in Z are
        for k, (part, e) in enumerate(zip(self.blocks, self.exponentials, strict=True)):
            self._logits(rounded, decoder, part, out=e)
            own = e.gather(1, (targets - part.start).clamp(0, e.shape[1] - 1)[:, None]).squeeze(1)
            logits = torch.where(targets // self.block == k, own.to(hidden.dtype), logits)
            top = e.amax(1, keepdim=True)
            e.sub_(top).exp_()
            largest.append(top.to(hidden.dtype))  # (N, 1)
            sums.append(e.sum(1, keepdim=True, dtype=hidden.dtype))
            mixed.append((e @ decoder[part]).to(hidden.dtype))  # (N, d)
        tops = torch.stack(largest)
        top = tops.amax(0)
        scales = torch.exp(tops - top)
        z = (scales * torch.stack(sums)).sum(0)
        loss = (z.log() + top).squeeze(1).sub_(logits).mean()
        scales = scales / (z * count)
        gradient = (scales * torch.stack(mixed)).sum(0).sub_(self.weight.detach()[targets], alpha=1 / count)
        if len(self.blocks) == 1:
            rows = torch.arange(count, device=hidden.device)
            (e,) = self.exponentials
            e[rows, targets] = e[rows, targets] - z.squeeze(1).to(self.dtype)
        return loss, gradient, scales

    def set_gradients(self, hidden: Tensor, targets: Tensor, scales: Tensor, factor: Tensor) -> None:
        """`weight.grad` and `bias.grad`, from what `forward` left."""
        for parameter in (self.weight, self.bias):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
        weight, bias = self.weight.grad, self.bias.grad
        assert weight is not None
        assert bias is not None
        for part, e, r in zip(self.blocks, self.exponentials, scales * factor, strict=True):
            if self.rounded is None:
                torch.mm(e.T, hidden * r, out=weight[part])
            else:
                weight[part] = e.T @ (hidden * r).to(self.dtype)
            bias[part] = (r.T.to(self.dtype) @ e).squeeze(0)
        if len(self.blocks) > 1:
            share = -factor / len(hidden)
            weight.index_add_(0, targets, hidden * share)
            bias.index_add_(0, targets, share.expand(len(targets)))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, targets, loss):  # type: ignore[no-untyped-def]
        value, gradient, scales = loss.forward(hidden, targets)
        ctx.save_for_backward(hidden, targets, gradient, scales)
        ctx.loss = loss
        return value

    @staticmethod
    def backward(ctx, factor):  # type: ignore[no-untyped-def]
        hidden, targets, gradient, scales = ctx.saved_tensors
        ctx.loss.set_gradients(hidden, targets, scales, factor)
        return gradient * factor, None, None
