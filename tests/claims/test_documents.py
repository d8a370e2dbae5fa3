"""Verdicts, numbers and tables of the documents are those of the checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import make_theory
import numpy as np
import pytest
from _site.found import fill
from stored_numbers import read_reproduction

from scansnap.claims.catalog import paper_claims
from scansnap.claims.claim import ASSUMED_ONLY, CATEGORIES, FAILS, HOLDS, Verdict
from scansnap.claims.coverage import read_coverage
from scansnap.figures.catalog import MODULES, SYNTHETIC
from scansnap.report.claims_page import count_verdict
from scansnap.report.reproduce import NUM_SEEDS
from scansnap.report.reproduction import headline
from scansnap.runtime.formulas import readable

pytestmark = pytest.mark.rounding

DOCS = Path(__file__).parents[2] / "docs"
INDEX = fill((DOCS / "theory" / "index.md").read_text())
FILLED = [page.read_text() for page in make_theory.FILLED]
NUMBERS = [match for text in FILLED for match in make_theory.NUMBER.findall(text)]
REPRODUCTION = read_reproduction()
KEPT = REPRODUCTION.verdicts
STORED = {verdict.id: verdict.measurements for verdict in KEPT}
ROWS = [row for part in read_coverage().values() for row in part]
IDS = [claim.id for claim in paper_claims()]
STATED = {
    name: word
    for word, claims in re.findall(r"^\| ([a-z ]+) \| [\w ]+ \| (.*) \|$", INDEX, re.MULTILINE)
    for name in re.findall(r"`(\w+)`", claims)
}
"""Verdicts in the table of the index."""
ROUNDING = 1e-6
"""Deviations below this are rounding, or the error of an integration, and may differ from machine to machine."""


def test_every_statement_of_the_paper_is_there() -> None:
    """Each by its number; what else the paper says is counted by the table of coverage."""
    counts = {"lemma": 18, "theorem": 5, "corollary": 2, "remark": 4}
    assert {f"{kind}_{i}" for kind, last in counts.items() for i in range(1, last + 1)} <= set(IDS)
    assert set(STATED) == set(STORED) == set(IDS)


def test_the_verdict_is_the_one_stated_and_each_row_notices_a_wrong_prediction(verdict: Verdict) -> None:
    claim, name = verdict.claim, verdict.id
    assert verdict.verdict == STATED[name]
    corrected = [measurement.holds for measurement in verdict.measurements if measurement.role == "corrected"]
    assert all(corrected)
    if verdict.verdict == FAILS:
        assert claim.correction
        assert corrected
    plain = json.loads(json.dumps(verdict.as_dict()))
    assert (plain["id"], plain["category"]) == (name, claim.category)
    assert plain["correction"] == readable(claim.correction) if claim.correction else plain["correction"] is None
    assert verdict.notices_wrong_factor()


def test_a_picture_can_be_drawn(verdict: Verdict) -> None:
    """Its lines are finite, and positive where an axis is logarithmic."""
    if verdict.curve is not None:
        lines = np.array(list(verdict.curve.lines.values()))
        assert np.isfinite(lines).all()
        assert not verdict.curve.log_x or (verdict.curve.x > 0).all()
        assert not verdict.curve.log_y or (lines > 0).all()


def test_categories_go_with_verdicts() -> None:
    allowed = {
        "misprint": {FAILS},
        "error": {FAILS},
        "holds": {HOLDS},
        "sharpened": {HOLDS, ASSUMED_ONLY},
        "added": {HOLDS},
        "holds under its assumptions": {ASSUMED_ONLY},
        "too strong": {ASSUMED_ONLY, FAILS},
        "fails under true SGD": {ASSUMED_ONLY, FAILS},
    }
    assert set(allowed) == set(CATEGORIES)
    for claim in paper_claims():
        assert STATED[claim.id] in allowed[claim.category], claim.id
    index = " ".join(INDEX.split())
    for category in CATEGORIES:
        assert f"*{category}*" in index


def test_measurements_are_those_stored(verdict: Verdict) -> None:
    """Deviations to within a factor of 1.5: sampled measurements have fixed seeds.

    Where the two sides are equal up to rounding, it is chance which entry differs most: then only the deviation counts.
    """
    for measured, stored in zip(verdict.measurements, STORED[verdict.id], strict=True):
        assert (measured.role, measured.label, measured.holds) == (stored.role, stored.label, stored.holds)
        deviations = [max(entry.deviation, ROUNDING) for entry in (measured, stored)]
        assert max(deviations) <= 1.5 * min(deviations), measured.label
        if stored.deviation > ROUNDING:
            assert (measured.predicted, measured.measured) == pytest.approx(
                (stored.predicted, stored.measured), rel=0.005
            ), measured.label


def test_pages_are_filled_from_the_stored_numbers() -> None:
    """With the settings of the claims: the index gives the usual one, sections the others."""
    for page in make_theory.FILLED:
        assert page.read_text() == make_theory.filled(page.read_text(), KEPT), page.name
    pages = [
        *make_theory.PAGES.glob("*.md"),
        *(DOCS / name for name in ("figures.md", "reproduction.md", "text_results.md")),
    ]
    assert all("<!-- found" not in fill(page.read_text()) for page in pages)
    classes, tokens, decoder, attention = make_theory.USUAL
    assert f"$K = {classes}$ classes, $M = {tokens}$ tokens, $\\eta_Y = {decoder}$ and $\\eta_Z = {attention}$" in INDEX
    section = fill((DOCS / "theory" / "decoder.md").read_text())
    assert "`scansnap verify lemma_12`: **holds** (Lemma 12). *Conditions:* modified gradient" in section
    assert "](../images/claims/lemma_12.png)" in section


def test_figures_and_the_headline_are_those_stored() -> None:
    assert {figure.recipe.name for figure in REPRODUCTION.figures} == set(SYNTHETIC)
    figures, page = (fill((DOCS / name).read_text()) for name in ("figures.md", "reproduction.md"))
    assert f"have {NUM_SEEDS} seeds per cell here" in figures
    for figure in REPRODUCTION.figures:
        assert f"## Figure {figure.recipe.name}:" in figures
        for trend in figure.trends:
            assert f"*{trend.measured_text}*, expected " in figures, trend.statement
    opening = headline(REPRODUCTION)
    assert all(count_verdict(word, count) in page for word, count in opening.claims.items())


def test_numbers_of_the_pages_are_those_of_the_check(verdict: Verdict) -> None:
    """To within a factor of 1.1: they have two digits; what is rounding may differ from machine to machine."""

    def value(text: str) -> float:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)

    for _, name, label, field, written, _ in NUMBERS:
        if name == verdict.id:
            measured = value(make_theory.number(verdict, label, field))
            if max(abs(measured), abs(value(written))) > ROUNDING:
                assert abs(measured - value(written)) <= 0.1 * abs(measured), (label, field)


def test_the_table_of_coverage_has_every_number_equation_and_section() -> None:
    numbered = {"Lemma": 18, "Theorem": 5, "Corollary": 2, "Remark": 4, "Assumption": 2, "Table": 1, "Figure": 12}
    for kind, last in numbered.items():
        found = {int(match[1]) for row in ROWS if (match := re.match(rf"{kind} (\d+)\b", row.at))}
        assert found == set(range(1, last + 1))
    assert sorted(number for row in ROWS for number in row.equations) == list(range(1, 139))
    for section in ["Abstract", *(f"Section {i}" for i in range(3, 10)), *(f"Appendix {letter}" for letter in "BDFG")]:
        assert any(row.at.startswith(section) for row in ROWS), section
    for part in ("Section 6 (a)", "Section 6 (b)", "Section 6 (c)", "Appendix F (a)", "Appendix F (b)"):
        assert [row.at for row in ROWS].count(part) == 1, part


def test_rows_of_coverage_name_what_exists_or_a_reason() -> None:
    assert {name for row in ROWS for name in row.claims} == set(IDS)
    studies = {path.stem for path in (DOCS.parent / "studies").glob("*.py")}
    assert {name for row in ROWS for name in row.figures} <= {*MODULES, *studies}
    for row in ROWS:
        assert row.words
        assert row.claims or row.figures or row.reason, row
    for claim in paper_claims():  # numbered claims stand in the row of their number
        if match := re.fullmatch(r"(lemma|theorem|corollary|remark|assumption)_(\d+)", claim.id):
            place = f"{match[1].capitalize()} {match[2]}"
            assert any(claim.id in row.claims and row.at.startswith(place) for row in ROWS), claim.id
        if match := re.fullmatch(r"equation_(\d+)", claim.id):
            assert any(claim.id in row.claims and int(match[1]) in row.equations for row in ROWS)
    coverage = fill((DOCS / "theory" / "coverage.md").read_text())
    for row in ROWS:
        assert f"- **{row.at}**" in coverage
        assert row.words in coverage
