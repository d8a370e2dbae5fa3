"""Verdicts, numbers and tables of the documents are those of the checks."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import NamedTuple

import pytest

from scansnap.claims.check import classes_in_words
from scansnap.claims.claim import ASSUMED_ONLY, CATEGORIES, FAILS, HOLDS, Verdict
from scansnap.claims.verify import paper_claims
from scansnap.figures.catalog import MODULES
from scansnap.runtime.formulas import readable

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = runpy.run_path(str(DOCS / "make_theory.py"))
PAGES = "".join(page.read_text() for page in sorted((DOCS / "theory").glob("*.md")))
INDEX = (DOCS / "theory" / "index.md").read_text()
SUMMARY, README = (DOCS / "summary.md").read_text(), (DOCS.parent / "README.md").read_text()
NUMBERS = PROGRAM["NUMBER"].findall(SUMMARY)
ROWS = [row for part in PROGRAM["read_coverage"]() for row in part["statements"]]
IDS = [claim.id for claim in paper_claims()]
STATED = dict(re.findall(r"^\| \[?`(\w+)`\]?\S* \|.*\| ([a-z ]+) \|$", INDEX, re.MULTILINE))
"""Verdicts in the table of the index."""
ROUNDING = 1e-6
"""Deviations below this are rounding, or the error of an integration, and may differ from machine to machine."""
FACTOR = 1.5
NEAR = 0.005
"""How far predictions and measurements may be from the four digits on the page, relative to them."""


def test_every_statement_of_the_paper_is_there() -> None:
    """Each by its number; what else the paper says is counted by the table of coverage."""
    counts = {"lemma": 18, "theorem": 5, "corollary": 2, "remark": 4}
    assert {f"{kind}_{i}" for kind, last in counts.items() for i in range(1, last + 1)} <= set(IDS)
    assert set(STATED) == set(IDS)


def test_the_verdict_is_the_one_stated_and_a_wrong_prediction_is_noticed(verdict: Verdict) -> None:
    claim, name = verdict.claim, verdict.id
    assert verdict.verdict == STATED[name]
    corrected = [measurement.holds for measurement in verdict.measurements if measurement.role == "corrected"]
    assert all(corrected)
    if verdict.verdict == FAILS:
        assert claim.correction
        assert corrected
    assert verdict.seconds == 0  # only `verify` measures them
    plain = json.loads(json.dumps(verdict.as_dict()))
    assert (plain["id"], plain["category"]) == (name, claim.category)
    assert plain["correction"] == readable(claim.correction) if claim.correction else plain["correction"] is None
    assert verdict.notices_wrong_factor()


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
        assert re.search(rf"^\| \[`{claim.id}`\].* \| {claim.category} \| [a-z ]+ \|$", INDEX, re.MULTILINE), claim.id
    for category in CATEGORIES:
        assert f"*{category}*" in README
        assert f"*{category}*" in INDEX


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


def measurements(name: str) -> list[Row]:
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
    rows = measurements(verdict.id)
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
    rows = [row for claim in paper_claims() for row in measurements(claim.id)]
    assert len(rows) == len(re.findall(r"\| (?:ok|not) \|$", PAGES, re.MULTILINE))
    assert any(row.label.startswith("|λ_1|") for row in rows)


def value(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def test_numbers_of_the_summary_are_those_of_the_check(verdict: Verdict) -> None:
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
    words = list(STATED.values())
    for text in (SUMMARY, README):
        counts = {name: int(count) for _, name, count, _ in PROGRAM["COUNT"].findall(text)}
        assert counts.pop("all") == len(words)
        assert counts == {word: words.count(word) for word in set(words)}


def test_the_table_of_coverage_has_every_number_equation_and_section() -> None:
    numbered = {"Lemma": 18, "Theorem": 5, "Corollary": 2, "Remark": 4, "Assumption": 2, "Table": 1, "Figure": 12}
    for kind, last in numbered.items():
        found = {int(match[1]) for row in ROWS if (match := re.match(rf"{kind} (\d+)\b", row["at"]))}
        assert found == set(range(1, last + 1))
    assert sorted(number for row in ROWS for number in row.get("equations", ())) == list(range(1, 139))
    for section in ["Abstract", *(f"Section {i}" for i in range(3, 10)), *(f"Appendix {letter}" for letter in "BDFG")]:
        assert any(row["at"].startswith(section) for row in ROWS), section
    for part in ("Section 6 (a)", "Section 6 (b)", "Section 6 (c)", "Appendix F (a)", "Appendix F (b)"):
        assert [row["at"] for row in ROWS].count(part) == 1, part


def test_rows_of_coverage_name_what_exists_or_a_reason() -> None:
    assert {name for row in ROWS for name in row.get("claims", ())} == set(IDS)
    assert {name for row in ROWS for name in row.get("figures", ())} <= set(MODULES)
    for row in ROWS:
        assert set(row) <= {"at", "equations", "words", "claims", "figures", "reason"}
        assert row["words"]
        assert row.get("claims") or row.get("figures") or row.get("reason"), row


def test_numbered_claims_stand_in_the_row_of_their_number() -> None:
    for claim in paper_claims():
        if match := re.fullmatch(r"(lemma|theorem|corollary|remark|assumption)_(\d+)", claim.id):
            place = f"{match[1].capitalize()} {match[2]}"
            assert any(claim.id in row.get("claims", ()) and row["at"].startswith(place) for row in ROWS), claim.id
        if match := re.fullmatch(r"equation_(\d+)", claim.id):
            assert any(claim.id in row.get("claims", ()) and int(match[1]) in row["equations"] for row in ROWS)


def test_the_page_is_the_table() -> None:
    assert (DOCS / "theory" / "coverage.md").read_text() == PROGRAM["coverage_page"]()
    assert PROGRAM["_ranges"]([5, 3, 4, 9]) == "3 to 5, 9"
