"""Exact dynamics behind the claims: states, gradients, symmetric classes and integrals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap import theory
from scansnap.claims.claim import is_symmetric
from scansnap.claims.gradients import plain_gradients
from scansnap.claims.population import State
from scansnap.systems.yz.layer import YZTransformer
from tests.theory.test_sampling import uneven_classes


def test_each_class_has_the_direction_of_its_own_query() -> None:
    """Three queries with different logits, ids in no order: rows of Z come in the order of `classes.queries`."""
    classes = uneven_classes()
    assert classes.queries.tolist() == [9, 7, 8]
    tokens = classes.contextual_tokens
    logits = np.random.default_rng(0).normal(size=(3, len(tokens)))
    direction = State(classes, np.zeros((len(tokens), classes.vocab_size)), logits).direction
    for n, row in enumerate([0, 1, 0, 2]):
        wanted = theory.directions(classes.probs[n : n + 1, tokens], logits[row])[0]
        np.testing.assert_allclose(direction[n], wanted, rtol=1e-14)


def test_state_velocity_is_a_step_of_training() -> None:
    """The claims' population gradient against one step of the engine, from a state after ten."""
    classes = ss.syn_medium(num_query=3)
    options = {"lr_y": 0.5, "lr_z": 0.25, "batch_size": None, "seq_len": np.inf, "dtype": "float64"}
    run = ss.train(classes, steps=11, **options, record=("attention_logits", "decoder"), progress=False)
    result = run.isel(run=0, layer=0, head=0)
    before, after = result.sel(step=10), result.sel(step=11)
    dy, dz = State(classes, before["decoder"].values, before["attention_logits"].values).velocity()
    np.testing.assert_allclose(after["decoder"].values - before["decoder"].values, 0.5 * dy, atol=1e-14)
    moved = after["attention_logits"].values - before["attention_logits"].values
    np.testing.assert_allclose(moved, 0.25 * dz, atol=1e-14)


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


def classes_of(query: list[int], weights: list[float] | None = None) -> ss.SequenceClasses:
    """Classes that match in all but their queries and weights."""
    plain = ss.synthetic(num_query=1, next_per_query=len(query), num_common=2, num_distinct=3, vocab_size=40)
    return ss.SequenceClasses(
        probs=plain.probs, query=query, next_token=plain.next_token, vocab_size=40, weights=weights
    )


@pytest.mark.parametrize(
    ("query", "weights", "symmetric"),
    [
        ([30, 30, 30, 30], None, True),
        ([31, 30, 31, 30], None, True),
        ([30, 31, 32, 33], None, True),
        ([30, 30, 30, 31], None, False),
        ([30, 30, 31], None, False),
        ([30, 31], [0.5, 0.5], True),
        ([30, 31], [0.5 + 1e-6, 0.5 - 1e-6], False),
    ],
)
def test_symmetric_classes_are_equally_likely_and_spread_evenly_over_queries(query, weights, symmetric) -> None:
    assert is_symmetric(classes_of(query, weights)) == symmetric
