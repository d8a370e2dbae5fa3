"""The explorer in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXPLORER = Path(__file__).parents[2] / "src/scansnap/explorer/explorer.html"

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open the page with an address after #; at the end nothing may have failed in it or asked for the network."""
    contexts, problems = [], []

    def opened(address: str = "", *, width: int = 1280, height: int = 800, **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height}, **{"reduced_motion": "reduce", **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(f"error in the page: {error}"))
        page.on("console", lambda said: said.type == "error" and problems.append(f"console: {said.text}"))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "blob:", "data:")) or problems.append(f"asked for {request.url}")
            ),
        )
        page.goto(EXPLORER.as_uri() + address)
        page.wait_for_function("document.getElementById('count')?.textContent.startsWith('Step')")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


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
