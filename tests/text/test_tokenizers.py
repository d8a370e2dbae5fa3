"""The ids of words and of Hugging Face tokens, and tokenizers saved and loaded."""

from __future__ import annotations

import json
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
import tokenizers as hugging_face
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from scansnap.text import tokenizers
from scansnap.text.tokenizers import HuggingFaceTokenizer, WordTokenizer, find_tokenizer, load_tokenizer

FastTokenizer = hugging_face.Tokenizer
STORY = ["The cat saw the dog .\n", "\n", "the dog ran\n"]


def byte_pairs() -> hugging_face.Tokenizer:
    """A tiny byte-level tokenizer that reproduces any text."""
    tokenizer = FastTokenizer(hugging_face.models.BPE())
    tokenizer.pre_tokenizer = hugging_face.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = hugging_face.decoders.ByteLevel()
    alphabet = hugging_face.pre_tokenizers.ByteLevel.alphabet()
    trainer = hugging_face.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(STORY * 5, trainer)
    return tokenizer


BYTE_PAIRS = byte_pairs()


def test_words_are_ordered_by_count_and_then_alphabetically() -> None:
    tokenizer = WordTokenizer.count(STORY)
    assert tokenizer.vocabulary == ("<eos>", "the", "dog", ".", "cat", "ran", "saw", "<unk>")
    assert tokenizer.encode(STORY).tolist() == [1, 4, 6, 1, 2, 3, 0, 0, 1, 2, 5, 0]
    # only a line end is the end of a line
    assert tokenizer.words(tokenizer.encode(["the cat", " saw\n"])) == ["the", "cat", "saw", "<eos>"]
    assert tokenizer.words(tokenizer.encode("the\r\n\r\ncat\fsaw")) == ["the", "<eos>", "<eos>", "cat", "saw"]
    assert (tokenizer.encode("").dtype, tokenizer.encode("").size) == (np.int32, 0)
    # four rare words and one <unk> in the text itself
    rare = WordTokenizer.count([*STORY, "<unk>\n"], min_count=2)
    assert rare.vocabulary == ("<unk>", "<eos>", "the", "dog")
    assert rare.words(rare.encode("The zebra RAN\n")) == ["the", "<unk>", "<unk>", "<eos>"]


@given(text=st.text(), min_count=st.integers(1, 3))
def test_tokens_round_trip(tmp_path_factory: pytest.TempPathFactory, text: str, min_count: int) -> None:
    tokenizer = WordTokenizer.count([text], min_count)
    words = unicodedata.normalize("NFC", text).lower().replace("\n", " <eos> ").split()
    expected = [word if word == "<eos>" or words.count(word) >= min_count else "<unk>" for word in words]
    assert tokenizer.words(tokenizer.encode([text])) == expected
    assert tokenizer.vocab_size == len({*expected, "<eos>", "<unk>"})
    folder = tmp_path_factory.mktemp("saved")
    tokenizer.save(folder)
    again = load_tokenizer(folder)
    assert again.fingerprint == tokenizer.fingerprint
    assert (again.encode([text]) == tokenizer.encode([text])).all()
    assert BYTE_PAIRS.decode(HuggingFaceTokenizer(BYTE_PAIRS, "").encode([text]).tolist()) == text


def test_prose_is_split_at_signs(tmp_path: Path) -> None:
    text = "“Good,” she said; it's the dog's.\n"
    tokenizer = WordTokenizer.count([text], name="prose")
    split = ["“", "good", ",", "”", "she", "said", ";", "it's", "the", "dog's", ".", "<eos>"]
    assert tokenizer.words(tokenizer.encode(text)) == split
    assert tokenizer.words(tokenizer.encode("<unk> zebra")) == ["<unk>", "<unk>"]
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert (again.name, again.fingerprint) == ("prose", tokenizer.fingerprint)
    assert again.words(again.encode(text)) == split
    assert WordTokenizer(tokenizer.vocabulary).fingerprint != tokenizer.fingerprint
    assert WordTokenizer.count([text]).share_of(tokenizers.ends_in_sign) == (3 / 8, "dog's.")
    assert tokenizer.share_of(tokenizers.ends_in_sign) == (0.0, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("अच्छी फिल्म है।", "अच्छी फिल्म है ।"),
        ("كتابًا جيدٌ جدًا", "كتابًا جيدٌ جدًا"),
        ("Straße, größer!", "straße , größer !"),
        (unicodedata.normalize("NFD", "Café déjà"), "café déjà"),
        ("这部电影很好。", "这 部 电 影 很 好 。"),
        ("ดีมาก", "ดี ม า ก"),
        ("カタカナです", "カタカナ で す"),
        ("It isn't 3.14, 👩‍👩‍👧 a_b", "it isn't 3.14 , 👩‍👩‍👧 a_b"),
    ],
)
def test_words_of_many_scripts(tmp_path: Path, text: str, words: str) -> None:
    """Combining marks stay with their letters; scripts without spaces are told of, and so are signs at words."""
    tokenizer = WordTokenizer.count([text], name="prose")
    assert tokenizer.words(tokenizer.encode(text)) == words.split()
    (tmp_path / "story.txt").write_text(text + "\n" + text)
    is_unspaced = any(word in words for word in ("这", "ดี", "で"))
    has_glued = not is_unspaced and any(sign in text for sign in "।,")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ss.read_corpus(tmp_path / "story.txt")
    expected = [True] * is_unspaced + [False] * has_glued
    assert ["scripts without spaces" in str(doubt.message) for doubt in told] == expected


def test_scripts_without_spaces() -> None:
    """Thai, Lao, Myanmar, Khmer, Hiragana and Han, with rare ideographs; Katakana, Hangul and others are not meant."""
    assert [sign for sign in "กກကកひ々〇漢㐀豈𠀀𰀀" if not tokenizers.UNSPACED.search(sign)] == []
    assert [sign for sign in "aéßжश한カ、。ཀ،" if tokenizers.UNSPACED.search(sign)] == []


@given(text=st.text())
def test_no_sign_is_lost(text: str) -> None:
    tokenizer = WordTokenizer.count([text], name="prose")
    words = [word for word in tokenizer.words(tokenizer.encode([text])) if word != "<eos>"]
    assert "".join(words) == "".join(unicodedata.normalize("NFC", text).lower().split())


def test_hugging_face_tokenizers_are_found_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    tokenizer = byte_pairs()
    tokenizer.enable_truncation(2)  # as in many published files; must have no effect
    tokenizer.enable_padding(length=10)
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    loaded = find_tokenizer(tmp_path / "model")
    assert loaded.name == "model"
    ids = loaded.encode(STORY).tolist()
    assert ids == [i for line in STORY for i in BYTE_PAIRS.encode(line).ids]
    assert "".join(loaded.words(ids)) == "".join(STORY)
    assert loaded.vocab_size == 1 + max(BYTE_PAIRS.get_vocab().values())
    assert find_tokenizer(str(tmp_path / "model" / "tokenizer.json")).fingerprint == loaded.fingerprint
    loaded.save(tmp_path / "saved")
    again = find_tokenizer(tmp_path / "saved")
    assert (again.name, again.fingerprint, again.vocab_size) == (loaded.name, loaded.fingerprint, loaded.vocab_size)
    assert again.encode(STORY).tolist() == ids
    tokenizer.add_tokens(["zebra"])
    assert HuggingFaceTokenizer(tokenizer, "").fingerprint != loaded.fingerprint

    def download(name: str) -> str:
        if name != "some/model":
            raise OSError("Repository Not Found.\nand more")
        return str(tmp_path / "hub.json")

    byte_pairs().save(str(tmp_path / "hub.json"))
    monkeypatch.setattr("scansnap.text.tokenizers._download", download)
    assert find_tokenizer("some/model").name == "some/model"
    with pytest.raises(ss.InputError, match=r"cannot load the tokenizer 'word' \(Repository Not Found\): choose"):
        find_tokenizer("word")


def test_ids_with_gaps_and_tokens_that_are_parts_of_characters() -> None:
    gaps = hugging_face.Tokenizer(hugging_face.models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    tokenizer = HuggingFaceTokenizer(gaps, "gaps")
    assert tokenizer.vocab_size == 8
    assert tokenizer.words([0, 3, 7]) == ["a", "<3>", "b"]
    pairs = HuggingFaceTokenizer(BYTE_PAIRS, "pairs")
    shown = pairs.words(pairs.encode("漢"))
    assert len(shown) == 3
    assert "\ufffd" not in "".join(shown)


@pytest.mark.parametrize("tokenizer", [WordTokenizer.count(STORY), HuggingFaceTokenizer(BYTE_PAIRS, "")])
def test_blocks_are_bounded_and_give_the_same_ids(monkeypatch: pytest.MonkeyPatch, tokenizer) -> None:
    whole = tokenizer.encode(STORY)
    monkeypatch.setattr(tokenizers, "BLOCK_CHARACTERS", 1)
    blocks = list(tokenizer.encode_blocks(STORY))
    assert len(blocks) == len(STORY)
    assert (np.concatenate(blocks) == whole).all()


def test_unusable_and_damaged_tokenizers_are_refused(tmp_path: Path) -> None:
    for source in (tmp_path, str(tmp_path / "no.json"), tmp_path / "none"):
        with pytest.raises(ss.InputError, match="there is no tokenizer at"):
            find_tokenizer(source)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ss.InputError, match=r"cannot load the tokenizer '.*bad.json' \(.+\)"):
        find_tokenizer(tmp_path / "bad.json")
    for words, message in (
        (["<eos>", "<unk>", "a", "a"], "no word twice"),
        (["<eos>", "a"], "contain <eos> and <unk>"),
    ):
        with pytest.raises(ss.InputError, match=message):
            WordTokenizer(words)
    for ids in ([-1], [3]):
        with pytest.raises(ss.InputError, match=r"a token id is .*: give a whole number from 0 to 2"):
            WordTokenizer(["<eos>", "<unk>", "a"]).words(ids)
    with pytest.raises(ss.InputError, match=r"cannot read the tokenizer in .*tokenizer_info\.json"):
        load_tokenizer(tmp_path)
    WordTokenizer.count(STORY).save(tmp_path)
    info = json.loads((tmp_path / "tokenizer_info.json").read_text())
    for name, content, message in (
        ("words.txt", (tmp_path / "words.txt").read_text().replace("cat", "cart"), "is damaged"),
        ("tokenizer_info.json", json.dumps({**info, "format": 99}), "has format 99"),
        ("tokenizer_info.json", "{", "is damaged"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ss.InputError, match=message):
            load_tokenizer(tmp_path)
