"""The synthetic settings against the facts of the published runs."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss

pytestmark = pytest.mark.rounding


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


def test_near_distinct_has_its_distinct_tokens_next_to_the_query() -> None:
    """Share 0.4 at distance 1, falling by 0.6 per position; within each kind the proportions of `synthetic`."""
    classes = ss.near_distinct(num_positions=4, num_query=2, num_common=3, num_distinct=2, near=0.4, decay=0.6)
    plain = ss.synthetic(num_query=2, next_per_query=2, num_common=3, num_distinct=2)
    assert classes.sizes.tolist() == [1, 1, 1, 1]
    for i in range(plain.num_classes):
        assert classes.support(i).tolist() == plain.support(i).tolist()
        common = np.isin(plain.support(i), plain.common_tokens)
        for distance, probs in enumerate(np.array(classes.listed_probs(i))):
            share = 0.4 * 0.6**distance
            assert probs[~common].sum() == pytest.approx(share, rel=1e-14)
            assert probs[common].sum() == pytest.approx(1 - share, rel=1e-14)
            for kind in (common, ~common):
                ratio = probs[kind] / plain.support_probs(i)[kind]
                np.testing.assert_allclose(ratio, ratio[0], rtol=1e-13)
    assert (classes.query.tolist(), classes.next_token.tolist()) == (plain.query.tolist(), plain.next_token.tolist())
    assert classes.vocab_size == plain.vocab_size
