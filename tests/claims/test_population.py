"""Exact dynamics behind the claims: states, gradients, symmetric classes and integrals."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.claims.claim import is_symmetric
from scansnap.claims.population import State
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
