"""One Chromium for all tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
REQUIRED = os.environ.get("EXPLORER_TESTS") == "required"
"""Whether nothing that concerns the explorer may be skipped."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    if not REQUIRED:
        pytest.importorskip("playwright", reason="playwright is not installed: install scansnap[dev]")
        if CHROMIUM is None:
            pytest.skip("there is no Chromium on this machine: install it, or set CHROMIUM to its path.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def in_browser(browser: Any, text: str, probe: str, folder: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    """What `probe`, the body of an asynchronous function, returns on the page of this text.

    The page must raise no error, load nothing and be no wider than the screen.
    """
    page = folder / "page.html"
    page.write_text(text)
    problems, loaded = [], []
    view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    view.on("pageerror", lambda error: problems.append(str(error)))
    view.on("console", lambda said: said.type == "error" and problems.append(said.text))
    view.on("request", lambda request: loaded.append(request.url))
    view.goto(page.as_uri())
    pause = "const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));"
    report: dict[str, Any] = view.evaluate(f"async () => {{ {pause} {probe} }}")
    assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert problems == []
    assert [url for url in loaded if url != page.as_uri() and not url.startswith(("blob:", "data:", "about:"))] == []
    view.close()
    return report
