"""A corpus gives the same numbers from the text and from the cache, and notices changes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tokenizers as hugging_face

import scansnap as ss
from scansnap.storage import files as base_files
from scansnap.text import corpus as module
from scansnap.text import sources, tokenizers
from scansnap.text.tokenizers import load_tokenizer


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    folder.mkdir()
    (folder / "train.txt").write_text("The cat sat\n\nthe dog sat\n")
    (folder / "valid.txt").write_text("the zebra sat\n")
    return folder


@pytest.fixture
def fills(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the texts that were read rather than taken from the cache."""
    names = []
    fill = module._fill
    monkeypatch.setattr(
        module, "_fill", lambda folder, text, *rest: (names.append(text.name), fill(folder, text, *rest))
    )
    return names


def test_words_of_the_training_split_as_read_only_maps(pets: Path, cache: Path) -> None:
    corpus = ss.read_corpus(pets)
    assert corpus.name == "pets"
    assert corpus.words(range(corpus.vocab_size)) == ["<eos>", "sat", "the", "cat", "dog", "<unk>"]
    assert corpus.train.tolist() == [2, 3, 1, 0, 0, 2, 4, 1, 0]
    assert corpus.valid.tolist() == [2, 5, 1, 0]
    assert list(corpus.splits) == ["train", "valid"]
    (folder,) = (cache / "corpora").iterdir()
    assert folder.name == corpus.fingerprint
    assert (np.frombuffer((folder / "train.bin").read_bytes(), "<i4") == corpus.train).all()
    assert isinstance(corpus.train, np.memmap)
    assert corpus.train.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        corpus.train[0] = 1
    with pytest.raises(TypeError):
        corpus.splits["train"] = corpus.valid  # type: ignore[index]


def test_reading_again_uses_the_cache(pets: Path, fills: list[str], tmp_path: Path) -> None:
    first = ss.read_corpus(pets)
    second = ss.read_corpus(pets)
    moved = ss.read_corpus(pets.rename(tmp_path / "animals"))
    assert fills == ["pets"]
    assert moved.name == "animals"
    for other in (second, moved):
        assert other.fingerprint == first.fingerprint
        assert other.tokenizer.fingerprint == first.tokenizer.fingerprint
        assert all((other.splits[split] == first.splits[split]).all() for split in first.splits)


def test_changed_text_and_other_settings_are_read_again(pets: Path, fills: list[str]) -> None:
    first = ss.read_corpus(pets)
    fewer = ss.read_corpus(pets, min_count=2)
    assert fewer.words(fewer.train) == ["the", "<unk>", "sat", "<eos>", "<eos>", "the", "<unk>", "sat", "<eos>"]
    (pets / "train.txt").write_text("The cat ran\n\nthe dog sat\n")  # of the same length
    changed = ss.read_corpus(pets)
    assert changed.words(changed.train)[2] == "ran"
    assert len({first.fingerprint, fewer.fingerprint, changed.fingerprint}) == len(fills) == 3
    # what is mapped does not change
    assert first.words(first.train)[2] == "sat"


def test_hugging_face_tokens(pets: Path, tmp_path: Path, fills: list[str]) -> None:
    tokenizer = hugging_face.Tokenizer(hugging_face.models.WordLevel({"sat": 0, "the": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = hugging_face.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for _ in range(2):
        corpus = ss.read_corpus(pets, tokenizer=tmp_path / "tokenizer.json")
        assert corpus.words(corpus.train) == ["?", "?", "sat", "the", "?", "sat"]
        assert corpus.vocab_size == 3
    assert fills == ["pets"]
    corpus.tokenizer.save(tmp_path / "saved")
    assert ss.read_corpus(pets, tokenizer=load_tokenizer(tmp_path / "saved")).fingerprint == corpus.fingerprint


def test_another_text_with_the_words_of_the_first(pets: Path, tmp_path: Path) -> None:
    first = ss.read_corpus(pets)
    first.tokenizer.save(tmp_path / "saved")
    (tmp_path / "other.txt").write_text("the bird sat\n" * 20)
    other = ss.read_corpus(tmp_path / "other.txt", tokenizer=tmp_path / "saved")
    assert other.vocab_size == first.vocab_size
    assert other.words(other.valid) == ["the", "<unk>", "sat", "<eos>"]


def test_impossible_options_are_refused(pets: Path, tmp_path: Path) -> None:
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ss.InputError, match="give a whole number from 1 to"):
            ss.read_corpus(pets, min_count=wrong)  # type: ignore[arg-type]
    hugging_face.Tokenizer(hugging_face.models.WordLevel({"bird": 0}, "none")).save(str(tmp_path / "t.json"))
    with pytest.raises(ss.InputError, match="min_count is 2, which works only with the tokenizers words and prose"):
        ss.read_corpus(pets, tokenizer=tmp_path / "t.json", min_count=2)
    with pytest.raises(ss.InputError, match=r"the text is a table: name the column of its texts \(text\), one of t"):
        ss.read_corpus({"t": ["The film was good."]})


def test_a_tokenizer_that_finds_nothing_is_refused(pets: Path, tmp_path: Path, cache: Path) -> None:
    nothing = hugging_face.Tokenizer(hugging_face.models.BPE({"z": 0}, []))
    nothing.save(str(tmp_path / "nothing.json"))
    (pets / "train.txt").write_text("abc\n")
    with pytest.raises(ss.InputError, match="'nothing' finds no tokens in the train text of pets"):
        ss.read_corpus(pets, tokenizer=tmp_path / "nothing.json")
    assert not [path for path in (cache / "corpora").rglob("*") if path.is_file() and path.name[0] != "."]


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PIECE", 2**12)
    monkeypatch.setattr(tokenizers, "BLOCK_CHARACTERS", 2**12)
    monkeypatch.setattr(base_files, "READ_BYTES", 2**12)
    path = tmp_path / "large.txt"
    path.write_text("some words on a single enormous line " * 100_000)  # 3.7 MB, 2.8 MB as ids
    tracemalloc.start()
    try:
        corpus = ss.read_corpus(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert corpus.train.size + corpus.valid.size == 700_001
    assert peak < 1e6
