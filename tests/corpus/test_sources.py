"""Rows from every kind of file and table, and what becomes of those that cannot be read."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import scansnap as ss
from scansnap.corpus import sources
from scansnap.corpus.sources import Malformed, RowReport, open_table

PLAIN = [("a good film", "pos"), ('she said "no", twice', "neg"), ("two\nlines", "neg")]
CSV = 'id,text,label\n1,a good film,pos\n2,"she said ""no"", twice",neg\n3,"two\nlines",neg\n'


def read(source: object, *columns: str, split: str | None = None, encoding: str | None = None) -> list[Any]:
    table = open_table(source, columns or ("text", "label"), split=split, encoding=encoding)
    assert list(table.rows()) == list(table.rows())
    return [row.values for row in table.rows()]


def compressed(name: str, content: bytes) -> bytes:
    if name.endswith(".zst"):
        return pa.compress(content, codec="zstd", asbytes=True)
    return gzip.compress(content) if name.endswith(".gz") else bz2.compress(content) if name.endswith("2") else content


@pytest.mark.parametrize(
    ("name", "encoding", "delimiter"),
    [
        ("rows.csv", "utf-8", ","),
        ("rows.csv.gz", "utf-8", ","),
        ("rows.csv.zst", "utf-16", ","),
        ("rows.csv.bz2", "utf-8", ","),
        ("rows.tsv", "utf-8", "\t"),
        ("rows.csv", "utf-8-sig", ";"),
        ("rows.csv", "utf-16", ","),
    ],
)
def test_csv(tmp_path: Path, name: str, encoding: str, delimiter: str) -> None:
    """With any delimiter, compressed, in the encoding that the file shows; a limit of the program's own stays."""
    text = CSV.replace(",", delimiter).replace(f'""{delimiter}', '"",')
    (tmp_path / name).write_bytes(compressed(name, text.encode(encoding)))
    before = csv.field_size_limit(2**30)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            assert read(tmp_path / name) == PLAIN
        assert csv.field_size_limit() == 2**30
    finally:
        csv.field_size_limit(before)


def test_json_lines_parquet_and_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    nested = [{"review": {"text": text}, "label": label} for text, label in PLAIN]
    (tmp_path / "rows.jsonl").write_text("\n\n".join(map(json.dumps, nested)))
    parquet.write_table(pa.Table.from_pylist(nested), tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.jsonl", tmp_path / "rows.parquet", nested, pa.Table.from_pylist(nested)):
        assert read(source, "review.text", "label") == PLAIN
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    data = datasets.Dataset.from_dict(
        dict(zip(("text", "label"), zip(*PLAIN, strict=True), strict=True)), features=features
    )
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "two"))
    data.to_parquet(str(tmp_path / "hub.parquet"))
    for source in (data, tmp_path / "one", tmp_path / "hub.parquet"):
        assert read(source) == PLAIN
    assert read(tmp_path / "two", split="test") == PLAIN
    assert read(tmp_path / "two") == PLAIN * 2
    with pytest.raises(ss.InputError, match="have the splits train, test: choose one"):
        read(datasets.DatasetDict({"train": data, "test": data}))


def test_tables_in_memory() -> None:
    """For shortcuts, and for a corpus, which also takes strings."""
    texts, labels = [text for text, _ in PLAIN], np.array([1, 0, 0])
    content = {"text": texts, "label": labels}
    expected = list(zip(texts, labels, strict=True))
    strings = ss.read_corpus(texts, hold_out=False)
    assert strings.words(strings.train)[:5] == ["a", "good", "film", "<eos>", "she"]
    for source in (
        content,
        pytest.importorskip("pandas").DataFrame(content),
        pytest.importorskip("polars").DataFrame(content),
        [{"text": text, "label": label} for text, label in expected],
    ):
        assert read(source) == expected
        assert ss.read_corpus(source, text="text", hold_out=False).fingerprint == strings.fingerprint
    with pytest.raises(ss.InputError, match="generator, which cannot be read twice"):
        read(row for row in [])


def test_malformed_rows_are_counted_by_line_and_refused_beyond_one_percent(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,label\nfirst,a\nsecond,b,extra\n\n"a\nb",a\nlast,b\nend\n')
    table = open_table(path, ("text", "label"))
    assert [(row.place, row.values) for row in table.rows()] == [
        ("rows.csv line 2", ("first", "a")),
        ("rows.csv line 3", Malformed("not 2 fields", 1)),
        ("rows.csv line 5", ("a\nb", "a")),
        ("rows.csv line 7", ("last", "b")),
        ("rows.csv line 8", Malformed("not 2 fields", 1)),
    ]
    monkeypatch.setattr(sources, "LONGEST_FIELD", 10**3)
    path.write_text("text,label\n" + "fine,a\n" * 300 + '"open,b\n' + "more,a\n" * 500)
    report = RowReport()
    for row in table.rows():
        if isinstance(row.values, Malformed):
            report.leave_out(row, row.values.reason)
        else:
            report.used += 1
    assert report.used + report.num_left_out == 801
    assert report.num_left_out > 100  # what a quotation mark that is never closed swallows is not silent
    with pytest.raises(ss.InputError, match=r"of 801 rows of mine are malformed, more than 1%.*line 302"):
        report.refuse_malformed("mine")
    path.write_text("text\n" + "some words\n" * 150 + "a,b\n" * 2)
    with pytest.raises(ss.InputError, match="2 of 152 rows of rows are malformed"):
        ss.read_corpus(path, text="text")
    (tmp_path / "rows.jsonl").write_text('"no object"\n')
    with pytest.raises(ss.InputError, match=r"not a JSON object \(rows.jsonl line 1\)"):
        ss.read_corpus(tmp_path / "rows.jsonl", text="text")
    path.write_text("text\n" + "some words\n" * 250 + "a,b\n" * 2)
    with pytest.warns(UserWarning, match=r"2 rows left out: not 1 fields \(rows.csv line 252; rows.csv line 253\)"):
        corpus = ss.read_corpus(path, text="text", hold_out=False)
    assert len(corpus.train) == 750


def test_the_corpus_reads_a_column_of_every_table(tmp_path: Path) -> None:
    """Of all files in a folder, in order of their paths."""
    rows = [{"text": text, "label": label} for text, label in PLAIN]
    (tmp_path / "rows" / "inner").mkdir(parents=True)
    (tmp_path / "rows" / "a.csv.zst").write_bytes(compressed("a.csv.zst", CSV.encode()))
    (tmp_path / "rows" / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows" / "inner" / "c.parquet")
    corpus = ss.read_corpus(tmp_path / "rows", text="text", tokenizer="prose", hold_out=False)
    words = 'a good film <eos> she said " no " , twice <eos> two <eos> lines <eos>'
    assert corpus.words(corpus.train) == words.split() * 3
    for name in ("a.csv.zst", "b.jsonl", "inner/c.parquet"):
        with pytest.raises(ss.InputError, match=r"is a table: name the column of its texts \(--text\), one of .*text"):
            ss.read_corpus(tmp_path / "rows" / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", '{"id": 1}\n{"txt": "x", "label": "a"}', "unknown column of .*'text': did you mean 'txt'"),
        ("rows.csv", "txt,label\nx,a\n", "unknown column of .*'text': did you mean 'txt'"),
        ("rows.json", '[{"text": "x"}]', "one list of objects: give JSON lines"),
        ("rows.parquet", "no", r"cannot read .*rows\.parquet as parquet"),
        ("rows.doc", "text", "has a format that cannot be read"),
        ("rows.csv", "", "has no columns: give a table with text and label"),
        ("rows.txt", "text", "has no columns: give a table with text and label"),
        ("rows.csv.gz", "not compressed", "cannot read .*rows.csv.gz"),
        ("nowhere/rows.csv", None, "there is no file at"),
        ("rows.csv", "text,label\nx,a\n".encode("utf-16-le"), "begins with null bytes: give --encoding"),
        ("rows.csv", "text,label\ncafé,a\n".encode("latin-1"), "not text in utf-8 .*: give --encoding .*cp1252"),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ss.InputError, match=message):
        read(tmp_path / name)
    if "cp1252" in message:
        assert read(tmp_path / name, encoding="latin-1") == [("café", "a")]
        with pytest.raises(ss.InputError, match="'klingon', which is unknown"):
            read(tmp_path / name, encoding="klingon")
