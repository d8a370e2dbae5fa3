"""The gradient by complex steps is autograd's."""

from __future__ import annotations

import numpy as np
import torch

from scansnap.claims.gradients import plain_gradients
from scansnap.systems.yz.layer import YZTransformer


def test_complex_steps_agree_with_autograd() -> None:
    """Three queries, repeated tokens, a query among the tokens before it."""
    rng = np.random.default_rng(0)
    size, sequences = 9, rng.integers(0, 9, size=(12, 7))
    sequences[:, -1] %= 3
    next_token = rng.integers(0, size, size=12)
    y, z = rng.normal(size=(size, size)), rng.normal(size=(size, size))
    model = YZTransformer(size, dtype=torch.float64)
    with torch.no_grad():
        model.decoder.copy_(torch.from_numpy(y))
        model.attention_logits.copy_(torch.from_numpy(z))
    model.loss(torch.from_numpy(sequences), torch.from_numpy(next_token)).backward()
    by_decoder, by_logit = plain_gradients(sequences, next_token, y, z)
    np.testing.assert_allclose(by_decoder, -model.decoder.grad.numpy(), rtol=0, atol=1e-15)
    np.testing.assert_allclose(by_logit, -model.attention_logits.grad.numpy(), rtol=0, atol=1e-15)
    assert np.count_nonzero(by_logit[3:]) == 0  # only queries have logits that matter
    assert np.abs(by_logit).max() > 1e-3
