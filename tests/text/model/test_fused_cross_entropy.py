"""The GPU's loss against PyTorch's own, on a GPU or with Triton's interpreter on a CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is for Linux only")

from scansnap.text.model.fused_cross_entropy import FusedCrossEntropy

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if torch.cuda.is_available() else torch.float16  # the interpreter has no bf16 products
SIZES = [(1, 2, 1), (37, 301, 40), (64, 128, 32), (130, 1000, 7)]  # rows, tokens, width


def problem(rows: int, tokens: int, width: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(rows)
    weight, bias = scale * torch.randn(tokens, width, generator=g), torch.randn(tokens, generator=g)
    hidden, targets = torch.randn(rows, width, generator=g), torch.randint(tokens, (rows,), generator=g)
    return tuple(x.to(DEVICE) for x in (weight, bias, hidden, targets))


def exact(weight: Tensor, bias: Tensor, hidden: Tensor, targets: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Three times the loss, and its gradients, in float64 by autograd."""
    weight, bias, hidden = (x.double().requires_grad_() for x in (weight, bias, hidden))
    loss = 3 * nn.functional.cross_entropy(hidden @ weight.T + bias, targets)
    return loss.detach(), torch.autograd.grad(loss, (hidden, weight, bias))


def fused(
    weight: Tensor, bias: Tensor, hidden: Tensor, targets: Tensor, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, tuple[Tensor, ...]]:
    weight, bias = nn.Parameter(weight), nn.Parameter(bias)
    for parameter in (weight, bias):
        parameter.grad = torch.full_like(parameter, torch.nan)  # must be overwritten entirely
    loss = 3 * FusedCrossEntropy(weight, bias, dtype)(hidden.requires_grad_(), targets)
    loss.backward()
    return loss.detach(), (hidden.grad, weight.grad, bias.grad)


def distance(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_cross_entropy(size: tuple[int, int, int]) -> None:
    arguments = problem(*size)
    loss, expected = exact(*arguments)
    fused_loss, gradients = fused(*arguments)
    assert float(fused_loss) == pytest.approx(float(loss), rel=2e-6)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert distance(ours, theirs) < 3e-6


@pytest.mark.parametrize("size", SIZES)
def test_rounded_it_is_close(size: tuple[int, int, int]) -> None:
    arguments = problem(*size)
    loss, expected = exact(*arguments)
    fused_loss, gradients = fused(*arguments, dtype=HALF)
    assert float(fused_loss) == pytest.approx(float(loss), rel=1e-2)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert 1e-6 < distance(ours, theirs) < 2e-2


def test_logits_beyond_the_range_of_exponentials_do_no_harm() -> None:
    arguments = problem(37, 301, 40, scale=50.0)
    loss, expected = exact(*arguments)
    assert float(loss) > 3 * 100
    fused_loss, gradients = fused(*arguments)
    assert float(fused_loss) == pytest.approx(float(loss), rel=1e-5)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert distance(ours, theirs) < 1e-3  # the error of a probability is that of a logit in the thousands


def test_a_block_of_impossible_tokens_does_no_harm() -> None:
    weight, bias, hidden, targets = problem(37, 301, 40)
    bias[128:256] = -torch.inf
    targets %= 128
    loss, expected = exact(weight, bias, hidden, targets)
    fused_loss, gradients = fused(weight, bias, hidden, targets)
    assert float(fused_loss) == pytest.approx(float(loss), rel=2e-6)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert distance(ours, theirs) < 3e-6


def test_evaluation_has_no_gradients_and_batches_may_differ_in_size() -> None:
    weight, bias, *_ = problem(37, 301, 40)
    loss = FusedCrossEntropy(nn.Parameter(weight), nn.Parameter(bias))
    for rows in (37, 5, 200):
        _, _, hidden, targets = problem(rows, 301, 40)
        expected = nn.functional.cross_entropy((hidden @ weight.T + bias).double(), targets, reduction="sum")
        assert float(loss.evaluate(hidden, targets)) == pytest.approx(float(expected), rel=1e-5)
        loss(hidden.requires_grad_(), targets).backward()
        assert distance(loss.weight.grad, exact(weight, bias, hidden.detach(), targets)[1][1] / 3) < 3e-6
