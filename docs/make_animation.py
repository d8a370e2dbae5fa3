"""Take the pictures of the explorer from its own page: images/explorer.png and the animation images/explorer.webp.

python docs/make_animation.py
"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

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
    frames = []
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
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
        browser.close()
    pauses = [1000, *[180] * (STEPS - 1), 3000]
    target = HERE / "images" / "explorer.webp"
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=pauses, loop=0, quality=80, method=6)
    print(f"{target.name}: {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
