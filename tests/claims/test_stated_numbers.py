"""The deviations in the pages of docs/theory are those that the checks measure."""

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
    """Role, label, deviation and outcome of each measurement in the claim's section, of which there is one."""
    (section,) = re.findall(rf"^<!-- found: {name} -->\n(.*?)^<!-- end -->$", PAGES, re.MULTILINE | re.DOTALL)
    rows = []
    for line in re.findall(r"^\| (?:assumed|beyond|corrected|contrast) \|.*$", section, re.MULTILINE):
        role, label, _, _, deviation, _, outcome = re.split(r"(?<!\\)\|", line.strip("|"))
        rows.append((role.strip(), label.strip().replace("\\|", "|"), float(deviation), outcome.strip()))
    return rows


def test_deviations_are_those_stated(verdict: Verdict) -> None:
    """To within a factor of 1.5: sampled measurements have fixed seeds, the page has two digits."""
    rows = stated(verdict.id)
    assert [(measurement.role, readable(measurement.label)) for measurement in verdict.measurements] == [
        row[:2] for row in rows
    ]
    for measurement, (_, label, deviation, outcome) in zip(verdict.measurements, rows, strict=True):
        measured, written = max(measurement.deviation, ROUNDING), max(deviation, ROUNDING)
        assert written / FACTOR <= measured <= written * FACTOR, (label, measurement.deviation, deviation)
        assert ("ok" if measurement.holds else "not") == outcome, label


def test_every_row_of_the_page_is_read() -> None:
    """Also rows with bars in their labels."""
    rows = [row for claim in claims() for row in stated(claim.id)]
    assert len(rows) == len(re.findall(r"\| (?:ok|not) \|$", PAGES, re.MULTILINE))
    assert any(label.startswith("|λ_1|") for _, label, _, _ in rows)
