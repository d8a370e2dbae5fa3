"""The blocked loss and all its gradients against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from scansnap.text.model import blocked_cross_entropy
from scansnap.text.model.blocked_cross_entropy import BlockedCrossEntropy


def problem(rows: int = 40, width: int = 8, vocabulary: int = 150, scale: float = 1.0, seed: int = 0):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    weight, bias = nn.Parameter(scale * normal(vocabulary, width)), nn.Parameter(normal(vocabulary))
    hidden = normal(rows, width).requires_grad_()
    return weight, bias, hidden, torch.randint(vocabulary, (rows,), generator=g)


def plain(weight, bias, hidden, targets, factor=1.0):
    """The loss and the gradients of hidden states, decoder and bias, by autograd."""
    loss = nn.functional.cross_entropy(hidden @ weight.T + bias, targets)
    return loss, torch.autograd.grad(factor * loss, (hidden, weight, bias))


def blocked(weight, bias, hidden, targets, factor=1.0, dtype=torch.float64):
    loss = BlockedCrossEntropy(weight, bias, dtype)(hidden, targets)
    (gradient,) = torch.autograd.grad(factor * loss, hidden)
    return loss, (gradient, weight.grad, bias.grad)


@pytest.mark.parametrize("block", [1, 32, 50, 149, 150, 1000])
def test_it_is_the_cross_entropy(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(blocked_cross_entropy, "CPU_BLOCK", block)
    arguments = problem()
    loss, expected = plain(*arguments, factor=3.0)
    blocked_loss, gradients = blocked(*arguments, factor=3.0)
    assert abs(float((blocked_loss - loss).detach())) < 1e-13
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(2, 60), st.integers(0, 10**6), st.sampled_from([1, 50, 400]))
def test_it_is_right_for_any_size_and_large_logits(rows: int, width: int, size: int, seed: int, scale: int) -> None:
    arguments = problem(rows, width, size, float(scale), seed)
    loss, expected = plain(*arguments)
    blocked_loss, gradients = blocked(*arguments)
    assert torch.isclose(blocked_loss, loss, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_same_array_serves_batch_after_batch() -> None:
    weight, bias, hidden, targets = problem()
    loss = BlockedCrossEntropy(weight, bias, torch.float64)
    for seed in (1, 2):
        _, _, other, others = problem(seed=seed)
        loss(other, others).backward()
        array = weight.grad
        expected = plain(weight, bias, other, others)[1][1]
        assert torch.allclose(weight.grad, expected, atol=1e-14)
    loss(hidden, targets).backward()
    assert weight.grad is array


@pytest.mark.parametrize("gap", [60.0, 70.0, 80.0, 95.0, 200.0, 5000.0])
def test_targets_far_below_the_largest_logit_do_no_harm(monkeypatch: pytest.MonkeyPatch, gap: float) -> None:
    """In float32, where e^89 overflows, with the targets and the largest logits in different blocks."""
    monkeypatch.setattr(blocked_cross_entropy, "CPU_BLOCK", 50)
    weight, bias, hidden, _ = (t.detach().float() for t in problem())
    weight, bias = nn.Parameter(weight), nn.Parameter(bias)
    with torch.no_grad():
        bias[100:] -= gap
    arguments = (weight, bias, hidden.requires_grad_(), torch.arange(40) + 105)
    loss, expected = plain(*arguments)
    blocked_loss, gradients = blocked(*arguments, dtype=torch.float32)
    assert torch.isclose(blocked_loss, loss, rtol=1e-6)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_in_bf16_training_and_validation_losses_are_alike() -> None:
    """Even for confident predictions, whose loss is the small difference of large rounded numbers."""
    weight, bias, hidden, _ = (t.detach().float() for t in problem(300, 16, 500))
    weight, bias = nn.Parameter(weight), nn.Parameter(bias)
    targets = (hidden @ weight.T + bias).argmax(1)
    loss = BlockedCrossEntropy(weight, bias, torch.bfloat16)
    trained = float(loss(hidden.requires_grad_(), targets).detach())
    assert trained > 0
    assert trained == pytest.approx(float(loss.evaluate(hidden, targets)) / 300, rel=0.02)


def test_in_bf16_it_is_close() -> None:
    weight, bias, hidden, targets = (
        t.detach().float().requires_grad_() if t.is_floating_point() else t for t in problem(200, 16, 500)
    )
    weight, bias = nn.Parameter(weight), nn.Parameter(bias)
    loss, expected = plain(weight, bias, hidden, targets)
    blocked_loss, gradients = blocked(weight, bias, hidden, targets, dtype=torch.bfloat16)
    assert abs(float((blocked_loss / loss).detach()) - 1) < 5e-3
    for ours, theirs in zip(gradients, expected, strict=True):
        error = float((ours - theirs).norm() / theirs.norm())
        assert 1e-5 < error < 2e-2  # rounded to two or three digits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_confident_predictions_keep_their_digits(dtype: torch.dtype) -> None:
    """At a mean loss of about a hundredth, where P - 1_y is a small difference."""
    weight, bias, _, targets = problem(300, 32, 500)
    hidden = (0.8 * weight.detach()[targets]).requires_grad_()
    loss, expected = plain(weight, bias, hidden, targets)
    assert 0.001 < float(loss.detach()) < 0.05
    single = (nn.Parameter(weight.detach().float()), nn.Parameter(bias.detach().float()))
    _, gradients = blocked(*single, hidden.detach().float().requires_grad_(), targets, dtype=dtype)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < (2e-2 if dtype == torch.bfloat16 else 5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_repeated_with_several_threads_it_gives_identical_gradients(dtype: torch.dtype) -> None:
    weight, bias, hidden, _ = (t.detach().float() for t in problem(700, 64, 1000))
    targets = torch.arange(700) % 5  # many rows add to the same few tokens
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runs = [
            blocked(nn.Parameter(weight), nn.Parameter(bias), hidden.clone().requires_grad_(), targets, dtype=dtype)[1]
            for _ in range(10)
        ]
    finally:
        torch.set_num_threads(before)
    for gradients in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients, runs[0], strict=True))


def test_a_second_call_before_backward_is_refused() -> None:
    weight, bias, hidden, targets = problem()
    loss = BlockedCrossEntropy(weight, bias, torch.float64)
    first = loss(hidden, targets)
    loss.evaluate(hidden, targets)  # does not count
    second = loss(hidden, targets)
    with pytest.raises(RuntimeError, match="call backward before the next batch"):
        first.backward()
    second.backward()


def test_evaluation_sums_without_gradients() -> None:
    weight, bias, hidden, targets = problem()
    total = BlockedCrossEntropy(weight, bias, torch.float64).evaluate(hidden, targets)
    assert abs(float(total) / len(targets) - float(plain(weight, bias, hidden, targets)[0].detach())) < 1e-13
    assert weight.grad is None
