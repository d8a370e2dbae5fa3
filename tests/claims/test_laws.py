"""Laws of the dynamics that claims rest on, each in 200 randomly drawn settings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap import theory
from scansnap.claims.check import Setting
from scansnap.claims.extensions import early_motion
from scansnap.claims.gradients import fixed_attention_state
from scansnap.claims.population import PopulationState
from tests.theory.test_sampling import uneven_classes

pytestmark = pytest.mark.rounding

EXPECTED = {"batch_size": None, "seq_len": np.inf, "dtype": "float64", "progress": False}


@st.composite
def drawn_classes(draw: st.DrawFn) -> ss.SequenceClasses:
    """Two or three classes of one or two queries over six tokens, some of them shared."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(2, 3))
    probs = np.zeros((count, 6 + 2 + count))
    probs[:, :6] = rng.exponential(size=(count, 6)) * (rng.random((count, 6)) < 0.6)
    probs[np.arange(count), np.arange(count)] += 0.3
    probs /= probs.sum(axis=1, keepdims=True)
    queries = 6 + rng.integers(0, 2, size=count)
    return ss.SequenceClasses(
        probs=probs,
        query=queries,
        next_token=8 + np.arange(count),
        vocab_size=8 + count,
        weights=rng.dirichlet(np.full(count, 5.0)),
    )


@settings(max_examples=200, deadline=None)
@given(
    drawn_classes(),
    st.floats(0.1, 2.0),
    st.floats(0.01, 2.0),
    st.floats(0.2, 5.0),
    st.sampled_from(["true", "modified"]),
    st.integers(0, 2**32 - 1),
)
def test_velocities_are_in_proportion_to_their_rates(classes, lr_y, lr_z, factor, gradient, seed) -> None:
    """One step from a drawn state: rates c times as large move Y and Z exactly c times as far (claim section_6_b)."""
    rng = np.random.default_rng(seed)
    size = classes.vocab_size
    start = rng.normal(size=(size, size)), rng.normal(size=(size, size))
    moves = []
    for scale in (1.0, factor):
        rates = {"lr_y": scale * lr_y, "lr_z": scale * lr_z, "decoder_gradient": gradient}
        run = ss.train(classes, **rates, **EXPECTED, steps=1, init=start, record=("decoder", "attention_logits"))
        moves.append([np.diff(run[name].values[0], axis=0) for name in ("decoder", "attention_logits")])
    for plain, scaled in zip(*moves, strict=True):
        np.testing.assert_allclose(scaled, factor * plain, rtol=1e-9, atol=1e-11)
        assert np.abs(plain).max() > 0


@settings(max_examples=200, deadline=None)
@given(drawn_classes(), st.floats(0.1, 1.0), st.floats(1.0, 300.0))
def test_attention_moves_by_eq_10_with_the_chance_of_each_class(classes, lr_y, updates) -> None:
    """The engine's expected step at the decoder of Theorem 5, with class weights of all kinds (claim lemma_4)."""
    f = theory.directions(classes.probs[:, classes.contextual_tokens])
    assume(np.linalg.eigvalsh(f @ f.T)[0] > 1e-3)
    state = fixed_attention_state(Setting(classes, lr_y=lr_y), per_class=updates)
    _, beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=classes.vocab_size)
    gamma = float(theory.speed(updates, vocab_size=classes.vocab_size, num_classes=1, lr_y=lr_y))
    predicted = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, weights=classes.weights)
    measured = state.velocity()[1][np.argsort(classes.queries)]
    np.testing.assert_allclose(predicted, measured, atol=1e-9 * max(1.0, gamma))
    published = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, form="published")
    if np.abs(measured).max() > 1e-6:
        assert np.abs(published - measured).max() > 0.1 * np.abs(measured).max()


@settings(max_examples=200, deadline=None)
@given(drawn_classes(), st.floats(0.1, 1.0), st.floats(0.05, 1.0), st.integers(2, 5))
def test_equal_heads_are_one_head_at_other_rates(classes, lr_y, lr_z, heads) -> None:
    """H heads from zero against one head with the rates H eta_Y and eta_Z/H (claim heads_as_one), step by step."""
    options = {**EXPECTED, "steps": 12, "record_every": 4, "record": ("attention_logits",)}
    runs = (
        ss.train(classes, lr_y=y, lr_z=z, heads=count, **options)
        for y, z, count in ((lr_y, lr_z, heads), (heads * lr_y, lr_z / heads, 1))
    )
    together, alone = (run["attention_logits"].isel(head=0).values for run in runs)
    np.testing.assert_allclose(together, alone, atol=1e-12)
    assert np.abs(alone).max() > 1e-9 or theory.overlaps(theory.directions(classes.probs)).max() < 1e-9


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


@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_tokens_move_as_the_criterion_says(count: int) -> None:
    given(interacting_classes(), st.sampled_from([0.1, 0.5, 1.0]))(
        settings(max_examples=count, deadline=None)(check_moves)
    )()


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


def test_each_class_has_the_direction_of_its_own_query() -> None:
    """Three queries with different logits, ids in no order: rows of Z come in the order of `classes.queries`."""
    classes = uneven_classes()
    assert classes.queries.tolist() == [9, 7, 8]
    tokens = classes.contextual_tokens
    logits = np.random.default_rng(0).normal(size=(3, len(tokens)))
    direction = PopulationState(classes, np.zeros((len(tokens), classes.vocab_size)), logits).direction
    for n, row in enumerate([0, 1, 0, 2]):
        wanted = theory.directions(classes.probs[n : n + 1, tokens], logits[row])[0]
        np.testing.assert_allclose(direction[n], wanted, rtol=1e-14)
