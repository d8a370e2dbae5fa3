"""The page: complete, self-contained, and alive in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.figures import catalog, fig_7
from scansnap.report.page import reproduce
from scansnap.report.scrubber import scrubber_data
from tests.browser import in_browser, needs_browser

PROBE = """
const slider = document.getElementById("step");
const heights = () => [...document.querySelectorAll("#scrubber rect")].map((bar) => bar.getAttribute("height"));
const before = heights();
slider.value = slider.max;
slider.dispatchEvent(new Event("input"));
const after = heights();
return {
  label: document.getElementById("step-label").textContent, bars: after.length,
  moved: after.filter((height, i) => height !== before[i]).length,
  images: [...document.images].every((image) => image.naturalWidth > 100),
};
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A page with two quick figures and three claims, one of each verdict."""
    steps: list[str] = []
    folder = tmp_path_factory.mktemp("page")
    quick = ["lemma_6", "theorem_1", "remark_1"]
    page = reproduce(folder, figures=["8", "9"], claims=quick, on_step=lambda what, share: steps.append(what))
    assert steps == ["figure 8", "figure 9", "claims", "the page", "done"]
    return page


def test_a_text_brings_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    quick = replace(catalog.recipe("7"), prepare=partial(fig_7.prepare, steps=4, folder=None))
    page = reproduce(tmp_path / "page", figures=[quick], claims=["lemma_6"], text="example")
    assert "Attention of the first layer on text while it trains" in page.read_text()
    assert (tmp_path / "page" / "figure_7.pdf").exists()


def test_it_has_everything(page: Path) -> None:
    text = page.read_text()
    for needed in (
        "Figure 8",
        "Figure 9",
        "theorem_1",
        "holds under its assumptions only",
        "|lambda_1|",
        "version numpy",
    ):
        assert needed in text
    assert {path.name for path in page.parent.iterdir()} == {
        "index.html", "figure_8.png", "figure_8.pdf", "figure_9.png", "figure_9.pdf"
    }  # fmt: skip
    for category in ("sharpened", "fails under true SGD", "error"):  # of the three claims
        assert f"<td>{category}</td>" in text


def test_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.read_text())
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", text) == []
    assert "url(" not in text
    assert "fetch(" not in text
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_it_works_in_a_browser(page: Path, tmp_path: Path, width: int) -> None:
    """At phone and desk width: no errors, nothing loaded, nothing wider than the screen, and a slider that works."""
    report = in_browser(page.read_text(), PROBE, tmp_path, width)
    assert report["images"]
    assert report["label"] == "step 100"
    assert report["bars"] == 80
    assert report["moved"] >= 70  # rounded to four digits, a bar may end where it began


def test_the_slider_s_data_are_attention() -> None:
    data = scrubber_data()
    assert len(data["steps"]) == 101
    assert len(data["panels"]) == 4
    for panel in data["panels"]:
        assert all(abs(sum(row) - 1) < 0.005 for row in panel["attention"])
        assert panel["distinct"] == [False] * 10 + [True] * 10
        common = sum(panel["attention"][-1][:10])
        assert common < sum(panel["attention"][0][:10])
    assert data["most"] <= 1


def test_refusals(tmp_path) -> None:
    with pytest.raises(ss.InputError, match="unknown figure '66': did you mean '6'"):
        reproduce(tmp_path / "new", figures=["66"])
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ss.StoreError, match="cannot write to"):
        reproduce(tmp_path / "file" / "page", figures=["8"])


def test_nothing_of_others_is_overwritten(tmp_path) -> None:
    (tmp_path / "index.html").write_text("not ours")
    with pytest.raises(ss.StoreError, match="files that scansnap did not write"):
        reproduce(tmp_path, figures=["8"], claims=["lemma_6"])
    assert (tmp_path / "index.html").read_text() == "not ours"
    first = reproduce(tmp_path / "page", figures=["9"], claims=["lemma_6"]).read_text()
    again = reproduce(tmp_path / "page", figures=["9"], claims=["lemma_8"]).read_text()
    assert "lemma_6" in first
    assert "lemma_6" not in again
