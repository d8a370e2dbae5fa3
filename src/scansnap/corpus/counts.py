"""Counts in a store, by query.

A store is a folder with three tables of counts and a vocabulary.  Each table is a folder of Parquet files, one for each
range of queries, which other programs open as they are; its rows are in order:

    triples     query, next_token, token, count     c(l, m, n)
    pairs       query, token, count                 c(l, m)
    bigrams     query, next_token, count            c(m, n)

From the counts of one query m follow the quantities of the theory:

    P(l|m) = c(l, m) / Σ_l' c(l', m)         how often l occurs before m
    P(n|m) = c(m, n) / (number of occurrences)
    D(l|m) = Σ_n P(n|l, m) log(P(n|l, m) / P(n|m)),  P(n|l, m) = c(l, m, n) / c(l, m)

D, in nats, is how much a contextual token says about the next token.  It is 0 for a token that occurs with all next
tokens in proportion and −log P(n|m) for one that is distinct to n.  Small counts alone make it positive: shuffled
occurrences show how large it is when next tokens are unrelated to their contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scansnap.corpus.tokenizers import Tokenizer, frequent_words, load_tokenizer, token_of
from scansnap.corpus.windows import TABLES, TableName, count_tables
from scansnap.runtime.errors import InputError, StoreError
from scansnap.storage.folder import CheckedFolder
from scansnap.validation.checks import integer
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

STORE_TYPE, FORMAT = "counts", 3
VOCABULARY, TOKENIZER = "vocabulary.parquet", "tokenizer"
MARGINS = ("query_count", "next_count", "context_count")
"""c(m), c(n) and c(l), by token."""

ROWS_AT_ONCE = 2**20
"""Rows of a table in memory at once."""


@dataclass(frozen=True)
class CountedText:
    """A text that was counted: where it comes from, and what identifies it."""

    name: str
    split: str
    tokens: int
    digest: str
    """A hash of its token ids."""


def largest(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The places of the largest counts above 0, at most `most`, from the largest on."""
    order = np.argsort(-counts, kind="stable")[:most]
    return order[counts[order] > 0]


@dataclass(frozen=True, eq=False)
class ContextCounts:
    """Counts of the contextual and next tokens of one query token."""

    query: int
    window: int
    counts: sparse.csr_array = field(repr=False)
    """c(l, n), (vocab_size, vocab_size) of int64."""
    token_counts: NDArray[np.int64] = field(repr=False)
    """c(l): how often each token is a contextual token, (vocab_size,)."""
    next_counts: NDArray[np.int64] = field(repr=False)
    """c(n): how often each token is the next token, (vocab_size,)."""

    @property
    def num_occurrences(self) -> int:
        """How often the query token occurs with a next token."""
        return int(self.next_counts.sum())

    @cached_property
    def cooccurrence(self) -> NDArray[np.float64]:
        """P(l|m), (vocab_size,)."""
        return self.token_counts / max(1, self.token_counts.sum())

    @cached_property
    def distinctness(self) -> NDArray[np.float64]:
        """D(l|m) in nats, (vocab_size,); NaN for tokens that never precede the query or lack their rare triples."""
        rows = np.repeat(np.arange(self.counts.shape[0]), np.diff(self.counts.indptr))
        next_probs = self.counts.data / self.token_counts[rows]  # P(n|l, m)
        overall = self.next_counts[self.counts.indices] / self.num_occurrences  # P(n|m)
        divergence = np.bincount(rows, next_probs * np.log(next_probs / overall), minlength=self.counts.shape[0])
        complete = (self.token_counts > 0) & (self.counts.sum(axis=1) == self.token_counts)
        # a divergence is never negative, but rounding can make it so
        return np.where(complete, np.maximum(divergence, 0.0), np.nan)


@dataclass(frozen=True, eq=False)
class Counts:
    """How often tokens precede and follow each other in a text, as `count_corpus` counts them.

    >>> counts = ss.count_corpus("example", output="counted")
    >>> counts.dataset(["the"], tokens=3)["token_word"].values
    array(['.', 'the', 'and'], dtype='<U3')
    """

    in_a_sentence: ClassVar[str] = "what count_corpus(...) returns"

    path: Path
    window: int
    """Tokens in a window: the query and those before it that count."""
    least: int
    """Triples that occur less often in all are not here; pairs and bigrams all are."""
    texts: tuple[CountedText, ...]
    """What was counted."""
    cuts: tuple[int, ...] = field(repr=False)
    """The first query in each file of a table, and the number of queries."""
    origin: dict[str, str] = field(repr=False)
    """The versions, the machine and the time that the counts were made with."""

    @cached_property
    def _folder(self) -> CheckedFolder:
        return CheckedFolder(self.path)

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
    def files(self, table: TableName) -> str:
        """The files of "triples", "pairs" or "bigrams", as DuckDB and Polars take them."""
        return str(self.path / table / "*.parquet")

    @cached_property
    def vocabulary(self) -> xr.Dataset:
        """Every token: its word, and how often it is a query, c(m), a next token, c(n), and a contextual one, c(l)."""
        import xarray as xr
        from pyarrow import parquet

        table = parquet.read_table(self._folder.checked_path(VOCABULARY))
        columns = {name: table[name].to_numpy() for name in ("token", "word", *MARGINS)}
        coords = {"token": columns.pop("token"), "word": ("token", columns.pop("word").astype(str))}
        return xr.Dataset({name: ("token", values) for name, values in columns.items()}, coords, self._attributes())

    @validated
    def columns(self, table: TableName) -> Iterator[tuple[NDArray[np.integer], ...]]:
        """The columns of "triples", "pairs" or "bigrams", in order of the rows and in blocks."""
        from pyarrow import parquet

        for part in range(len(self.cuts) - 1):
            with parquet.ParquetFile(self._part(table, part)) as file:
                for rows in file.iter_batches(ROWS_AT_ONCE, use_threads=False):
                    yield tuple(column.to_numpy() for column in rows.columns)

    @validated
    def to_pandas(self, table: TableName = "triples") -> pd.DataFrame:
        """A whole table, "triples", "pairs" or "bigrams", with words in place of ids: one row for each count."""
        import pandas as pd

        words = self.vocabulary["word"].values
        names = count_tables(self.vocab_size)[table].names
        blocks = ((*(words[ids] for ids in columns), counts) for *columns, counts in self.columns(table))
        return pd.concat([pd.DataFrame(dict(zip(names, block, strict=True))) for block in blocks], ignore_index=True)

    def token(self, word: str | int) -> int:
        """The id of a word that is one token."""
        if not isinstance(word, str):
            return integer("a token", word, most=self.vocab_size - 1)
        return token_of(self.tokenizer, word, self.source)

    def frequent_words(self, count: int) -> NDArray[np.int64]:
        """The ids of the most frequent queries, without line ends and unknown words."""
        return frequent_words(self.tokenizer, self.vocabulary["query_count"].values, count)

    def of(self, query: str | int) -> ContextCounts:
        """What precedes and follows a query token, a word or an id."""
        m = self.token(query)
        triples, pairs, bigrams = (self._rows(table, m) for table in ("triples", "pairs", "bigrams"))
        if not len(bigrams["count"]):
            raise InputError(f"token {m} never occurs before another token: give a query token that does.")
        places = triples["token"], triples["next_token"]
        counts = sparse.csr_array((triples["count"], places), (self.vocab_size, self.vocab_size))
        token_counts, next_counts = (np.zeros(self.vocab_size, np.int64) for _ in range(2))
        token_counts[pairs["token"]] = pairs["count"]
        next_counts[bigrams["next_token"]] = bigrams["count"]
        return ContextCounts(m, self.window, counts, token_counts, next_counts)

    @validated
    def dataset(self, queries: Iterable[str | int], *, tokens: int = 20, next_tokens: int = 10) -> xr.Dataset:
        """The counts of some queries with labels: the most frequent contextual and next tokens of these queries.

        `count` is c(l, m, n), `token_count` c(l, m), `next_count` c(m, n), `distinctness` D(l|m).
        """
        import xarray as xr

        contexts = {self.token(query): self.of(query) for query in queries}
        if not contexts:
            raise InputError("queries is empty: give at least one word or token id.")
        rows = largest(np.sum([context.token_counts for context in contexts.values()], axis=0), tokens)
        columns = largest(np.sum([context.next_counts for context in contexts.values()], axis=0), next_tokens)
        values = {
            "count": (
                ("query", "token", "next_token"),
                [c.counts[rows][:, columns].toarray() for c in contexts.values()],
            ),
            "token_count": (("query", "token"), [c.token_counts[rows] for c in contexts.values()]),
            "next_count": (("query", "next_token"), [c.next_counts[columns] for c in contexts.values()]),
            "distinctness": (("query", "token"), [c.distinctness[rows] for c in contexts.values()]),
        }
        labels: dict[str, Any] = {"query": list(contexts), "token": rows, "next_token": columns}
        words = {f"{name}_word": (name, np.array(self.tokenizer.words(ids))) for name, ids in labels.items()}
        variables = {name: (dims, np.array(arrays)) for name, (dims, arrays) in values.items()}
        return xr.Dataset(variables, {**labels, **words}, self._attributes())

    def _rows(self, table: TableName, query: int) -> dict[str, NDArray[np.integer]]:
        """The columns of a query's rows."""
        from pyarrow import parquet

        part = int(np.searchsorted(self.cuts, query, side="right")) - 1
        path = self._part(table, part)
        rows = parquet.read_table(path, filters=[("query", "=", query)], use_threads=False)
        return {name: rows[name].to_numpy() for name in rows.column_names}

    def _part(self, table: TableName, part: int) -> Path:
        """The file with one range of queries of a table, checked."""
        return self._folder.checked_path(part_names("", part)[table])

    def _attributes(self) -> dict[str, Any]:
        return {"kind": STORE_TYPE, "window": self.window, "least": self.least, "texts": self.source, **self.origin}


@validated
def read_counts(path: str | Path) -> Counts:
    """The counts that `count_corpus` wrote to a folder; tables are read when they are asked for.

    >>> path = ss.count_corpus("example", output="read").path
    >>> ss.read_counts(path).of("the").num_occurrences
    2752
    """
    path = Path(path)
    folder = CheckedFolder(path)
    check_store_type(folder)
    if not folder.committed:
        raise StoreError(f"there are no counts at {path}: give the folder that `scansnap corpus count` wrote.")
    if folder.info["counts"] is None:
        raise StoreError(f"{path} holds unfinished counts: start the command that counts them again.")
    folder.check_presence()
    description = folder.info["counts"]
    texts = tuple(CountedText(**entry) for entry in description["texts"])
    window, least, cuts, origin = (description[name] for name in ("window", "least", "cuts", "origin"))
    return Counts(path, window, least, texts, tuple(cuts), origin)


def part_names(where: str, part: int) -> dict[str, str]:
    """The file of each table with one range of queries; `where` is "" for the counts of a store."""
    return {table: f"{where}{table}/part-{part:05d}.parquet" for table in TABLES}


def store_info(counts: dict[str, Any] | None, job: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the manifest of a store says: a description of complete counts, and the job that is not finished."""
    return {"type": STORE_TYPE, "format": FORMAT, "counts": counts, "job": job}


def check_store_type(folder: CheckedFolder) -> None:
    """Refuse a folder with something else, or with counts of another format."""
    if not folder.committed:
        return
    if folder.info.get("type") != STORE_TYPE:
        raise StoreError(f"{folder.root} holds no counts: give the folder that `scansnap corpus count` wrote.")
    if folder.info.get("format") != FORMAT:
        raise StoreError(
            f"{folder.root} has format {folder.info.get('format')}, and this version of scansnap reads format "
            f"{FORMAT}: count the text again."
        )
