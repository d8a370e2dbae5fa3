"""The numbers kept for the page of the reproduction are those of the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from make_documents import opened
from make_figures import line
from stored_numbers import RESULTS, read_reproduction

from scansnap.claims.verify import paper_claims
from scansnap.figures import catalog
from scansnap.report.reproduction import Reproduction

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def kept() -> Reproduction:
    return read_reproduction()


def test_all_is_there(kept: Reproduction) -> None:
    assert [verdict.id for verdict in kept.verdicts] == [claim.id for claim in paper_claims()]
    assert {figure.recipe.name for figure in kept.figures} == set(catalog.SYNTHETIC)
    assert kept.command == "make documents"
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", kept.environment["commit"])
    for verdict in kept.verdicts:
        assert (DOCS / "images" / "claims" / f"{verdict.id}.png").exists()
    assert RESULTS.stat().st_size < 200_000


def test_figures_are_those_of_the_documents(kept: Reproduction) -> None:
    text = (DOCS / "figures.md").read_text()
    for figure in kept.figures:
        for trend in figure.trends:
            assert line(trend).partition(", expected")[0] in text, trend.statement


def test_the_opening_says_what_was_found(kept: Reproduction) -> None:
    text = (DOCS / "reproduction.md").read_text()
    assert opened(text, kept) == text
