"""The ladder from (Y, Z) to a regular transformer."""

from __future__ import annotations

import math

import pytest
import torch

from scansnap.text.model.ladder import LadderModel, Rung
from scansnap.text.model.shape import YZShape
from scansnap.text.model.yz import YZText

VOCAB, WINDOW = 9, 6
IDS = torch.randint(0, VOCAB, (5, WINDOW), generator=torch.Generator().manual_seed(0))
NEXT = torch.randint(0, VOCAB, (5, WINDOW), generator=torch.Generator().manual_seed(1))


def model(**switches) -> LadderModel:
    torch.manual_seed(0)
    return LadderModel(Rung(**switches), vocab_size=VOCAB, window=WINDOW).double()


@pytest.mark.parametrize("attention", ["free", "bilinear"])
def test_with_orthogonal_embeddings_the_lowest_rung_is_yz(attention: str) -> None:
    """Y = U D and Z move as in (Y, Z) if U is the identity and does not move."""
    ours, yz = (
        model(width=VOCAB, attention=attention),
        YZText(YZShape(vocab_size=VOCAB, window=WINDOW, dtype="float64")),
    )
    everyone = torch.arange(VOCAB)
    with torch.no_grad():
        ours.embedding.copy_(torch.eye(VOCAB))
    for _ in range(3):
        loss = ours.step(IDS, NEXT, lr_y=3.0, lr_z=3.0)
        with torch.no_grad():
            ours.embedding.copy_(torch.eye(VOCAB))
        assert math.isclose(float(loss), float(yz.step(IDS, NEXT, lr_y=3.0, lr_z=3.0)), rel_tol=1e-12)
    torch.testing.assert_close(ours.decoder.data, yz.decoder.data, rtol=0, atol=1e-12)
    z = ours.logits_between(everyone, everyone)
    torch.testing.assert_close(z, yz.logits_between(everyone, everyone), rtol=0, atol=1e-12)
    assert z.abs().max() > 1e-3


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"attention": "factored"},
        {"norm": "layer", "residual": True},
        {"residual": True, "feed_forward": True},
        {"attention": "factored", "norm": "layer", "residual": True, "feed_forward": True, "positions": True},
    ],
)
def test_every_rung_learns(switches) -> None:
    ours = model(width=8, **switches)
    losses = [float(ours.step(IDS, NEXT, lr_y=2.0, lr_z=0.5)) for _ in range(60)]
    assert math.isclose(losses[0], math.log(VOCAB), rel_tol=1e-6)  # D = 0
    assert losses[-1] < 0.8 * losses[0]
    assert torch.isfinite(ours.logits_between(torch.arange(3), torch.arange(VOCAB))).all()


def test_logits_between_tokens_are_means_over_positions() -> None:
    ours = model(width=8, attention="factored", positions=True)
    u = ours.embedding[:4, None] + ours.codes  # (tokens, positions, d)
    pairs = torch.einsum("apd,bqd->abpq", u @ ours.query, u @ ours.key)
    torch.testing.assert_close(ours.logits_between(torch.arange(4), torch.arange(4))[0], pairs.mean((2, 3)))
