"""What claims need of classes, each on classes that just have it and on classes that just do not."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.claim import NEEDS


def classes(rows: list[list[float]], query: list[int] | None = None) -> ss.SequenceClasses:
    """Classes of the first tokens; queries 8 and 9, all 8 unless stated, and next tokens from 10 on."""
    probs = np.zeros((len(rows), 16))
    probs[:, : len(rows[0])] = rows
    return ss.SequenceClasses(
        probs=probs, query=query or [8] * len(rows), next_token=np.arange(10, 10 + len(rows)), vocab_size=16
    )


TWO = classes([[0.2, 0.4, 0.4, 0, 0], [0.2, 0, 0, 0.4, 0.4]])
"""Two classes of one query with one common token and two distinct tokens each."""


@pytest.mark.parametrize(
    ("need", "has", "lacks"),
    [
        ("several classes", TWO, classes([[0.5, 0.5]])),
        ("a distinct token", classes([[0.4, 0.6, 0], [0.4, 0.5, 0.1]]), classes([[0.4, 0.6], [0.5, 0.5]])),
        ("distinct tokens", classes([[0.2, 0.4, 0.4], [1, 0, 0]]), classes([[0.2, 0.8, 0, 0], [0.2, 0, 0.4, 0.4]])),
        ("distinct tokens everywhere", TWO, classes([[0.2, 0.4, 0.4, 0], [0.2, 0, 0, 0.8]])),
        ("common tokens", TWO, classes([[1, 0], [0, 1]])),
        ("one common token", TWO, classes([[0.2, 0.2, 0.6, 0], [0.2, 0.2, 0, 0.6]])),
        ("one common token", TWO, classes([[1, 0], [0, 1]])),
        ("one query", TWO, classes([[0.5, 0.5, 0], [0.5, 0, 0.5]], [8, 9])),
        ("interacting queries", classes([[1, 0], [0.5, 0.5], [0, 1]], [8, 8, 9]), classes([[1, 0], [0, 1]], [8, 9])),
        ("interacting queries", classes([[1, 0], [0.5, 0.5], [0, 1]], [8, 9, 9]), TWO),
        ("symmetric classes", TWO, classes([[0.2, 0.4, 0.4, 0, 0], [0.2, 0, 0, 0.3, 0.5]])),
    ],
)
def test_needs_are_met_from_their_limits_on(need: str, has: ss.SequenceClasses, lacks: ss.SequenceClasses) -> None:
    met = NEEDS[need][1]
    assert met(has)
    assert not met(lacks)


def test_every_need_is_tried() -> None:
    (mark,) = test_needs_are_met_from_their_limits_on.pytestmark
    assert {case[0] for case in mark.args[1]} == set(NEEDS)
