"""Numbers in docs/summary.md, and counts there and in the README, are those of the checks."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from scansnap.claims.claim import CATEGORIES, Verdict
from scansnap.claims.verify import paper_claims

ROOT = Path(__file__).parents[2]
PROGRAM = runpy.run_path(str(ROOT / "docs" / "make_theory.py"))
SUMMARY, README = (ROOT / "docs" / "summary.md").read_text(), (ROOT / "README.md").read_text()
NUMBERS = PROGRAM["NUMBER"].findall(SUMMARY)
ROUNDING = 1e-6


def value(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def test_numbers_are_those_of_the_check(verdict: Verdict) -> None:
    """To within a factor of 1.1: they have two digits; what is rounding may differ from machine to machine."""
    for _, name, label, field, written, _ in NUMBERS:
        if name == verdict.id:
            measured = value(PROGRAM["number"](verdict, label, field))
            if max(abs(measured), abs(value(written))) > ROUNDING:
                assert abs(measured - value(written)) <= 0.1 * abs(measured), (label, field)


def test_every_theorem_has_numbers_and_a_picture() -> None:
    assert len(NUMBERS) > 15
    for i in range(1, 6):
        assert any(name == f"theorem_{i}" for _, name, *_ in NUMBERS)
        assert f"images/claims/theorem_{i}.png" in SUMMARY


def test_counts_are_those_of_the_index() -> None:
    index = (ROOT / "docs" / "theory" / "index.md").read_text()
    words = re.findall(r"^\| \[`\w+`\].*\| ([a-z ]+) \|$", index, re.MULTILINE)
    assert len(words) == len(paper_claims())
    for text in (SUMMARY, README):
        counts = {name: int(count) for _, name, count, _ in PROGRAM["COUNT"].findall(text)}
        assert counts.pop("all") == len(words)
        assert counts == {word: words.count(word) for word in set(words)}


def test_categories_are_named_where_verdicts_are_shown() -> None:
    """In the README, the index and the page of disagreements; commands and reports have their own tests."""
    index = (ROOT / "docs" / "theory" / "index.md").read_text()
    for category in CATEGORIES:
        assert f"*{category}*" in README
        assert f"*{category}*" in index
