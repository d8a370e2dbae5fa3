"""A text as token ids: read once, then memory-mapped from the cache.

A cached text is identified by a hash of its bytes and of the tokenization.  So changed text or other settings are read
again, and the same text gives the same numbers wherever it is read from.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.texts import TextFiles, find_text
from scansnap.corpus.tokenizers import (
    LINE_END,
    MUCH_GLUED,
    PROSE,
    SPLITS,
    UNKNOWN,
    WORDS,
    Tokenizer,
    WordTokenizer,
    find_tokenizer,
    load_tokenizer,
)
from scansnap.runtime.errors import InputError, printable
from scansnap.runtime.progress import progress_bar
from scansnap.storage.cache import cached_folder
from scansnap.validation.argument_types import IntegerType
from scansnap.validation.checks import integer
from scansnap.validation.validate import validated

FORMAT = 1
"""Changes when the same text and settings give different files."""

IDS = np.dtype("<i4")
TABLES = (".csv", ".tsv", ".json", ".jsonl")


@dataclass(frozen=True, eq=False)
class Corpus:
    """The token ids of a text's splits, as read-only memory maps, and the tokenizer that made them."""

    in_a_sentence: ClassVar[str] = "what read_corpus(...) returns"

    name: str
    tokenizer: Tokenizer = field(repr=False)
    splits: Mapping[str, NDArray[np.int32]] = field(repr=False)
    fingerprint: str
    """A hash of the content and the tokenization."""

    @property
    def train(self) -> NDArray[np.int32]:
        """The training tokens."""
        return self.splits["train"]

    @property
    def valid(self) -> NDArray[np.int32]:
        """The validation tokens."""
        return self.splits["valid"]

    @property
    def vocab_size(self) -> int:
        """The number of token types of the tokenizer (M)."""
        return self.tokenizer.vocab_size

    def words(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> list[str]:
        """The tokens as readable text."""
        return self.tokenizer.words(ids)

    def frequent_words(self, count: int) -> NDArray[np.int64]:
        """The ids of the most frequent tokens of the training text, without line ends and unknown words."""
        counts = np.bincount(self.train, minlength=self.vocab_size)
        ids = np.argsort(-counts, kind="stable")[: count + 2]
        is_word = [word not in (LINE_END, UNKNOWN) for word in self.words(ids)]
        return ids[is_word][:count]


@validated
def read_corpus(
    source: str | Path,
    *,
    tokenizer: str | Path | Tokenizer = WORDS,
    min_count: Annotated[int, IntegerType({"least": 1})] = 1,
    progress: bool | None = None,
) -> Corpus:
    """The text of a file, a folder or a name ("example", "wikitext-2", "wikitext-103") as token ids.

    `tokenizer` is "words" (lowercase words of the training split between white space, with `<unk>` for those that
    occur fewer than `min_count` times), "prose" (the same with signs split off: "Good," is good and a comma), a
    Hugging Face tokenizer (a tokenizer.json, a folder with one, or a name on the hub), a folder to which a
    tokenizer was saved, or a `Tokenizer`.

    >>> corpus = ss.read_corpus("example")
    >>> len(corpus.splits["train"]), corpus.vocab_size
    (29323, 288)
    """
    min_count = integer("min_count", min_count, least=1)
    rule = tokenizer if isinstance(tokenizer, str) and tokenizer in SPLITS else None
    if rule is None and min_count != 1:
        raise InputError(
            f"min_count is {min_count}, which works only with the tokenizers {' and '.join(SPLITS)}: leave it out."
        )
    ready: Tokenizer | None = None  # unless the text itself decides the vocabulary
    if isinstance(tokenizer, Tokenizer):
        ready = tokenizer
    elif rule is None:
        ready = find_tokenizer(tokenizer)
    text = find_text(source)
    settings = {
        "format": FORMAT,
        "text": text.digest(),
        "tokenizer": f"{rule} min_count={min_count}" if ready is None else ready.fingerprint,
    }
    fingerprint = hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()
    folder = cached_folder(
        "corpora", fingerprint, lambda draft: _fill(draft, text, ready or str(rule), min_count, progress)
    )
    splits = {split: np.memmap(folder / f"{split}.bin", IDS, mode="r") for split in text.splits}
    corpus = Corpus(text.name, ready or load_tokenizer(folder), MappingProxyType(splits), fingerprint)
    for doubt in _doubts(Path(source), corpus.tokenizer):
        warnings.warn(f"{text.name}: {doubt}", stacklevel=3)
    return corpus


def _doubts(source: Path, tokenizer: Tokenizer) -> Iterator[str]:
    """What to know of a text before one believes its numbers."""
    if source.suffix.lower() in TABLES:
        yield "this is a table, and all of its columns are read as text."
    elif isinstance(tokenizer, WordTokenizer) and tokenizer.name == WORDS:
        share, word = tokenizer.glued()
        if share > MUCH_GLUED:
            yield (
                f"{share:.0%} of the types end in a sign, as '{printable(word, 40)}': the tokenizer '{PROSE}' splits "
                "signs off."
            )


def _fill(folder: Path, text: TextFiles, tokenizer: Tokenizer | str, min_count: int, progress: bool | None) -> None:
    """Write the tokenizer, or one of this rule that is made from the text, and the ids of each split to a folder."""
    total = sum(map(text.num_bytes, text.splits)) + (text.num_bytes("train") if isinstance(tokenizer, str) else 0)
    with progress_bar(f"reading {text.name}", total, progress) as show:
        counted = _ByteCounter(show)
        if isinstance(tokenizer, str):
            tokenizer = WordTokenizer.count(counted(text.pieces("train")), min_count, tokenizer)
        tokenizer.save(folder)
        for split in text.splits:
            with (folder / f"{split}.bin").open("wb") as file:
                for ids in tokenizer.encode_blocks(counted(text.pieces(split))):
                    file.write(ids.astype(IDS, copy=False).tobytes())
                if file.tell() == 0:
                    raise InputError(
                        f"the tokenizer '{tokenizer.name}' finds no tokens in the {split} text of {text.name}: choose "
                        "another tokenizer."
                    )


class _ByteCounter:
    """Passes pieces of text on and shows how many bytes have passed."""

    def __init__(self, show: Callable[[float], None]) -> None:
        self._show = show
        self._done = 0

    def __call__(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            yield piece
            self._done += len(piece) if piece.isascii() else len(piece.encode("utf-8"))
            self._show(self._done)
