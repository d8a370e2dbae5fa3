"""The page on phones and large screens, with a keyboard, a screen reader, and in dark and light."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scansnap.explorer.page import page_of
from tests.explorer.conftest import EXPLORER, Open, wait_for_step, wait_for_text

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
SHOWN = "#classes=syn-medium-3&lr_y=2&momentum=0.9&init=uniform&theory=both&steps=50&step=50"


def test_the_page_is_one_small_file() -> None:
    assert EXPLORER.stat().st_size < 400_000
    text = EXPLORER.read_text(encoding="utf-8")
    shell = re.sub("<script>.*</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"(?:src|href)=\"([^\"]*)", shell) == ["data:,"]  # the icon: nothing is loaded from anywhere


@pytest.mark.parametrize("width", [360, 768, 1280, 3840])
def test_nothing_runs_out_of_the_page(open_page: Open, width: int) -> None:
    page = open_page(SHOWN, width=width, height=800)
    wait_for_step(page, 50)
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    play = page.locator("#play").bounding_box()
    assert 0 <= play["y"] <= 800 - play["height"]  # always in reach
    assert min(play["width"], play["height"]) >= 40
    first = page.locator(".panel canvas >> nth=0").bounding_box()
    assert first["y"] < 500  # the main picture is seen without scrolling
    assert first["width"] > 0.85 * width if width < 700 else first["width"] > 0.15 * width


def test_a_frame_in_a_page_shows_the_tour_the_rates_and_a_picture(open_page: Open, tmp_path: Path) -> None:
    page = open_page("#classes=words", width=720, height=720)
    (tmp_path / "embedded.html").write_text(page_of("", "embedded"))
    page.goto((tmp_path / "embedded.html").as_uri())
    for shown in ("#tour-button", "#option-lr_y", "#option-lr_z", "#option-momentum", ".panel canvas >> nth=0"):
        box = page.locator(shown).bounding_box()
        assert 0 <= box["y"] <= box["y"] + box["height"] <= 720, shown


def violations(page: Any) -> list[str]:
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:120]}"
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run `npm ci` in web/")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Open, scheme: str) -> None:
    page = open_page(SHOWN, color_scheme=scheme)
    wait_for_step(page, 50)
    page.click("#tour-button")
    page.click(".answers button >> nth=0")
    page.fill("#option-lr_y", "no number")
    page.press("#option-lr_y", "Enter")
    page.wait_for_selector(".messages.on")
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.click("text=Compute the map")
    page.wait_for_selector("#map")
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_timeout(100)
    assert violations(page) == []


REACHABLE = """[...document.querySelectorAll("button, select, input, textarea, summary, [role=slider], #map")]
    .filter(part => !part.disabled && part.checkVisibility())"""


def test_all_can_be_reached_with_the_keyboard(open_page: Open) -> None:
    page = open_page("#classes=syn-small&steps=1000")
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    for _ in range(page.evaluate(f"{REACHABLE}.length") + 40):
        page.keyboard.press("Tab")
        page.evaluate("document.activeElement.dataset.reached = 'yes'")
    left = f"{REACHABLE}.filter(part => !part.dataset.reached).map(part => part.outerHTML.slice(0, 80))"
    assert page.evaluate(left) == []
    page.focus("#play")
    page.keyboard.press("Enter")
    wait_for_text(page, "#play", "Pause")
    page.keyboard.press("r")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    wait_for_text(page, "#play", "Play")


def test_controls_explain_themselves(open_page: Open) -> None:
    page = open_page()
    page.hover("label:has-text('Attention rate')")
    wait_for_text(page, ".tip", "which words to look at")
    described = page.eval_on_selector_all(
        "aside input:not([type=file]):not(#alike):not([id^=none]), aside .control select",
        """parts => parts.filter(part => part.type !== 'range')
            .map(part => [part.id, document.getElementById(part.getAttribute('aria-describedby'))?.textContent])""",
    )
    assert len(described) >= 15
    assert all(len(words or "") > 20 for _, words in described), described


def test_dark_and_light(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    light = page.evaluate(background)
    assert dark == "rgb(20, 25, 31)"
    assert light == "rgb(255, 255, 255)"


def test_colors_are_told_apart_without_color(open_page: Open) -> None:
    """Seen by someone without red cones (Viénot's matrix), the two kinds of bars differ in lightness and shape."""
    page = open_page()
    colors = page.evaluate(
        "['--distinct', '--common'].map(name => getComputedStyle(document.documentElement).getPropertyValue(name))"
    )
    seen = []
    for color in colors:
        red, green, blue = (int(color.strip()[i : i + 2], 16) for i in (1, 3, 5))
        mixed = 0.11238 * red + 0.88762 * green
        seen.append((mixed, 0.00401 * red - 0.00401 * green + blue))
    assert max(abs(a - b) for a, b in zip(*seen, strict=True)) > 60
