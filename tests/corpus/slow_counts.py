"""Counts filled token by token, and corpora of random ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

import scansnap as ss
from scansnap.corpus.corpus import Corpus
from scansnap.corpus.tokenizers import WordTokenizer
from scansnap.corpus.windows import TABLES

Table = Counter[tuple[int, ...]]


def slow_tables(texts: Sequence[Sequence[int]], window: int, least: int = 1) -> dict[str, Table]:
    """The three tables of some texts, by the definition."""
    tables: dict[str, Table] = {name: Counter() for name in TABLES}
    for ids in texts:
        for t in range(len(ids) - 1):
            query, following = ids[t], ids[t + 1]
            tables["bigrams"][query, following] += 1
            for j in range(t - window + 1, t):
                if j >= 0:
                    tables["triples"][query, following, ids[j]] += 1
                    tables["pairs"][query, ids[j]] += 1
    tables["triples"] = Counter({key: count for key, count in tables["triples"].items() if count >= least})
    return tables


def stored_tables(counts: ss.Counts) -> dict[str, Table]:
    """The tables of a store, whose rows must be in order, none twice."""
    tables: dict[str, Table] = {}
    for name in TABLES:
        rows: list[tuple[int, ...]] = []
        values: list[int] = []
        for *columns, amounts in counts.columns(name):
            rows += zip(*(column.tolist() for column in columns), strict=True)
            values += amounts.tolist()
        assert rows == sorted(set(rows))
        tables[name] = Counter(dict(zip(rows, values, strict=True)))
    return tables


def corpus_of(vocab_size: int, **splits: Sequence[int]) -> Corpus:
    """A corpus of given ids."""
    words = ["<eos>", "<unk>", *(f"w{i}" for i in range(2, vocab_size))]
    arrays = {name: np.array(ids, np.int32) for name, ids in splits.items()}
    return Corpus("made", WordTokenizer(words), arrays, "made")


def zipf_ids(tokens: int, vocab_size: int, seed: int = 0) -> np.ndarray:
    """Words that get rarer, in topics of a hundred tokens."""
    rng = np.random.default_rng(seed)
    draws = (vocab_size ** rng.random(tokens) - 1).astype(np.int64)
    topic = np.repeat(rng.integers(0, 5, -(-tokens // 100)), 100)[:tokens]
    return ((draws * (1 + topic * (draws > 10))) % vocab_size).astype(np.int32)
