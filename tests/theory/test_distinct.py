"""The race among distinct tokens at its start: who leads, and by how much."""

from __future__ import annotations

import numpy as np

from scansnap import theory


def test_the_dominant_token_has_the_largest_weight() -> None:
    """c~_l = P(l|n) exp(z_l): a lead in the logit makes up for a smaller probability, a lag gives a larger one away."""
    assert theory.dominant([0.5, 0.3]) == 0
    assert theory.dominant([0.5, 0.3], [0.0, 1.0]) == 1
    assert theory.dominant([0.3, 0.5], [0.0, -1.0]) == 0
    rng = np.random.default_rng(0)
    for _ in range(20):
        probs, logits = rng.dirichlet(np.ones(5)), rng.normal(size=5)
        assert theory.dominant(probs, logits) == np.argmax(probs * np.exp(logits))
    assert theory.dominant([0.7]) == 0


def test_tokens_are_level_up_to_rounding() -> None:
    """ln c~ compared to 1e-12; only the first two matter."""
    assert theory.dominant([0.4, 0.2], [0.0, np.log(2)]) is None
    assert theory.dominant([0.2, 0.4, 0.4]) is None
    assert theory.dominant([0.4, 0.2, 0.2]) == 0
    assert theory.dominant([0.5, 0.5], [0.0, 0.8e-12]) is None
    assert theory.dominant([0.5, 0.5], [0.0, 1.2e-12]) == 1
