"""The page: true, complete, self-contained, and for everybody, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from stored_numbers import read_reproduction, store_reproduction

import scansnap as ss
from scansnap.claims.claim import Verdict
from scansnap.figures import catalog
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.report import html
from scansnap.report.claims_page import short_name
from scansnap.report.reproduce import Link, render, reproduce
from scansnap.report.reproduction import PageFigure, Reproduction, headline
from tests.browser import in_browser, opened_pages
from tests.explorer.test_page_looks import AXE, violations

EVIL = "<script>alert('x')</script> \u202e $\\frac{"


def quick_recipe(name: str = "quick", *, holds: bool = True, words: str = "It grows.") -> FigureRecipe:
    """A figure of one line."""

    def draw(dataset: xr.Dataset) -> Figure:
        figure = Figure(figsize=(4, 3))
        figure.add_subplot().plot(dataset["line"])
        return figure

    return FigureRecipe(
        name=name,
        title=words,
        statement=words,
        setting=words,
        draw=draw,
        prepare=lambda: xr.Dataset({"line": ("x", np.arange(3.0))}),
        trends=lambda dataset: [Trend(words, "above 0", 1.0, None, None, holds=holds, note=words)],
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A page with a quick figure and three quick claims."""
    folder = tmp_path_factory.mktemp("page")
    return reproduce(folder, figures=[quick_recipe()], claims=["lemma_6", "lemma_13", "remark_3_order"])


@cache
def kept() -> Reproduction:
    """All figures and claims, as the documents have them."""
    return read_reproduction()


@cache
def blank(width: int = 900, height: int = 560) -> str:
    figure = Figure(figsize=(width / 130, height / 130))
    return html.png(figure)


def blanks(reproduction: Reproduction) -> dict[str, str]:
    names = [figure.anchor for figure in reproduction.figures] + [verdict.id for verdict in reproduction.verdicts]
    return dict.fromkeys(names, blank())


@cache
def whole_page() -> str:
    return render(kept(), blanks(kept()), {"theorem_4": [Link("disagreement 6", "../disagreements.html#entry-6")]})


def test_a_text_brings_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    given: list[tuple[Any, str]] = []

    def prepare(text: Any, device: str) -> xr.Dataset:
        given.append((text, device))
        return xr.Dataset({"line": ("x", np.arange(3.0))}, attrs={"options": "{}"})

    page = reproduce(
        tmp_path / "page", figures=[replace(quick_recipe(), prepare=prepare)], claims=["lemma_6"], text="example"
    )
    ((text, device),) = given
    assert text.fingerprint == ss.read_corpus("example").fingerprint
    assert device == "cpu"
    assert "beyond the paper, 1 figure" in page.read_text()
    assert (tmp_path / "page" / "figure_quick.pdf").exists()


def test_it_has_everything(page: Path) -> None:
    text = page.read_text()
    for needed in ("Quick: It grows.", "lemma_13", "fails", "scansnap reproduce", "version numpy", "<math>"):
        assert needed in text
    assert {path.name for path in page.parent.iterdir()} == {"index.html", "figure_quick.png", "figure_quick.pdf"}
    for category in ("sharpened", "holds", "misprint"):  # of the three claims
        assert f"<dd>{category}</dd>" in text
    assert text.count("data:image/png;base64,") == 4


def test_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.read_text())
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", text) == []
    assert not re.search(r"url\((?!#)", text)
    assert "fetch(" not in text
    assert set(re.findall(r"https?://[^\s\"'<&]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_links_arrive() -> None:
    text = re.sub(r'srcdoc="[^"]*"', "", whole_page())
    anchors = re.findall(r'\bid="([^"]+)"', text)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(anchors)
    assert '<a href="../disagreements.html#entry-6" target="_top">disagreement 6</a>' in text
    (card,) = re.findall(r'<details class="claim" id="theorem_1_b">.*?</details>', text, re.DOTALL)
    assert '<a href="#lemma_9">Lemma 9</a>' in card
    assert '<a href="#lemma_9">Eq. 57</a>' in card
    assert "predicted <b>" in card


def of(*verdicts: Verdict, figures: tuple[PageFigure, ...] = ()) -> Reproduction:
    return Reproduction(figures, verdicts, 1.0, "test")


def turned(verdict: Verdict, **holds: bool) -> Verdict:
    """A verdict whose measurements in some roles hold or not."""
    changed = (replace(each, holds=holds.get(each.role, each.holds)) for each in verdict.measurements)
    return replace(verdict, measurements=tuple(changed))


def counts(numbers: Mapping[str, int]) -> dict[str, int]:
    return {word: count for word, count in numbers.items() if count}


def test_the_headline_says_what_was_found() -> None:
    """The same claims with other outcomes make other headlines."""
    by_id = {verdict.id: verdict for verdict in kept().verdicts}
    theorem, misprint = by_id["theorem_2"], by_id["remark_3_order"]
    as_found = headline(of(theorem, misprint))
    assert counts(as_found.claims) == {theorem.verdict: 1, "fails": 1}
    assert {word: [each.id for each in group] for word, group in as_found.theorems.items()} == {
        theorem.verdict: ["theorem_2"]
    }
    assert {category: [each.id for each in group] for category, group in as_found.failing.items()} == {
        "misprint": ["remark_3_order"]
    }
    assert as_found.mended == 1
    assert headline(of(turned(misprint, corrected=False))).mended == 0
    better = headline(of(turned(theorem, assumed=True, beyond=True), turned(misprint, assumed=True, beyond=True)))
    assert counts(better.claims) == {"holds": 2}
    assert not better.failing
    worse = headline(of(turned(theorem, assumed=False)))
    assert list(worse.theorems) == ["fails"]


def test_plain_questions_are_answered_by_what_was_found() -> None:
    figure = next(figure for figure in kept().figures if figure.recipe.name == "2")
    answers = dict(headline(of(*kept().verdicts, figures=(figure,))).answers)
    assert answers["Does attention scan?"].startswith("Yes: ")
    assert answers["Does it slow down?"].startswith("Yes: ")
    assert answers["Does it freeze?"].startswith("That depends on ")
    assert answers["Does it get as far as the paper says?"].startswith("No: ")
    turned_round = replace(figure, trends=[replace(trend, holds=not trend.holds) for trend in figure.trends])
    others = dict(headline(of(figures=(turned_round,))).answers)
    assert list(others) == list(answers)[:3]  # no claim, no answer
    assert [answer.split(":")[0] for answer in others.values()] == ["Not as stated", "No", "Yes"]


def test_pictures_that_matter_are_described_with_what_fails() -> None:
    scan = headline(kept()).highlights[0]
    assert "Does not hold here: " in scan.alt_text
    assert scan.alt_text.endswith("Past t₀ the pattern is all but frozen.")
    names = [short_name(verdict.claim) for verdict in kept().verdicts if verdict.id.startswith(("theorem", "cor"))]
    assert len(set(names)) == len(names)


def test_the_headline_of_a_part_says_that_it_is_one() -> None:
    figures = {figure.recipe.name: figure for figure in kept().figures}
    ours = replace(figures["11"], recipe=quick_recipe())  # with a test that fails
    some = headline(of(figures=(figures["9"], figures["11"], ours)))
    assert some.reproduced == "2 of 9 synthetic figures; beyond the paper, 1 figure"
    assert some.highlights == []
    assert [figure.recipe.name for figure in some.doubtful] == ["11"]  # what we say is no failure of the paper
    whole = headline(kept())
    assert re.fullmatch(
        r"all 9 synthetic figures and all \d+ statements that scansnap checks; beyond the paper, "
        r"\d statements",
        whole.reproduced,
    )
    assert [highlight.picture for highlight in whole.highlights] == ["figure-2", "figure-3", "figure-6"]
    claims_alone = headline(of(*kept().verdicts))
    assert [highlight.picture for highlight in claims_alone.highlights] == ["theorem_2", "theorem_4", "section_6_a"]
    assert headline(of()).reproduced == "nothing"
    assert "put to the test" in render(of(), {})
    assert "<img" not in re.sub(r'srcdoc="[^"]*"', "", render(kept(), {}))  # pictures may be missing


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    (verdict,) = ss.verify("lemma_6")
    broken = replace(verdict, measurements=(replace(verdict.measurements[0], predicted=np.inf, measured=1 / 3),))
    recipe = catalog.recipe("9")
    trends = (Trend("It grows.", "above 0", np.nan, None, 0.5, holds=False, note="none", settled=False),)
    found = Reproduction([PageFigure(recipe, trends, 1.5)], [broken], 2.0, "test", {"commit": "x"})
    store_reproduction(found, tmp_path / "kept.json")
    again = read_reproduction(tmp_path / "kept.json")
    (measurement,) = again.verdicts[0].measurements
    assert np.isnan(measurement.predicted)
    assert measurement.measured == pytest.approx(1 / 3, rel=1e-7)
    kept_digits = {name: vars(broken.measurements[0])[name] for name in ("predicted", "measured", "deviation")}
    assert replace(measurement, **kept_digits) == broken.measurements[0]
    assert again.figures[0].trends[0].verdict == "not settled"
    assert again.environment == {"commit": "x"}


def test_texts_are_escaped(tmp_path: Path) -> None:
    """Words of a user's own figure stay words."""
    page = reproduce(tmp_path, figures=[quick_recipe(words=EVIL)], claims=["lemma_6"])
    text = re.sub(r'srcdoc="[^"]*"', "", page.read_text())
    assert text.count("<script") == 1  # the page's own
    assert text.count("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; \\u202e") >= 4


@pytest.mark.parametrize("width", [390, 1280])
def test_it_works_in_a_browser(page: Path, browser: Any, width: int) -> None:
    """At phone and desk width: no errors, nothing loaded, nothing too wide, and an explorer that trains."""
    with opened_pages(browser) as opened:
        view = opened(page.as_uri(), width=width)
        view.locator("#explorer").scroll_into_view_if_needed()  # what is out of sight does not play
        view.frame_locator("#explorer").locator("#count", has_text=re.compile("Step [1-9]")).wait_for()
        assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
        assert view.evaluate("[...document.images].every((image) => image.naturalWidth > 100)")


PROBE = """
    document.getElementById("explorer").remove();  // it has tests of its own
    const height = document.documentElement.scrollHeight;
    location.hash = "#theorem_4";  // in a group and folded
    await pause(400);
    const card = document.getElementById("theorem_4");
    const arrived = card.open && Math.abs(card.getBoundingClientRect().top) < 200;
    const marked = [...document.querySelectorAll("nav a[aria-current]")].map((link) => link.textContent);
    document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
    await pause(200);
    const fits = [...document.querySelectorAll("main img, main table, main math")].filter(
        (part) => part.getBoundingClientRect().right > innerWidth + 1).map((part) => part.outerHTML.slice(-80));
    return {height, arrived, marked, fits, math: document.querySelector("math").getBoundingClientRect().width};
"""


@pytest.mark.parametrize(("width", "dark", "longest"), [(390, True, 12_000), (1280, False, 12_000)])
def test_all_of_it_fits_a_phone_and_a_desk(
    browser: Any, tmp_path: Path, width: int, dark: bool, longest: float
) -> None:
    report = in_browser(browser, whole_page(), PROBE, tmp_path, width, dark=dark)
    assert report["arrived"]
    assert report["marked"] == ["Fails", "Fails"]
    assert report["fits"] == []
    assert report["height"] < longest
    assert report["math"] > 10


def test_print_and_no_script(browser: Any, tmp_path: Path) -> None:
    """Without scripts the contents lead on and pictures can be enlarged; on paper every fold is open."""
    (tmp_path / "page.html").write_text(whole_page())
    view = browser.new_page(viewport={"width": 390, "height": 900}, java_script_enabled=False)
    view.goto((tmp_path / "page.html").as_uri())
    view.locator(".contents summary").click()
    view.locator(".contents a", has_text="Figure 6").click()
    assert abs(view.locator("#figure-6").bounding_box()["y"]) < 200
    before = view.locator("#picture-figure-6 img").bounding_box()["width"]
    view.locator("#picture-figure-6 .enlarge").click()
    assert before <= 390 < view.locator("#picture-figure-6 img").bounding_box()["width"]
    view.emulate_media(media="print")
    assert view.locator("#lemma_6 table").bounding_box()["height"] > 20
    view.close()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run `npm ci` in web/")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, tmp_path: Path, scheme: str) -> None:
    chosen = ("theorem_2", "theorem_4", "corollary_2", "lemma_6")  # every verdict
    part = replace(
        kept(), figures=kept().figures[:2], verdicts=[verdict for verdict in kept().verdicts if verdict.id in chosen]
    )
    text = re.sub(r"<iframe.*?</iframe>", "", render(part, blanks(part)), flags=re.DOTALL)
    (tmp_path / "page.html").write_text(text)
    view = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    view.goto((tmp_path / "page.html").as_uri())
    view.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    assert violations(view) == []
    view.close()


def test_refusals(tmp_path) -> None:
    with pytest.raises(ss.InputError, match="unknown figure '66': choose one of 2, 3"):
        reproduce(tmp_path / "new", figures=["66"])
    with pytest.raises(ss.InputError, match="unknown claim 'lemma_66'"):
        reproduce(tmp_path / "new", figures=["9"], claims=["lemma_66"])
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ss.StoreError, match="cannot write to"):
        reproduce(tmp_path / "file" / "page", figures=["8"])


def test_nothing_of_others_is_overwritten(tmp_path) -> None:
    (tmp_path / "index.html").write_text("not ours")
    with pytest.raises(ss.StoreError, match=r"index\.html is a file that scansnap did not write"):
        reproduce(tmp_path, figures=["8"], claims=["lemma_6"])
    assert (tmp_path / "index.html").read_text() == "not ours"
    first = reproduce(tmp_path / "page", figures=[quick_recipe()], claims=["lemma_6"]).read_text()
    again = reproduce(tmp_path / "page", figures=[quick_recipe()], claims=["lemma_13"]).read_text()
    assert "lemma_6" in first
    assert "lemma_6" not in again
