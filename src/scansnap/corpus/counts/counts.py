"""Counts in a store, by query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scansnap.corpus.counts.contexts import ContextCounts
from scansnap.corpus.counts.events import Rows
from scansnap.corpus.counts.plan import Text
from scansnap.corpus.counts.tables import COLUMNS, is_intact, part_file, read_columns, read_part, read_queries
from scansnap.corpus.tokenizers import Tokenizer, load_tokenizer, token_of
from scansnap.results.store import WHOLE, Condition
from scansnap.runtime.errors import InputError, StoreError
from scansnap.storage.files import DamagedFile, Sum, file_checksum, is_list_of_sums, unsealed
from scansnap.validation.checks import integer
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import xarray as xr

KIND, FORMAT = "counts", 2
INFO, VOCABULARY, TOKENIZER = "counts.json", "vocabulary.parquet", "tokenizer"
MARGINS = ("query_count", "next_count", "context_count")
"""c(m), c(n) and c(l), by token."""

ROWS_AT_ONCE = 2**20
"""Rows of a table in memory at once."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How often tokens precede and follow each other in a text, as `count_corpus` counts them.

    >>> counts = ss.count_corpus("example", output="kept")
    >>> counts.dataset(["the"], tokens=3)["token_word"].values
    array(['.', 'the', 'and'], dtype='<U3')
    """

    in_a_sentence: ClassVar[str] = "what count_corpus(...) returns"

    path: Path
    window: int
    """Tokens in a window: the query and those before it that count."""
    least: int
    """Triples that occur less often in all are not here; pairs and bigrams all are."""
    texts: tuple[Text, ...]
    """What was counted."""
    cuts: tuple[int, ...] = field(repr=False)
    """The first query in each file of a table, and the number of queries."""
    origin: dict[str, str] = field(repr=False)
    """The versions, the machine and the time that the counts were made with."""

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Whose tokens are counted."""
        return load_tokenizer(self.path / TOKENIZER)

    @property
    def vocab_size(self) -> int:
        """The number of token types (M)."""
        return self.cuts[-1]

    @property
    def num_tokens(self) -> int:
        """The length of all texts."""
        return sum(text.tokens for text in self.texts)

    @property
    def source(self) -> str:
        """The texts' names."""
        return ", ".join(f"{text.name} {text.split}" for text in self.texts)

    @validated
    def files(self, table: str) -> str:
        """The files of "triples", "pairs" or "bigrams", as DuckDB and Polars take them."""
        if table not in COLUMNS:
            raise InputError(f"there is no table '{table}': choose one of {', '.join(COLUMNS)}.")
        return str(self.path / table / "*.parquet")

    @cached_property
    def vocabulary(self) -> xr.Dataset:
        """Every token: its word, and how often it is a query, c(m), a next token, c(n), and a contextual one, c(l)."""
        import xarray as xr

        columns = read_columns(self.path / VOCABULARY, ["token", "word", *MARGINS])
        coords = {"token": columns.pop("token"), "word": ("token", columns.pop("word").astype(str))}
        return xr.Dataset({name: ("token", values) for name, values in columns.items()}, coords, self._attributes())

    def rows(self, table: str) -> Iterator[Rows]:
        """The rows of "triples", "pairs" or "bigrams", in order and in blocks."""
        self.files(table)  # refuses an unknown table
        for part in range(len(self.cuts) - 1):
            yield from read_part(self.path, table, part, ROWS_AT_ONCE)

    def token(self, word: str | int) -> int:
        """The id of a word that is one token."""
        if not isinstance(word, str):
            return integer("a token", word, most=self.vocab_size - 1)
        return token_of(self.tokenizer, word, self.source)

    def of(self, query: str | int) -> ContextCounts:
        """What precedes and follows a query token, a word or an id."""
        m = self.token(query)
        counts = ContextCounts.from_rows(m, self.window, self.vocab_size, self._rows(m))
        if not counts.num_occurrences:
            raise InputError(f"token {m} never occurs before another token: give a query token that does.")
        return counts

    @validated
    def dataset(self, queries: Iterable[str | int], *, tokens: int = 20, next_tokens: int = 10) -> xr.Dataset:
        """The counts of some queries with labels: the most frequent contextual and next tokens of these queries.

        `count` is c(l, m, n), `token_count` c(l, m), `next_count` c(m, n), `distinctness` D(l|m).
        """
        import xarray as xr

        contexts = {self.token(query): self.of(query) for query in queries}
        if not contexts:
            raise InputError("queries is empty: give at least one word or token id.")
        rows = self._most_frequent([context.token_counts for context in contexts.values()], tokens)
        columns = self._most_frequent([context.next_counts for context in contexts.values()], next_tokens)
        values = {
            "count": (
                ("query", "token", "next_token"),
                [c.counts[rows][:, columns].toarray() for c in contexts.values()],
            ),
            "token_count": (("query", "token"), [c.token_counts[rows] for c in contexts.values()]),
            "next_count": (("query", "next_token"), [c.next_counts[columns] for c in contexts.values()]),
            "distinctness": (("query", "token"), [c.distinctness[rows] for c in contexts.values()]),
        }
        labels = {"query": list(contexts), "token": rows, "next_token": columns}
        words = {f"{name}_word": (name, np.array(self.tokenizer.words(ids))) for name, ids in labels.items()}
        variables = {name: (dims, np.array(arrays)) for name, (dims, arrays) in values.items()}
        return xr.Dataset(variables, {**labels, **words}, self._attributes())

    def _most_frequent(self, counts: list[Any], most: int) -> Any:
        total = np.sum(counts, axis=0)
        order = np.argsort(-total, kind="stable")[:most]
        return order[total[order] > 0]

    def _rows(self, query: int) -> Iterator[tuple[str, Rows]]:
        part = int(np.searchsorted(self.cuts, query, side="right")) - 1
        for table in COLUMNS:
            for rows in read_queries(self.path, table, part, query, query + 1):
                yield table, rows

    def _attributes(self) -> dict[str, Any]:
        return {"kind": KIND, "window": self.window, "least": self.least, "texts": self.source, **self.origin}


@validated
def read_counts(path: str | Path) -> Counts:
    """The counts that `count_corpus` wrote to a folder; tables are read when they are asked for.

    >>> path = ss.count_corpus("example", output="read").path
    >>> ss.read_counts(path).of("the").num_occurrences
    2470
    """
    path = Path(path)
    if not path.is_dir():
        raise StoreError(f"there are no counts at {path}: give the folder that `scansnap corpus count` wrote.")
    try:
        description = _description(path)
        version = description["format"]
        texts = tuple(Text(**entry) for entry in description["texts"])
        counts = Counts(
            path, description["window"], description["least"], texts, tuple(description["cuts"]), description["origin"]
        )
    except DamagedFile:
        raise StoreError(
            f"{path} is damaged: {INFO} has other bytes than were written; count the text again."
        ) from None
    except (OSError, KeyError, TypeError, ValueError):
        raise StoreError(f"{path} holds no counts: give the folder that `scansnap corpus count` wrote.") from None
    if version not in (1, FORMAT):
        raise StoreError(
            f"{path} has format {version}, and this version of scansnap reads format {FORMAT}: count the text again."
        )
    for name in _damaged_files(path, description.get("files", {})):
        raise StoreError(
            f"{path} is damaged: {name} is missing or has other bytes than were written; count the text again."
        )
    return counts


def check_counts(path: str | Path) -> Condition:
    """Read every file of counts, and say which tables are intact."""
    path = Path(path)
    try:
        description = _description(path)
    except (OSError, KeyError, TypeError, ValueError, DamagedFile):
        return Condition(True, True, {INFO: [INFO]})
    damaged: dict[str, list[str]] = {WHOLE: _damaged_files(path, description.get("files", {}))}
    for table in COLUMNS:
        parts = [part for part in range(len(description["cuts"]) - 1) if not is_intact(path, table, part)]
        damaged[table] = [part_file(path, table, part).relative_to(path).as_posix() for part in parts]
    return Condition(description["format"] >= FORMAT, True, damaged)


def _description(path: Path) -> dict[str, Any]:
    """What the folder says of itself; before format 2 without a seal."""
    data = (path / INFO).read_bytes()
    try:
        description = unsealed(data)
    except DamagedFile:
        description = json.loads(data)
        if description["format"] >= FORMAT:
            raise
    if description["kind"] != KIND:
        raise KeyError(KIND)
    integer("window", description["window"], least=1)
    integer("least", description["least"], least=1)
    cuts, origin, files = (description.get(name, {}) for name in ("cuts", "origin", "files"))
    is_cut = isinstance(cuts, list) and len(cuts) > 1 and all(type(cut) is int for cut in cuts)
    if not is_cut or cuts != sorted(cuts) or not isinstance(origin, dict) or not is_list_of_sums(files):
        raise ValueError(f"{INFO} is none that scansnap wrote")
    return description


def _damaged_files(path: Path, listed: dict[str, Sum]) -> list[str]:
    """The files of a list that are missing or have other bytes."""
    return [
        name for name, value in listed.items() if not (path / name).is_file() or file_checksum(path / name) != value
    ]
