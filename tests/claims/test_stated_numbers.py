"""The numbers in the pages of docs/theory are those that the checks measure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from scansnap.claims.check import classes_in_words
from scansnap.claims.claim import Verdict
from scansnap.claims.verify import paper_claims
from scansnap.runtime.formulas import readable

PAGES = "".join(page.read_text() for page in sorted((Path(__file__).parents[2] / "docs" / "theory").glob("*.md")))
ROUNDING = 1e-6
"""Deviations below this are rounding, or the error of an integration, and may differ from machine to machine."""
FACTOR = 1.5
NEAR = 0.005
"""How far predictions and measurements may be from the four digits on the page, relative to them."""


class Row(NamedTuple):
    """A measurement as the page has it."""

    role: str
    label: str
    predicted: str
    measured: str
    deviation: str
    allowed: str
    outcome: str


def section(name: str) -> str:
    """The claim's section, of which there is one."""
    (text,) = re.findall(rf"^<!-- found: {name} -->\n(.*?)^<!-- end -->$", PAGES, re.MULTILINE | re.DOTALL)
    return text


def stated(name: str) -> list[Row]:
    """Each measurement in the claim's section."""
    rows = []
    for line in re.findall(r"^\| (?:assumed|beyond|corrected|contrast) \|.*$", section(name), re.MULTILINE):
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        rows.append(Row(*cells))
    return rows


def test_deviations_are_those_stated(verdict: Verdict) -> None:
    """To within a factor of 1.5: sampled measurements have fixed seeds, the page has two digits.

    Where the two sides are equal up to rounding, it is chance which entry differs most: then only the deviation counts.
    """
    rows = stated(verdict.id)
    assert [(measurement.role, readable(measurement.label)) for measurement in verdict.measurements] == [
        row[:2] for row in rows
    ]
    for measurement, row in zip(verdict.measurements, rows, strict=True):
        measured, written = max(measurement.deviation, ROUNDING), max(float(row.deviation), ROUNDING)
        assert written / FACTOR <= measured <= written * FACTOR, (row.label, measurement.deviation, row.deviation)
        assert ("ok" if measurement.holds else "not") == row.outcome, row.label
        assert f"{measurement.allowed:.2g}" == row.allowed, row.label
        if written > ROUNDING:
            assert measurement.predicted == pytest.approx(float(row.predicted), rel=NEAR), row.label
            assert measurement.measured == pytest.approx(float(row.measured), rel=NEAR), row.label


def test_settings_are_those_stated(verdict: Verdict) -> None:
    """Two settings of the same sizes have other words, where a claim depends on the classes."""
    setting, classes = verdict.setting, verdict.setting.classes
    sizes, rates = (
        f"K = {classes.num_classes}, M = {classes.vocab_size}",
        f"η_Y = {setting.lr_y:g}, η_Z = {setting.lr_z:g}.",
    )
    words = "" if verdict.claim.depends_on == "K, M and the rates" else f", {classes_in_words(classes)}"
    assert (f"*Setting:* {sizes}{words}, {rates}\n" in section(verdict.id)) == (verdict.claim.depends_on != "nothing")


def test_every_row_of_the_page_is_read() -> None:
    """Also rows with bars in their labels."""
    rows = [row for claim in paper_claims() for row in stated(claim.id)]
    assert len(rows) == len(re.findall(r"\| (?:ok|not) \|$", PAGES, re.MULTILINE))
    assert any(row.label.startswith("|λ_1|") for row in rows)
