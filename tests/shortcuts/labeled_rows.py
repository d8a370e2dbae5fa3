"""Small labeled data sets for tests."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

Texts = list[dict[str, str]]


def rows(num_rows: int = 1200, seed: int = 0, **planted: tuple[int, float]) -> Texts:
    """Texts of 8 words whose labels say nothing, except for words in this many texts with this share of label a."""
    rng = np.random.default_rng(seed)
    probs = 1 / np.arange(1, 301)
    texts = [[f"w{i}" for i in rng.choice(300, 8, p=probs / probs.sum())] for _ in range(num_rows)]
    labels = np.array(["a", "b"])[rng.integers(2, size=num_rows)]
    for number, (word, (count, share)) in enumerate(planted.items()):
        pure = round(share * count)
        for place in (
            *rng.choice(np.flatnonzero(labels == "a"), pure, replace=False),
            *rng.choice(np.flatnonzero(labels == "b"), count - pure, replace=False),
        ):
            texts[place][number + 1] = word
    return [{"text": " ".join(words), "label": str(label)} for words, label in zip(texts, labels, strict=True)]


def write_csv(path: Path, content: Texts) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["text", "label"])
        table.writeheader()
        table.writerows(content)
    return path
