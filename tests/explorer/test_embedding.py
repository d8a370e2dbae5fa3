"""The explorer inside other pages: a notebook's output, also one that allows little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from scansnap.explorer.page import SCRIPT, page_of

NOTEBOOK = """<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}"><body><script type="module">
const traits = {traits};
const model = {{ get: (name) => traits[name], set: (name, value) => (traits[name] = value), save_changes: () => {{}} }};
window.traits = traits;
const widget = (await import("data:text/javascript," + encodeURIComponent({script}))).default;
window.close_widget = widget.render({{ model, el: document.body }});
</script>"""

STRICT = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' data:; style-src 'unsafe-inline'; "
    "img-src data:; connect-src https:; child-src https: data:"
)
"""As strict as the notebooks of VS Code, which allow no worker from a blob."""


@pytest.mark.parametrize("policy", ["default-src * data: blob: 'unsafe-inline' 'unsafe-eval'", STRICT])
def test_the_widget_trains_in_a_notebook(browser: Any, tmp_path: Path, policy: str) -> None:
    """It begins where Python says, trains, and tells Python where its controls are."""
    pytest.importorskip("anywidget", reason="anywidget is not installed: install scansnap[notebook]")
    options = ss.TrainOptions(lr_y=2.0, lr_z=1.0, steps=30, batch_size=None, seq_len=float("inf"))
    widget: Any = ss.explore("syn-medium-3", **vars(options), height=700)
    assert (widget.page, widget.height) == (page_of(widget.address, "embedded"), 700)
    traits = {name: getattr(widget, name) for name in ("page", "address", "height")}
    plain = json.dumps(traits).replace("</", "<\\/")
    path = tmp_path / "notebook.html"
    path.write_text(NOTEBOOK.format(policy=policy, traits=plain, script=json.dumps(SCRIPT)))
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.frame_locator("iframe").locator("#count", has_text="Step 30").wait_for()
    page.wait_for_function("traits.address.includes('step=30')")
    address = page.evaluate("traits.address")
    assert address.startswith("#classes=syn-medium-3&lr_y=2&")
    assert problems == []
    page.close()
