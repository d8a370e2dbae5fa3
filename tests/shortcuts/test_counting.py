"""Counts of labelled rows: exact in bounded memory, the same after an interruption, with a true shuffle as control."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import scansnap as ss
from scansnap.shortcuts import counting
from scansnap.shortcuts.counting import FOLDS, HELD_OUT, LabelCounts, words_of
from scansnap.storage.folder import StoreLock
from tests.shortcuts.labelled_rows import counted, rows, write_csv


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))


def assert_same(left: LabelCounts, right: LabelCounts) -> None:
    assert left.words == right.words
    assert left.labels == right.labels
    assert left.num_words == right.num_words
    assert left.remarks == right.remarks
    for name in ("rows", "occurrences", "copied_rows"):
        assert np.array_equal(getattr(left, name), getattr(right, name))
    for name in ("counts", "shuffled", "copied"):
        assert (getattr(left, name) != getattr(right, name)).nnz == 0
    assert (left.sample, left.held_out_sample) == (right.sample, right.held_out_sample)


def test_counts_are_those_of_the_definition() -> None:
    content = rows(400, magic=(20, 1.0))
    counts = counted(content, least=3)
    expected: Counter[tuple[str, str]] = Counter(
        (word, row["label"]) for row in content for word in words_of(row["text"])
    )
    total = Counter(word for row in content for word in words_of(row["text"]))
    assert counts.words == sorted(word for word, count in total.items() if count >= 3)
    assert counts.num_words == len(total)
    assert counts.by_label.tolist() == [[expected[word, label] for label in "ab"] for word in counts.words]
    assert counts.rows.sum() == len(content)
    assert counts.occurrences.sum() == total.total()
    assert np.array_equal(counts.in_folds(range(HELD_OUT)) + counts.in_folds(range(HELD_OUT, FOLDS)), counts.by_label)


def test_copies_of_a_text_are_in_one_fold_and_can_be_counted_once(monkeypatch) -> None:
    monkeypatch.setattr(counting, "BLOCK_ROWS", 32)
    content = [*rows(100), *[{"text": "copied x", "label": "a"}] * 30, {"text": "copied x", "label": "b"}] * 2
    counts = counted(content)
    at = counts.words.index("copied")
    assert counts.counts[[at]].data.tolist() == [60, 2]
    assert counts.once[at].tolist() == [1, 1]
    different = {(row["text"], row["label"]) for row in content}
    assert counts.once.tolist() == [
        [sum(word in words_of(text) and label == own for text, own in different) for label in counts.labels]
        for word in counts.words
    ]
    assert counts.rows.sum() - counts.copied_rows.sum() == len(different)
    assert counts.num_texts == len({text for text, _ in different})
    assert counts.num_ambiguous == len(different) - counts.num_texts  # no text has three labels


def test_the_control_is_a_permutation_of_the_labels(monkeypatch) -> None:
    """Of 800 rows: the labels' numbers are kept, and counts of frequent words are spread as the hypergeometric law says
    (chi-squared over 20 seeds; a sound shuffle fails once in 1,000 times)."""
    monkeypatch.setattr(counting, "BLOCK_ROWS", 100)
    content = [{"text": "x y" if i % 4 else "x", "label": "a" if i < 200 else "b"} for i in range(800)]
    with_y = []
    for seed in range(20):
        counts = counted(content, seed=seed)
        assert counts.shuffled[[counts.words.index("x")]].toarray().tolist() == [[200, 600]]
        with_y.append(counts.shuffled[[counts.words.index("y")]].toarray()[0, 0])
    law = stats.hypergeom(800, 200, 600)
    assert 0.0005 < stats.chi2.cdf(np.sum((np.array(with_y) - law.mean()) ** 2) / law.var(), 20) < 0.9995


def test_pieces_give_the_same_counts(tmp_path: Path, monkeypatch) -> None:
    content = rows(600)
    path = write_csv(tmp_path / "rows.csv", content)
    whole = counted(path)
    monkeypatch.setattr(counting, "PIECE_ROWS", 64)
    monkeypatch.setattr(counting, "BUFFERED_KEYS", 100)
    monkeypatch.setattr(counting, "BATCH_ROWS", 7)
    assert_same(counted(path), whole)
    in_memory = counted(content)  # without pieces on disk
    assert_same(in_memory, replace(whole, remarks=in_memory.remarks))
    monkeypatch.setattr(counting, "find_spec", lambda name: None)  # nor have rows of a file without pyarrow
    assert_same(counted(path), whole)
    assert not list((tmp_path / "cache" / "shortcuts").glob("*"))


def test_interrupted_work_goes_on(tmp_path: Path, monkeypatch) -> None:
    content = rows(600)
    content[10]["label"] = content[400]["label"] = ""
    content[20:40] = content[480:500] = [content[0]] * 20
    path = write_csv(tmp_path / "rows.csv", content)
    whole = counted(path, sample=8)
    monkeypatch.setattr(counting, "BLOCK_ROWS", 32)
    whole_in_blocks = counted(path, sample=8)  # the shuffle is drawn block by block
    assert (whole_in_blocks.counts != whole.counts).nnz == 0
    monkeypatch.setattr(counting, "PIECE_ROWS", 100)
    read = []

    def stop_after(number: int):
        def words(text: str) -> set[str]:
            read.append(text)
            if len(read) > number:
                raise KeyboardInterrupt
            return words_of(text)

        return words

    monkeypatch.setattr(counting, "words_of", stop_after(330))
    with pytest.raises(KeyboardInterrupt):
        counted(path, sample=8)
    (unfinished,) = (tmp_path / "cache" / "shortcuts").glob("*/")
    assert sorted(file.name for file in unfinished.glob("counts-*"))[-1] == "counts-00002.parquet"
    read.clear()
    monkeypatch.setattr(counting, "words_of", stop_after(10**6))
    lock = StoreLock(unfinished)
    lock.acquire()
    assert_same(counted(path, sample=8), whole_in_blocks)  # beside the process that has the work, from the first row on
    assert len(read) > 598
    assert (unfinished / "manifest.json").exists()
    lock.release()
    read.clear()
    assert_same(counted(path, sample=8), whole_in_blocks)
    assert 250 < len(read) < 350  # not those that were counted before
    assert not unfinished.exists()


def test_damaged_work_begins_anew(tmp_path: Path, monkeypatch) -> None:
    path = write_csv(tmp_path / "rows.csv", rows(300))
    whole = counted(path)
    monkeypatch.setattr(counting, "PIECE_ROWS", 100)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(counting, "merge", stop)
        with pytest.raises(KeyboardInterrupt):
            counted(path)
    (table,) = (tmp_path / "cache" / "shortcuts").glob("*/counts-00001.parquet")
    table.write_bytes(table.read_bytes()[:-1])
    assert_same(counted(path), whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "has no rows"),
        ([{"text": "x", "label": "a"}] * 3, "all 3 rows .* have the same label, 'a': give rows with at least two"),
        ([{"text": "x", "lbl": "a"}] * 3, "3 rows .* left out: no label. 'label' is in none .* the fields text, lbl"),
        ([{"text": "x", "label": i} for i in range(201)], "'label' has more than 200 different values"),
        (["x"], "no mapping from columns to values"),
    ],
)
def test_refusals(content: list[object], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        counted(content)
