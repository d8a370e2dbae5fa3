"""The deviations in the pages of docs/theory are those that are found."""

from __future__ import annotations

import re
from pathlib import Path

from scansnap.claims import Verdict, claims
from scansnap.figures.style import readable

PAGES = "".join(page.read_text() for page in sorted((Path(__file__).parents[2] / "docs" / "theory").glob("*.md")))
ROUNDING = 1e-6
"""Deviations below this are rounding, or the error of an integration, and may differ from machine to machine."""
FACTOR = 1.5


def stated(name: str) -> list[tuple[str, str, float, str]]:
    """Role, label, deviation and outcome of each measurement in the claim's part of a page; it is on one page, once."""
    (section,) = re.findall(rf"^<!-- found: {name} -->\n(.*?)^<!-- end -->$", PAGES, re.MULTILINE | re.DOTALL)
    found = []
    for line in re.findall(r"^\| (?:assumed|beyond|corrected|contrast) \|.*$", section, re.MULTILINE):
        role, label, _, _, deviation, _, outcome = re.split(r"(?<!\\)\|", line.strip("|"))
        found.append((role.strip(), label.strip().replace("\\|", "|"), float(deviation), outcome.strip()))
    return found


def test_deviations_are_those_stated(verdict: Verdict) -> None:
    """To within a factor of 1.5: sampled measurements have fixed seeds, the page has two digits."""
    rows = stated(verdict.id)
    assert [(one.role, readable(one.label)) for one in verdict.measurements] == [row[:2] for row in rows]
    for one, (_, label, deviation, outcome) in zip(verdict.measurements, rows, strict=True):
        found, written = max(one.deviation, ROUNDING), max(deviation, ROUNDING)
        assert written / FACTOR <= found <= written * FACTOR, (label, one.deviation, deviation)
        assert ("ok" if one.holds else "not") == outcome, label


def test_every_row_of_the_page_is_read() -> None:
    """Those with bars in their labels too."""
    rows = [row for one in claims() for row in stated(one.id)]
    assert len(rows) == len(re.findall(r"\| (?:ok|not) \|$", PAGES, re.MULTILINE))
    assert any(label.startswith("|λ_1|") for _, label, _, _ in rows)
