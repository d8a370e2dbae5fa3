"""Random sequence classes: overlapping or not, several queries, tokens with several roles, uneven weights.

Half of them have next tokens that may follow several queries.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from scansnap import SequenceClasses


@st.composite
def sequence_classes(draw, most_classes: int = 4, most_tokens: int = 12) -> SequenceClasses:
    num_classes = draw(st.integers(1, most_classes))
    vocab_size = draw(st.integers(num_classes + 1, most_tokens))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = [draw(st.integers(1, min(6, vocab_size))) for _ in range(num_classes)]
    tokens = [rng.choice(vocab_size, size, replace=False) for size in sizes]
    probs = [rng.dirichlet(np.ones(size)) for size in sizes]
    num_queries = draw(st.integers(1, num_classes))
    queries = rng.choice(vocab_size, num_queries, replace=False)
    query = queries[rng.integers(0, num_queries, num_classes)]
    shared = draw(st.booleans())  # whether the classes of every query have the first of the next tokens
    next_token = query
    while (next_token == query).any():
        next_token = rng.choice(vocab_size, num_classes, replace=False)
        if shared:
            next_token = next_token[[int((query[:i] == query[i]).sum()) for i in range(num_classes)]]
    return SequenceClasses.from_supports(
        tokens=tokens,
        probs=[p / p.sum() for p in probs],
        query=query,
        next_token=next_token,
        vocab_size=vocab_size,
        weights=rng.dirichlet(5 * np.ones(num_classes)) if draw(st.booleans()) else None,
    )
