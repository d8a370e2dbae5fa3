"""Dropout on a CPU."""

from __future__ import annotations

import pytest
import torch

from scansnap.text.model.dropout import drop


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("share", [0.001, 0.2, 0.9, 0.999])
def test_it_drops_its_share_and_preserves_the_mean(share: float, dtype: torch.dtype) -> None:
    """The share dropped of a million entries is within five standard deviations: one failure in a million seeds."""
    torch.manual_seed(0)
    x = torch.full((1_000_000,), 3.0, dtype=dtype, requires_grad=True)
    dropped = drop(x, share)
    zero_share = float((dropped == 0).float().mean())
    assert abs(zero_share - share) < 5 * (share * (1 - share) / 1e6) ** 0.5
    nonzero = dropped[dropped != 0]
    assert torch.equal(nonzero, torch.full_like(nonzero, 3.0) * (torch.ones(()) / (1 - share)).to(dtype))
    dropped.sum().backward()
    assert torch.equal(x.grad * 3.0, dropped.detach())  # dropped entries have no gradient


def test_the_seed_determines_what_is_dropped() -> None:
    def dropped(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return drop(torch.ones(1000), 0.2) == 0

    assert torch.equal(dropped(1), dropped(1))
    assert not torch.equal(dropped(1), dropped(2))


def test_nothing_to_drop_draws_nothing() -> None:
    x, before = torch.ones(3), torch.get_rng_state()
    assert drop(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), before)
