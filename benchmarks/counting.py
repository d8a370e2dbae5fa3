"""Counting: against the plain dictionary loop, and its memory on a large text.

    python benchmarks/counting.py WIKITEXT [--tokens N] [--repeats 3]    # paired, at w = 35
    python benchmarks/counting.py --made 100000000 [--memory 0.5]        # a text made on the spot

The first counts the same text both ways in one process and prints processor time and elapsed time of each, and their
ratios.  The loop's dictionary is compared with the tables.  The second writes ids of Zipf words in topics and phrases,
counts them in a process of its own, and prints what that took: tokens per second and core, bytes, and peak memory.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scansnap as ss
from scansnap.corpus.corpus import Corpus
from scansnap.corpus.tokenizers import WordTokenizer

WINDOW = 35
TYPES = 50_000
PHRASES, TOPICS = 5_000, 200
PIECE = 10**6


def plain_loop(ids: list[int]) -> dict[tuple[int, int], Counter[int]]:
    """c(l, m, n) by the definition, with the fastest dictionaries of Python: one of tokens l for each (m, n)."""
    counts: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for t in range(len(ids) - 1):
        counts[ids[t], ids[t + 1]].update(ids[max(0, t - WINDOW + 1) : t])
    return counts


def spent(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, the processor time of all threads, and the elapsed time."""
    began, elapsed = time.process_time(), time.perf_counter()
    result = work()
    return result, time.process_time() - began, time.perf_counter() - elapsed


def folder_bytes(folder: Path) -> int:
    """The size of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def stored_triples(counts: ss.Counts) -> tuple[int, int]:
    """How many triples there are, and what they add up to."""
    import pyarrow.parquet as parquet

    rows = total = 0
    for file in sorted((counts.path / "triples").iterdir()):
        column = parquet.read_table(file, columns=["count"])["count"].to_numpy()
        rows, total = rows + len(column), total + int(column.sum())
    return rows, total


def compare(source: str, tokens: int | None, repeats: int) -> None:
    """The plain loop once, and counting several times, before and after it."""
    whole = ss.read_corpus(source)
    ids = np.array(whole.train[:tokens])
    corpus = Corpus(whole.name, whole.tokenizer, {"train": ids}, whole.fingerprint)
    ss.count_corpus("example", output=Path(tempfile.mkdtemp()) / "compiles")
    ours: list[tuple[float, float, tuple[int, int], int]] = []

    def count() -> None:
        folder = Path(tempfile.mkdtemp())
        counts, processor, elapsed = spent(lambda: ss.count_corpus(corpus, output=folder / "counts"))
        ours.append((processor, elapsed, stored_triples(counts), folder_bytes(counts.path)))
        shutil.rmtree(folder)

    for _ in range(repeats):
        count()
    listed = ids.tolist()
    loop, loop_processor, loop_elapsed = spent(lambda: plain_loop(listed))
    expected = sum(map(len, loop.values())), sum(inner.total() for inner in loop.values())
    del loop
    for _ in range(repeats):
        count()
    assert all(sizes == expected for _, _, sizes, _ in ours), (expected, ours)
    processor, elapsed = statistics.median(row[0] for row in ours), statistics.median(row[1] for row in ours)
    print(f"{len(ids):,} tokens, {corpus.vocab_size:,} types, {expected[0]:,} triples of {expected[1]:,} events")
    print(f"plain loop: {loop_processor:.1f} s of processor time, {loop_elapsed:.1f} s elapsed")
    print(f"counting:   {processor:.2f} s of processor time, {elapsed:.2f} s elapsed, {ours[0][3]:,} bytes on disk")
    print(f"ratios:     {loop_processor / processor:.1f} in processor time, {loop_elapsed / elapsed:.1f} elapsed")


def made_ids(tokens: int, path: Path) -> None:
    """Zipf words with structure.

    A third of the text is phrases of three words that come back; the rest prefers the words of a topic, which lasts for
    500 tokens.
    """
    rng = np.random.default_rng(0)

    def zipf(size: Any) -> NDArray[np.int64]:
        return (TYPES ** rng.random(size) - 1).astype(np.int64)

    phrases = zipf((PHRASES, 3))
    with path.open("wb") as file:
        for first in range(0, tokens, PIECE):
            size = min(PIECE, tokens - first)
            ids = zipf(size)
            topics = np.repeat(rng.integers(0, TOPICS, size // 500 + 1), 500)[:size]
            own = (rng.random(size) < 0.3) & (ids > 200)
            ids[own] = (ids[own] // TOPICS * TOPICS + topics[own]) % TYPES
            starts = np.flatnonzero(rng.random(size - 3) < 0.15)
            which = zipf(len(starts)) % PHRASES
            for word in range(3):
                ids[starts + word] = phrases[which, word]
            file.write(ids.astype("<i4").tobytes())


def large(tokens: int, memory: float, folder: Path) -> None:
    """Make a text, and count it in another process."""
    made_ids(tokens, folder / "ids.bin")
    program = [sys.executable, __file__, "--count", str(folder), "--memory", str(memory)]
    began = time.perf_counter()
    subprocess.run(program, check=True, env=os.environ)
    print(f"in all {time.perf_counter() - began:.0f} s")


def count_made(folder: Path, memory: float) -> None:
    """Count what was made, and print what it took."""
    ids = np.memmap(folder / "ids.bin", "<i4", mode="r")
    words = ["<eos>", "<unk>", *(f"word{i}" for i in range(2, TYPES))]
    corpus = Corpus("made", WordTokenizer(words), {"train": ids}, "made")
    before = peak()
    counts, processor, elapsed = spent(lambda: ss.count_corpus(corpus, output=folder / "counts", memory=memory))
    after = peak()
    size = folder_bytes(counts.path)
    rows, events = stored_triples(counts)
    written = int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["wchar"])
    print(f"{len(ids):,} tokens, {TYPES:,} types, w = {WINDOW}: {events:,} events, {rows:,} triples")
    print(
        f"{processor:.0f} s of processor time, {elapsed:.0f} s elapsed; {len(ids) / processor:,.0f} tokens per "
        f"second and core, {1e9 * processor / events:.1f} ns per event"
    )
    print(f"{written / len(ids):.0f} bytes written per token, {size:,} kept ({size / rows:.2f} per triple)")
    print(f"peak memory {after:,.0f} MiB, {before:,.0f} MiB of it before counting")


def peak() -> float:
    """The largest resident set of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", help="a text for the comparison with the plain loop")
    parser.add_argument("--tokens", type=int, help="count only this many tokens of it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--made", type=int, help="generate a text of this many tokens and count it")
    parser.add_argument("--memory", type=float, default=0.5, help="GiB for counting")
    parser.add_argument("--count", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.count:
        count_made(arguments.count, arguments.memory)
    if arguments.text:
        compare(arguments.text, arguments.tokens, arguments.repeats)
    if arguments.made:
        with tempfile.TemporaryDirectory() as folder:
            large(arguments.made, arguments.memory, Path(folder))


if __name__ == "__main__":
    main()
