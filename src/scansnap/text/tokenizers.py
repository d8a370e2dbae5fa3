"""How text becomes tokens: words, as in the published runs, words of prose, or any Hugging Face tokenizer.

*words* stand between white space, which suits text that is split already, as WikiText is.  Ordinary prose has commas at
its words; *prose* splits signs off.  Its words are those of Unicode's rules for word boundaries (UAX #29), so that
combining marks stay with their letters, and "3.14" and "isn't" are one word each; any other sign that is not white
space is a word by itself.  So "Good," is good and a comma.  Scripts without spaces (Chinese, Japanese, Thai, Lao,
Khmer, Burmese) are not segmented into words: each character is a token.

Text is brought into Unicode's composed form (NFC) and into lower case first.

A tokenizer is saved as plain files in a folder: its type and name in `tokenizer_info.json`, and its vocabulary in
`words.txt` (one word per line, in order of ids) or in Hugging Face's own `tokenizer.json`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import socket
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError, brief
from scansnap.runtime.machine import import_optional
from scansnap.validation.checks import expand_user, integer

HUB_NAME = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
"""A name on the hub: that of a model, after its owner's if it has one."""

LINE_END = "<eos>"
UNKNOWN = "<unk>"
WORDS, PROSE = "words", "prose"
"""The names of the tokenizations into words: between white space, and with signs split off."""

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Characters of scripts that put no spaces between words: Thai, Lao, Myanmar, Khmer, Hiragana, Han."""

NOTABLE_SHARE = 0.1
"""From this share of such word types on, a report warns; WikiText-2 has 0.003 words with a sign at their end."""

FORMAT = 1
INFO, WORDS_FILE, HUGGING_FACE_FILE = "tokenizer_info.json", "words.txt", "tokenizer.json"
BLOCK_CHARACTERS = 2**18
"""How much text is encoded at once."""


class Tokenizer(ABC):
    """Turns text into token ids 0, ..., `vocab_size` − 1."""

    name: str
    fingerprint: str
    """A hash of everything that determines the ids."""

    vocab_size: int
    """The number of tokens."""

    @abstractmethod
    def encode_blocks(self, pieces: Iterable[str]) -> Iterator[NDArray[np.int32]]:
        """The ids of text in pieces, block by block; a piece that ends a line ends in a newline."""

    @abstractmethod
    def _word(self, token: int) -> str:
        """A token as readable text."""

    @abstractmethod
    def _write(self, folder: Path) -> str:
        """Write the vocabulary and return the type of tokenizer."""

    @final
    def words(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> list[str]:
        """Each token as readable text."""
        listed = [int(i) for i in ids]
        for extreme in (min(listed), max(listed)) if listed else ():
            integer("a token id", extreme, most=self.vocab_size - 1)
        return [self._word(i) for i in listed]

    @final
    def encode(self, text: str | Iterable[str]) -> NDArray[np.int32]:
        """The ids of a text, whole or in pieces."""
        pieces = StringIO(text.replace("\r\n", "\n")) if isinstance(text, str) else text
        return np.concatenate([np.empty(0, np.int32), *self.encode_blocks(pieces)])

    @final
    def save(self, folder: str | Path) -> None:
        """Write the tokenizer to a folder, from which `load_tokenizer` reads it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer_type = self._write(folder)
        description = {"format": FORMAT, "kind": tokenizer_type, "name": self.name, "fingerprint": self.fingerprint}
        (folder / INFO).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


@final
class WordTokenizer(Tokenizer):
    """Lowercase words, split by the rule of this name, and `<eos>` at each line end; unknown words are `<unk>`."""

    def __init__(self, vocabulary: Sequence[str], name: str = WORDS) -> None:
        self.name = name
        self._split = SPLITTERS[name]
        self.vocabulary = tuple(vocabulary)
        self.vocab_size = len(self.vocabulary)
        self.fingerprint = _hash(name, *self.vocabulary)
        self._ids = {word: i for i, word in enumerate(self.vocabulary)}
        if len(self._ids) != len(self.vocabulary) or not {LINE_END, UNKNOWN} <= set(self.vocabulary):
            raise InputError(
                f"a vocabulary must contain {LINE_END} and {UNKNOWN}, and no word twice: give another one."
            )

    @classmethod
    def count(cls, pieces: Iterable[str], min_count: int = 1, name: str = WORDS) -> WordTokenizer:
        """The words that occur at least `min_count` times, by decreasing count and then alphabetically."""
        counts: Counter[str] = Counter()
        for piece in pieces:
            counts.update(SPLITTERS[name](piece))
        rare = [word for word, count in counts.items() if count < min_count and word not in (LINE_END, UNKNOWN)]
        counts[LINE_END] += 0
        counts[UNKNOWN] += sum(counts.pop(word) for word in rare)
        return cls(sorted(counts, key=lambda word: (-counts[word], word)), name)

    def encode_blocks(self, pieces: Iterable[str]) -> Iterator[NDArray[np.int32]]:
        unknown = self._ids[UNKNOWN]
        for block in _blocks(pieces):
            ids = [self._ids.get(word, unknown) for piece in block for word in self._split(piece)]
            yield np.array(ids, np.int32)

    def _word(self, token: int) -> str:
        return self.vocabulary[token]

    def _write(self, folder: Path) -> str:
        (folder / WORDS_FILE).write_text("".join(f"{word}\n" for word in self.vocabulary), "utf-8", newline="\n")
        return self.name

    def share_of(self, is_such: Callable[[str], object]) -> tuple[float, str]:
        """The share of types for which something is true, and the most frequent of these."""
        found = [word for word in self.vocabulary if word not in (LINE_END, UNKNOWN) and is_such(word)]
        return len(found) / self.vocab_size, next(iter(found), "")


@final
class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` package, used without special tokens, line by line."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.name = name
        self.fingerprint = _hash("hugging-face", tokenizer.to_str())
        self._tokenizer = tokenizer
        # ids may have gaps, so this is not the number of entries
        self.vocab_size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    @classmethod
    def find(cls, source: str | Path) -> HuggingFaceTokenizer:
        """From a tokenizer.json file, a folder with one, or the name of a model on the Hugging Face hub."""
        Fast = import_optional(
            "tokenizers",
            what=f"the tokenizer '{source}'",
            package="Hugging Face tokenizers",
            extra="text",
            instead=f"choose '{WORDS}'",
        ).Tokenizer
        path = expand_user("tokenizer", source)
        file = path / HUGGING_FACE_FILE if path.is_dir() else path
        allowed = f"choose '{WORDS}', '{PROSE}', a tokenizer.json file, a folder with one, or a model's name on the hub"
        if not file.is_file() and (path.is_dir() or isinstance(source, Path) or path.suffix == ".json"):
            raise InputError(f"there is no tokenizer at {file}: {allowed}.")
        if not file.is_file() and not HUB_NAME.fullmatch(str(source)):
            raise InputError(f"'{source}' is no file, and no name on the hub: {allowed}.")
        try:
            if file.is_file():
                return cls(Fast.from_file(str(file)), path.name if path.is_dir() else path.stem)
            return cls(Fast.from_file(_download(str(source))), str(source))
        except Exception as error:  # the package raises plain Exceptions, and the hub many types
            raise InputError(f"cannot load the tokenizer '{source}' ({brief(error)}): {allowed}.") from None

    def encode_blocks(self, pieces: Iterable[str]) -> Iterator[NDArray[np.int32]]:
        for block in _blocks(pieces):
            try:
                encoded = self._tokenizer.encode_batch(block, add_special_tokens=False)
            except Exception as error:  # the package raises nothing more specific
                raise InputError(
                    f"the tokenizer {self.name} cannot encode this text ({brief(error)}): choose another."
                ) from None
            yield np.array([i for line in encoded for i in line.ids], np.int32)

    def _word(self, token: int) -> str:
        text = self._tokenizer.decode([token], skip_special_tokens=False)
        # part of a character, or a token that decodes to nothing, is shown as its entry in the vocabulary
        return text if text and "\ufffd" not in text else self._tokenizer.id_to_token(token) or f"<{token}>"

    def _write(self, folder: Path) -> str:
        (folder / HUGGING_FACE_FILE).write_text(self._tokenizer.to_str(pretty=True), "utf-8", newline="\n")
        return "hugging-face"


def _download(name: str) -> str:
    """The path of a tokenizer's file from the hub, in its cache; without a network only what is there already."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return hf_hub_download(name, HUGGING_FACE_FILE, local_files_only=True)
    except LocalEntryNotFoundError:
        if not getproxies():
            socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)  # or else it would be tried for 25 seconds
        return hf_hub_download(name, HUGGING_FACE_FILE)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer that `save` wrote to a folder."""
    folder = Path(folder)
    try:
        description = json.loads((folder / INFO).read_text(encoding="utf-8"))
        if description["format"] != FORMAT:
            raise InputError(
                f"the tokenizer in {folder} has format {description['format']}, but this version of scansnap reads "
                f"format {FORMAT}: use the version that wrote it."
            )
        tokenizer: Tokenizer
        if description["kind"] in SPLITTERS:
            words = (folder / WORDS_FILE).read_text(encoding="utf-8").split("\n")[:-1]
            tokenizer = WordTokenizer(words, description["kind"])
        else:
            tokenizer = HuggingFaceTokenizer.find(folder)
            tokenizer.name = description["name"]
        is_intact = tokenizer.fingerprint == description["fingerprint"]
    except OSError as error:
        raise InputError(f"cannot read the tokenizer in {folder} ({brief(error)}): give another folder.") from None
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
        is_intact = False
    if not is_intact:
        raise InputError(f"the tokenizer in {folder} is damaged: save it again.")
    return tokenizer


def find_tokenizer(source: str | Path) -> Tokenizer:
    """A saved tokenizer, or a Hugging Face tokenizer."""
    if (Path(source) / INFO).is_file():
        return load_tokenizer(source)
    return HuggingFaceTokenizer.find(source)


def token_of(tokenizer: Tokenizer, word: str, source: str) -> int:
    """The id of a word that is one token of the text `source`."""
    ids = tokenizer.encode(word)
    if len(ids) != 1:
        pieces = ", ".join(f"'{piece}'" for piece in tokenizer.words(ids))
        raise InputError(f"'{word}' is {len(ids)} tokens{f' ({pieces})' if pieces else ''}: give a single one.")
    if tokenizer.words(ids) == [UNKNOWN] and word != UNKNOWN:
        known = tokenizer.vocabulary if isinstance(tokenizer, WordTokenizer) else ()
        nearest = get_close_matches(word.lower(), known, n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else "give a word of the text."
        raise InputError(f"'{word}' does not occur in {source}: {hint}")
    return int(ids[0])


def frequent_words(tokenizer: Tokenizer, counts: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """The ids of the tokens with the largest counts, without line ends and unknown words."""
    ids = np.argsort(-counts, kind="stable")[: number + 2]
    is_word = [word not in (LINE_END, UNKNOWN) for word in tokenizer.words(ids)]
    return ids[is_word][:number]


def ends_in_sign(word: str) -> bool:
    """Whether a word with a letter or digit in it ends in a punctuation mark or symbol."""
    return unicodedata.category(word[-1])[0] in "PS" and any(map(str.isalnum, word))


@functools.cache
def _find_words_and_signs() -> Callable[[str], list[str]]:
    """A function that lists what stands between two word boundaries, unless it is white space."""
    regex = import_optional(
        "regex", what=f"the tokenizer '{PROSE}'", package="regex", extra="text", instead=f"choose '{WORDS}'"
    )
    found: Callable[[str], list[str]] = regex.compile(r"\b\S.*?\b|\S", regex.WORD | regex.DOTALL | regex.V1).findall
    return found


def _words(piece: str) -> list[str]:
    return unicodedata.normalize("NFC", piece).lower().replace("\n", f" {LINE_END} ").split()


def _prose(piece: str) -> list[str]:
    find = _find_words_and_signs()
    return [word for run in _words(piece) for word in ([run] if run in (LINE_END, UNKNOWN) else find(run))]


SPLITTERS: dict[str, Callable[[str], list[str]]] = {WORDS: _words, PROSE: _prose}


def _blocks(pieces: Iterable[str]) -> Iterator[list[str]]:
    block, size = [], 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode("utf-8"), digest_size=16).hexdigest()
