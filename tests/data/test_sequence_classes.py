"""Sequence classes: what they say of themselves, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import scansnap as ss
from tests.strategies import sequence_classes

P = np.array([[0.5, 0.5, 0, 0, 0, 0], [0.25, 0, 0.75, 0, 0, 0], [0, 0, 0.5, 0.5, 0, 0]])
GOOD = {"probs": P, "query": [4, 4, 5], "next_token": [0, 1, 2], "vocab_size": 6}


def test_kinds_of_tokens() -> None:
    classes = ss.SequenceClasses(**GOOD)
    assert classes.num_classes == 3
    assert classes.queries.tolist() == [4, 5]
    assert classes.contextual_tokens.tolist() == [0, 1, 2, 3]
    assert classes.common_tokens.tolist() == [0, 2]
    assert [classes.distinct_tokens(i).tolist() for i in range(3)] == [[1], [], [3]]
    # Within query 4 the token 2 belongs to one class only (Section 7).
    assert classes.local_common_tokens(4).tolist() == [0]
    assert [classes.local_distinct_tokens(i).tolist() for i in range(3)] == [[1], [2], [2, 3]]
    assert classes.next_tokens_of(0).tolist() == [0, 1]
    assert classes.next_tokens_of(5).tolist() == []
    assert classes.overlap(0, 1).tolist() == [0]
    assert classes.overlap(0, 2).tolist() == []
    assert classes.of_query(4).tolist() == [0, 1]
    assert classes.token_kinds.tolist() == ["common", "distinct", "common", "distinct", "query", "query"]


@given(sequence_classes())
def test_definitions_hold_for_any_classes(classes: ss.SequenceClasses) -> None:
    present = classes.probs > 0
    assert np.allclose(classes.probs.sum(1), 1)
    for token in range(classes.vocab_size):
        omega = set(classes.next_token[present[:, token]].tolist())
        assert set(classes.next_tokens_of(token).tolist()) == omega
        assert (token in classes.common_tokens) == (len(omega) > 1)
    for i in range(classes.num_classes):
        elsewhere = present[classes.next_token != classes.next_token[i]].any(0)
        alone = np.flatnonzero(present[i] & ~elsewhere)
        assert classes.distinct_tokens(i).tolist() == alone.tolist()
        siblings = present[classes.query == classes.query[i]].sum(0)
        assert classes.local_distinct_tokens(i).tolist() == np.flatnonzero(present[i] & (siblings == 1)).tolist()


@given(sequence_classes())
def test_dense_and_sparse_forms_are_one(classes: ss.SequenceClasses) -> None:
    from scipy.sparse import csr_array

    common = {"query": classes.query, "next_token": classes.next_token, "vocab_size": classes.vocab_size}
    for probs in (classes.probs, csr_array(classes.probs)):
        assert ss.SequenceClasses(probs=probs, weights=classes.weights, **common) == classes


def test_frozen() -> None:
    classes = ss.SequenceClasses(**GOOD)
    with pytest.raises(ValueError, match="read-only"):
        classes.token_probs[0] = 1.0
    with pytest.raises(AttributeError):
        classes.vocab_size = 7


def test_equality_sees_every_number() -> None:
    classes = ss.SequenceClasses(**GOOD)
    assert classes == ss.SequenceClasses(**GOOD)
    assert classes != ss.SequenceClasses(**{**GOOD, "query": [4, 4, 4]})
    assert classes != ss.SequenceClasses(**GOOD, weights=[0.5, 0.25, 0.25])


def changed(row: int, column: int, value: float) -> np.ndarray:
    probs = P.copy()
    probs[row, column] = value
    return probs


BAD = [
    ({"probs": changed(1, 2, 0.7)}, "class 1 sum to 0.95, not 1"),
    ({"probs": (1 + 2e-6) * P}, r"class 0 sum to 1\.000002, not 1"),
    ({"probs": changed(0, 0, np.nan)}, "class 0 contain nan"),
    ({"probs": changed(0, 0, -0.5)}, "class 0 has the probability -0.5"),
    ({"probs": P[:, :5]}, "5 columns but vocab_size is 6"),
    ({"probs": P[0]}, "one row per class"),
    ({"probs": [["a", "b"]]}, "cannot be read as an array of numbers"),
    ({"query": [4, 4, 6]}, "query holds token 6: ids run from 0 to 5"),
    ({"query": [4, 4]}, "query has 2 entries for 3 classes"),
    ({"query": [4.5, 4, 5]}, "must be a list of token ids"),
    ({"next_token": [0, -1, 2]}, "next_token holds token -1"),
    ({"next_token": [0, 0, 2]}, "classes 0, 1 have the same query 4 and the same next token 0"),
    ({"next_token": [0, 0, 2], "token_names": list("abcdef")}, "the same query e and the same next token a"),
    ({"vocab_size": 1}, "vocab_size is 1"),
    ({"vocab_size": "six"}, "vocab_size is 'six'"),
    ({"weights": [0.5, 0.5, 0.5]}, "weights sum to 1.5"),
    ({"weights": [0.5, 0.25, 0.250002]}, r"weights sum to 1\.000002, not 1"),
    ({"weights": [1.5, -0.5, 0.0]}, "weights must be finite numbers of at least 0"),
    ({"token_names": ["a", "b"]}, "2 names for 6 tokens"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.SequenceClasses(**{**GOOD, **change})


def test_sums_may_be_rounded_to_single_precision() -> None:
    ss.SequenceClasses(**{**GOOD, "probs": (1 + 5e-7) * P}, weights=[0.5, 0.25, 0.2500005])


def test_refusals_of_supports() -> None:
    rest = {"query": [0], "next_token": [1], "vocab_size": 3}
    for tokens, probs, message in [
        ([[0, 0]], [[0.5, 0.5]], "lists a token twice"),
        ([[0, 5]], [[0.5, 0.5]], "class 0 holds token 5"),
        ([[0, 1]], [[1.0]], "2 tokens but 1 probabilities"),
        ([[0], [1]], [[1.0]], "tokens lists 2 classes"),
        ([], [], "there are no classes"),
    ]:
        with pytest.raises(ss.InputError, match=message):
            ss.SequenceClasses.from_supports(tokens=tokens, probs=probs, **rest)
    with pytest.raises(ss.InputError, match="token 2 is not a query"):
        ss.SequenceClasses.from_supports(tokens=[[0]], probs=[[1.0]], **rest).of_query(2)


def test_a_next_token_may_follow_several_queries() -> None:
    """Tokens are common if they occur with several next tokens, in however many classes."""
    classes = ss.SequenceClasses(
        probs=[[0.5, 0.5, 0, 0, 0, 0, 0, 0], [0, 0.4, 0.6, 0, 0, 0, 0, 0], [0.7, 0, 0, 0.3, 0, 0, 0, 0]],
        query=[4, 4, 5],
        next_token=[6, 7, 6],
        vocab_size=8,
    )
    assert not classes.has_psi
    assert ss.SequenceClasses(**GOOD).has_psi
    assert classes.common_tokens.tolist() == [1]
    assert [classes.distinct_tokens(i).tolist() for i in range(3)] == [[0], [2], [0, 3]]
    assert classes.next_tokens_of(0).tolist() == [6]
    assert not ss.theory.assumptions(classes, lr_y=1.0, lr_z=0.1)["query_of_next"].met


def test_a_class_of_weight_zero_is_never_drawn() -> None:
    classes = ss.SequenceClasses(**GOOD, weights=[0.0, 1.0, 0.0])
    draw = classes.draw(seeds=np.arange(3, dtype=np.uint64), step=0, num_sequences=500, length=4)
    assert (draw.class_index == 1).all()
