"""Planted shortcuts: how many are found, and how many findings are false, beside chi2 on words.

Texts of random words have labels that say nothing about them.  Then one artifact is planted (`CASES`).  A finding is
true if it names the artifact; every other finding is a false positive.  Two methods look at the same rows:

- `ss.shortcuts`: the verdict "shortcut";
- chi2: the statistic of scikit-learn's `feature_selection.chi2` for words that a text has or has not, in at least 5
  texts, at the level 0.05 after Bonferroni's correction.

    python benchmarks/shortcuts.py [--seeds 10] [--write docs/shortcuts.md]
    python benchmarks/shortcuts.py --rows 100000    # processor time and peak memory
    python benchmarks/shortcuts.py --attention --seeds 5    # words that attention picks, beside a classifier in PyTorch
"""

from __future__ import annotations

import argparse
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

import scansnap as ss

Rows = list[dict[str, str]]
MARK, END = "<!-- planted -->", "<!-- end -->"
NUM_ROWS, TYPES, LEVEL, LEAST = 2000, 400, 0.05, 5


class Planted(NamedTuple):
    """Rows with an artifact."""

    rows: Rows
    names: tuple[str, ...]  # a finding whose name contains one of these is true; none for cases without an artifact
    test: Rows | None = None
    copied: int = 0  # texts of `test` that are copies


Case = Callable[[np.random.Generator], Planted]


def noise(rng: np.random.Generator, num_rows: int = NUM_ROWS, labels: str = "ab", lengths: str = "") -> Rows:
    """Texts of Zipf words with random labels; texts of the labels in `lengths` are longer."""
    probs = 1 / np.arange(1, TYPES + 1)
    rows = []
    for _ in range(num_rows):
        label = labels[int(rng.integers(len(labels)))]
        size = int(rng.integers(8, 21)) + 8 * (label in lengths)
        words = [f"w{i}" for i in rng.choice(TYPES, size, p=probs / probs.sum())]
        rows.append({"text": f"{' '.join(words).capitalize()}.", "label": label})
    return rows


def choose(rng: np.random.Generator, rows: Rows, count: int, share: float, label: str = "a") -> list[int]:
    """`count` rows, this share of which have the label."""
    is_own = np.array([row["label"] == label for row in rows])
    pure = round(share * count)
    own = rng.choice(np.flatnonzero(is_own), pure, replace=False)
    return [*own.tolist(), *rng.choice(np.flatnonzero(~is_own), count - pure, replace=False).tolist()]


def insert(rng: np.random.Generator, text: str, piece: str, place: int | None = None) -> str:
    """The text with a piece after some of its words, but never as the first or last one."""
    words = text.split(" ")
    words.insert(int(rng.integers(1, len(words) - 1)) if place is None else place, piece)
    return " ".join(words)


def planted_piece(piece: str, names: tuple[str, ...], count: int = 60, share: float = 0.9, labels: str = "ab") -> Case:
    """A piece of text in some rows; # in it becomes a number that differs between rows."""

    def plant(rng: np.random.Generator) -> Planted:
        rows = noise(rng, labels=labels)
        for i in choose(rng, rows, count, share):
            own = piece.replace("#", str(rng.integers(10**6, 10**7)))
            rows[i]["text"] = insert(rng, rows[i]["text"], own)
        return Planted(rows, names)

    return plant


def plant_pair(rng: np.random.Generator) -> Planted:
    """Each word is as frequent with either label; only side by side they tell it."""
    rows = noise(rng)
    for i in choose(rng, rows, 80, 0.95):
        rows[i]["text"] = insert(rng, rows[i]["text"], "blue moon")
    for word in ("blue", "moon"):
        for i in choose(rng, rows, 80, 0.05):
            rows[i]["text"] = insert(rng, rows[i]["text"], word)
    return Planted(rows, ("blue", "moon"))


def plant_order(rng: np.random.Generator) -> Planted:
    rows = noise(rng)
    for label, piece in (("a", "salt pepper"), ("b", "pepper salt")):
        for i in choose(rng, rows, 60, 0.9, label):
            rows[i]["text"] = insert(rng, rows[i]["text"], piece)
    return Planted(rows, ("salt", "pepper"))


def plant_position(rng: np.random.Generator) -> Planted:
    """The same word first with one label, and inside the text with the other."""
    rows = noise(rng)
    for label, place in (("a", 0), ("b", None)):
        for i in choose(rng, rows, 80, 1.0, label):
            rows[i]["text"] = insert(rng, rows[i]["text"], "Review", place)
    return Planted(rows, ("review",))


def planted_change(change: Callable[[str], str], names: tuple[str, ...], share: float = 0.9) -> Case:
    """Some texts changed as a whole."""

    def plant(rng: np.random.Generator) -> Planted:
        rows = noise(rng)
        for i in choose(rng, rows, 100, share):
            rows[i]["text"] = change(rows[i]["text"])
        return Planted(rows, names)

    return plant


def plant_length(rng: np.random.Generator) -> Planted:
    return Planted(noise(rng, lengths="a"), ("length",))


def plant_near_copies(rng: np.random.Generator) -> Planted:
    """One text 150 times, each with another word replaced."""
    rows = noise(rng)
    words = [f"ad{i}" for i in range(25)]
    for i in range(150):
        own = [*words]
        own[int(rng.integers(len(own)))] = f"w{rng.integers(TYPES)}"
        rows.append({"text": f"{' '.join(own)} {i}", "label": "a"})
    return Planted(rows, ())


def plant_copies(rng: np.random.Generator) -> Planted:
    """One text 3,000 times with one label, which makes the other label rarer than it is."""
    rows = noise(rng)
    return Planted([*rows, *[{**rows[0], "label": "a"}] * 3000], ())


def plant_test_copies(rng: np.random.Generator) -> Planted:
    rows, test = noise(rng), noise(rng, 300)
    return Planted(rows, (), [*test, *rows[:50]], copied=50)


CASES: dict[str, Case] = {
    "a word in 60 texts, 90% pure": planted_piece("zorp", ("zorp",)),
    "a punctuation mark": planted_piece("~", ("~",)),
    "a run of punctuation": planted_piece("!!!", ("!",)),
    "URLs, all different": planted_piece("https://x#.org/p#", ("a URL", "https", "org")),
    "numbers, all different": planted_piece("#", ("a number",)),
    "identifiers, all different": planted_piece("id#f", ("an identifier",)),
    "an emoji": planted_piece("😀", ("😀", "an emoji")),
    "HTML tags": planted_piece("<br />", ("an HTML tag", "br", "<", ">", "/")),
    "a word for one of five labels": planted_piece("zorp", ("zorp",), labels="abcde"),
    "a word in 20 texts, all pure": planted_piece("zorp", ("zorp",), 20, 1.0),
    "a pair of words": plant_pair,
    "the order of two words": plant_order,
    "the position of a word": plant_position,
    "casing: texts in capitals": planted_change(str.upper, ("casing",)),
    "casing: no capital letter": planted_change(str.lower, ("casing",)),
    "white space at the end": planted_change(lambda text: f"{text} ", ("white space",)),
    "two spaces": planted_change(lambda text: text.replace(" ", "  ", 1), ("white space",)),
    "length": plant_length,
    "150 near copies": plant_near_copies,
    "3,000 copies": plant_copies,
    "50 copies in a test set": plant_test_copies,
    "nothing": lambda rng: Planted(noise(rng), ()),
}


def chi2_words(rows: Rows) -> list[str]:
    """The words that chi2 calls distinct after Bonferroni's correction."""
    labels = sorted({row["label"] for row in rows})
    vocabulary: dict[str, int] = {}
    texts = [
        {vocabulary.setdefault(word, len(vocabulary)) for word in re.findall(r"\w\w+", row["text"].lower())}
        for row in rows
    ]
    observed = np.zeros((len(labels), len(vocabulary)))
    for row, words in zip(rows, texts, strict=True):
        observed[labels.index(row["label"]), list(words)] += 1
    shares = np.array([sum(row["label"] == label for row in rows) for label in labels]) / len(rows)
    total = observed.sum(axis=0)
    expected = shares[:, None] * total
    p = stats.chi2.sf(((observed - expected) ** 2 / expected).sum(axis=0), len(labels) - 1)
    tested = total >= LEAST
    names = list(vocabulary)
    return [names[i] for i in np.flatnonzero(tested & (p <= LEVEL / tested.sum()))]


class Score(NamedTuple):
    """What two methods find in one data set."""

    is_found: bool
    false: int
    is_found_by_chi2: bool
    false_by_chi2: int


def evaluate(case: str, seed: int) -> Score:
    """Plant an artifact and look for it; copies are found if no more and no fewer of them are counted."""
    planted = CASES[case](np.random.default_rng([list(CASES).index(case), seed]))
    result = ss.shortcuts(planted.rows, text="text", label="label", test=planted.test, progress=False)
    found = [finding.name for finding in result.shortcuts]
    words = chi2_words(planted.rows)
    hits, hits_by_chi2 = ([any(name in one for name in planted.names) for one in names] for names in (found, words))
    if planted.names:
        is_found = any(hits)
    elif result.second is not None:
        is_found = result.second.copied_texts == planted.copied
    else:
        is_found = not found
    return Score(is_found, hits.count(False), any(hits_by_chi2), hits_by_chi2.count(False))


def table(seeds: int) -> str:
    """Recall and false positives of both methods, as Markdown."""
    lines = [
        f"Over {seeds} data sets each of {NUM_ROWS:,} rows (`python benchmarks/shortcuts.py --seeds {seeds}`):",
        "",
        "| planted | found | false findings | found by chi2 | false findings of chi2 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for case in CASES:
        scores = [evaluate(case, seed) for seed in range(seeds)]
        has_names = bool(CASES[case](np.random.default_rng(0)).names)
        found = f"{sum(score.is_found for score in scores)} of {seeds}" if has_names or "test set" in case else "-"
        by_chi2 = f"{sum(score.is_found_by_chi2 for score in scores)} of {seeds}" if has_names else "-"
        false, false_by_chi2 = sum(score.false for score in scores), sum(score.false_by_chi2 for score in scores)
        lines.append(f"| {case} | {found} | {false} | {by_chi2} | {false_by_chi2} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


PLANTED_WORDS = {
    f"zorp{count}x{100 * share:.0f}": (count, share) for count in (30, 80, 200) for share in (0.7, 0.9, 1.0)
}
PICKED = 2.0
"""The gain from which attention picks a word, as `ss.shortcuts` has it."""


class AttentionClassifier(torch.nn.Module):
    """One head with a learned query over the words of a text, and a linear classifier of what it reads."""

    def __init__(self, num_words: int, num_labels: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(num_words, width)
        self.key = torch.nn.Linear(width, 1, bias=False)
        self.output = torch.nn.Linear(width, num_labels)

    def forward(self, has_word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (N, K) and attention (N, V) of texts that have some of the words (N, V)."""
        scores = self.key(self.embedding.weight)[:, 0].expand(len(has_word), -1)
        attention = scores.masked_fill(has_word == 0, -torch.inf).softmax(1)
        return self.output(attention @ self.embedding.weight), attention


def classifier_gains(rows: Rows, words: list[str], labels: dict[str, str], seed: int) -> NDArray[np.float64]:
    """The most attention that a trained classifier gives each word in texts of its label, over even attention."""
    torch.manual_seed(seed)
    texts = [set(re.findall(r"\w+", row["text"].lower())) for row in rows]
    vocabulary = sorted(set.union(*texts))
    has_word = torch.tensor([[word in text for word in vocabulary] for text in texts], dtype=torch.float32)
    names = sorted({row["label"] for row in rows})
    target = torch.tensor([names.index(row["label"]) for row in rows])
    model = AttentionClassifier(len(vocabulary), len(names))
    rule = torch.optim.Adam(model.parameters(), lr=0.01)
    places = [vocabulary.index(word) for word in words]
    own = torch.tensor([[row["label"] == labels[word] for word in words] for row in rows]) & (has_word[:, places] > 0)
    largest = np.zeros(len(words))
    for step in range(301):
        logits, attention = model(has_word)
        if step % 20 == 0:
            gain = (attention * has_word.sum(1, keepdim=True))[:, places].detach()
            largest = np.maximum(largest, ((gain * own).sum(0) / own.sum(0)).numpy())
        rule.zero_grad()
        torch.nn.functional.cross_entropy(logits, target).backward()
        rule.step()
    return largest


def attention_recall(seeds: int) -> str:
    """How many of the planted words that the classifier picks `--attention` picks too, and how gains are ordered."""
    both = ours_alone = theirs = 0
    correlations: dict[str, list[float]] = {"planted words": [], "other words": []}
    for seed in range(seeds):
        rng = np.random.default_rng([99, seed])
        rows = noise(rng)
        for i, (word, (count, share)) in enumerate(PLANTED_WORDS.items()):
            for at in choose(rng, rows, count, share, "ab"[i % 2]):
                rows[at]["text"] = insert(rng, rows[at]["text"], word)
        result = ss.shortcuts(rows, text="text", label="label", attention=True, seed=seed, progress=False)
        read = [finding for finding in result.findings if finding.kind == "word" and finding.gain is not None]
        gains = classifier_gains(rows, [f.feature for f in read], {f.feature: f.label for f in read}, seed)
        is_planted = np.array([finding.feature in PLANTED_WORDS for finding in read])
        is_ours, is_theirs = np.array([finding.picked_at is not None for finding in read]), gains >= PICKED
        both += int((is_planted & is_theirs & is_ours).sum())
        theirs += int((is_planted & is_theirs).sum())
        ours_alone += int((is_planted & is_ours & ~is_theirs).sum())
        own = np.array([finding.gain for finding in read], float)
        for name, chosen in (("planted words", is_planted), ("other words", ~is_planted)):
            correlations[name].append(float(stats.spearmanr(own[chosen], gains[chosen]).statistic))
        print(f"seed {seed}: {both} of {theirs}, {correlations}", flush=True)
    ranges = "; ".join(f"{name} {min(found):.2f} to {max(found):.2f}" for name, found in correlations.items())
    return (
        f"{seeds} data sets with {len(PLANTED_WORDS)} planted words each: of the {theirs} that the classifier picks, "
        f"--attention picks {both}, and {ours_alone} that it does not. Rank correlations of the gains: {ranges}."
    )


def large(num_rows: int) -> str:
    """The processor time and the peak memory of a large data set."""
    rows = [
        {**row, "text": f"{row['text']} {row['text']} n{i}"}
        for i, row in enumerate(noise(np.random.default_rng(0), num_rows))
    ]
    began = time.process_time()
    result = ss.shortcuts(rows, text="text", label="label", progress=False)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"{num_rows:,} rows, {result.num_tested_texts:,} texts tested: {seconds:.0f} s, peak memory {peak:.1f} GiB"


def main() -> None:
    """Measure, and write the table into a page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--write", type=Path, help="a page, between whose marks the table is written")
    parser.add_argument("--rows", type=int, help="measure the time for this many rows instead")
    parser.add_argument("--attention", action="store_true", help="compare attention with a classifier instead")
    arguments = parser.parse_args()
    if arguments.attention:
        print(attention_recall(arguments.seeds))
        return
    if arguments.rows:
        print(large(arguments.rows))
        return
    text = table(arguments.seeds)
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        before, rest = page.split(MARK)
        arguments.write.write_text(f"{before}{MARK}\n{text}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
