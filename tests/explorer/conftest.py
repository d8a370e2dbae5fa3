"""The explorer in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Open, opened_pages

EXPLORER = Path(__file__).parents[2] / "src/scansnap/explorer/explorer.html"


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open the page with an address after #, and wait until it has begun."""
    with opened_pages(browser) as opened:

        def open_explorer(address: str = "", **options: Any) -> Any:
            page = opened(
                EXPLORER.as_uri() + address, files=True, **{"height": 800, "reduced_motion": "reduce", **options}
            )
            page.wait_for_function("document.getElementById('count')?.textContent.startsWith('Step')")
            return page

        yield open_explorer


def set_field(page: Any, selector: str, value: str) -> None:
    """Type a value into a field and leave it."""
    page.fill(selector, value)
    page.press(selector, "Enter")


def wait_for_step(page: Any, step: int) -> None:
    page.wait_for_function(f"document.getElementById('count').textContent === 'Step {step:,}'")


def wait_for_address(page: Any, part: str) -> None:
    page.wait_for_function("part => decodeURIComponent(location.hash).includes(part)", arg=part)


def wait_for_text(page: Any, selector: str, text: str) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)", arg=[selector, text]
    )


def message(page: Any) -> str:
    """The sentence that the page shows, when it has one."""
    page.wait_for_selector(".messages.on")
    return str(page.text_content(".messages p"))
