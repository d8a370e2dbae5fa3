"""The documentation site, as `make docs` built it: complete, live, without a network, for everybody."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _site.mathml import typeset

from scansnap import HEAD_VERDICTS
from tests.browser import REQUIRED, Open, opened_pages
from tests.explorer.test_page_looks import AXE

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
MAIN = [
    "index",
    "gallery",
    "tutorials/ten_minutes",
    "explore",
    "theory/phases",
    "reference/training",
    "reference/commands",
]

pytestmark = pytest.mark.skipif(
    not (REQUIRED or (SITE / "index.html").exists()), reason="the site is not built: run `make docs`"
)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open a page of the site from its file."""
    with opened_pages(browser) as opened:
        yield lambda name, *, query="", **options: opened(
            (SITE / f"{name}.html").as_uri() + query, files=True, **{"reduced_motion": "reduce", **options}
        )


def test_every_document_is_a_page() -> None:
    documents = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in documents if not (SITE / page).with_suffix(".html").exists()] == []


def test_what_was_found_is_in_the_pages() -> None:
    """The text and the picture of a mark in the source."""
    page = (SITE / "theory" / "decoder.html").read_text(encoding="utf-8")
    assert "scansnap verify lemma_12: holds" in re.sub(r"<[^>]*>", "", page)
    assert "lemma_12.png" in page


def test_the_reference_has_types_that_readers_know() -> None:
    """Not how arguments are checked, nor what NumPy and typing call things inside."""
    for page in (SITE / "reference").glob("*.html"):
        text = html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))
        internal = r"Annotated|_Buffer|Kind\(|ForwardRef|<function|<factory>|lr_y: Rates|seeds: Seeds|init: Init"
        assert re.findall(internal, text) == [], page.name


def test_the_reference_says_of_each_verdict_what_it_means() -> None:
    text = html.unescape(re.sub(r"<[^>]*>", "", (SITE / "reference" / "watching.html").read_text(encoding="utf-8")))
    for name in HEAD_VERDICTS:
        said = re.escape(HEAD_VERDICTS.member(name).meaning.split()[0])
        assert re.search(rf"{name}\s*: {said}", text), name


def test_no_page_loads_anything_from_elsewhere() -> None:
    """Links may go anywhere; scripts, styles, pictures and frames may not."""
    for page in SITE.rglob("*.html"):
        text = re.sub(r"<script>.*?</script>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for tag in re.findall(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*>", text):
            assert not re.search(r"""(?:src|srcset|href)=["']?(?:https?:)?//""", tag), (page, tag)
    for style in SITE.rglob("*.css"):
        assert not re.search(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", style.read_text(encoding="utf-8")), style


@pytest.mark.parametrize("name", ["explore", "tutorials/ten_minutes"])
def test_the_explorer_runs_in_the_page(open_page: Open, name: str) -> None:
    page = open_page(name, reduced_motion="no-preference")
    page.locator(".live iframe").scroll_into_view_if_needed()
    explorer = page.frame_locator(".live iframe")
    explorer.locator("#count", has_text="Step").wait_for()
    if "Pause" not in explorer.locator("#play").inner_text():
        explorer.locator("#play").click()
    explorer.locator("#count", has_text=re.compile(r"Step [5-9]|Step \d\d")).wait_for()
    explorer.locator("body", has_text=re.compile("Scanning|Snapping|Snapped")).wait_for()


def test_the_reproduction_is_there(open_page: Open) -> None:
    page = open_page("reproduction")
    page.locator(".live iframe").scroll_into_view_if_needed()
    page.frame_locator(".live iframe").locator("h1").first.wait_for()


def test_links_of_the_reproduction_arrive() -> None:
    """Each claim's section of the theory, and the entries of the disagreements."""
    text = (SITE / "reproduction" / "index.html").read_text(encoding="utf-8")
    links = set(re.findall(r'href="\.\./([^"#]+)#([^"]+)"', text))
    assert len(links) > 100
    assert [(page, place) for page, place in links if f'id="{place}"' not in (SITE / page).read_text("utf-8")] == []


def test_formulas_have_the_spaces_and_accents_of_tex() -> None:
    space = '<mspace width="0.17em" />'
    assert f"<mi>K</mi>{space}<mi>ln</mi>{space}<mi>M</mi>" in typeset(r"2K\ln M")
    assert "mspace" not in typeset(r"\ln(M)")
    assert 'lspace="0" rspace="0">/<' in typeset("1/M")
    index = re.sub(r"\s", "", typeset(r"\dot z_m"))
    assert re.search(r'<msub><moveraccent="true"><mi>z</mi><mo[^>]*>˙</mo></mover><mi>m</mi></msub>', index)
    pages = (page.read_text(encoding="utf-8") for page in SITE.rglob("*.html"))
    assert not any(re.search(r"<munderover>\s*<mi>[^<]*</mi><mi>", page) for page in pages)


def test_search_works_offline(open_page: Open) -> None:
    page = open_page("search", query="?q=snaps")
    page.locator("#search-results li a").first.wait_for()
    assert page.locator("#search-results li a", has_text="measure").count() > 0


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_for_everybody(open_page: Open, name: str, scheme: str) -> None:
    """Axe finds nothing serious, and nothing runs out of a phone; the explorer has tests of its own."""
    if not AXE.exists() and not REQUIRED:
        pytest.skip("axe-core is not installed: run `npm ci` in web/")
    page = open_page(name, width=390, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate(AXE.read_text())
    found = page.evaluate(
        "axe.run({exclude: [['iframe']]}, {resultTypes: ['violations'], preload: false, iframes: false})"
    )
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"][:120]) for each in serious] == []


def test_mathematics_is_typeset(open_page: Open) -> None:
    page = open_page("theory/phases")
    box = page.locator("math").first.bounding_box()
    assert box["width"] > 100
