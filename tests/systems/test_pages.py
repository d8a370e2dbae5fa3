"""The pages of systems: one command that shows the phenomenon in seconds, and a length that a student reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_documents import status

PAGES = sorted((Path(__file__).parents[2] / "docs" / "systems").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text(encoding="utf-8")
    (command,) = re.findall(r"^```bash\n(scansnap .*)\n```", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert status(command, monkeypatch) == 0
    assert "loss" in capsys.readouterr().out
    assert len(text.split()) <= 1200
