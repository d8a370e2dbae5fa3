"""One Chromium for all tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync"]  # fmt: skip
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
