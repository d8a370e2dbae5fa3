"""Small labelled data sets for tests."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from scansnap.shortcuts.counting import LabelCounts, count_rows
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.rows import RowReader, open_rows

Texts = list[dict[str, str]]


def rows(num_rows: int = 1200, seed: int = 0, **planted: tuple[int, float]) -> Texts:
    """Texts whose labels say nothing about them, but for words in so many texts with this share of label a."""
    rng = np.random.default_rng(seed)
    probs = 1 / np.arange(1, 301)
    texts = [[f"w{i}" for i in rng.choice(300, 8, p=probs / probs.sum())] for _ in range(num_rows)]
    labels = np.array(["a", "b"])[rng.integers(2, size=num_rows)]
    for word, (count, share) in planted.items():
        pure = round(share * count)
        for place in (
            *rng.choice(np.flatnonzero(labels == "a"), pure, replace=False),
            *rng.choice(np.flatnonzero(labels == "b"), count - pure, replace=False),
        ):
            texts[place].append(word)
    return [{"text": " ".join(words), "label": str(label)} for words, label in zip(texts, labels, strict=True)]


def write_csv(path: Path, content: Texts) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["text", "label"])
        table.writeheader()
        table.writerows(content)
    return path


def counted(source: object, **options: object) -> LabelCounts:
    reader = RowReader("text", "label")
    return count_rows(open_rows(source, ("text", "label")), reader, ShortcutOptions(**options), progress=False)  # type: ignore[arg-type]
