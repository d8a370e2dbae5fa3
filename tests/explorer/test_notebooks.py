"""The widget in the notebooks that people use: JupyterLab, Jupyter Notebook and marimo, each as it is served.

These are not among the packages that the tests install; where one is missing, its test is skipped.  Each takes a server
and some ten seconds, so they are run with the slow tests.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[2] / "src"
CELLS = [
    'import scansnap as ss\nwidget = ss.explore("syn-small", lr_y=5, lr_z=10, momentum=0.9, steps=30)\nwidget',
    'print("heard", widget.address)',
]
SCREENS = os.environ.get("NOTEBOOK_SCREENS")
"""Where to put a picture of each notebook, if one wants to look at it."""


@contextmanager
def served(command: list[str], folder: Path, path: str) -> Iterator[str]:
    """A notebook's server, for as long as the test lasts, and the address of a page of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, f"--port={port}"], cwd=folder, env=settings, stdout=log, stderr=log
        )
    try:
        for _ in range(240):
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/").close()
                break
            assert server.poll() is None, (folder / "server.log").read_text()[-2000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/{path}"
    finally:
        server.terminate()
        server.wait(20)


def sees_it_train(page: Any, name: str) -> None:
    """The explorer is there, trains, and says so."""
    frame = page.frame_locator('iframe[title="scansnap explorer"]')
    frame.locator("#count", has_text="Step 30").wait_for(timeout=120_000)
    assert "Snapped" in frame.locator("main, body").first.inner_text()
    if SCREENS:
        page.screenshot(path=Path(SCREENS) / f"{name}.png")


@pytest.mark.parametrize(
    ("package", "path"), [("jupyterlab", "lab/tree/widget.ipynb"), ("notebook", "notebooks/widget.ipynb")]
)
def test_jupyter(browser: Any, tmp_path: Path, package: str, path: str) -> None:
    pytest.importorskip(package)
    cells = [
        {"cell_type": "code", "id": f"cell{i}", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for i, text in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "widget.ipynb").write_text(json.dumps(notebook))
    options = ["--no-browser", "--allow-root", "--ServerApp.token=", "--ip=127.0.0.1"]
    with served([package, *options], tmp_path, path) as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1300})
        page.set_default_timeout(120_000)
        page.goto(address)
        page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', state="attached")
        page.keyboard.press("Shift+Enter")
        sees_it_train(page, package)
        page.keyboard.press("Shift+Enter")
        page.locator(".jp-OutputArea-output", has_text="heard #classes=syn-small").wait_for()
        page.close()


def test_marimo(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("marimo")
    body = CELLS[0].replace("\n", "\n    ")
    (tmp_path / "widget.py").write_text(
        f"import marimo\n\napp = marimo.App(width='full')\n\n\n@app.cell\ndef _():\n    {body}\n    return\n\n\n"
        'if __name__ == "__main__":\n    app.run()\n'
    )
    with served(["marimo", "run", "widget.py", "--headless", "--no-token"], tmp_path, "") as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1300})
        page.goto(address)
        sees_it_train(page, "marimo")
        page.close()
