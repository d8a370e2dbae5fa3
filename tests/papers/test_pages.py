"""The pages of systems: one command that shows the phenomenon in seconds, and a length that a student reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_documents import printed_by_commands

PAGES = sorted((Path(__file__).parents[2] / "docs" / "systems").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    (printed,) = printed_by_commands(page, tmp_path).values()
    assert "loss" in printed
    assert len(page.read_text(encoding="utf-8").split()) <= 1200
