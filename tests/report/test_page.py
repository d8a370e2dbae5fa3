"""The page: complete, self-contained, and alive in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from scansnap.figures import catalog, fig_7
from scansnap.report.page import reproduce


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
    assert not re.search(r"url\((?!#)", text)
    assert "fetch(" not in text
    assert set(re.findall(r"https?://[^\s\"'<&]+", text)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("width", [390, 1280])
def test_it_works_in_a_browser(page: Path, browser: Any, width: int) -> None:
    """At phone and desk width: no errors, nothing loaded, nothing too wide, and an explorer that trains."""
    problems, loaded = [], []
    view = browser.new_page(viewport={"width": width, "height": 900})
    view.on("pageerror", lambda error: problems.append(str(error)))
    view.on("console", lambda said: said.type == "error" and problems.append(said.text))
    view.on("request", lambda request: loaded.append(request.url))
    view.goto(page.as_uri())
    view.locator("#explorer").scroll_into_view_if_needed()  # what is out of sight does not play
    view.frame_locator("#explorer").locator("#count", has_text=re.compile("Step [1-9]")).wait_for()
    assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert view.evaluate("[...document.images].every((image) => image.naturalWidth > 100)")
    assert problems == []
    assert [url for url in loaded if url != page.as_uri() and not url.startswith(("blob:", "data:", "about:"))] == []
    view.close()


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
