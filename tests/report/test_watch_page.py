"""The page of a watch: complete, self-contained, alive in a real browser, and safe from what tokens are called."""

from __future__ import annotations

import base64
import re
import zlib
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.monitor.verdicts import by_kind
from scansnap.report import watch_page
from scansnap.report.watch_page import page_data, render_watch, write_watch_page
from tests.browser import in_browser
from tests.monitor.given_attention import anywhere, first, join, missing, previous, series, softmax

LENGTH = 20
HOSTILE = [
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=alert(1)>",
    "\n",
    " the",
    "\u202eevil",
    "{{ 7*7 }}",
    "&lt;b&gt;",
    "`${1+1}`",
]

PROBE = """
await pause(500);
const key = (element, name) => element.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const get = (id) => document.getElementById(id);
const shades = () => [...document.querySelectorAll("#map .cell")].map((cell) => cell.style.background);
const last = shades();
const open = [...document.querySelectorAll("details[open] summary")].map((line) => line.textContent)
  .map((text) => text.replace(/\\s+/g, " "));
const chosen = get("chosen").textContent;
const reading = get("reading").textContent;
const tokens = [...document.querySelectorAll("#pattern .rows .token")].map((token) => token.textContent);
get("step").value = 0;
get("step").dispatchEvent(new Event("input"));
const begin = shades(), label = get("step-label").textContent;
const cell = document.querySelector("#map .cell[aria-selected=true]");
cell.focus();
key(cell, "ArrowUp");
key(document.activeElement, "ArrowRight");
const moved = get("chosen").textContent, focus = document.activeElement.getAttribute("aria-label");
get("pattern").focus();
key(get("pattern"), "ArrowUp");
const row = get("reading").textContent;
get("quantity").value = 2;
get("quantity").dispatchEvent(new Event("change"));
const high = get("high").textContent;
get("step").value = get("step").max;
get("step").dispatchEvent(new Event("input"));
const why = get("why").hidden ? "" : get("why").textContent;
get("play").click();
await pause(1500);
const canvas = document.querySelector("#pattern canvas");
const pixels = new Set(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data);
return { open, chosen, why, reading, tokens, label, moved, focus, row, high, title: document.title, cells: last.length,
  played: get("step-label").textContent, changed: last.filter((shade, i) => shade !== begin[i]).length,
  axis: get("plot-last").textContent, plot: get("plot-title").textContent, corner: get("map").textContent.slice(0, 5),
  scripts: document.scripts.length, images: document.images.length, tones: pixels.size,
  lines: [...document.querySelectorAll("#plot path")].filter((path) => path.getAttribute("d").includes("L")).length,
  marks: [...document.querySelectorAll("#plot line.mark")].map((mark) => mark.textContent),
  loss: [get("loss-high").textContent, get("loss-low").textContent],
  height: document.querySelector("#plot path.loss").getBBox().height,
  reachable: ["a", "summary", "select", "input", "button", "#pattern"]
    .every((name) => document.querySelector(name).tabIndex >= 0),
};
"""


@pytest.fixture(scope="module")
def watched() -> xr.Dataset:
    """Two layers of three heads over twelve snapshots and a missing one; a head collapses, others find their token."""
    noise = np.random.default_rng(0).normal(size=(2, 3, LENGTH, LENGTH))
    patterns = []
    for snapshot in range(12):
        weights = softmax(0.1 * snapshot * noise)
        weights[1, 1] = anywhere(LENGTH, min(0.99, snapshot / 10), np.random.default_rng(1))
        weights[0, 2] = first(LENGTH, 0.08 * snapshot)
        weights[0, 0] = previous(LENGTH, 0.08 * snapshot)
        patterns.append(weights)
    snapshots = series(patterns)
    whole = join([snapshots, missing(snapshots, 600, "out of memory on <cuda:0>")])
    whole["loss"] = ("step", [4.22 - 0.001 * i if i else np.nan for i in range(13)])
    names = [HOSTILE[i % len(HOSTILE)] for i in range(LENGTH)]
    return whole.assign_coords(token=("row", names)).assign_attrs(model="GPT<2>")


@pytest.mark.parametrize("width", [390, 1280])
def test_it_works_in_a_browser(watched: xr.Dataset, browser: Any, tmp_path, width: int) -> None:
    """Slider, keys, choice of quantity and play; tokens stay text, also those that would be code."""
    report = in_browser(browser, render_watch(watched), PROBE, tmp_path, width, dark=width == 390)
    assert report["open"][0] == "alarm: 1 head is collapsed"
    assert report["chosen"] == "layer 1, head 1"  # the most pressing
    assert re.match(r"At step 550, token 19 ␣the attends to .* 99%", report["reading"])
    assert report["tokens"][:4] == [HOSTILE[0].replace(" ", "␣"), HOSTILE[1].replace(" ", "␣"), "↵", "␣the"]
    assert report["tokens"][4] == "�evil"
    assert report["title"] == "Attention of GPT<2>"
    assert report["scripts"] == 2
    assert report["images"] == 0
    assert report["label"] == "step 0"
    assert report["changed"] == report["cells"] == 6
    assert report["lines"] == 7  # with the loss
    assert report["loss"] == ["loss 4.32", "4.11"]  # 5% of the mean at least
    assert 40 < report["height"] < 60  # of 970: 0.011 of at least 5% of 4.2
    assert "collapsed from step 500" in report["marks"]
    assert report["moved"] == "layer 0, head 2"
    assert report["focus"].startswith("layer 0, head 2:")
    assert report["row"].startswith("At step 0, token 18")
    assert float(report["high"]) > 1
    assert report["played"] not in ("step 0", "")
    assert report["tones"] > 4
    assert report["reachable"]
    assert (report["axis"], report["corner"]) == ("step 600", "head0")  # with a gap at the end
    assert report["plot"].startswith("effective keys: ")
    assert "At step 600 the snapshot is missing, whole or in part: out of memory on <cuda:0>" in report["why"]


def test_it_opens_on_the_most_pressing_head(watched: xr.Dataset, browser: Any, tmp_path) -> None:
    """On quantities in the order of `record`; many heads of a layer are one line; keys of other tokens have numbers."""
    ordered = watched.copy(deep=True).assign_attrs(options='{"record": ["effective_keys", "entropy"]}')
    ordered = ordered.assign_coords(attention_kind=("layer", ["causal", "cross"]))
    ordered["largest_logit"][:, 1] = 300.0
    shown = """await pause(500);
    const get = (id) => document.getElementById(id);
    return { chosen: get("chosen").textContent, plot: get("plot-title").textContent,
      names: [...get("quantity").options].slice(0, 2).map((option) => option.textContent),
      keys: [...document.querySelectorAll("#pattern .keys .token")].map((token) => token.textContent),
      first: document.querySelector("table.heads td").textContent };"""
    assert in_browser(browser, render_watch(ordered), shown, tmp_path, 390) == {
        "chosen": "layer 1, head 0",
        "plot": "normalized entropy: entropy of attention relative to the largest that its row allows",
        "names": ["effective keys", "entropy"],
        "keys": [str(i) for i in range(LENGTH)],
        "first": "layer 1, all 3 heads",
    }


def test_nothing_is_loaded_from_elsewhere(watched: xr.Dataset) -> None:
    text = render_watch(watched)
    page = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", page) == []
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert len(page) < 100_000
    assert "the snapshot at step 600, whole or in part: out of memory on &lt;cuda:0&gt;" in page
    assert "2 of 2 attention modules captured." in page
    assert "<img src=x" not in text
    assert "</script><script>document" not in text


def test_the_data_are_those_of_the_snapshots(watched: xr.Dataset) -> None:
    assert "<p>All attention on one key in each row, a key that no other verdict names.</p>" in render_watch(watched)
    data = page_data(watched, by_kind(watched)["collapsed"])
    assert data["steps"] == list(range(0, 601, 50))  # with the missing one
    assert data["loss"] == [None, *(4.22 - 0.001 * i for i in range(1, 13))]
    assert data["marks"] == [{"step": 500, "severity": "alarm", "head": "1,1", "name": "collapsed"}]
    assert (data["last"], data["reasons"][-1]) == (11, "out of memory on <cuda:0>")
    values = np.frombuffer(zlib.decompress(base64.b64decode(data["values"])), "<f4").reshape(-1, 13, 2, 3)
    for i, quantity in enumerate(data["quantities"]):
        expected = watched[quantity["name"]].values
        assert np.allclose(values[i], expected, rtol=1e-6, equal_nan=True)
    weights = np.frombuffer(zlib.decompress(base64.b64decode(data["pattern"]["weights"])), np.uint8)
    shown = weights.reshape(12, 2, 3, LENGTH, LENGTH) / 255
    assert np.abs(shown - watched["pattern"].values[:12]).max() < 0.002  # half of 1/255


def test_many_snapshots_are_thinned(watched: xr.Dataset, monkeypatch) -> None:
    """Evenly, with the first and the last; the page stays small."""
    monkeypatch.setattr(watch_page, "MAX_SNAPSHOTS", 5)
    monkeypatch.setattr(watch_page, "PATTERN_CELLS", 3 * 6 * LENGTH**2)
    data = page_data(watched, [])
    assert data["steps"] == [0, 150, 300, 450, 600]
    assert data["pattern"]["snapshots"] == [0, 2, 3]


def test_refusals(watched: xr.Dataset, tmp_path) -> None:
    with pytest.raises(ss.InputError, match=r"ends in \.html"):
        write_watch_page(tmp_path / "page.txt", watched)
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(ss.StoreError, match="did not write"):
        write_watch_page(tmp_path / "mine.html", watched)
    with pytest.raises(ss.InputError, match=r"dataset is int: give a Dataset, such as watch\.dataset"):
        write_watch_page(tmp_path / "page.html", 1)  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="no snapshots yet"):
        write_watch_page(tmp_path / "page.html", watched.isel(step=slice(0)))
    write_watch_page(tmp_path / "page.html", watched)
    write_watch_page(tmp_path / "page.html", watched.drop_vars("pattern"))
