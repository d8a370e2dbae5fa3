"""What docs/explore.md says about the page: its address opens, its sentences can be trained on."""

from __future__ import annotations

import re
from pathlib import Path

from tests.explorer.conftest import Open, wait_for_step, wait_for_text

GUIDE = (Path(__file__).parents[2] / "docs/explore.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_address_opens(open_page: Open) -> None:
    (address,) = re.findall(r"^    (#\S+)$", GUIDE, re.MULTILINE)
    page = open_page(address)
    wait_for_step(page, 40)
    assert not page.query_selector(".messages.on")


def test_the_sentences_are_classes(open_page: Open) -> None:
    page = open_page()
    page.click("summary:has-text('which word wins')")
    page.fill("#sentences", block("text"))
    page.click("text=Train on these sentences")
    wait_for_text(page, ".about", "Your own: K = 2 classes")
