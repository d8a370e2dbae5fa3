"""The table of what the paper says and what tests it: nothing is missing, and nothing is named that is not there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from scansnap.claims.verify import paper_claims
from scansnap.figures.catalog import MODULES

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = runpy.run_path(str(DOCS / "make_theory.py"))
ROWS = [row for part in PROGRAM["read_coverage"]() for row in part["statements"]]
NUMBERED = {"Lemma": 18, "Theorem": 5, "Corollary": 2, "Remark": 4, "Assumption": 2, "Table": 1, "Figure": 12}
EQUATIONS = 138


@pytest.mark.parametrize(("kind", "last"), NUMBERED.items())
def test_every_number_is_there(kind: str, last: int) -> None:
    found = {int(match[1]) for row in ROWS if (match := re.match(rf"{kind} (\d+)\b", row["at"]))}
    assert found == set(range(1, last + 1))


def test_every_equation_is_in_one_row() -> None:
    numbers = [number for row in ROWS for number in row.get("equations", ())]
    assert sorted(numbers) == list(range(1, EQUATIONS + 1))


def test_every_section_that_claims_something_is_there() -> None:
    for section in ["Abstract", *(f"Section {i}" for i in range(3, 10)), *(f"Appendix {letter}" for letter in "BDFG")]:
        assert any(row["at"].startswith(section) for row in ROWS), section
    for part in ("Section 6 (a)", "Section 6 (b)", "Section 6 (c)", "Appendix F (a)", "Appendix F (b)"):
        assert [row["at"] for row in ROWS].count(part) == 1, part


def test_rows_name_what_exists_and_all_claims_are_named() -> None:
    named = {name for row in ROWS for name in row.get("claims", ())}
    assert named == {claim.id for claim in paper_claims()}
    assert {name for row in ROWS for name in row.get("figures", ())} <= set(MODULES)


def test_every_row_has_a_test_or_a_reason() -> None:
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
