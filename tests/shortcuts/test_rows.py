"""Labelled rows from every kind of file, and what becomes of those that cannot be used."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from scansnap.shortcuts import rows
from scansnap.shortcuts.rows import Remarks, Row, RowReader, open_rows

PLAIN = [Row("a good film", "pos"), Row('she said "no", twice', "neg"), Row("two\nlines", "neg")]
CSV = 'id,text,label\n1,a good film,pos\n2,"she said ""no"", twice",neg\n3,"two\nlines",neg\n'


def read(source: object, text: str = "text", label: str = "label", **options: str) -> tuple[list[Row], Remarks]:
    remarks, reader = Remarks(), RowReader(text, label)
    opened = open_rows(source, (text, label), **options)  # type: ignore[arg-type]
    read_rows = [
        reader.read(record, opened.place(number), remarks) for number, record in enumerate(opened.records(), 1)
    ]
    return [row for row in read_rows if row is not None], remarks


def reasons(remarks: Remarks) -> dict[str, tuple[int, list[int]]]:
    return {reason: (places.count, places.first) for reason, places in remarks.left_out.items()}


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.csv.gz", "rows.tsv", "semicolons.csv", "utf16.csv", "bare.csv", "marked.csv"]
)
def test_csv(tmp_path: Path, name: str) -> None:
    """With any delimiter, compressed, in the encoding that the file states; a limit of the program's own stays."""
    path = tmp_path / name
    text = CSV if name != "rows.tsv" else CSV.replace(",", "\t").replace('"no""\t', '"no"",')
    text = text.replace(",", ";").replace('"";', '"",') if name == "semicolons.csv" else text
    encoding = {"utf16.csv": "utf-16", "bare.csv": "utf-16-le", "marked.csv": "utf-8-sig"}.get(name, "utf-8")
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    before = csv.field_size_limit(2**30)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            assert read(path) == (PLAIN, Remarks())
        assert csv.field_size_limit() == 2**30
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    content = "\n\n".join(json.dumps({"review": {"text": row.text}, "label": row.label}) for row in PLAIN).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name, "review.text") == (PLAIN, Remarks())


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": [1, 2, 3], "text": [row.text for row in PLAIN], "label": [1.0, 0.0, None]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", table):
        usable, remarks = read(source)
        assert usable == [Row(PLAIN[0].text, "1"), Row(PLAIN[1].text, "0")]
        assert reasons(remarks) == {"no label": (1, [3])}
    nested = pyarrow.table({"review": [{"text": row.text} for row in PLAIN], "label": [row.label for row in PLAIN]})
    parquet.write_table(nested, tmp_path / "nested.parquet")
    assert read(tmp_path / "nested.parquet", "review.text") == (PLAIN, Remarks())


def test_hugging_face_data_sets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    content = {"text": [row.text for row in PLAIN], "label": [row.label for row in PLAIN]}
    data = datasets.Dataset.from_dict(content, features=features)
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "two"))
    for source, options in ((data, {}), (tmp_path / "one", {}), (tmp_path / "two", {"split": "test"})):
        assert read(source, **options) == (PLAIN, Remarks())
    with pytest.raises(ss.InputError, match="has the splits train, test: choose one"):
        read(tmp_path / "two")
    with pytest.raises(ss.InputError, match="unknown split 'tset': did you mean 'test'"):
        read(tmp_path / "two", split="tset")


def test_tables_in_memory() -> None:
    content = {"text": [row.text for row in PLAIN], "label": np.array([1, 0, 0])}
    expected = [row._replace(label=label) for row, label in zip(PLAIN, "100", strict=True)]
    assert read(pytest.importorskip("pandas").DataFrame(content))[0] == expected
    assert read(pytest.importorskip("polars").DataFrame(content))[0] == expected
    listed = [{"text": text, "label": bool(label)} for text, label in zip(*content.values(), strict=True)]
    assert [row.label for row in read(listed)[0]] == ["true", "false", "false"]


def test_bad_rows_are_counted_and_named(tmp_path: Path) -> None:
    lines = [
        '{"text": "fine", "label": "a"}',
        '{"text": "", "label": "a"}',
        '{"text": "x", "label": " "}',
        "{broken",
        '{"text": ["x"], "label": "a"}',
        '{"text": "x", "label": {"y": 1}}',
        "[1]",
        '{"text": 5, "label": 1.0}',
        '{"text": "x", "label": NaN}',
        '{"text": "half \\ud83d", "label": "a"}',
        '{"label": "a"}',
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines))
    usable, remarks = read(path)
    assert usable == [Row("fine", "a"), Row("5", "1"), Row("half �", "a")]
    assert reasons(remarks) == {
        "no text": (2, [2, 11]),
        "no label": (2, [3, 9]),
        "not JSON": (1, [4]),
        "the text is a list or an object": (1, [5]),
        "the label is a list or an object": (1, [6]),
        "JSON, but no object with fields": (1, [7]),
    }
    assert {note: places.first for note, places in remarks.noted.items()} == {
        "the text is a number": [8],
        "bytes that are not of the encoding, read as � (you can state another encoding)": [10],
    }
    assert remarks.num_left_out == 8
    assert "2 rows (rows 2, 11) left out: no text." in remarks.sentences()


def test_wrong_encodings_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("text,label\ncafé,a\ntea,b\n".encode("latin-1"))
    usable, remarks = read(path)
    assert usable == [Row("caf�", "a"), Row("tea", "b")]
    assert [places.count for places in remarks.noted.values()] == [1]
    assert read(path, encoding="latin-1") == ([Row("café", "a"), Row("tea", "b")], Remarks())
    with pytest.raises(ss.InputError, match="'klingon', which is not known"):
        read(path, encoding="klingon")


def test_a_quotation_mark_that_is_never_closed_costs_one_line(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,label\nfirst,a\n"open,b\nthird,a\nfourth,b,extra\n\n"a\nb",a\nlast,b\nend\n')
    usable, remarks = read(path)
    assert usable == [Row("first", "a"), Row("third", "a"), Row("a\nb", "a"), Row("last", "b")]
    assert [place for _, places in reasons(remarks).values() for place in places] == [3, 5, 10]  # lines of the file
    monkeypatch.setattr(rows, "LONGEST_FIELD", 100)
    path.write_text('text,label\nfirst,a\n"open,b\n' + "more,a\n" * 50)
    usable, remarks = read(path)
    assert len(usable) == 51
    assert [reason[:7] for reason in remarks.left_out] == ["not CSV"]


def test_a_compressed_file_that_breaks_off(tmp_path: Path) -> None:
    content = "text,label\n" + "".join(f"text {i * 7919 % 1000},a\n" for i in range(2000))
    whole = gzip.compress(content.encode())
    (tmp_path / "rows.csv.gz").write_bytes(whole[: len(whole) // 2])
    usable, remarks = read(tmp_path / "rows.csv.gz")
    assert 100 < len(usable) < 2000
    assert [reason[:36] for reason in remarks.left_out] == ["the compressed file breaks off here "]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "", r"rows\.csv is empty"),
        ("rows.csv", "txt,label\nx,a\n", "unknown column of .*'text': did you mean 'txt'"),
        ("rows.json", '[{"text": "x"}]', "one list of objects: give JSON lines"),
        ("rows.parquet", "no", r"cannot read .*rows\.parquet as Parquet"),
        ("rows.doc", "text", "has a format that cannot be read"),
        ("rows.csv.gz", "not compressed", "cannot be decompressed"),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ss.InputError, match=message):
        read(tmp_path / name)


def test_rows_that_cannot_be_read_at_all(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(ss.InputError, match="generator, which cannot be read twice"):
        read(row for row in [])
    with pytest.raises(ss.InputError, match="there is no file at nowhere"):
        read("nowhere.csv")
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    for source in (tmp_path, tmp_path / "rows.parquet"):
        with pytest.raises(ss.InputError, match=r"pip install 'scansnap\[text\]'"):
            read(source)
