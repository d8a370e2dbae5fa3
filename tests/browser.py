"""One Chromium for all tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


Open = Callable[..., Any]


@contextmanager
def opened_pages(browser: Any) -> Iterator[Open]:
    """A function that opens pages; at the end nothing may have failed in them or asked for anything elsewhere.

    With `files` a page may load other files of this machine.
    """
    contexts, problems = [], []

    def opened(address: str, *, width: int = 1280, height: int = 900, files: bool = False, **options: Any) -> Any:
        own = "file:" if files else address.partition("#")[0]
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(f"error in the page: {error}"))
        page.on("console", lambda said: said.type == "error" and problems.append(f"console: {said.text}"))
        local = (own, "blob:", "data:", "about:")
        page.on("request", lambda asked: asked.url.startswith(local) or problems.append(f"asked for {asked.url}"))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def in_browser(browser: Any, text: str, probe: str, folder: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    """What `probe`, the body of an asynchronous function, returns on the page of this text.

    The page must raise no error, load nothing and be no wider than the screen.
    """
    page = folder / "page.html"
    page.write_text(text)
    pause = "const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));"
    with opened_pages(browser) as opened:
        view = opened(page.as_uri(), width=width, color_scheme="dark" if dark else "light")
        report: dict[str, Any] = view.evaluate(f"async () => {{ {pause} {probe} }}")
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    return report
