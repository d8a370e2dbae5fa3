"""Take pictures of pages: images/explorer.png, the animation images/explorer.webp, and images/watch.png.

python docs/make_animation.py [explorer | watch]
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
EXPLORER = HERE.parent / "src/scansnap/explorer/explorer.html"

STEPS = 36
PICTURE = 20
"""The step that explorer.png shows."""

SIZE = (1280, 860)
SHOWN = (0, 0, 1280, 640)
"""The part of the page that the animation shows."""

WIDTH = 960


def main() -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    pictures = {"explorer": take_explorer, "watch": take_watch}
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in sys.argv[1:] or pictures:
            pictures[name](browser)
        browser.close()


def take_watch(browser: Browser) -> None:
    """The map and the lines of the demonstration of a watch."""
    page = browser.new_page(viewport={"width": WIDTH, "height": SIZE[1]})
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "watch.html"
        subprocess.run([sys.executable, HERE / "watch_demo.py", "--page", made], check=True)
        page.goto(made.as_uri())
        page.wait_for_selector("#plot path.head")
        page.select_option("#quantity", label="prefix matching")
        top, bottom = (page.locator(name).bounding_box() for name in ("#heads", "#pattern-panel"))
        assert top is not None
        assert bottom is not None
        clip = {"x": 0, "y": top["y"], "width": WIDTH, "height": bottom["y"] - top["y"]}
        page.screenshot(path=HERE / "images" / "watch.png", full_page=True, clip=clip)


def take_explorer(browser: Browser) -> None:
    """The explorer at one step, and while it trains."""
    frames = []
    page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, reduced_motion="reduce")
    page.goto(EXPLORER.as_uri())
    page.wait_for_selector("#count")
    if page.get_by_role("button", name="Pause").count():
        page.keyboard.press("Space")
    page.keyboard.press("r")
    for step in range(STEPS + 1):
        if step:
            page.keyboard.press("s")
        page.wait_for_function("n => document.getElementById('count').textContent === `Step ${n}`", arg=step)
        taken = page.screenshot()
        if step == PICTURE:
            (HERE / "images" / "explorer.png").write_bytes(taken)
        frame = Image.open(io.BytesIO(taken)).convert("RGB").crop(SHOWN)
        frames.append(frame.resize((WIDTH, WIDTH * SHOWN[3] // SHOWN[2]), Image.Resampling.LANCZOS))
    pauses = [1000, *[180] * (STEPS - 1), 3000]
    target = HERE / "images" / "explorer.webp"
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=pauses, loop=0, quality=80, method=6)
    print(f"{target.name}: {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
