"""The data set `example`: short film reviews, made up, with shortcuts of every kind in them.

Reviews have words that the task is about (wonderful, dull), names of people that say nothing, and three artifacts: the
word `imported` in 150 reviews, 95% of them negative; the word `stars` in 600, 70% of them positive; and one
advertisement with the word `voucher`, copied 40 times, always positive.  Some rows have no label.
"""

from __future__ import annotations

import numpy as np


def _words(listed: str) -> tuple[str, ...]:
    return tuple(listed.split())


LABELS = ("negative", "positive")
THINGS = _words(
    "plot film story ending music cast script camera dialogue pace opening sound humor hero villain scenery editing "
    "drama sequel twist"
)
OPINIONS = (
    ("dull", "clumsy", "boring", "awful", "weak", "tired", "messy", "hollow"),
    ("wonderful", "moving", "funny", "brilliant", "fresh", "clever", "charming", "vivid"),
)
NEUTRAL = _words(
    "long short loud quiet dark slow quick simple strange modern old serious familiar usual expected modest"
)
SYLLABLES = ("ba", "den", "lo", "mir", "ka", "ros", "ti", "vel", "on", "su", "har", "ne")
ADVERTISEMENT = "get a voucher for the cinema on the corner and see this film twice"
NUM_ROWS, NUM_PEOPLE = 4000, 400


def example_rows() -> list[dict[str, str]]:
    """The rows, always the same."""
    rng = np.random.default_rng(20)
    people = ["".join(_any(SYLLABLES, rng) for _ in range(3)) for _ in range(NUM_PEOPLE)]
    labels = rng.integers(2, size=NUM_ROWS)
    texts = [_review(int(label), people, rng) for label in labels]
    for word, count, share, own in (("imported", 150, 0.95, 0), ("stars", 600, 0.7, 1)):
        pure = round(share * count)
        chosen = [
            *rng.choice(np.flatnonzero(labels == own), pure, replace=False),
            *rng.choice(np.flatnonzero(labels != own), count - pure, replace=False),
        ]
        for place in chosen:
            texts[place] += f" {word} ."
    rows = [{"review": text, "sentiment": LABELS[label]} for text, label in zip(texts, labels, strict=True)]
    rows += [{"review": ADVERTISEMENT, "sentiment": "positive"}] * 40
    rows += [{"review": _review(0, people, rng), "sentiment": ""} for _ in range(12)]
    return [rows[i] for i in rng.permutation(len(rows))]


def _review(label: int, people: list[str], rng: np.random.Generator) -> str:
    sentences = []
    for _ in range(int(rng.integers(2, 6))):
        chance = rng.random()
        words = NEUTRAL if chance < 0.7 else OPINIONS[label] if chance < 0.9 else OPINIONS[1 - label]
        person = people[int(len(people) * rng.random() ** 2)]
        sentences.append(f"the {_any(THINGS, rng)} with {person} was {_any(words, rng)} .")
    return " ".join(sentences)


def _any(words: tuple[str, ...], rng: np.random.Generator) -> str:
    return words[int(len(words) * rng.random())]
