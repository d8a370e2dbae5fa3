"""Counting against a dictionary filled token by token: all tables, however the work is cut, stopped or added to."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.corpus import count_job, counting
from scansnap.corpus.count_job import cut_texts
from scansnap.corpus.counts import ContextCounts
from scansnap.corpus.evidence import evidence
from scansnap.corpus.tables import CountRows, merge
from scansnap.storage.folder import StoreLock
from tests.corpus.slow_counts import corpus_of, slow_tables, stored_tables, zipf_ids

TEXTS = st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=80), min_size=1, max_size=3)


@pytest.fixture
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(count_job, "PART_EVENTS", 100)


def cut_small(patch: pytest.MonkeyPatch, chunk: int) -> None:
    """Set how many positions a chunk has."""
    patch.setattr(counting, "cut_texts", lambda lengths, _, window: cut_texts(lengths, 8 * (chunk + window), window))


def test_large_counts_and_gaps_are_exact() -> None:
    """Sums beyond 32 bits, keys and items that are far apart, and a key that several blocks have.

    This test is the first: a sum that does not advance gives empty blocks without end, and all others would wait.
    """

    def rows(*entries: tuple[int, int, int]) -> CountRows:
        keys, items, counts = zip(*entries, strict=True)
        return CountRows(np.array(keys, np.int64), np.array(items, np.int32), np.array(counts, np.int64))

    big = 2**40 + 1
    tables = [
        iter([rows((0, 3, 1), (1, 5, big)), rows((1, 70, 4)), rows((1, 99_999, 2)), rows((2**40, 0, 1))]),
        iter([rows((1, 5, big), (1, 99_999, 3))]),
        iter([]),
    ]
    blocks = islice(merge(tables, 100_000), 10)
    total = [row for block in blocks for row in zip(*(column.tolist() for column in block), strict=True)]
    assert total == [(0, 3, 1), (1, 5, 2 * big), (1, 70, 4), (1, 99_999, 5), (2**40, 0, 1)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=TEXTS,
    window=st.integers(2, 12),
    least=st.integers(1, 4),
    chunk=st.sampled_from([1, 7, 30, 1000]),
    block=st.sampled_from([1, 20, 10_000]),
    threads=st.integers(1, 3),
)
@example(texts=[zipf_ids(60, 8).tolist()], window=5, least=2, chunk=7, block=10_000, threads=1)  # rare in each chunk
def test_counts_are_those_of_a_dictionary(
    tmp_path_factory, small_parts, texts, window, least, chunk, block, threads
) -> None:
    """For any texts, windows and thresholds, chunks, blocks and numbers of threads; texts do not run together."""
    output = tmp_path_factory.mktemp("counts") / "counts"
    corpus = corpus_of(8, **dict(zip(("train", "valid", "test"), texts, strict=False)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "share_memory", lambda *_: (threads, block))
        cut_small(patch, chunk)
        counts = ss.count_corpus(corpus, output=output, window=window, least=least, split="all")
    distinct = list({tuple(text): text for text in texts}.values())  # the same text again is not counted again
    tables = slow_tables(distinct, window)
    assert stored_tables(counts) == slow_tables(distinct, window, least)
    assert [text.tokens for text in counts.texts] == [len(text) for text in distinct]
    margins = {"query_count": ("bigrams", 0), "next_count": ("bigrams", 1), "context_count": ("pairs", 1)}
    for name, (table, column) in margins.items():
        expected = np.zeros(8, np.int64)
        for key, count in tables[table].items():
            expected[key[column]] += count
        assert counts.vocabulary[name].values.tolist() == expected.tolist()
    check_query(counts.of(texts[0][0]), tables, least)


def check_query(context: ContextCounts, tables: dict[str, Counter], least: int) -> None:
    """Compare the counts of one query with the tables of all, and distinctness with its definition."""
    m, occurrences = context.query, context.num_occurrences
    following, pairs, triples = (tables[name] for name in ("bigrams", "pairs", "triples"))
    assert context.next_counts.tolist() == [following[m, n] for n in range(8)]
    assert context.token_counts.tolist() == [pairs[m, token] for token in range(8)]
    np.testing.assert_allclose(context.cooccurrence * max(1, context.token_counts.sum()), context.token_counts)
    for token, distinctness in enumerate(context.distinctness):
        counts = {n: triples[m, n, token] for n in range(8) if triples[m, n, token]}
        kept = {n: count for n, count in counts.items() if count >= least}
        assert context.counts[[token]].toarray()[0].tolist() == [kept.get(n, 0) for n in range(8)]
        if not counts or kept != counts:  # distinctness needs every triple
            assert math.isnan(distinctness)
            continue
        total = sum(counts.values())
        shares = ((count / total, following[m, n] / occurrences) for n, count in counts.items())
        divergence = sum(share * math.log(share / usual) for share, usual in shares)
        assert distinctness == pytest.approx(divergence, rel=1e-12, abs=1e-12)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, window=st.integers(2, 12))
def test_texts_added_one_by_one_count_as_together(tmp_path_factory, small_parts, texts, window) -> None:
    output = tmp_path_factory.mktemp("counts") / "counts"
    for text in (*texts, texts[0]):
        counts = ss.count_corpus(corpus_of(8, train=text), output=output, window=window, add=True)
    tables = slow_tables(list({tuple(text): text for text in texts}.values()), window)
    assert stored_tables(counts) == tables
    assert counts.vocabulary["query_count"].sum() == tables["bigrams"].total()
    assert counts.vocabulary["context_count"].sum() == tables["pairs"].total()
    assert sorted(path.name for path in output.parent.iterdir()) == ["counts"]


def test_unfinished_counts_of_other_text_are_kept(tmp_path, monkeypatch) -> None:
    output = tmp_path / "counts"

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(counting, "provenance", stop)
        with pytest.raises(KeyboardInterrupt):
            ss.count_corpus(corpus_of(10, train=[2, 3, 4]), output=output)
    with pytest.raises(ss.StoreError, match="holds unfinished counts of made, with other text or options"):
        ss.count_corpus(corpus_of(10, train=[2, 3, 4, 5]), output=output)
    with pytest.raises(ss.StoreError, match="holds unfinished counts: start the command that counts them again"):
        ss.read_counts(output)
    ss.count_corpus(corpus_of(10, train=[2, 3, 4]), output=output)
    with monkeypatch.context() as patch:
        patch.setattr(counting, "provenance", stop)
        with pytest.raises(KeyboardInterrupt):
            ss.count_corpus(corpus_of(10, train=[2, 3, 4, 5]), output=output, add=True)
    assert ss.read_counts(output).num_tokens == 3
    with pytest.raises(ss.StoreError, match=r"same command, or remove .*work"):
        ss.count_corpus(corpus_of(10, train=[3, 4, 5]), output=output, add=True)
    shutil.rmtree(output / "work")
    assert ss.count_corpus(corpus_of(10, train=[3, 4, 5]), output=output, add=True).num_tokens == 6
    assert not (output / "work").exists()


def test_the_work_keeps_within_the_memory() -> None:
    chunks = cut_texts([10**9, 10], 2**29, 35)
    assert max(chunk.stop - chunk.first + 35 for chunk in chunks) * 4 <= 2**28
    assert sum(chunk.stop - chunk.first for chunk in chunks) == 10**9 - 1 + 9
    with pytest.raises(ss.InputError, match=r"more than 256: give a memory of 0\.3 GiB or more"):
        cut_texts([10**10], 2**25, 35)
    workers, block = count_job.share_memory(2**29, 30_000, 64)
    assert 1 <= workers < 64
    assert workers * block * count_job.ROW_BYTES <= 2**28
    cuts = count_job.cut_queries(np.array([10**6, 0, 0, *[1000] * 100]), 35)
    assert (cuts[0], cuts[1], cuts[-1]) == (0, 1, 103)


@pytest.mark.slow
def test_on_ray_the_counts_are_the_same_even_if_a_worker_dies(tmp_path, monkeypatch) -> None:
    """Two workers; the first to count part 1 kills itself, and Ray gives the part to another."""
    pytest.importorskip("ray")
    import ray

    ids = zipf_ids(8000, 200)
    monkeypatch.setattr(count_job, "PART_EVENTS", 20_000)
    cut_small(monkeypatch, 3000)
    mark, real = tmp_path / "died", counting.count_piece

    def dying(part, *args):
        if part == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(part, *args)

    monkeypatch.setattr(counting, "count_piece", dying)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        counts = ss.count_corpus(corpus_of(200, train=ids), output=tmp_path / "counts", window=12, cluster="ray")
    finally:
        ray.shutdown()
    assert mark.exists()
    assert stored_tables(counts) == slow_tables([ids.tolist()], 12)


def test_what_cannot_be_counted_is_refused_in_a_sentence(tmp_path) -> None:
    ids = [2, 3, 4, 5, 2, 3]
    output = tmp_path / "counts"

    def refused(output: Path, ids: list[int], vocab_size: int = 10, **options) -> str:
        with pytest.raises(ss.ScanSnapError) as error:
            ss.count_corpus(corpus_of(vocab_size, train=ids), output=output, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "window is 1: give a whole number from 2" in refused(output, ids, window=1)
    assert "has a single token" in refused(output, [3])
    assert "has no split 'test': choose one of train, or 'all'" in refused(output, ids, split="test")
    assert "unknown option 'windw': did you mean 'window'?" in refused(output, ids, windw=3)
    assert list(tmp_path.iterdir()) == []

    first = ss.count_corpus(corpus_of(10, train=ids), output=output, window=4)
    assert "was counted with window = 4, not 35" in refused(output, ids)
    other = "holds the counts of other text, or with another vocabulary (made train): give --add (add=True)"
    assert other in refused(output, ids[1:], window=4)
    assert other in refused(output, ids, vocab_size=11, window=4)
    assert "was counted with another vocabulary" in refused(output, ids, vocab_size=11, window=4, add=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    assert "is not a scansnap store: give another name" in refused(tmp_path / "other", ids)
    assert stored_tables(ss.read_counts(output)) == stored_tables(first)

    ss.count_corpus(corpus_of(10, train=ids), output=tmp_path / "rare", window=4, least=2)
    assert "nothing can be added exactly" in refused(tmp_path / "rare", ids[1:], window=4, least=2, add=True)
    rare = ss.read_counts(tmp_path / "rare")
    with pytest.raises(ss.InputError, match="fewer than 2 times are left out of these counts"):
        evidence(rare, int(ids[0]))
    lock = StoreLock(output)
    lock.acquire()
    assert "this process is writing" in refused(output, ids, window=4)
