"""Text is found, split and read without loss, or refused with the reason."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from scansnap.corpus import sources
from scansnap.corpus.example import example_stories
from scansnap.corpus.texts import find_text


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
    assert find_text(tmp_path / "text").name == "text"
    assert splits_of(tmp_path / "text") == {"train": "a b\n", "valid": "c\n", "test": "d\n"}
    assert find_text(tmp_path / "text").found.sentence() == "3 files read, 1 skipped (notes.txt)"


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
    assert splits_of(tmp_path / "tales") == {"train": "one\n", "valid": "two\n"}
    with pytest.warns(UserWarning, match=r"tales: 2 files read, 2 skipped \(data.csv, inner/scan.pdf\)"):
        corpus = ss.read_corpus(tmp_path / "tales", hold_out=False)
    assert corpus.words(corpus.train) == ["one", "<eos>", "two", "<eos>"]


def test_everything_is_counted_with_its_own_words_unless_part_is_held_out(tmp_path: Path) -> None:
    path = write(tmp_path, story="early words\n" * 100 + "late surprise\n") / "story.txt"
    counts = ss.count_corpus(path, output=tmp_path / "all", window=3)
    assert counts.num_tokens == 303
    assert counts.of("surprise").num_occurrences == 1
    held_out = ss.count_corpus(path, output=tmp_path / "train", window=3, split="train")
    assert held_out.num_tokens < 303
    with pytest.raises(ss.InputError, match="'surprise' does not occur"):
        held_out.of("surprise")


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


def test_the_digest_depends_on_content_splits_and_files(tmp_path: Path) -> None:
    contents = [
        {"train": "ab", "valid": "c"},
        {"train": "ac", "valid": "c"},
        {"train": "a", "valid": "bc"},
        {"train_1": "a", "train_2": "bb", "valid": "c"},
        {"train_1": "ab", "train_2": "b", "valid": "c"},
        {"train": "ab", "test": "c", "valid": "c"},
    ]
    digests = [find_text(write(tmp_path / str(i), **content)).digest for i, content in enumerate(contents)]
    assert len(set(digests)) == len(contents)
    assert find_text(write(tmp_path / "elsewhere", **contents[0])).digest == digests[0]


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
        find_text(source)


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
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ss.InputError, match=r"pip install '\.\[text\]'"):
        find_text("wikitext-2")


def test_a_folder_with_the_name_of_a_text_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "example", train="local\n", valid="too\n")
    assert splits_of("./example") == splits_of(Path("example")) == {"train": "local\n", "valid": "too\n"}
    assert len(splits_of("example")) == 3


def test_the_example_is_always_the_same() -> None:
    text = "".join(f"{story}\n" for stories in example_stories().values() for story in stories)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "1a5c2f7ca10224f0"


def test_the_stated_encoding_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, story="café au lait\n".encode("latin-1") * 30) / "story.txt"
    assert "café" in ss.read_corpus(path, encoding="latin-1").words(range(5))
