"""Planted shortcuts: how many are found, and how many words are called shortcuts that are none.

Texts have labels that say nothing about them.  Then artifacts are planted: words that occur nowhere else, each in a
given number of texts, a given share of which (its purity) have one label.  Whatever else is reported is a false alarm.
Three methods look at the same texts:

- `ss.shortcuts`: the verdict "shortcut";
- z alone: words in at least 5 texts with z of at least 2 for a label;
- PMI: words in at least 5 texts with log2 P(label | word)/P(label) of at least log2 1.1, the PMI of a purity of 55%.

    python benchmarks/shortcuts.py [--wikitext FOLDER] [--seeds 20] [--write docs/shortcuts.md]
    python benchmarks/shortcuts.py --rows 10000000    # processor time and peak memory of counting a large file
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import scansnap as ss
from scansnap.corpus.corpus import read_corpus
from scansnap.shortcuts.counting import words_of

PURITIES = (0.6, 0.7, 0.8, 0.9, 1.0)
OCCURRENCES = (20, 50, 200, 500, 2000)
CELLS = [(purity, count) for purity in PURITIES for count in OCCURRENCES]
LABELS = ("left", "right")
LEAST, HIGH_Z, HIGH_PMI = 5, 2.0, np.log2(1.1)
METHODS = ("shortcuts", "z alone", "PMI")
MARK, END = "<!-- planted -->", "<!-- end -->"


@dataclass
class Score:
    """What a method reports over all data sets."""

    hits: Counter[tuple[float, int]] = field(default_factory=Counter)
    false_alarms: list[int] = field(default_factory=list)
    in_top: list[float] = field(default_factory=list)


def generated(rng: np.random.Generator, num_texts: int = 20_000) -> list[list[str]]:
    """Texts of Zipf words, each about one of 20 topics with words of its own."""
    size = 20_000
    probs = 1 / np.arange(1, size + 1) ** 1.05
    cumulative = np.cumsum(probs / probs.sum())
    texts = []
    for _ in range(num_texts):
        topic, length = int(rng.integers(20)), int(rng.integers(10, 50))
        general = np.searchsorted(cumulative, rng.random(length))
        special = 500 + 50 * topic + rng.integers(50, size=length // 8)
        texts.append([f"w{i}" for i in (*general, *special)])
    return texts


def wikitext(folder: str) -> list[list[str]]:
    """The paragraphs of the training text, without headings."""
    corpus = read_corpus(folder)
    words = " ".join(corpus.tokenizer.words(corpus.splits["train"])).split("<eos>")
    return [line.split() for line in words if line.strip() and not line.strip().startswith("=")]


def plant(
    texts: list[list[str]], rng: np.random.Generator
) -> tuple[list[str], list[str], dict[str, tuple[float, int]]]:
    """Texts with artifacts, their labels, and the cell of each artifact."""
    label = rng.integers(2, size=len(texts))
    planted = [list(words) for words in texts]
    cell_of = {}
    for i, (purity, count) in enumerate(CELLS):
        artefact = f"artefact{i}"
        cell_of[artefact] = (purity, count)
        own = int(rng.integers(2))
        pure = round(purity * count)
        places = [
            *rng.choice(np.flatnonzero(label == own), pure, replace=False),
            *rng.choice(np.flatnonzero(label != own), count - pure, replace=False),
        ]
        for place in places:
            planted[place].insert(int(rng.integers(len(planted[place]) + 1)), artefact)
    return [" ".join(words) for words in planted], [LABELS[k] for k in label], cell_of


def plain_statistics(texts: Iterable[str], labels: list[str]) -> dict[str, tuple[float, float]]:
    """z and PMI of every word in enough texts, for the label that each is larger for."""
    rows = Counter(labels)
    total = len(labels)
    with_word: Counter[str] = Counter()
    with_both: Counter[tuple[str, str]] = Counter()
    for text, label in zip(texts, labels, strict=True):
        for word in words_of(text):
            with_word[word] += 1
            with_both[word, label] += 1
    result = {}
    for word, c in with_word.items():
        if c >= LEAST:
            scores = []
            for label, n in rows.items():
                a, q = with_both[word, label], n / total
                deviation = (c * q * (1 - q) * (total - c) / (total - 1)) ** 0.5
                scores.append(((a - c * q) / deviation if deviation else 0.0, np.log2(max(a, 1e-9) / c / q)))
            result[word] = (max(z for z, _ in scores), max(float(pmi) for _, pmi in scores))
    return result


def evaluate(name: str, sources: list[list[list[str]]], seeds: int) -> tuple[dict[str, Score], str]:
    """The scores of all methods on `seeds` data sets."""
    scores = {method: Score() for method in METHODS}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 7])
        texts, labels, cell_of = plant(sources[seed % len(sources)], rng)
        rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
        result = ss.shortcuts(rows, text="text", label="label", attention=False, seed=seed, progress=False)
        plain = plain_statistics(texts, labels)
        reported = {
            "shortcuts": {finding.word for finding in result.shortcuts},
            "z alone": {word for word, (z, _) in plain.items() if z >= HIGH_Z},
            "PMI": {word for word, (_, pmi) in plain.items() if pmi >= HIGH_PMI},
        }
        ranked = {
            "shortcuts": [finding.word for finding in result.findings],
            "z alone": sorted(plain, key=lambda word: -plain[word][0]),
            "PMI": sorted(plain, key=lambda word: -plain[word][1]),
        }
        for method, score in scores.items():
            score.hits.update(cell_of[word] for word in reported[method] & set(cell_of))
            score.false_alarms.append(len(reported[method] - set(cell_of)))
            score.in_top.append(len(set(ranked[method][: len(CELLS)]) & set(cell_of)) / len(CELLS))
        print(
            f"{name}, seed {seed}: {[scores[method].false_alarms[-1] for method in METHODS]} false alarms", flush=True
        )
    sample = (
        f"{seeds} data sets of {len(labels):,} texts with {len(plain):,} words in at least {LEAST} of them (the last)"
    )
    return scores, sample


def table(name: str, scores: dict[str, Score], sample: str, seeds: int) -> str:
    """Recall by cell, and false alarms, in Markdown."""
    lines = [
        f"**{name}**: {sample}, one artifact of each kind in each. Recall of `shortcuts` / z alone / PMI:",
        "",
        "| purity | " + " | ".join(f"{count:,} texts" for count in OCCURRENCES) + " |",
        "| ---: |" + " ---: |" * len(OCCURRENCES),
    ]
    for purity in PURITIES:
        cells = [
            " / ".join(f"{scores[method].hits[purity, count] / seeds:.0%}" for method in METHODS)
            for count in OCCURRENCES
        ]
        lines.append(f"| {purity:.0%} | " + " | ".join(cells) + " |")
    lines += ["", "| | " + " | ".join(METHODS) + " |", "| --- |" + " ---: |" * len(METHODS)]
    rows = {
        "false alarms in a data set, mean": [f"{statistics.mean(scores[m].false_alarms):,.2f}" for m in METHODS],
        "data sets with any": [f"{sum(map(bool, scores[m].false_alarms))} of {seeds}" for m in METHODS],
        f"artifacts among the first {len(CELLS)} words": [f"{statistics.mean(scores[m].in_top):.0%}" for m in METHODS],
    }
    lines += [f"| {title} | " + " | ".join(values) + " |" for title, values in rows.items()]
    return "\n".join(lines)


def attention(seeds: int) -> str:
    """Which artifacts attention picks in generated texts, and when."""
    times: dict[tuple[float, int], list[float]] = {cell: [] for cell in CELLS}
    chance: list[float] = []
    num_chance = 0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 8])
        texts, labels, cell_of = plant(generated(rng), rng)
        rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
        result = ss.shortcuts(
            rows, text="text", label="label", seed=seed, sample=20_000, updates=20_000, progress=False
        )
        for finding in result.findings:
            if finding.word in cell_of and finding.picked_at is not None:
                times[cell_of[finding.word]].append(finding.picked_at)
            elif finding.word not in cell_of and finding.gain is not None:
                num_chance += 1
                chance += [] if finding.picked_at is None else [finding.picked_at]
        print(f"attention, seed {seed}: {sum(map(len, times.values()))} artifacts picked so far", flush=True)
    lines = [
        f"**Attention**, trained on all {3 * 20_000 // 4:,} texts or so that are not held out, 20,000 updates, "
        f"{seeds} data sets of 20,000 generated texts: how many of {seeds} artifacts it picks, and the median update:",
        "",
        "| purity | " + " | ".join(f"{count:,} texts" for count in OCCURRENCES) + " |",
        "| ---: |" + " ---: |" * len(OCCURRENCES),
    ]
    for purity in PURITIES:
        cells = [
            f"{len(own)}, {statistics.median(own):,.0f}" if (own := times[purity, count]) else "0"
            for count in OCCURRENCES
        ]
        lines.append(f"| {purity:.0%} | " + " | ".join(cells) + " |")
    middle = f", the median one at update {statistics.median(chance):,.0f}" if chance else ""
    lines += [
        "",
        f"Of {num_chance:,} other words that look distinct, which is chance, it picks {len(chance):,}{middle}.",
    ]
    return "\n".join(lines)


def large(num_rows: int) -> str:
    """Count a CSV file of so many rows of 12 Zipf words with one artifact: what it takes, and what is found."""
    rng = np.random.default_rng(0)
    size = 200_000
    probs = 1 / np.arange(1, size + 1) ** 1.05
    cumulative = np.cumsum(probs / probs.sum())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w") as file:
            file.write("id,review,sentiment\n")
            for first in range(0, num_rows, 50_000):
                block = min(50_000, num_rows - first)
                words = np.minimum(np.searchsorted(cumulative, rng.random((block, 12))), size - 1)
                label, has_artefact = rng.integers(2, size=block), rng.random(block) < 2000 / num_rows
                for i in range(block):
                    artefact = " artefact" if has_artefact[i] and (label[i] or rng.random() < 1 / 9) else ""
                    text = " ".join(f"w{word}" for word in words[i]) + artefact
                    file.write(f"{first + i},{text},{'' if (first + i) % 1000 == 7 else 'np'[label[i]]}\n")
        bytes_read = path.stat().st_size
        began = time.process_time()
        result = ss.shortcuts(path, text="review", label="sentiment", attention=False)
        seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    named = ", ".join(f"{finding.word} ({finding.texts:,} texts)" for finding in result.shortcuts)
    return (
        f"{num_rows:,} rows, {bytes_read / 1e6:,.0f} MB, {result.num_tested:,} words: {seconds:.0f} s of processor "
        f"time, {peak:.2f} GiB at most; shortcuts: {named}; left out: {result.remarks.num_left_out:,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--wikitext", help="the folder of WikiText-2, to plant in real text too")
    parser.add_argument("--seeds", type=int, default=20, help="data sets of each kind")
    parser.add_argument("--attention-seeds", type=int, default=5, help="data sets to train attention on")
    parser.add_argument("--rows", type=int, help="only count a file of so many rows, and measure that")
    parser.add_argument("--write", type=Path, help="the document to write the tables into")
    arguments = parser.parse_args()
    if arguments.rows:
        print(large(arguments.rows))
        return
    rng = np.random.default_rng(0)
    sources = {"Generated text": [generated(rng) for _ in range(min(4, arguments.seeds))]}
    if arguments.wikitext:
        sources["WikiText-2"] = [wikitext(arguments.wikitext)]
    parts = []
    for name, texts in sources.items():
        scores, sample = evaluate(name, texts, arguments.seeds)
        parts.append(table(name, scores, sample, arguments.seeds))
    if arguments.attention_seeds:
        parts.append(attention(arguments.attention_seeds))
    report = "\n\n".join(parts)
    print(report)
    if arguments.write:
        page = arguments.write.read_text()
        filled = re.sub(rf"{MARK}.*?{END}", lambda _: f"{MARK}\n{report}\n{END}", page, flags=re.DOTALL)
        arguments.write.write_text(filled)


if __name__ == "__main__":
    main()
