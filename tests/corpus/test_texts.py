"""Text is text_files, split and read without loss, or refused with the reason."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from scansnap.corpus import texts as files
from scansnap.corpus.texts import find_text


def write(folder: Path, **content: str | bytes) -> Path:
    """Write files `name.txt`, or `name.suffix` for `name__suffix`."""
    folder.mkdir(exist_ok=True)
    for name, text in content.items():
        file = folder / (name.replace("__", ".") if "__" in name else f"{name}.txt")
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def text_of(text_files: files.TextFiles, split: str) -> str:
    return "".join(text_files.pieces(split))


@pytest.mark.parametrize(
    ("train", "valid", "test"),
    [
        ("train", "valid", "test"),
        ("wiki__train__tokens", "wiki__valid__tokens", "wiki__test__tokens"),
        ("training", "validation", "test"),
        ("my-train", "my-dev", "my-test"),
        ("TRAIN__TXT", "val__md", "test__raw"),
    ],
)
def test_a_folder_has_the_splits_of_its_files(tmp_path: Path, train: str, valid: str, test: str) -> None:
    write(tmp_path / "text", **{train: "a b\n", valid: "c\n", test: "d\n", "notes": "e\n"})
    text_files = find_text(tmp_path / "text")
    assert text_files.name == "text"
    assert {split: text_of(text_files, split) for split in text_files.splits} == {
        "train": "a b\n",
        "valid": "c\n",
        "test": "d\n",
    }


def test_without_a_valid_split_the_end_of_the_training_text_is_held_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "text", train="a b c d\n" * 100, test="never\n")
    text_files = find_text(folder)
    assert list(text_files.splits) == ["train", "valid", "test"]
    assert text_of(text_files, "train") + text_of(text_files, "valid") == "a b c d\n" * 100
    assert text_of(text_files, "test") == "never\n"


def test_other_folders_are_read_in_order_of_file_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "tales", b="b\n" * 100, a="a\n" * 100, train="t\n" * 100, data__csv="no\n", _hid="h\n")
    (folder / "_hid.txt").rename(folder / ".hidden.txt")
    text_files = find_text(str(folder))
    assert text_of(text_files, "train") == "a\n" * 100 + "b\n" * 100 + "t\n" * 85
    assert text_of(text_files, "valid") == "t\n" * 15


def test_text_can_be_cut_at_the_end_of_a_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "tales", **{f"tale_{i:02d}": "aaa bbb" for i in range(30)})
    text_files = find_text(folder)
    assert list(text_files.pieces("train")) == ["aaa bbb\n"] * 29
    assert list(text_files.pieces("valid")) == ["aaa bbb\n"]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("".join(f"line {i:05d}\n" for i in range(1000)), "".join(f"line {i:05d}\n" for i in range(950, 1000))),
        # the first line is far longer than the others: the last twentieth is counted in bytes
        ("x" * 189 + "\n" + "y\n" * 5, "y\n" * 5),
        # a short line and then a long one, which must not become validation text entirely
        ("title\n" + "word " * 400, " word" * 20 + " \n"),
        ("word " * 400, " word" * 20 + " \n"),
        ("the cat sat", " sat\n"),
        ("the cat sat\n", " sat\n"),
        ("one two", " two\n"),
        ("  one\ttwo \n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "\ttwo \n" + "\n" * 15),
    ],
)
def test_the_last_twentieth_by_bytes_is_held_out(tmp_path: Path, text: str, valid: str) -> None:
    text_files = find_text(write(tmp_path, story=text) / "story.txt")
    assert text_files.name == "story"
    assert text_of(text_files, "valid") == valid
    whole = text if text.endswith("\n") else f"{text}\n"
    assert text_of(text_files, "train") + valid == whole


@given(
    text=st.text(st.sampled_from("ab é漢🙂 \n\t\r")).filter(lambda text: len(text.split()) > 1),
    piece=st.integers(4, 40),
    search=st.integers(4, 40),
)
def test_pieces_lose_nothing_and_both_splits_have_words(
    tmp_path_factory: pytest.TempPathFactory, text: str, piece: int, search: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE_BYTES", piece)
        patch.setattr(files, "SEARCH_BYTES", search)
        text_files = find_text(path)
        train, valid = list(text_files.pieces("train")), list(text_files.pieces("valid"))
    assert "".join(train).split()
    assert "".join(valid).split()
    assert all(len(part.encode()) <= piece + 1 and "\n" not in part[:-1] for part in train + valid)
    raw = (text if text.endswith("\n") else f"{text}\n").encode()
    cut = text_files.splits["train"][-1].stop
    # a cut within a line end of two characters leaves the first one
    assert "".join(train) == raw[:cut].decode().replace("\r\n", "\n")
    assert "".join(valid) == raw[cut:].decode().replace("\r\n", "\n")


@pytest.mark.parametrize("start", range(12))
def test_characters_of_several_bytes_are_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 12)
    text = "a" * start + "漢🙂é" * 50 + "\n"
    text_files = find_text(write(tmp_path, train=text, valid="x y"))
    pieces = list(text_files.pieces("train"))
    assert "".join(pieces) == text
    assert [piece.endswith("\n") for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_overlong_lines_are_cut_at_whitespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 16)
    text_files = find_text(write(tmp_path, train="some words of along line\r\nshort\r\n", valid="x"))
    assert list(text_files.pieces("train")) == ["some words of", " along line\n", "short\n"]


def test_a_byte_order_mark_and_windows_line_ends_are_removed(tmp_path: Path) -> None:
    plain = find_text(write(tmp_path / "plain", train="é a\n\nb\n", valid="c\n"))
    marked = find_text(
        write(tmp_path / "marked", train="é a\r\n\r\nb".encode("utf-8-sig"), valid="c".encode("utf-8-sig"))
    )
    for split in ("train", "valid"):
        assert list(marked.pieces(split)) == list(plain.pieces(split))


def test_the_end_of_a_file_ends_a_line(tmp_path: Path) -> None:
    text_files = find_text(write(tmp_path, train_1="a", train_2="", train_3="b", valid="c"))
    assert list(text_files.pieces("train")) == ["a\n", "b\n"]


def test_the_digest_depends_on_content_splits_and_files(tmp_path: Path) -> None:
    texts = [
        {"train": "ab", "valid": "c"},
        {"train": "ac", "valid": "c"},
        {"train": "a", "valid": "bc"},
        {"train_1": "a", "train_2": "bb", "valid": "c"},
        {"train_1": "ab", "train_2": "b", "valid": "c"},
        {"train": "ab", "test": "c", "valid": "c"},
    ]
    digests = [find_text(write(tmp_path / str(i), **text)).digest() for i, text in enumerate(texts)]
    assert len(set(digests)) == len(texts)
    assert find_text(write(tmp_path / "elsewhere", **texts[0])).digest() == digests[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "contains no text"),
        (b" \n\t\r\n  \n", "contains no text"),
        (b"\xef\xbb\xbf", "contains no text"),
        (b"word", "a single word"),
        (b"text and \0 zero bytes", "null bytes"),
        (b"caf\xe9 and bar", "not text in UTF-8"),
        ("in another encoding".encode("utf-16"), "text in UTF-16, not text in UTF-8: save it in UTF-8"),
        (gzip.compress(b"text and text", mtime=0), r"is compressed, not text in UTF-8: unpack it \(gunzip\)"),
        (b"cut within a character \xe6\xbc", "not text in UTF-8"),
    ],
)
def test_files_without_text_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "story.txt"
    path.write_bytes(content)
    with pytest.raises(ss.InputError, match=rf"story.txt .*({message})"):
        ss.read_corpus(path)


def test_a_long_text_without_whitespace_is_cut_between_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SEARCH_BYTES", 64)
    text_files = find_text(write(tmp_path, story="漢字" * 1000) / "story.txt")
    assert text_of(text_files, "train") == "漢字" * 950
    assert text_of(text_files, "valid") == "漢字" * 50 + "\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere/story.txt", "there is no text at nowhere/story.txt"),
        ("story.txt", "there is no text at story.txt: .*example, wikitext-2, wikitext-103"),
        ("wikitext2", "did you mean 'wikitext-2'"),
        ("", "unknown text ''"),
        ("/dev/null", "neither a file nor a folder"),
        ("x" * 5000, "cannot read .*File name too long"),
    ],
)
def test_missing_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readable.txt").write_text("an empty source is not this folder")
    with pytest.raises(ss.InputError, match=message):
        find_text(source)


def test_unusable_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ss.InputError, match=r"contains no text .*: give one with files that end in \.txt"):
        find_text(write(tmp_path / "none", data__csv="1,2"))
    with pytest.raises(ss.InputError, match=r"the valid files in .* contain no text"):
        find_text(write(tmp_path / "blank", train="a b", valid=" \n"))
    with pytest.raises(ss.InputError, match="contains no text"):
        find_text(write(tmp_path / "empty", a="", b="\n"))


def test_unreadable_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, story="some words") / "story.txt"
    text_files = find_text(path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # tests may run as root, who can read everything
    for read in (lambda: find_text(path), lambda: list(text_files.pieces("train")), text_files.digest):
        with pytest.raises(ss.InputError, match=r"cannot read .*story.txt \(Permission denied\)"):
            read()


def test_wikitext_is_downloaded_once_and_written_unchanged(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    import datasets

    rows = {
        "train": ["", " = Title = \n", "", " Some <unk> words . \n"],
        "validation": [" more words \n"],
        "test": [" the last words \n", ""],
    }
    calls = []

    def load_dataset(*args: str) -> datasets.DatasetDict:
        calls.append(args)
        return datasets.DatasetDict({split: datasets.Dataset.from_dict({"text": text}) for split, text in rows.items()})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for _ in range(2):
        text_files = find_text("wikitext-103")
        assert text_files.name == "wikitext-103"
        assert text_of(text_files, "train") == "\n = Title = \n\n Some <unk> words . \n"
        assert text_of(text_files, "valid") == " more words \n"
        assert text_of(text_files, "test") == " the last words \n\n"
    assert calls == [("Salesforce/wikitext", "wikitext-103-v1")]


def test_wikitext_that_cannot_be_downloaded_leaves_nothing_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    import datasets

    def load_dataset(*args: str) -> None:
        raise ConnectionError("Couldn't reach the hub.\nmore")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ss.InputError, match=r"wikitext-2 cannot be downloaded \(Couldn't reach the hub\): give"):
        find_text("wikitext-2")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ss.InputError, match=r"pip install 'scansnap\[text\]'"):
        find_text("wikitext-2")
    assert {path.name for path in cache.rglob("*") if path.is_file()} <= {".scansnap.lock"}


def test_a_folder_with_the_name_of_a_text_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "example", train="local\n", valid="too\n")
    assert text_of(find_text("./example"), "train") == "local\n"
    assert text_of(find_text(Path("example")), "train") == "local\n"
    assert text_of(find_text("example"), "train") != "local\n"


@pytest.mark.parametrize("line_end", ["\n", " "], ids=["lines", "one enormous line"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, line_end: str) -> None:
    block = "".join(f"w{i % 97} " + line_end * (i % 500 == 0) for i in range(25_000))
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        for _ in range(50_000_000 // len(block)):
            file.write(block)
    tracemalloc.start()
    try:
        text_files = find_text(path)
        words = sum(piece.count(" ") for split in text_files.splits for piece in text_files.pieces(split))
        text_files.digest()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert words >= 25_000 * (50_000_000 // len(block))
    assert peak < 10_000_000
