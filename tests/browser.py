"""Pages in a real browser, where there is one."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")

WATCHER = """<script>
const problems = [];
window.addEventListener("error", (event) => problems.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
console.error = (...words) => problems.push(words.join(" "));
</script>"""

REPORTER = """<script>
const pause = (milliseconds) => new Promise((go) => setTimeout(go, milliseconds));
(async () => { %s })().catch((error) => { problems.push(String(error)); return {}; }).then((report) => {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name)
    .filter((name) => !name.startsWith("data:"));
  const wide = document.documentElement.scrollWidth > window.innerWidth + 1;
  document.body.setAttribute("data-report", JSON.stringify({ ...report, problems, loaded, wide }));
});
</script>"""


def in_browser(page: str, probe: str, folder: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    """What `probe`, the body of an asynchronous function, returns on the page.

    The page must raise no error, load nothing and be no wider than the screen.
    """
    text = page.replace("<head>", "<head>" + WATCHER).replace("</body>", REPORTER % probe + "</body>")
    (folder / "probed.html").write_text(text)
    done = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", *(["--force-dark-mode"] if dark else []),
         f"--window-size={width},900", "--dump-dom", "--virtual-time-budget=5000",
         f"--user-data-dir={folder / 'profile'}", f"file://{folder / 'probed.html'}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    reported = re.search(r'data-report="([^"]*)"', done.stdout)
    assert reported, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(html.unescape(reported.group(1)))
    assert report["problems"] == []
    assert report["loaded"] == []
    assert not report["wide"]
    return report
