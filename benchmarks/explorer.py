"""Frames per second of the explorer in Chromium: Syn-Medium with 10 queries, played at several speeds.

The page draws at every animation frame; training runs in a worker.  What is printed is how many frames a second the
page shows while it plays, the longest gaps between them, how long the page itself works in a frame, and how many
updates the worker makes meanwhile.  A frame that waited for a step would show as a gap.

    python benchmarks/explorer.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

EXPLORER = Path(__file__).parents[1] / "src/scansnap/explorer/explorer.html"
SETTING = "#classes=syn-medium-10&lr_y=2&lr_z=1&momentum=0.9&init=uniform&steps=1000000"
SECONDS = 5
SPEEDS = {"10 updates a second": 3, "100 updates a second": 6, "as fast as it can": 12}

MEASURE = """seconds => new Promise(done => {
    const gaps = [], work = [];
    const updates = () => Number(document.getElementById("count").textContent.replace(/[^0-9]/g, ""));
    const first = updates(), start = performance.now();
    let last = start;
    const plain = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = call => plain(time => {
        const before = performance.now();
        call(time);
        work.push([time, performance.now() - before]);
    });
    plain(function tick(now) {
        gaps.push(now - last);
        last = now;
        if (now - start < 1000 * seconds) return plain(tick);
        window.requestAnimationFrame = plain;
        const byFrame = new Map();
        for (const [time, spent] of work) byFrame.set(time, (byFrame.get(time) ?? 0) + spent);
        done({gaps: gaps.slice(1), work: [...byFrame.values()], updates: updates() - first});
    });
})"""


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    with sync_playwright() as api:
        browser = api.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(EXPLORER.as_uri() + SETTING)
        page.wait_for_function("document.getElementById('count')?.textContent === 'Step 0'")
        idle = page.evaluate(MEASURE, 2)
        print(f"nothing playing: {1000 * len(idle['gaps']) / sum(idle['gaps']):.1f} frames a second")
        for words, speed in SPEEDS.items():
            page.click("#reset")
            page.fill("#speed", str(speed))
            page.click("#play")
            page.wait_for_timeout(500)
            seen = page.evaluate(MEASURE, SECONDS)
            page.click("#play")
            gaps, work = seen["gaps"], seen["work"]
            print(
                f"{words}: {1000 * len(gaps) / sum(gaps):.1f} frames a second; gaps {quantile(gaps, 0.5):.1f} ms "
                f"(median), {quantile(gaps, 0.99):.1f} ms (99%), {max(gaps):.1f} ms (longest); the page works "
                f"{quantile(work, 0.5):.1f} ms in a frame (median), {quantile(work, 0.99):.1f} ms (99%); "
                f"{seen['updates'] / SECONDS:.0f} updates a second"
            )
        browser.close()


if __name__ == "__main__":
    main()
