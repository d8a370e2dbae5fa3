"""Counting against a dictionary filled token by token: all tables, however the work is cut, stopped or added to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.corpus.counts import pieces, plan
from scansnap.corpus.counts.plan import cut_texts
from tests.corpus.counts.slow_counts import corpus_of, save_ids, slow_tables, stored_tables, zipf_ids

TEXTS = st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=80), min_size=1, max_size=3)


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    """Parts of few events, tiny batches and rounds of three."""
    monkeypatch.setattr(plan, "PART_EVENTS", 100)
    monkeypatch.setattr(pieces, "BATCH_ROWS", 7)
    monkeypatch.setattr(pieces, "FAN_IN", 3)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=TEXTS,
    window=st.integers(2, 12),
    least=st.integers(1, 4),
    chunk=st.sampled_from([1, 7, 30, 1000]),
    block=st.sampled_from([1, 20, 10_000]),
    threads=st.integers(1, 3),
)
def test_counts_are_those_of_a_dictionary(
    tmp_path_factory, small_pieces, texts, window, least, chunk, block, threads
) -> None:
    """For any texts, windows and thresholds, chunks, blocks and numbers of threads; texts do not run together."""
    output = tmp_path_factory.mktemp("counts") / "counts"
    corpus = corpus_of(8, **dict(zip(("train", "valid", "test"), texts, strict=False)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "workers_and_block", lambda *_: (threads, block))
        memory = 8 * (chunk + window) / 2**30
        patch.setattr(
            "scansnap.corpus.counts.counting.cut_texts",
            lambda lengths, _, window: cut_texts(lengths, memory * 2**30, window),
        )
        counts = ss.count_corpus(corpus, output=output, window=window, least=least, split="all")
    distinct = list({tuple(text): text for text in texts}.values())  # the same text again is not counted again
    assert stored_tables(counts) == slow_tables(distinct, window, least)
    assert [text.tokens for text in counts.texts] == [len(text) for text in distinct]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, window=st.integers(2, 12))
def test_texts_added_one_by_one_count_as_together(tmp_path_factory, small_pieces, texts, window) -> None:
    output = tmp_path_factory.mktemp("counts") / "counts"
    for text in (*texts, texts[0]):
        counts = ss.count_corpus(corpus_of(8, train=text), output=output, window=window, add=True)
    distinct = list({tuple(text): text for text in texts}.values())
    tables = slow_tables(distinct, window)
    assert stored_tables(counts) == tables
    assert counts.vocabulary["query_count"].sum() == tables["bigrams"].total()
    assert counts.vocabulary["context_count"].sum() == tables["pairs"].total()
    assert sorted(path.name for path in output.parent.iterdir()) == ["counts"]


def test_a_threshold_sees_the_sum_of_all_chunks(tmp_path, small_pieces) -> None:
    """Each chunk has the triple fewer times than the threshold, all together have it as often."""
    ids = [2, 3, 4, 5, 6, 7] * 30
    counts = ss.count_corpus(corpus_of(8, train=ids), output=tmp_path / "c", window=3, least=30, memory=1e-3)
    assert stored_tables(counts) == slow_tables([ids], 3, 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "scansnap.corpus.counts.counting.cut_texts",
            lambda *_: [plan.Chunk(0, t, min(t + 9, 179)) for t in range(0, 179, 9)],
        )
        cut = ss.count_corpus(corpus_of(8, train=ids), output=tmp_path / "d", window=3, least=30)
    assert stored_tables(cut) == stored_tables(counts)
    assert 0 < len(stored_tables(cut)["triples"]) < len(slow_tables([ids], 3)["triples"])


@given(texts=TEXTS, window=st.integers(2, 100))
def test_margins_are_sums_over_the_tables(texts, window) -> None:
    found, tables = np.zeros((3, 8), np.int64), slow_tables(texts, window)
    for text in texts:
        ids = np.array(text, np.int32)
        found += plan.margins(ids, plan.describe(ids, 8)[1], window)
    expected = np.zeros((3, 8), np.int64)
    for row, (table, column) in enumerate((("bigrams", 0), ("bigrams", 1), ("pairs", 1))):
        for key, count in tables[table].items():
            expected[row, key[column]] += count
    np.testing.assert_array_equal(found, expected)


def test_large_counts_and_gaps_are_exact(tmp_path) -> None:
    """Sums beyond 32 bits, from tables that are added up, and tokens that are far apart."""
    from scansnap.corpus.counts.events import Rows
    from scansnap.corpus.counts.merging import merge

    def rows(*entries: tuple[int, int, int, int]) -> Rows:
        first, second, items, counts = zip(*entries, strict=True)
        return Rows(np.array([first, second], np.int32), np.array(items, np.int32), np.array(counts, np.int64))

    big = 2**40 + 1
    sources = [
        iter([rows((0, 1, 5, big), (0, 1, 99_999, 2)), rows((70_000, 0, 0, 1))]),
        iter([rows((0, 1, 5, big))]),
        iter([]),
    ]
    (total,) = [
        Rows(*(array.copy() for array in block))
        for block in merge(sources, num_keys=2, least=2, vocab_size=100_000, batch=2, capacity=10)
    ]
    assert total.keys.tolist() == [[0, 0], [1, 1]]
    assert total.items.tolist() == [5, 99_999]
    assert total.counts.tolist() == [2 * big, 2]


PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
import scansnap as ss
from scansnap.corpus.counts import counting, events, merging, pieces, plan
from tests.corpus.counts.slow_counts import corpus_of

folder = Path(sys.argv[1])
plan.PART_EVENTS, pieces.FAN_IN = 20_000, 4
counting.cut_texts = lambda lengths, memory, window: plan.cut_texts(lengths, 8 * 700, window)
ids = np.fromfile(folder / "ids.bin", "<i4")
events.stable_order(ids, 60)  # compiled code is loaded before the clock starts


def count():
    for text in (ids[:4000], ids[4000:]):
        ss.count_corpus(corpus_of(60, train=text), output=folder / "counts", window=12, add=True)
    print("done", flush=True)


draw, longest = random.Random(0), 0.03
for kill in range(15):
    child = os.fork()
    if not child:
        count()
        os._exit(0)
    time.sleep(draw.random() * longest)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if (folder / "counts").exists():
        stored = ss.read_counts(folder / "counts")
        assert [text.tokens for text in stored.texts] in ([4000], [4000, 2000])
    print("killed in", *sorted(path.name for path in folder.glob("counts.partial/*")), flush=True)
    longest *= 1.25
count()
"""


def test_killed_at_any_moment_it_goes_on_to_the_same_counts(tmp_path) -> None:
    """Fifteen kills at random moments of counting, adding and adding up; what is called counts is always complete."""
    ids = zipf_ids(6000, 60)
    save_ids(tmp_path / "ids.bin", ids)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("killed") == 15
    assert process.stdout.count("plan.json") >= 3, process.stdout  # in the middle of the work
    expected = slow_tables([ids[:4000].tolist(), ids[4000:].tolist()], 12)
    assert stored_tables(ss.read_counts(tmp_path / "counts")) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts", "ids.bin"]


MOVES = ((Path, "rename"), (Path, "replace"), (Path, "touch"), (shutil, "rmtree"), (pieces, "remove_part"))


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_stopped_before_a_move_of_a_file_it_goes_on_to_the_same_counts(tmp_path, small_pieces, stride: int) -> None:
    """Places at which the state on disk changes, one after another; a stop repeats nothing and loses nothing."""
    first, second = zipf_ids(20, 9).tolist(), zipf_ids(50, 9, seed=1).tolist()
    expected = slow_tables([first, second], 4)

    def count(output: Path) -> ss.Counts:
        for text in (first, second):
            counts = ss.count_corpus(corpus_of(9, train=text), output=output, window=4, add=True)
        return counts

    def stopping_at(move: int, patch: pytest.MonkeyPatch) -> list[int]:
        done = [0]
        for owner, name in MOVES:
            real = getattr(owner, name)

            def counted(*args, _real=real, **words):
                if done[0] == move:
                    raise KeyboardInterrupt
                done[0] += 1
                return _real(*args, **words)

            patch.setattr(owner, name, counted)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scansnap.corpus.counts.counting.cut_texts", lambda lengths, *_: cut_texts(lengths, 8 * 14, 4))
        patch.setattr(plan, "PART_EVENTS", 10**6)
        move, stopped = 0, True
        while stopped:
            output = tmp_path / str(move) / "counts"
            with pytest.MonkeyPatch.context() as stopping:
                stopping_at(move, stopping)
                try:
                    count(output)
                    stopped = False
                except KeyboardInterrupt:
                    stopped = True
            assert stored_tables(count(output)) == expected, move
            assert [path.name for path in output.parent.iterdir()] == ["counts"], move
            move += stride
    assert move > 30
