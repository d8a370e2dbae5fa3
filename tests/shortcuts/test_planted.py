"""Every planted shortcut is found, and hardly anything else is: the table of docs/shortcuts.md."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.shortcuts import CASES, evaluate, noise

import scansnap as ss
from scansnap.report.shortcuts_page import summary

NOISE_SEEDS = 20


@pytest.mark.parametrize("case", CASES)
def test_planted_artifacts_are_found(case: str) -> None:
    scores = [evaluate(case, seed) for seed in range(2)]
    assert all(score.is_found for score in scores)
    assert sum(score.false for score in scores) <= 1  # one in 20 data sets has a false finding


def test_noise_is_not_called_a_shortcut() -> None:
    """In 20 data sets at level 0.05: a sound correction has more than 3 false ones once in 100 times."""
    assert sum(evaluate("nothing", seed).false > 0 for seed in range(NOISE_SEEDS)) <= 3


def test_words_of_long_texts_are_explained_by_length() -> None:
    planted = CASES["length"](np.random.default_rng(5))
    found = ss.shortcuts(planted.rows, text="text", label="label", progress=False)
    assert {finding.kind for finding in found.shortcuts} == {"length"}
    by_length = [finding for finding in found.unproven if (finding.explained_by or "").startswith("length")]
    assert sum(finding.kind == "word" for finding in by_length) > 5
    assert "distinct only through another feature (length: at most" in by_length[-1].explain()
    assert all(finding.p <= 0.05 / found.num_tests for finding in by_length)


def test_a_capitalized_word_is_named_and_not_the_casing_that_it_brings() -> None:
    """No other text has a capital letter, so the word and the casing are in exactly the same texts."""
    rows = [{**row, "text": row["text"].lower()} for row in noise(np.random.default_rng(0))]
    for row in [row for row in rows if row["label"] == "a"][:100]:
        row["text"] += " Zorp"
    found = ss.shortcuts(rows, text="text", label="label", progress=False)
    assert "zorp" in [finding.name for finding in found.shortcuts]
    assert not [finding for finding in found.shortcuts if finding.kind == "casing"]


@pytest.mark.parametrize(
    ("word", "others"),
    [
        ("अच्छी", "यह फिल्म बहुत देखी गई"),
        ("كتابًا", "هذا فيلم طويل قليلا"),
        ("größer", "der Film war lang genug"),
        ("café", "we went to a place nearby"),
        ("ดี", "หนังเรื่องนี้ยาว"),
        ("好", "这部电影很长"),
    ],
)
def test_words_of_many_scripts_are_found_whole(word: str, others: str) -> None:
    rng = np.random.default_rng(0)
    parts = others.split() if " " in others else list(others)
    glue = " " if " " in others else ""
    rows = []
    for i in range(300):
        has_word = i % 5 == 0
        label = "a" if has_word else "ab"[int(rng.integers(2))]
        own = [*rng.permutation(parts), str(rng.integers(10**6)), *([word] if has_word else [])]
        rows.append({"text": glue.join(own), "label": label})
    found = ss.shortcuts(rows, text="text", label="label", progress=False)
    assert word in [finding.feature for finding in found.shortcuts]
    assert any("each character is a word" in sentence for sentence in summary(found)) == (glue == "")
