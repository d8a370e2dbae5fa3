"""Counting a text beside a plain sort of all its events in eight parts.

    python benchmarks/counting.py WIKITEXT [--tokens N] [--queries 20]

Both run in a process of their own, on the training text at w = 35, and must agree.  Prints the processor time and the
largest memory of each: the plain sort, our counts of every query, and our classes of the most frequent queries.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from numpy.typing import NDArray

import scansnap as ss
from scansnap.text.corpus import Corpus
from scansnap.text.counts import TextCounts

WINDOW = 35

Sums = tuple[int, int, int]
"""The number of different triples, the sum of their counts, and the sum of the squares."""


def plain_sort(ids: NDArray[np.int64], types: int, parts: int = 8) -> Iterator[NDArray[np.int64]]:
    """c(l, m, n) by sorting a key for every event, in parts by query."""
    for part in range(parts):
        own = np.flatnonzero(ids[:-1] % parts == part)
        keys = []
        for back in range(1, WINDOW):
            at = own[own >= back]
            keys.append((ids[at] * types + ids[at + 1]) * types + ids[at - back])
        key = np.concatenate(keys)
        key.sort()
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        yield np.diff(np.append(first, len(key)))


def count_plainly(corpus: Corpus, queries: int) -> Sums:
    """The plain sort of all events."""
    return sums(plain_sort(corpus.train.astype(np.int64), corpus.vocab_size))


def count_queries(corpus: Corpus, queries: int) -> Sums:
    """Our counts of every query."""
    text = TextCounts(corpus, window=WINDOW, split="train")
    return sums(query.contexts().count for query in text.of(range(corpus.vocab_size)))


def make_classes(corpus: Corpus, queries: int) -> Sums | None:
    """Our sequence classes of the most frequent queries."""
    ss.classes_from_text(corpus, queries=queries, next_tokens=10, tokens=200, window=WINDOW, split="train")
    return None


def sums(counts: Iterator[NDArray[np.int64]]) -> Sums:
    """What both must agree on."""
    parts = [(len(part), int(part.sum()), int((part**2).sum())) for part in counts]
    rows, events, squares = map(sum, zip(*parts, strict=True))
    return rows, events, squares


def measure(work: Callable[[Corpus, int], Sums | None], source: str, tokens: int | None, queries: int) -> None:
    """Run the work and print what it took."""
    whole = ss.read_corpus(source)
    ids = np.array(whole.train[:tokens])
    corpus = Corpus(whole.name, whole.tokenizer, {"train": ids}, whole.fingerprint)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = work(corpus, queries)
    seconds, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{work.__doc__} {len(ids):,} tokens, {corpus.vocab_size:,} types")
    print(f"    {seconds:.2f} s of processor time, {after / 2**20:.2f} GiB, {before / 2**20:.2f} GiB of it before")
    if result is not None:
        print("    {:,} triples of {:,} events, sum of squares {:,}".format(*result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="a text")
    parser.add_argument("--tokens", type=int, help="count only this many tokens of it")
    parser.add_argument("--queries", type=int, default=20, help="how many queries have classes")
    arguments = parser.parse_args()
    for work in (count_plainly, count_queries, make_classes):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(measure, work, arguments.text, arguments.tokens, arguments.queries).result()


if __name__ == "__main__":
    main()
