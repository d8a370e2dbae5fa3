"""A text as token ids: read once, then kept in the cache as memory-mapped files.

What is kept is found again by a hash of the text's bytes and of the tokenisation.  Changed text or other settings are
therefore read anew, and the same text gives the same numbers from wherever it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.base.checks import whole
from scansnap.base.errors import InputError
from scansnap.base.progress import progress_bar
from scansnap.text.corpus.cache import cached_folder
from scansnap.text.corpus.files import TextFiles, find_text
from scansnap.text.corpus.tokenizers import WORDS, Tokenizer, WordTokenizer, find_tokenizer, load_tokenizer

FORMAT = 1
"""Changes when the same text and settings give other files."""

IDS = np.dtype("<i4")


@dataclass(frozen=True, eq=False)
class Corpus:
    """The token ids of a text's splits, which are read-only memory maps, and the tokenizer that made them."""

    name: str
    tokenizer: Tokenizer = field(repr=False)
    splits: Mapping[str, NDArray[np.int32]] = field(repr=False)
    fingerprint: str
    """A hash of the content and the tokenisation."""

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
        """The number of tokens that the tokenizer knows (M)."""
        return self.tokenizer.vocab_size

    def words(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> list[str]:
        """What tokens read, for people."""
        return self.tokenizer.words(ids)


def read_corpus(
    source: str | Path,
    *,
    tokenizer: str | Path | Tokenizer = WORDS,
    min_count: int = 1,
    progress: bool | None = None,
) -> Corpus:
    """The text of a file, a folder or a name ("example", "wikitext-2", "wikitext-103") as token ids.

    `tokenizer` is "words" (lower-cased words of the training split, those that occur fewer than `min_count` times as
    `<unk>`), a Hugging Face tokenizer (a tokenizer.json, a folder with one, or a name on the hub), a folder that a
    tokenizer was saved to, or a tokenizer.
    """
    min_count = whole("min_count", min_count, least=1)
    if tokenizer != WORDS and min_count != 1:
        raise InputError(f"min_count counts words for the tokenizer '{WORDS}': leave it out with another tokenizer.")
    given: Tokenizer | None = None
    if isinstance(tokenizer, Tokenizer):
        given = tokenizer
    elif tokenizer != WORDS:
        given = find_tokenizer(tokenizer)
    text = find_text(source)
    settings = {
        "format": FORMAT,
        "text": text.digest(),
        "tokenizer": f"{WORDS} min_count={min_count}" if given is None else given.fingerprint,
    }
    fingerprint = hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()
    folder = cached_folder("corpora", fingerprint, lambda draft: _fill(draft, text, given, min_count, progress))
    splits = {
        split: np.memmap(folder / f"{split}.bin", IDS, mode="r")  # a read-only view of the file
        for split in text.splits
    }
    return Corpus(text.name, given or load_tokenizer(folder), MappingProxyType(splits), fingerprint)


def _fill(folder: Path, text: TextFiles, tokenizer: Tokenizer | None, min_count: int, progress: bool | None) -> None:
    """Write the tokenizer and the ids of each split."""
    total = sum(map(text.num_bytes, text.splits)) + (text.num_bytes("train") if tokenizer is None else 0)
    with progress_bar(f"reading {text.name}", total, progress) as show:
        watch = _Watch(show)
        if tokenizer is None:
            tokenizer = WordTokenizer.count(watch(text.pieces("train")), min_count)
        tokenizer.save(folder)
        for split in text.splits:
            with (folder / f"{split}.bin").open("wb") as file:
                for ids in tokenizer.encode_blocks(watch(text.pieces(split))):
                    file.write(ids.astype(IDS, copy=False).tobytes())
                if file.tell() == 0:
                    raise InputError(
                        f"the tokenizer '{tokenizer.name}' finds no tokens in the {split} text of {text.name}: choose "
                        "another tokenizer."
                    )


class _Watch:
    """Passes pieces on and shows how many bytes there have been."""

    def __init__(self, show: Callable[[float], None]) -> None:
        self._show = show
        self._done = 0

    def __call__(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            yield piece
            self._done += len(piece) if piece.isascii() else len(piece.encode("utf-8"))
            self._show(self._done)
