"""The options of reading and of counting text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from scansnap.corpus.tokenizers import WORDS, Tokenizer
from scansnap.validation.options import Options, option

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class FileOptions(Options):
    """How files are read."""

    encoding: str | None = field(
        default=None, metadata=option("The encoding of text files", none="takes what the file shows, else UTF-8")
    )


@dataclass(frozen=True, kw_only=True)
class ReadOptions(FileOptions):
    """How text becomes tokens."""

    tokenizer: str | Path | Tokenizer = field(
        default=WORDS,
        metadata=option(
            "words (lowercase, between white space), prose (words by Unicode's rules, with signs split off: 'Good,' is "
            "good and a comma), or a Hugging Face tokenizer: a file, a folder or a name on the hub."
        ),
    )
    min_count: int = field(
        default=1, metadata=option("Words that occur less often become <unk>, by words and prose.", least=1)
    )
    text: str | None = field(
        default=None, metadata=option("The column of texts in a table", none="reads files of plain text")
    )


@dataclass(frozen=True, kw_only=True)
class CountOptions(Options):
    """What is counted."""

    window: int = field(
        default=35,
        metadata=option("Tokens in a window: the query and those before it that count.", least=2, most=10**6),
    )
    split: Literal["train", "valid", "test", "all"] = field(
        default="all",
        metadata=option("The part of the text to count; train and valid hold out the end of a text without splits."),
    )
    least: int = field(
        default=1,
        metadata=option(
            "How often a triple (token, query, next token) must occur in the whole text to be kept.", least=1
        ),
    )


@dataclass(frozen=True, kw_only=True)
class CountExecution(Options):
    """How counting is executed; no effect on the numbers."""

    memory: float = field(
        default=0.5, metadata=option("GiB for text and buffers; the rest stays on disk.", least=1e-3, most=1e6)
    )
    cluster: str | None = field(
        default=None,
        metadata=option(
            "ray for a cluster on this machine, or the address of a cluster that shares the output folder."
        ),
    )
    retries: int = field(default=2, metadata=option("How often to retry work after its worker was lost.", least=0))
