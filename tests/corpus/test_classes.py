"""Sequence classes made from counts."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.runtime.errors import InputError
from tests.corpus.slow_counts import corpus_of


def test_classes_are_the_shares_of_the_counts(counts) -> None:
    classes = ss.classes_from_counts(counts, queries=["the", "a"], next_tokens=3, tokens=12)
    assert classes.num_classes == 6
    assert {classes.name(int(query)) for query in classes.queries} == {"the", "a"}
    the = counts.of("the")
    first = classes.of_query(int(classes.queries[0]))
    most = np.argsort(-the.next_counts, kind="stable")[:3]
    assert [classes.name(int(n)) for n in classes.next_token[first]] == counts.tokenizer.words(most)
    np.testing.assert_allclose(
        classes.weights[first] / classes.weights[first].sum(), the.next_counts[most] / the.next_counts[most].sum()
    )
    for index, next_token in zip(first, most, strict=True):
        column = the.counts[:, [next_token]].toarray()[:, 0]
        kept = [counts.token(classes.name(int(token))) for token in classes.support(int(index))]
        np.testing.assert_allclose(classes.support_probs(int(index)), column[kept] / column[kept].sum())


def test_what_is_kept_is_said(counts) -> None:
    everything = ss.classes_from_counts(
        counts, queries=counts.vocab_size - 2, next_tokens=counts.vocab_size, tokens=counts.vocab_size
    )
    assert everything.kept.contexts == 1.0
    eos_and_last = 1 - everything.kept.occurrences  # line ends are no queries; a first token has no context
    assert 0 < eos_and_last < 0.06
    few = ss.classes_from_counts(counts, queries=2, next_tokens=2, tokens=5)
    assert 0 < few.kept.occurrences < 0.1
    assert 0.05 < few.kept.contexts < 0.5
    assert f"{few.kept.occurrences:.1%}" in str(few.kept)


def test_a_repeated_word_is_no_class(tmp_path) -> None:
    repeating = ss.count_corpus(corpus_of(6, train=[2, 3, 3, 3, 4, 2, 3, 4] * 9), output=tmp_path / "counts")
    classes = ss.classes_from_counts(repeating, queries=["w3"])
    assert [classes.name(int(n)) for n in classes.next_token] == ["w4"]
    assert classes.kept.occurrences == pytest.approx(2 * 9 / (8 * 9 - 1))


def test_what_cannot_be_made_is_refused(counts) -> None:
    with pytest.raises(InputError, match="queries is empty"):
        ss.classes_from_counts(counts, queries=[])
    with pytest.raises(InputError, match="count_corpus"):
        ss.classes_from_counts("counts")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="next_tokens"):
        ss.classes_from_counts(counts, next_tokens=0)
