"""The page of shortcuts: complete, self-contained, and safe from what words are called."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from scansnap.report import html
from scansnap.report.shortcuts_page import draw_features, render_shortcuts, visible, write_shortcuts_page
from tests.browser import in_browser
from tests.shortcuts.labeled_rows import rows

HOSTILE = (
    "</title><script>document.title='taken'</script>",
    "<img src=x onerror=alert(1)>",
    "\u202eevil",
    "{{ 7*7 }}",
    "&lt;b&gt;",
    "x" * 500,
)


@pytest.fixture(scope="module")
def result() -> ss.Shortcuts:
    content = [*rows(500, magic=(60, 1.0), other=(200, 0.8)), {"text": "lost", "label": ""}]
    plain = ss.shortcuts(content, text="text", label="label", test=rows(100), attention=True, updates=60, vocabulary=60)
    words = [finding.feature for finding in plain.findings if finding.kind == "word"]
    names = dict(zip(words, HOSTILE, strict=False))
    return replace(
        plain,
        source=HOSTILE[1],
        findings=tuple(
            replace(finding, feature=names.get(finding.feature, finding.feature), examples=HOSTILE)
            for finding in plain.findings
        ),
        labels={HOSTILE[1]: 3, **plain.labels},
    )


PROBE = """
return { title: document.title, scripts: document.scripts.length, images: document.images.length,
  words: [...document.querySelectorAll(".word")].map((word) => word.textContent),
  drawn: [...document.images].every((image) => image.naturalWidth > 100),
  alive: [...document.querySelectorAll("*")].filter((element) => element.getAttribute("onerror")).length,
  links: [...document.querySelectorAll("nav a")].every((link) => document.querySelector(link.getAttribute("href"))) };
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_it_shows_words_as_text(result: ss.Shortcuts, browser: Any, tmp_path: Path, width: int) -> None:
    report = in_browser(browser, render_shortcuts(result), PROBE, tmp_path, width, dark=width == 390)
    assert report["title"] == f"Shortcuts in {HOSTILE[1]}"
    assert (report["scripts"], report["images"], report["alive"]) == (0, 1, 0)
    assert report["drawn"]
    assert report["words"][:2] == [visible(HOSTILE[0]), HOSTILE[1]]
    assert report["links"]


def test_pictures_have_every_feature_and_its_name_as_text(result: ss.Shortcuts) -> None:
    """Also names that matplotlib's own font cannot show, or would take for mathematics."""
    first = replace(result.findings[0], feature="日本 $\\frac{")
    renamed = replace(result, findings=(first, *result.findings[1:]))
    figure = draw_features(renamed)
    unproven, shortcuts, _ = figure.axes[0].lines
    assert len(unproven.get_xdata()) + len(shortcuts.get_xdata()) == len(result.findings)
    assert (shortcuts.get_xdata()[0], shortcuts.get_ydata()[0]) == (first.texts, first.z)
    assert "日本 $\\frac{" in base64.b64decode(html.svg(figure)).decode()


def test_nothing_is_loaded_from_elsewhere(result: ss.Shortcuts) -> None:
    page = render_shortcuts(result)
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", page) == []
    assert "<script" not in page
    assert "\u202e" not in page
    assert "49" not in [finding.feature for finding in result.findings]


def test_pages_with_nothing_to_show(result: ss.Shortcuts, tmp_path: Path) -> None:
    empty = replace(result, findings=(), options=replace(result.options, attention=False), second=None)
    write_shortcuts_page(tmp_path / "page.html", empty)
    assert "Attention" not in (tmp_path / "page.html").read_text()
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(ss.StoreError, match="did not write"):
        write_shortcuts_page(tmp_path / "mine.html", result)


def test_words_are_visible() -> None:
    assert visible("\u202eevil\n") == "�evil�"
    assert visible("日本") == "日本"
    assert len(visible("x" * 100)) == 40
