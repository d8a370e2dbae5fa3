"""Frames per second of the explorer in Chromium: Syn-Medium with 10 queries, played at several speeds.

The page draws at every animation frame; training runs in a worker.  What is printed is how many frames a second the
page shows while it plays, the gaps between them, the processor time that the page's own thread takes for a frame (which
does not depend on what else the machine does; 60 frames a second leave 16.7 ms), and how many updates the worker makes
meanwhile.  A frame that waited for a step would show as a gap.

    python benchmarks/explorer.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

EXPLORER = Path(__file__).parents[1] / "src/scansnap/explorer/explorer.html"
SETTING = "#classes=syn-medium-10&lr_y=2&lr_z=1&momentum=0.9&init=uniform&steps=1000000"
SECONDS = 5
SPEEDS = {"10 updates a second": 3, "100 updates a second": 6, "as fast as it can": 12}

MEASURE = """seconds => new Promise(done => {
    const updates = () => Number(document.getElementById("count").textContent.replace(/[^0-9]/g, ""));
    const gaps = [], first = updates(), start = performance.now();
    let last = null;
    requestAnimationFrame(function tick(now) {
        if (last !== null) gaps.push(now - last);
        last = now;
        if (now - start < 1000 * seconds) return requestAnimationFrame(tick);
        done({gaps, updates: updates() - first});
    });
})"""


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def watched(page: Any, thread: Any, seconds: float) -> tuple[list[float], float, float]:
    """Gaps between frames and processor time for each, in ms; updates made in a second."""

    def worked() -> float:
        metrics = thread.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    before = worked()
    seen = page.evaluate(MEASURE, seconds)
    gaps = seen["gaps"]
    return gaps, 1000 * (worked() - before) / len(gaps), seen["updates"] / seconds


def main() -> None:
    with sync_playwright() as api:
        browser = api.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        thread = page.context.new_cdp_session(page)
        thread.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(EXPLORER.as_uri() + SETTING)
        page.wait_for_function("document.getElementById('count')?.textContent === 'Step 0'")
        for words, speed in {"nothing playing": None, **SPEEDS}.items():
            if speed is not None:
                page.click("#reset")
                page.fill("#speed", str(speed))
                page.click("#play")
                page.wait_for_timeout(500)
            gaps, work, updates = watched(page, thread, SECONDS)
            if speed is not None:
                page.click("#play")
            print(
                f"{words}: {1000 * len(gaps) / sum(gaps):.1f} frames a second; gaps {quantile(gaps, 0.5):.1f} ms "
                f"(median), {quantile(gaps, 0.99):.1f} ms (99%), {max(gaps):.1f} ms (longest); "
                f"{work:.1f} ms of processor time a frame; {updates:.0f} updates a second"
            )
        browser.close()


if __name__ == "__main__":
    main()
