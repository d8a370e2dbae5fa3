"""The synthetic settings against the facts of the published runs."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss


def test_syn_small_is_the_published_one() -> None:
    classes = ss.syn_small()
    assert classes.vocab_size == 34
    assert classes.query.tolist() == [30, 31]
    assert classes.next_token.tolist() == [32, 33]
    assert classes.support(1).tolist() == [*range(10), *range(20, 30)]
    # As printed in the published log, to four digits.
    published = [0.0645] * 10 + [0.0065, 0.0129, 0.0194, 0.0258, 0.0323, 0.0387, 0.0452, 0.0516, 0.0581, 0.0645]
    assert np.round(classes.support_probs(1), 4).tolist() == published


@pytest.mark.parametrize(("num_query", "size"), [(1, 33), (3, 79), (5, 125), (10, 240)])
def test_syn_medium_sizes(num_query: int, size: int) -> None:
    classes = ss.syn_medium(num_query=num_query)
    assert classes.vocab_size == size
    assert classes.num_classes == 2 * num_query
    assert [len(classes.of_query(q)) for q in classes.queries] == [2] * num_query


def test_single_common() -> None:
    classes = ss.single_common(num_classes=10, num_distinct=5, vocab_size=1000)
    assert (classes.num_classes, classes.vocab_size, len(classes.contextual_tokens)) == (10, 1000, 51)
    assert classes.common_tokens.tolist() == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_query": 0, "next_per_query": 1}, "num_query is 0"),
        ({"num_query": 1, "next_per_query": 2.5}, "next_per_query is 2.5"),
        ({"num_query": 1, "next_per_query": 1, "num_common": -1}, "num_common is -1"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.synthetic(**options)


def test_single_common_needs_room() -> None:
    with pytest.raises(ss.InputError, match="alone use 62 tokens"):
        ss.single_common(vocab_size=20)
