"""The pages of systems: one command that shows the phenomenon in seconds, and a length that a student reads."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "systems").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (command,) = re.findall(r"^```bash\nscansnap (.*)\n```", text, re.MULTILINE)
    arguments = [sys.executable, "-m", "scansnap", *shlex.split(command)]
    result = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "loss" in result.stdout
    assert len(text.split()) <= 1200
