"""A text as token ids: read once, then memory-mapped from the cache.

A cached text is identified by a hash of its bytes and of the tokenization.  So changed text or other settings are read
again, and the same text gives the same numbers wherever it is read from.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError, printable
from scansnap.runtime.progress import progress_bar
from scansnap.storage.cache import cached_folder
from scansnap.text.texts import SplitText, find_text
from scansnap.text.tokenizers import (
    NOTABLE_SHARE,
    PROSE,
    SPLITTERS,
    UNSPACED,
    WORDS,
    Tokenizer,
    WordTokenizer,
    ends_in_sign,
    find_tokenizer,
    frequent_words,
    load_tokenizer,
    token_of,
)
from scansnap.validation.options import Options, from_names, option, options, options_as_kwargs
from scansnap.validation.validate import validated

FORMAT = 2
"""Changes when the same text and settings give different files."""

IDS = np.dtype("<i4")


@dataclass(frozen=True, eq=False)
class Corpus:
    """The token ids of a text's splits, as read-only memory maps, and the tokenizer that made them."""

    in_a_sentence: ClassVar[str] = "what read_corpus(...) returns"

    name: str
    tokenizer: Tokenizer = field(repr=False)
    splits: Mapping[str, NDArray[np.int32]] = field(repr=False)
    fingerprint: str
    """A hash of the content and the tokenization."""
    report: tuple[str, ...] = ()
    """How many files were read and skipped, rows that were left out, and doubts about the words."""

    @property
    def train(self) -> NDArray[np.int32]:
        """The training tokens, or all of them if nothing was held out."""
        return self.splits["train" if "train" in self.splits else "all"]

    @property
    def valid(self) -> NDArray[np.int32]:
        """The validation tokens."""
        if "valid" not in self.splits:
            raise InputError(f"{self.name} was read without holding out a validation split: read it with hold_out.")
        return self.splits["valid"]

    @property
    def vocab_size(self) -> int:
        """The number of token types of the tokenizer (M)."""
        return self.tokenizer.vocab_size

    def words(self, ids: Iterable[int] | NDArray[np.integer[Any]]) -> list[str]:
        """The tokens as readable text."""
        return self.tokenizer.words(ids)

    def token(self, word: str) -> int:
        """The id of a word that is one token."""
        return token_of(self.tokenizer, word, self.name)

    def frequent_words(self, count: int) -> NDArray[np.int64]:
        """The ids of the most frequent tokens of the training text, without line ends and unknown words."""
        return frequent_words(self.tokenizer, np.bincount(self.train, minlength=self.vocab_size), count)


@options
class ReadOptions(Options):
    """How text becomes tokens."""

    tokenizer: str | Path | Tokenizer = option(
        "words (lowercase, between white space), prose (words by Unicode's rules, with signs split off: 'Good,' is "
        "good and a comma), or a Hugging Face tokenizer: a file, a folder or a name on the hub.",
        default=WORDS,
    )
    min_count: int = option("Words that occur less often become <unk>, by words and prose.", default=1, least=1)
    text: str | None = option("The column of texts in a table", default=None, none="reads files of plain text")
    encoding: str | None = option(
        "The encoding of text files", default=None, none="takes what the file shows, else UTF-8"
    )


@dataclass(frozen=True, kw_only=True)
class ReadCall(ReadOptions):
    """A call of `read_corpus`, for its signature."""

    hold_out: bool = True
    progress: bool | None = None


@options_as_kwargs(ReadCall, ReadOptions)
@validated
def read_corpus(source: object, *, hold_out: bool = True, progress: bool | None = None, **kwargs: Any) -> Corpus:
    """Read text as token ids.

    Parameters
    ----------
    source : str or path, or table, or strings
        A file, a folder, or a name: "example", "wikitext-2", "wikitext-103".  Or texts in memory: a list of strings,
        a table of pandas, Polars or Arrow, a data set of `datasets`, a dict of lists, a list of dicts.
    {options}
    hold_out : bool
        Make the last twentieth of a text without splits its validation split, and take words from the training split.
        Without it, such a text is one split, `all`, and words come from all that is read.
    progress : bool, optional
        Show a progress bar, or nothing if false; by default a bar on a terminal, and elsewhere an occasional line.

    Returns
    -------
    Corpus
        The token ids of each split, and the tokenizer.

    Examples
    --------
    >>> corpus = ss.read_corpus("example")
    >>> len(corpus.splits["train"]), corpus.vocab_size
    (29323, 288)
    """
    options = from_names(ReadOptions, kwargs)
    tokenizer, min_count = options.tokenizer, options.min_count
    rule = tokenizer if isinstance(tokenizer, str) and tokenizer in SPLITTERS else None
    if rule is None and min_count != 1:
        raise InputError(
            f"min_count is {min_count}, which works only with the tokenizers {' and '.join(SPLITTERS)}: leave it out."
        )
    ready: Tokenizer | None = None  # unless the text itself decides the vocabulary
    if isinstance(tokenizer, Tokenizer):
        ready = tokenizer
    elif rule is None:
        ready = find_tokenizer(tokenizer)
    text = find_text(source, column=options.text, encoding=options.encoding, hold_out=hold_out)
    words_from = ("train",) if hold_out else text.splits
    settings = {
        "format": FORMAT,
        "text": text.digest,
        "tokenizer": f"{rule} min_count={min_count} of {words_from}" if ready is None else ready.fingerprint,
    }
    fingerprint = hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()

    def fill(folder: Path) -> None:
        pieces = chain.from_iterable(map(text.pieces, words_from))
        _fill(folder, text, ready or WordTokenizer.count(pieces, min_count, str(rule)), progress)

    folder = cached_folder("corpora", fingerprint, fill)
    splits = {split: np.memmap(folder / f"{split}.bin", IDS, mode="r") for split in text.splits}
    made = ready or load_tokenizer(folder)
    files = (f"{text.found.sentence()}.",) if text.found.files else ()
    doubts = (*text.report.sentences(), *_doubts(made))
    for doubt in (*files, *doubts) if text.found.skipped else doubts:
        warnings.warn(f"{text.name}: {doubt}", stacklevel=3)
    return Corpus(text.name, made, MappingProxyType(splits), fingerprint, (*files, *doubts))


def _doubts(tokenizer: Tokenizer) -> Iterator[str]:
    """What to know about a text before you believe its numbers."""
    if not isinstance(tokenizer, WordTokenizer):
        return
    share, word = tokenizer.share_of(UNSPACED.search)
    if share > NOTABLE_SHARE:
        what = (
            "each character is a token, and words are not found"
            if tokenizer.name == PROSE
            else f"what stands between white space is one token; with the tokenizer '{PROSE}' each character is one"
        )
        yield (
            f"{share:.0%} of the types, as '{printable(word, 40)}', are of scripts without spaces (Chinese, Japanese, "
            f"Thai, ...): {what}."
        )
        return
    share, word = tokenizer.share_of(ends_in_sign)
    if share > NOTABLE_SHARE and tokenizer.name == WORDS:
        yield (
            f"{share:.0%} of the types end in a punctuation mark, as '{printable(word, 40)}': the tokenizer '{PROSE}' "
            f"splits such marks off (--tokenizer {PROSE})."
        )


def _fill(folder: Path, text: SplitText, tokenizer: Tokenizer, progress: bool | None) -> None:
    """Write the tokenizer and the ids of each split to a folder."""
    with progress_bar(f"reading {text.name}", sum(text.sizes.values()), progress) as show:
        tokenizer.save(folder)
        done = 0

        def with_progress(pieces: Iterable[str]) -> Iterator[str]:
            nonlocal done
            for piece in pieces:
                yield piece
                done += len(piece)
                show(done)

        for split in text.splits:
            with (folder / f"{split}.bin").open("wb") as file:
                for ids in tokenizer.encode_blocks(with_progress(text.pieces(split))):
                    file.write(ids.astype(IDS, copy=False).tobytes())
                if file.tell() == 0:
                    raise InputError(
                        f"the tokenizer '{tokenizer.name}' finds no tokens in the {split} text of {text.name}: "
                        "choose another tokenizer."
                    )
