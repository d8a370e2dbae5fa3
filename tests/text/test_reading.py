"""Text is found, split and read without loss, or refused with the reason."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import scansnap as ss
from scansnap.text import sources
from scansnap.text.example import example_stories
from scansnap.text.texts import find_text

TEXTS = ["a good film", 'she said "no", twice', "two\nlines"]
WORDS = ["a", "good", "film", "<eos>", "she", "said", '"no",', "twice", "<eos>", "two", "<eos>", "lines", "<eos>"]
CSV = 'id,text,label\n1,a good film,pos\n2,"she said ""no"", twice",neg\n3,"two\nlines",neg\n'


def write(folder: Path, **content: str | bytes) -> Path:
    """Write files `name.txt`, or `name.suffix` for `name__suffix`."""
    folder.mkdir(exist_ok=True)
    for name, text in content.items():
        file = folder / (name.replace("__", ".") if "__" in name else f"{name}.txt")
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def splits_of(source: str | Path) -> dict[str, str]:
    text = find_text(source)
    return {split: "".join(text.pieces(split)) for split in text.splits}


def words_of(source: object, column: str | None = "text", encoding: str | None = None) -> list[str]:
    """The words of a text; of a column, unless it is None."""
    corpus = ss.read_corpus(source, text=column, encoding=encoding, hold_out=False)
    return corpus.words(corpus.train)


# --- files of text ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("train", "valid", "test"),
        ("wiki__train__tokens", "wiki__valid__tokens", "wiki__test__tokens"),
        ("my-training", "validation", "test"),
        ("TRAIN__TXT", "my-dev", "test__raw"),
    ],
)
def test_a_folder_has_the_splits_of_its_files(tmp_path: Path, names: tuple[str, str, str]) -> None:
    write(tmp_path / "text", **dict(zip(names, ("a b\n", "c\n", "d\n"), strict=True)), notes="e\n")
    assert splits_of(tmp_path / "text") == {"train": "a b\n", "valid": "c\n", "test": "d\n"}
    with pytest.warns(UserWarning, match=r"^text: 3 files read, 1 skipped \(notes.txt\)"):
        ss.read_corpus(tmp_path / "text")


def test_folders_without_splits_are_read_in_order_of_file_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "tales", b="b\n" * 100, a="a\n" * 100, train="t\n" * 100, data__csv="no\n", _hid="h\n")
    (folder / "_hid.txt").rename(folder / ".hidden.txt")
    whole = "a\n" * 100 + "b\n" * 100 + "t\n" * 100
    assert splits_of(str(folder)) == {"train": whole[:-30], "valid": whole[-30:]}
    cut_at_file = write(tmp_path / "short", **{f"tale_{i:02d}": "aaa bbb" for i in range(30)})
    assert splits_of(cut_at_file) == {"train": "aaa bbb\n" * 29, "valid": "aaa bbb\n"}
    with_test = splits_of(write(tmp_path / "test", train="a b c d\n" * 100, test="never\n"))
    assert (with_test["train"] + with_test["valid"], with_test["test"]) == ("a b c d\n" * 100, "never\n")


def test_subfolders_are_read_and_skipped_files_are_named(tmp_path: Path) -> None:
    write(write(tmp_path / "tales", a="one\n", data__csv="x\n") / "inner", b="two\n", scan__pdf="no\n")
    with pytest.warns(UserWarning, match=r"tales: 2 files read, 2 skipped \(data.csv, inner/scan.pdf\)"):
        assert words_of(tmp_path / "tales", None) == ["one", "<eos>", "two", "<eos>"]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("".join(f"line {i:05d}\n" for i in range(1000)), "".join(f"line {i:05d}\n" for i in range(950, 1000))),
        # the first line is far longer than the others: the last twentieth is counted in bytes
        ("x" * 189 + "\n" + "y\n" * 5, "y\n" * 5),
        # a short line and then a long one, which must not become validation text entirely
        ("title\n" + "word " * 400, " word" * 20 + " \n"),
        ("the cat sat", " sat\n"),
        ("one two", " two\n"),
        ("  one\ttwo \n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "\ttwo \n" + "\n" * 15),
    ],
)
def test_the_last_twentieth_is_held_out(tmp_path: Path, text: str, valid: str) -> None:
    found = splits_of(write(tmp_path, story=text) / "story.txt")
    assert found["valid"] == valid
    assert found["train"] + valid == (text if text.endswith("\n") else f"{text}\n")


def test_without_holding_out_every_word_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, story="early words\n" * 100 + "late surprise\n") / "story.txt"
    whole, part = ss.read_corpus(path, hold_out=False), ss.read_corpus(path)
    assert (len(whole.train), list(whole.splits)) == (303, ["all"])
    assert whole.words([whole.token("surprise")]) == ["surprise"]
    assert len(part.train) < 303
    with pytest.raises(ss.InputError, match="'surprise' does not occur"):
        part.token("surprise")
    with pytest.raises(ss.InputError, match="read it with hold_out"):
        whole.valid  # noqa: B018


@given(
    text=st.text(st.sampled_from("ab é漢🙂 \n\t")).filter(lambda text: len(text.split()) > 1), piece=st.integers(1, 40)
)
def test_pieces_lose_nothing_and_both_splits_have_words(tmp_path_factory, text: str, piece: int) -> None:
    path = write(tmp_path_factory.mktemp("text"), story=text) / "story.txt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PIECE", piece)
        found = find_text(path)
        train, valid = list(found.pieces("train")), list(found.pieces("valid"))
    assert "".join(train).split()
    assert "".join(valid).split()
    assert all(len(part) <= 2 * piece + 1 and "\n" not in part[:-1] for part in train + valid)
    assert "".join(train + valid) == (text if text.endswith("\n") else f"{text}\n")


def test_lines_and_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlong lines are cut at whitespace, files end lines, and marks and line ends of Windows are removed."""
    assert splits_of(write(tmp_path / "files", train_1="a", train_2="", train_3="b", valid="c"))["train"] == "a\nb\n"
    marked = write(tmp_path / "marked", train="é a\r\n\r\nb".encode("utf-8-sig"), valid="c".encode("utf-16"))
    assert splits_of(marked) == {"train": "é a\n\nb\n", "valid": "c\n"}
    monkeypatch.setattr(sources, "PIECE", 16)
    text = find_text(write(tmp_path / "long", train="some words of along line\r\nshort\r\n", valid="x"))
    assert list(text.pieces("train")) == ["some words of", " along line\n", "short\n"]


def test_the_fingerprint_depends_on_content_splits_and_files(tmp_path: Path) -> None:
    contents = [
        {"train": "ab", "valid": "c"},
        {"train": "ac", "valid": "c"},
        {"train": "a", "valid": "bc"},
        {"train_1": "a", "train_2": "bb", "valid": "c"},
        {"train_1": "ab", "train_2": "b", "valid": "c"},
        {"train": "ab", "test": "c", "valid": "c"},
    ]
    found = [ss.read_corpus(write(tmp_path / str(i), **content)).fingerprint for i, content in enumerate(contents)]
    assert len(set(found)) == len(contents)
    assert ss.read_corpus(write(tmp_path / "elsewhere", **contents[0])).fingerprint == found[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n\t\r\n  \n", "contains no text"),
        (b"\xef\xbb\xbf", "contains no text"),
        (b"word", "a single word"),
        (b"text and \0 zero bytes", "null bytes"),
        (b"caf\xe9 and bar", "not text in utf-8 .*: give --encoding"),
    ],
)
def test_files_without_text_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ss.InputError, match=rf"story.*({message})"):
        ss.read_corpus(write(tmp_path, story=content) / "story.txt")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere/story.txt", "there is no text at nowhere/story.txt: .*example, wikitext-2, wikitext-103"),
        ("wikitext2", "did you mean 'wikitext-2'"),
        ("", "unknown text ''"),
        ("/dev/null", "neither a file nor a folder"),
        ("x" * 5000, "cannot read .*File name too long|unknown text 'xxx"),  # the latter since Python 3.14
        ("table", r"data.csv is a table: name the column of its texts \(--text\), one of 1, 2"),
        ("sheet.xlsx", "sheet.xlsx has a format that cannot be read"),
        ("pictures", r"contains no text: give one with files that end in \.txt"),
        ("blank", "the valid split of blank contains no text"),
    ],
)
def test_missing_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, readable="an empty source is not this folder", sheet__xlsx="no text")
    write(tmp_path / "table", data__csv="1,2")
    write(tmp_path / "pictures", one__png="x")
    write(tmp_path / "blank", train="a b", valid=" \n")
    with pytest.raises(ss.InputError, match=message):
        ss.read_corpus(source)


def test_wikitext_is_downloaded_once_and_written_unchanged(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    import datasets

    rows = {
        "train": ["", " = Title = \n", "", " Some <unk> words . \n"],
        "validation": [" more words \n"],
        "test": [" the last words \n", ""],
    }
    calls: list[tuple[str, ...]] = []

    def load_dataset(*args: str) -> datasets.DatasetDict:
        calls.append(args)
        if len(calls) == 1:
            raise ConnectionError("Couldn't reach the hub.\nmore")
        return datasets.DatasetDict({split: datasets.Dataset.from_dict({"text": text}) for split, text in rows.items()})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ss.InputError, match=r"wikitext-103 cannot be downloaded \(Couldn't reach the hub\): give"):
        find_text("wikitext-103")
    assert {path.name for path in cache.rglob("*") if path.is_file()} <= {".scansnap.lock"}
    for _ in range(2):
        assert splits_of("wikitext-103") == {
            "train": "\n = Title = \n\n Some <unk> words . \n",
            "valid": " more words \n",
            "test": " the last words \n\n",
        }
    assert calls == [("Salesforce/wikitext", "wikitext-103-v1")] * 2


def test_a_folder_with_the_name_of_a_text_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "example", train="local\n", valid="too\n")
    assert splits_of("./example") == splits_of(Path("example")) == {"train": "local\n", "valid": "too\n"}
    assert len(splits_of("example")) == 3


def test_the_example_is_always_the_same() -> None:
    text = "".join(f"{story}\n" for stories in example_stories().values() for story in stories)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "1a5c2f7ca10224f0"


# --- tables -----------------------------------------------------------------------------------------------------------


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
            assert words_of(tmp_path / name) == WORDS
        assert csv.field_size_limit() == 2**30
    finally:
        csv.field_size_limit(before)


def test_columns_of_csv(tmp_path: Path) -> None:
    """Without spaces around their names; a cell is no object with fields."""
    path = write(tmp_path, rows__csv="id, text \n1,a good film\n") / "rows.csv"
    assert words_of(path) == ["a", "good", "film", "<eos>"]
    with pytest.raises(ss.InputError, match=r"unknown column of .* 'text\.body': did you mean 'text'"):
        words_of(path, "text.body")


@pytest.mark.parametrize("name", ["rows.txt.gz", "rows.txt.bz2", "rows.md.zst"])
def test_compressed_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(compressed(name, b"some words\nof text\n"))
    assert words_of(tmp_path / name, None) == ["some", "words", "<eos>", "of", "text", "<eos>"]


def test_json_lines_parquet_and_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    nested = [{"review": {"text": text}, "stars": 5} for text in TEXTS]
    (tmp_path / "rows.jsonl").write_text("\n\n".join(map(json.dumps, nested)))
    parquet.write_table(pa.Table.from_pylist(nested), tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.jsonl", tmp_path / "rows.parquet", nested, pa.Table.from_pylist(nested)):
        assert words_of(source, "review.text") == WORDS
    data = datasets.Dataset.from_dict({"text": TEXTS})
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "two"))
    data.to_parquet(str(tmp_path / "hub.parquet"))
    for source in (data, tmp_path / "one", tmp_path / "hub.parquet", datasets.DatasetDict({"train": data})):
        assert words_of(source) == WORDS
    assert list(ss.read_corpus(tmp_path / "two", text="text").splits) == ["train", "valid", "test"]
    with pytest.raises(ss.InputError, match="have the splits train, test: choose one"):
        words_of(datasets.DatasetDict({"train": data, "test": data}))


def test_tables_and_strings_in_memory() -> None:
    content = {"text": TEXTS, "label": np.array([1, 0, 0])}
    strings = ss.read_corpus(TEXTS, hold_out=False)
    assert strings.words(strings.train) == WORDS
    windows = [text.replace("\n", "\r\n") for text in TEXTS]
    assert ss.read_corpus(windows, hold_out=False).fingerprint == strings.fingerprint
    for source in (
        content,
        pytest.importorskip("pandas").DataFrame(content),
        pytest.importorskip("polars").DataFrame(content),
        [{"text": text} for text in TEXTS],
    ):
        assert ss.read_corpus(source, text="text", hold_out=False).fingerprint == strings.fingerprint
    for wrong, column, message in (
        ((row for row in TEXTS), "text", "generator, which cannot be read twice"),
        (content, None, r"the text is a table: name the column of its texts \(text\), one of text, label"),
        (content, "txt", "unknown column of the rows 'txt': did you mean 'text'"),
        ([1, 2], "text", "the rows are list, without columns: give a table with a column text"),
    ):
        with pytest.raises(ss.InputError, match=message):
            words_of(wrong, column)


def test_all_tables_of_a_folder_are_read_in_order_of_their_paths(tmp_path: Path) -> None:
    rows = [{"text": text} for text in TEXTS]
    (tmp_path / "rows" / "inner").mkdir(parents=True)
    (tmp_path / "rows" / "a.csv.zst").write_bytes(compressed("a.csv.zst", CSV.encode()))
    (tmp_path / "rows" / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows" / "inner" / "c.parquet")
    assert words_of(tmp_path / "rows") == WORDS * 3
    for name in ("a.csv.zst", "b.jsonl", "inner/c.parquet"):
        with pytest.raises(ss.InputError, match=r"is a table: name the column of its texts \(--text\), one of .*text"):
            ss.read_corpus(tmp_path / "rows" / name)


def test_malformed_rows_are_reported_by_line_and_refused_beyond_one_percent(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text,label\n"a\nb",a\nsecond,b,extra\n\n' + "fine,a\n" * 300 + "end\n ,a\n")
    with pytest.warns(UserWarning, match="left out") as warned:
        assert words_of(path) == ["a", "<eos>", "b", "<eos>", *["fine", "<eos>"] * 300]
    assert [str(warning.message) for warning in warned] == [
        "rows: 2 rows left out: not 2 fields (rows.csv line 4; rows.csv line 306).",
        "rows: 1 row left out: no text in 'text' (rows.csv line 307).",
    ]
    path.write_text("text\n" + "some words\n" * 150 + "a,b\n" * 2)
    with pytest.raises(ss.InputError, match="2 of 152 rows of rows are malformed"):
        words_of(path)
    monkeypatch.setattr(sources, "FIELD_CHARACTERS", 10**3)
    path.write_text("text,label\n" + "fine,a\n" * 300 + '"open,b\n' + "more,a\n" * 500)
    with pytest.raises(ss.InputError, match=r"of 801 rows of rows are malformed, more than 1%.*line 302"):
        words_of(path)  # what a quotation mark that is never closed swallows is not silent
    (tmp_path / "rows.jsonl").write_text('"no object"\n')
    with pytest.raises(ss.InputError, match=r"not a JSON object \(rows.jsonl line 1\)"):
        words_of(tmp_path / "rows.jsonl")


def test_rows_in_memory_that_are_left_out_are_reported_by_number() -> None:
    """The first five of each reason."""
    rows = [{"text": "some words"}] * 99
    with pytest.raises(ss.InputError, match=r"2 of 101 rows .* are malformed, .* not a dict \(row 100; row 101\)"):
        words_of([*rows, "x", "x"])
    with pytest.warns(UserWarning, match=r"7 rows left out: no text in 'text' \(row 100; .*; row 104; \.\.\.\)\."):
        assert len(words_of([*rows, *[{"text": " "}, {"id": 1}, {"text": None}] * 2, {"text": 5}])) == 3 * 99


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", '{"id": 1}\n{"txt": "x", "label": "a"}', "unknown column of .*'text': did you mean 'txt'"),
        ("rows.csv", "txt,label\nx,a\n", "unknown column of .*'text': did you mean 'txt'"),
        ("rows.json", '[{"text": "x"}]', "one list of objects: give JSON lines"),
        ("rows.parquet", "no", r"cannot read .*rows\.parquet as parquet"),
        ("rows.doc", "text", "has a format that cannot be read"),
        ("rows.csv", "", "has no columns: give a table with a column text"),
        ("rows.txt", "text", "has no columns: give a table with a column text"),
        ("rows.csv.gz", "not compressed", "cannot read .*rows.csv.gz"),
        ("rows.csv.zst", "not compressed", "cannot read .*rows.csv.zst"),
        ("rows.csv.bz2", "not compressed", "cannot read .*rows.csv.bz2"),
        ("nowhere/rows.csv", None, "there is no text at"),
        ("rows.csv", "text,label\nx,a\n".encode("utf-16-le"), "begins with null bytes: give --encoding"),
        ("rows.csv", "text,label\ncafé,a\n".encode("latin-1"), "not text in utf-8 .*: give --encoding .*cp1252"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ss.InputError, match=message):
        words_of(tmp_path / name)
    if "cp1252" in message:
        assert words_of(tmp_path / name, encoding="latin-1") == ["café", "<eos>"]
        with pytest.raises(ss.InputError, match="'klingon', which is unknown"):
            words_of(tmp_path / name, encoding="klingon")


# --- optional packages ------------------------------------------------------------------------------------------------

WITHOUT_THE_EXTRA = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyarrow", "regex", "tokenizers", "datasets", "torch"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Refuse())
import scansnap as ss

for name in ("story.txt", "story.txt.gz", "story.txt.bz2"):
    corpus = ss.read_corpus(name, hold_out=False)
    assert corpus.words(corpus.train) == ["the", "cat.", "<eos>"] * 9, name
for name in ("rows.csv", "rows.jsonl"):
    corpus = ss.read_corpus(name, text="text", hold_out=False)
    assert corpus.words(corpus.train) == ["the", "cat.", "<eos>"] * 9, name
print(ss.classes_from_text(ss.read_corpus("example"), queries=2, next_tokens=2).num_classes)
ss.context_words(ss.read_corpus("example"), "the")
for read in (
    lambda: ss.read_corpus("story.txt.zst"),
    lambda: ss.read_corpus("rows.parquet", text="text"),
    lambda: ss.read_corpus("rows.arrow", text="text"),
    lambda: ss.read_corpus("story.txt", tokenizer="prose"),
    lambda: ss.read_corpus("story.txt", tokenizer="gpt2"),
    lambda: ss.read_corpus("wikitext-2"),
):
    try:
        read()
    except ss.InputError as error:
        print(error)
"""


def test_text_between_white_space_needs_no_extra_and_the_rest_says_what_it_needs(tmp_path: Path) -> None:
    text = "the cat.\n" * 9
    write(tmp_path, story=text, rows__csv=f"text\n{text}", rows__parquet="x", rows__arrow="x", story__txt__zst="x")
    (tmp_path / "rows.jsonl").write_text('{"text": "the cat."}\n' * 9)
    for name in ("story.txt.gz", "story.txt.bz2"):
        (tmp_path / name).write_bytes(compressed(name, text.encode()))
    program = [sys.executable, "-W", "ignore", "-c", WITHOUT_THE_EXTRA]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stderr == ""
    install = "which is not installed here: run pip install '.[text]' in your clone of scansnap, or"
    assert done.stdout.splitlines() == [
        "4",
        f"story.txt.zst (.zst) needs pyarrow, {install} give plain text.",
        f"rows.parquet (.parquet) needs pyarrow, {install} give plain text.",
        f"rows.arrow (.arrow) needs pyarrow, {install} give plain text.",
        f"the tokenizer 'prose' needs regex, {install} choose 'words'.",
        f"the tokenizer 'gpt2' needs Hugging Face tokenizers, {install} choose 'words'.",
        f"the download of wikitext-2 needs Hugging Face datasets, {install} give the path of a folder with it.",
    ]
