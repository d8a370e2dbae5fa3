"""Take the picture of docs/explore.md: the page as a visitor sees it after four seconds.

python docs/make_explorer.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
EXPLORER = HERE.parent / "src/scansnap/explorer/explorer.html"


def main() -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(EXPLORER.as_uri())
        page.wait_for_function("document.getElementById('count')?.textContent === 'Step 20'")
        page.screenshot(path=HERE / "images" / "explorer.png")
        browser.close()


if __name__ == "__main__":
    main()
