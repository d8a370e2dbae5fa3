"""Counts in a store: by query, with labels, in other programs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.corpus import count_job
from scansnap.corpus.evidence import chance_distinctness, evidence
from tests.corpus.slow_counts import corpus_of, slow_tables, zipf_ids

IDS = zipf_ids(20_000, 200)


@pytest.fixture(scope="module")
def counts(tmp_path_factory) -> ss.Counts:
    """Twenty thousand tokens in parts of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_job, "PART_EVENTS", 50_000)
        output = tmp_path_factory.mktemp("counts") / "counts"
        return ss.count_corpus(corpus_of(200, train=IDS), output=output, window=12)


def test_the_labeled_view_has_the_most_frequent_tokens(counts) -> None:
    """Of queries in the first and the last of several parts."""
    assert len(counts.cuts) > 3
    tables = slow_tables([IDS.tolist()], 12)
    view = counts.dataset(["W2", 199], tokens=5, next_tokens=4)
    assert dict(view.sizes) == {"query": 2, "token": 5, "next_token": 4}
    assert view["query_word"].values.tolist() == ["w2", "w199"]
    for m in (2, 199):
        for n in view["next_token"].values.tolist():
            assert view["next_count"].sel(query=m, next_token=n) == tables["bigrams"][m, n]
            for l in view["token"].values.tolist():  # noqa: E741
                assert view["count"].sel(query=m, next_token=n, token=l) == tables["triples"][m, n, l]
                assert view["token_count"].sel(query=m, token=l) == tables["pairs"][m, l]
    assert view.attrs["window"] == 12
    assert {"commit", "created", "texts"} <= set(view.attrs)


def test_other_programs_open_the_tables(counts) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    for name, table in slow_tables([IDS.tolist()], 12).items():
        frame = polars.scan_parquet(counts.files(name)).collect()
        assert frame.dtypes[-1] == polars.Int64
        assert {tuple(row[:-1]): row[-1] for row in frame.iter_rows()} == table
        rows = duckdb.sql(f"select * from '{counts.files(name)}' where query < 20").fetchall()
        assert {row[:-1]: row[-1] for row in rows} == {key: n for key, n in table.items() if key[0] < 20}
        in_words = {row[:-1]: row[-1] for row in counts.to_pandas(name).itertuples(index=False, name=None)}
        assert in_words == {tuple(counts.tokenizer.words(key)): n for key, n in table.items()}
    words = duckdb.sql(f"select word from '{counts.path / 'vocabulary.parquet'}' where token = 7").fetchall()
    assert words == [("w7",)]


def test_by_chance_is_what_unrelated_tokens_have() -> None:
    """Against 4,000 draws: the mean of D has a standard error of about 1%, so 4% is four of them."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(50, 0.3))
    for occurrences in (1, 2, 5, 40, 1000):
        draws = rng.multinomial(occurrences, probs, size=4000) / occurrences
        with np.errstate(divide="ignore", invalid="ignore"):
            divergence = np.nansum(draws * np.log(draws / probs), axis=1)
        (expected,) = chance_distinctness(probs, np.array([occurrences]))
        assert expected == pytest.approx(divergence.mean(), rel=0.04), occurrences
    several = chance_distinctness(probs, np.array([5, 40, 77, 1000]))
    assert (np.diff(several) < 0).all()
    assert several[1] == pytest.approx(chance_distinctness(probs, np.array([40]))[0], rel=0.02)
    np.testing.assert_allclose(chance_distinctness(np.array([1.0, 0.0]), np.array([1, 3, 5000])), 0, atol=0.02)


def test_evidence_tells_distinct_from_common_tokens(tmp_path) -> None:
    """2 precedes 9 always; 3 goes with 5 after it, and 4 with 6."""
    ids = [2, 3, 9, 5] * 60 + [2, 4, 9, 6] * 40
    counts = ss.count_corpus(corpus_of(10, train=ids), output=tmp_path / "c", window=3)
    shown = evidence(counts, "w9", top=3)
    assert [(n.word, n.count, n.share) for n in shown.following] == [("w5", 60, 0.6), ("w6", 40, 0.4)]
    assert [token.word for token in shown.distinct] == ["w4", "w3"]
    assert [token.word for token in shown.common] == ["w2"]
    first = shown.distinct[0]
    assert (first.count, first.next_word, first.next_count) == (40, "w6", 40)
    assert (first.next_share, first.usual_share) == (1, 0.4)
    assert first.distinctness == pytest.approx(np.log(1 / 0.4))
    assert 0 < first.by_chance < 0.05
    assert evidence(counts, "w9", least=10**6).distinct == []
    assert (first.occurrences, shown.least) == (40, 10)


def test_tokens_of_one_passage_are_no_evidence(tmp_path) -> None:
    """7 occurs once, in the windows of 22 queries; one query in 50 must have a token before it to show it."""
    ids = [7, *[9, 5, 9, 6] * 10, *[2, 3, 9, 5, 2, 4, 9, 6] * 600]
    counts = ss.count_corpus(corpus_of(10, train=ids), output=tmp_path / "c", window=50)
    (passage,) = [token for token in evidence(counts, "w9", least=10).common if token.word == "w7"]
    assert (passage.count, passage.occurrences) == (22, 1)
    shown = evidence(counts, "w9")
    assert shown.least == 25  # of 1,220
    assert "w7" not in [token.word for token in (*shown.distinct, *shown.common)]


def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, counts) -> None:
    for question, message in (
        (lambda: counts.of("w999"), r"'w999' does not occur in made train: did you mean 'w99'\?"),
        (lambda: counts.of("two words"), "'two words' is 2 tokens .*: give a single one"),
        (lambda: counts.of(200), "a token is 200: give a whole number from 0 to 199"),
        (lambda: counts.files("quads"), "unknown table 'quads': choose one of bigrams, pairs, triples"),
        (lambda: counts.dataset([]), "queries is empty"),
        (lambda: ss.read_counts(tmp_path / "no"), "there are no counts at"),
        (lambda: ss.read_counts(tmp_path), "there are no counts at"),
        (lambda: evidence(counts, 2, top=0), "top is 0: give a whole number from 1"),
    ):
        with pytest.raises(ss.ScanSnapError, match=message):
            question()
