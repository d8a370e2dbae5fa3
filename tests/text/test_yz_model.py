"""(Y, Z) on text: its closed form against autograd of the dense model, position by position."""

from __future__ import annotations

import pytest
import torch

from scansnap.systems.yz.layer import YZTransformer
from scansnap.text import yz
from scansnap.text.options import YZShape
from scansnap.text.yz import YZText

VOCAB = 7


def random_model(residual: bool, seed: int = 0) -> YZText:
    torch.manual_seed(seed)
    model = YZText(YZShape(vocab_size=VOCAB, residual=residual, dtype="float64"))
    model.decoder.normal_()
    model.attention_logits.normal_()
    return model


def dense(model: YZText) -> YZTransformer:
    """The model as it is written down, on one-hot vectors; it reads one sequence with its query last."""
    plain = YZTransformer(VOCAB, residual=model.shape.residual, dtype=torch.float64)
    with torch.no_grad():
        plain.decoder.copy_(model.decoder)
        plain.attention_logits.copy_(model.attention_logits)
    return plain


def windows(count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, VOCAB, (count, length + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


def prefix_loss(plain: YZTransformer, ids: torch.Tensor, next_tokens: torch.Tensor) -> torch.Tensor:
    """The mean loss over positions, each as a sequence of its own."""
    losses = [
        plain.loss(ids[:, : t + 1], next_tokens[:, t]) for t in range(1, ids.shape[1])
    ]  # each a mean over windows
    return torch.stack(losses).mean()


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
def test_a_step_is_that_of_autograd(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens repeat: eleven positions, seven types."""
    monkeypatch.setitem(yz.LOGITS_AT_ONCE, "cpu", 2 * 11 * VOCAB)  # in parts of two windows
    model = random_model(residual)
    plain = dense(model)
    ids, next_tokens = windows(5, 11)
    loss = prefix_loss(plain, ids, next_tokens)
    loss.backward()
    before = model.decoder.clone(), model.attention_logits.clone()
    assert model.loss(ids, next_tokens).item() == pytest.approx(loss.item(), rel=1e-12)
    assert model.step(ids, next_tokens, lr_y=2.0, lr_z=3.0).item() == pytest.approx(loss.item(), rel=1e-12)
    assert plain.decoder.grad is not None
    assert plain.attention_logits.grad is not None
    assert torch.allclose((model.decoder - before[0]) / 2, -plain.decoder.grad, rtol=1e-10, atol=1e-13)
    assert torch.allclose(
        (model.attention_logits - before[1]) / 3, -plain.attention_logits.grad, rtol=1e-10, atol=1e-13
    )


def test_attention_is_on_earlier_tokens_and_sums_to_one() -> None:
    weights = random_model(False).attention(windows(2, 6)[0])[0][:, 0]
    assert bool((weights.triu() == 0).all())
    assert torch.allclose(weights.sum(2)[:, 1:], torch.ones(2, 5, dtype=torch.float64))


def test_from_zero_the_decoder_moves_first() -> None:
    """At Y = 0 attention has no gradient, so Z follows only from the second step on."""
    model = YZText(YZShape(vocab_size=VOCAB))
    ids, next_tokens = windows(3, 8)
    model.step(ids, next_tokens, lr_y=1.0, lr_z=1.0)
    assert bool(model.decoder.any())
    assert not bool(model.attention_logits.any())
    model.step(ids, next_tokens, lr_y=1.0, lr_z=1.0)
    assert bool(model.attention_logits.any())
