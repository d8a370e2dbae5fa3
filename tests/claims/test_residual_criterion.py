"""The criterion for gaining with a residual connection, over randomly drawn classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap import theory
from scansnap.claims.extensions import early_motion


@st.composite
def interacting_classes(draw: st.DrawFn) -> ss.SequenceClasses:
    """Two or three queries with one to three classes each over eight tokens, many of them shared, of random weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    per_query = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3).filter(lambda counts: max(counts) > 1))
    count = sum(per_query)
    shape = (count, 8 + count)
    weights = rng.exponential(size=shape) * (rng.random(shape) < draw(st.floats(0.1, 0.5)))
    weights[:, 8:] = np.eye(count) * rng.uniform(0.3, 2.0, size=count)[:, None]  # each class has a token of its own
    used = shape[1]
    probs = np.zeros((count, used + len(per_query) + count))
    probs[:, :used] = weights / weights.sum(axis=1, keepdims=True)
    return ss.SequenceClasses(
        probs=probs,
        query=used + np.repeat(np.arange(len(per_query)), per_query),
        next_token=used + len(per_query) + np.arange(count),
        vocab_size=probs.shape[1],
    )


@settings(max_examples=6, deadline=None)
@given(interacting_classes(), st.sampled_from([0.1, 0.5, 1.0]))
def test_tokens_move_as_the_criterion_says(classes: ss.SequenceClasses, lr_y: float) -> None:
    check_moves(classes, lr_y)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(interacting_classes(), st.sampled_from([0.1, 0.5, 1.0]))
def test_tokens_move_as_the_criterion_says_in_200_settings(classes: ss.SequenceClasses, lr_y: float) -> None:
    check_moves(classes, lr_y)


def check_moves(classes: ss.SequenceClasses, lr_y: float) -> None:
    """The size of every move against `flow`, and the sign by the inequality in words."""
    f = theory.directions(classes.probs[:, classes.contextual_tokens])
    assume(theory.overlaps(f).max() > 1e-3)  # without any overlap nothing moves
    predicted, measured = early_motion(classes, lr_y=lr_y)
    scale = np.abs(measured).max()
    np.testing.assert_allclose(predicted, measured, rtol=0, atol=2e-3 * scale)
    v = theory.residual_directions(theory.directions(classes.probs), classes.query)
    _, beta = theory.backpropagated_gradient(theory.overlaps(v), vocab_size=classes.vocab_size)
    for n in range(classes.num_classes):
        row = int(np.searchsorted(np.unique(classes.query), classes.query[n]))
        for token in classes.local_distinct_tokens(n):
            column = int(np.searchsorted(classes.contextual_tokens, token))
            gain = f[n, column] * (beta[n] @ theory.overlaps(f)[n])
            loss = beta[n] @ np.where(classes.query != classes.query[n], f[:, column], 0.0)
            if abs(measured[row, column]) > 4e-3 * scale:
                assert (measured[row, column] > 0) == (gain > loss)


def test_the_weight_of_the_shared_token_decides() -> None:
    """In `local_common` the move changes sign where f^2 of the shared token is 0.64 of the common one's."""
    for shared, common, gains in (
        (1.0, 1.0, False),
        (0.82, 1.0, False),
        (0.78, 1.0, True),
        (0.1, 1.0, True),
        (1.0, 2.0, True),
    ):
        classes = ss.local_common(shared=shared, common=common)
        velocity = theory.residual_velocity(theory.directions(classes.probs), classes.query, vocab_size=1600)
        assert (velocity[0, 32] > 0) == gains
