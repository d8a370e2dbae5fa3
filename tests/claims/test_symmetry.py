"""Classes are recognized as symmetric, or as not symmetric for each possible reason."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.claim import is_symmetric
from scansnap.claims.population import symmetric_arguments


def classes_of(query: list[int], weights: list[float] | None = None) -> ss.SequenceClasses:
    """Classes that match in all but their queries and weights."""
    plain = ss.synthetic(num_query=1, next_per_query=len(query), num_common=2, num_distinct=3, vocab_size=40)
    return ss.SequenceClasses(
        probs=plain.probs, query=query, next_token=plain.next_token, vocab_size=40, weights=weights
    )


def test_queries_must_have_equally_many_classes() -> None:
    assert is_symmetric(classes_of([30, 30, 30, 30]))
    assert is_symmetric(classes_of([31, 30, 31, 30]))
    assert is_symmetric(classes_of([30, 31, 32, 33]))
    assert not is_symmetric(classes_of([30, 30, 30, 31]))
    assert not is_symmetric(classes_of([30, 30, 31]))


def test_classes_must_be_equally_likely() -> None:
    assert is_symmetric(classes_of([30, 31], weights=[0.5, 0.5]))
    assert not is_symmetric(classes_of([30, 31], weights=[0.5 + 1e-6, 0.5 - 1e-6]))


@pytest.mark.parametrize(("query", "per_query"), [([30, 30, 30, 30], 4), ([31, 30, 31, 30], 2), ([30, 31, 32, 33], 1)])
def test_arguments_of_the_symmetric_equations(query: list[int], per_query: int) -> None:
    arguments = symmetric_arguments(classes_of(query))
    assert (arguments["num_classes"], arguments["vocab_size"], arguments["classes_per_query"]) == (4, 40, per_query)
    total = 2 + 0.1 + 0.55 + 1
    np.testing.assert_allclose(arguments["common_probs"], [1 / total] * 2, rtol=1e-12)
    np.testing.assert_allclose(arguments["distinct_probs"], [0.1 / total, 0.55 / total, 1 / total], rtol=1e-12)
