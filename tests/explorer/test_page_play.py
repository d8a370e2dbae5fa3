"""Watching and changing a run in the browser."""

from __future__ import annotations

import csv
import math
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np

import scansnap as ss
from tests.explorer.conftest import Open, set_field, wait_for_address, wait_for_step, wait_for_text

SMALL = "#classes=syn-small&lr_y=1&lr_z=1&momentum=0.9&steps=100"


def test_something_moves_at_first_sight(open_page: Open) -> None:
    page = open_page(reduced_motion="no-preference")
    page.wait_for_function("Number(document.getElementById('count').textContent.slice(5)) >= 3")
    page.wait_for_function("document.querySelector('.leader').textContent.includes('dog')")
    page.wait_for_function("/scanning|snapp|slowed/i.test(document.getElementById('phase').textContent)")
    page.click("#play")
    wait_for_text(page, "#play", "Play")


def test_play_pause_step_reset_and_look_back(open_page: Open) -> None:
    page = open_page(SMALL)
    page.click("#step")
    wait_for_step(page, 1)
    page.keyboard.press("s")
    wait_for_step(page, 2)
    page.fill("#speed", "7")
    page.click("#play")
    wait_for_step(page, 100)
    wait_for_text(page, "#play", "Play")  # it stops at the end
    page.fill("#scrub", "40")
    wait_for_step(page, 40)
    page.click("#play")  # and goes on from the end to twice as far
    wait_for_step(page, 200)
    wait_for_address(page, "steps=200")
    page.click("#reset")
    wait_for_step(page, 0)
    page.keyboard.press("l")
    wait_for_address(page, "log=1")


OPTIONS = {
    "lr_y": "2.5",
    "lr_z": "0.5",
    "momentum": "0.5",
    "batch_size": "32",
    "seq_len": "64",
    "seeds": "7",
    "decoder_gradient": "modified",
    "optimizer": "adam",
    "init": "uniform",
    "normalization": "layer",
    "residual": "yes",
}


def test_every_control_changes_the_run(open_page: Open) -> None:
    page = open_page(SMALL)
    page.click("text=Batches, start, layer")
    for name, value in OPTIONS.items():
        selector = f"#option-{name}"
        kind = page.get_attribute(selector, "type")
        if kind == "checkbox":
            page.check(selector)
        elif page.evaluate("selector => document.querySelector(selector).tagName", selector) == "SELECT":
            page.select_option(selector, value)
        else:
            set_field(page, selector, value)
        wait_for_address(page, f"{name}={value}")
        page.click("#step")
        wait_for_step(page, 1)
        page.click("#reset")
        wait_for_step(page, 0)
    assert not page.query_selector(".messages.on")
    page.check("#none-batch_size")
    wait_for_address(page, "batch_size=none")
    page.check("#none-seq_len")
    wait_for_address(page, "seq_len=inf")
    page.fill("#range-lr_y_over_lr_z", "1")
    wait_for_address(page, "lr_y=5")  # ten times lr_z = 0.5
    page.fill("#range-lr_z", "0")
    wait_for_address(page, "lr_z=1")


def csv_of(page: Any) -> dict[str, np.ndarray]:
    if not page.is_visible("text=Copy the link"):
        page.click("summary:has-text('Take it away')")
    with page.expect_download() as download:
        page.click("button:text-is('CSV')")
    with Path(download.value.path()).open(newline="") as file:
        rows = list(csv.reader(file))
    return {name: np.array(column, float) for name, column in zip(rows[0], np.array(rows[1:]).T, strict=True)}


def test_the_lines_it_shows_give_its_numbers(open_page: Open) -> None:
    """In one setting; `test_files.py` runs the engine's lines in others."""
    page = open_page("#classes=syn-small&lr_y=1&lr_z=1&momentum=0.9&steps=60&step=60&seeds=3")
    wait_for_step(page, 60)
    numbers = csv_of(page)
    lines = page.text_content("#python")
    scope: dict[str, Any] = {}
    exec(lines.replace("print(", "str("), scope)
    result = scope["result"].isel(run=0, layer=0, head=0)
    np.testing.assert_allclose(numbers["loss"], result["loss"], rtol=1e-9)
    for column, values in numbers.items():
        of = re.fullmatch(r"attention of class (\d+) on (\d+)", column)
        if of:
            expected = result["attention"].isel({"class": int(of[1]) - 1}).sel(token=int(of[2]))
            np.testing.assert_allclose(values, expected, rtol=1e-9)
    flags = page.text_content("#command").split()
    assert flags[:4] == ["scansnap", "train", "--classes", "syn-small"]


def test_a_link_replays_what_was_changed_on_the_way(open_page: Open) -> None:
    page = open_page(SMALL + "&step=20")
    wait_for_step(page, 20)
    set_field(page, "#option-lr_y", "10")
    page.click("#step")
    wait_for_step(page, 21)
    page.select_option("#option-optimizer", "sign_sgd")
    for _ in range(4):
        page.click("#step")
    wait_for_step(page, 25)
    assert "changed at step 20" in page.text_content("#changed")
    wait_for_address(page, "changes=20:lr_y=10;21:optimizer=sign_sgd")
    wait_for_address(page, "step=25")
    first, link = csv_of(page), page.evaluate("location.hash")
    again = open_page(link)
    wait_for_step(again, 25)
    second = csv_of(again)
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
    # the controls show what holds now
    assert again.input_value("#option-lr_y") == "10"
    wait_for_address(again, "step=25")
    assert again.evaluate("location.hash") == link


def test_pictures_and_files_can_be_taken_away(open_page: Open, tmp_path: Path) -> None:
    page = open_page("#classes=words&lr_y=5&lr_z=10&momentum=0.9&steps=40&step=40&theory=both")
    wait_for_step(page, 40)
    page.click("summary:has-text('Take it away')")
    saved = {}
    for button in ("PNG", "SVG", "Classes file"):
        with page.expect_download() as download:
            page.click(f"button:text-is('{button}')")
        saved[button] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[button])
    assert saved["PNG"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    svg = ElementTree.parse(saved["SVG"]).getroot()
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "dog" in " ".join(text or "" for text in texts)
    classes = ss.read_classes(saved["Classes file"])
    assert list(classes.token_names[:2]) == ["the", "a"]
    page.set_input_files("#classes-file", str(saved["Classes file"]))  # and brought back
    page.wait_for_function("document.querySelector('.about').textContent.startsWith('Your own')")
    with page.expect_download() as download:
        page.click("button:text-is('Classes file')")
    assert tomllib.loads(Path(download.value.path()).read_text()) == tomllib.loads(saved["Classes file"].read_text())


def test_exported_steps_are_evenly_spaced(open_page: Open) -> None:
    page = open_page("#classes=words&lr_y=5&lr_z=10&optimizer=normalized_sgd&steps=700&step=700")
    wait_for_step(page, 700)
    steps = csv_of(page)["step"]
    assert len(steps) > 100
    assert set(np.diff(steps)) == {steps[1]}
    assert "Normalized SGD amplifies rounding" in page.text_content("main")


def test_theory_lies_over_what_is_measured(open_page: Open) -> None:
    page = open_page("#classes=single-common&lr_y=1&lr_z=0.5&batch_size=none&seq_len=inf&steps=300&log=1&step=300")
    wait_for_step(page, 300)
    assert page.is_hidden("canvas[aria-label^='Growth']")
    page.select_option("#theory", "both")
    page.wait_for_selector("canvas[aria-label^='Growth']")
    page.wait_for_selector("canvas[aria-label*='lead']")
    wait_for_text(page, ".leader", "as predicted")
    assert "true SGD" in page.text_content("section[aria-label^=Theory]")
    page.click("#keep")
    wait_for_text(page, "#keep", "Kept: decoder rate 1")


def test_the_tour_asks_and_then_plays(open_page: Open) -> None:
    page = open_page()
    page.click("#tour-button")
    for stop in range(1, 8):
        assert page.text_content(".tour h2").startswith(f"{stop} of 7")
        wait_for_text(page, "#play", "Play")  # it waits for the guess
        wait_for_step(page, 0)
        page.click(".answers button >> nth=0")
        page.wait_for_function("document.getElementById('count').textContent !== 'Step 0'")
        assert page.text_content(".seen")
        page.click(".tour-foot button >> nth=1")
    assert page.is_hidden(".tour")
    assert not page.query_selector(".messages.on")


def test_published_figures_are_the_librarys(open_page: Open) -> None:
    page = open_page()
    for value in page.eval_on_selector_all("#figure optgroup option", "options => options.map(each => each.value)"):
        page.select_option("#figure", value)
        page.wait_for_function("document.getElementById('count').textContent !== 'Step 0'")
        assert re.match(r"Figures? [0-9 and]+, .*\. .*\.$", page.text_content("#caption"))
    assert not page.query_selector(".messages.on")
    for label, name in {
        "Figure 4: left: decoder rate 1": "syn-small",
        "Figure 4: right: decoder rate 10": "syn-small-fast-decoder",
        "Figure 5: both rates 0.5": "syn-small-adam",
        "Figure 6: 3 queries, decoder rate 2, attention rate 1": "syn-medium",
    }.items():
        page.select_option("#figure", label=label)
        experiment = ss.PUBLISHED[name]
        options = experiment.options
        for option in ("lr_y", "lr_z", "batch_size", "seq_len", "init", "optimizer", "steps"):
            value = getattr(options, option)
            wait_for_address(page, f"{option}={value:g}" if isinstance(value, float) else f"{option}={value}")
        if options.momentum is not None:
            wait_for_address(page, f"momentum={options.momentum:g}")
        wait_for_address(page, f"classes={experiment.classes_name}")


def test_the_phase_map_fills_in_and_loads_a_cell(open_page: Open) -> None:
    page = open_page("#classes=words&batch_size=none&seq_len=inf&momentum=0.9&steps=40")
    page.click("summary:has-text('Phase map')")
    page.click("text=Compute the map")
    page.wait_for_selector("text=Done: 81 runs of 40 steps each.")
    page.focus("#map")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert "decoder rate 0.25, attention rate 0.25" in page.text_content(".phase-map [role=status]")
    page.keyboard.press("Enter")
    wait_for_address(page, "lr_y=0.25&lr_z=0.25")
    page.select_option("#map-axes", "ratio,K")
    page.select_option("#map-quantity", "snap")
    page.click("text=Compute the map")
    page.wait_for_selector("text=Done: 72 runs of 40 steps each.")
    page.locator("#map").click(position={"x": 60, "y": 20})  # the smallest ratio, the largest K
    page.wait_for_function("document.querySelector('.about').textContent.includes('K = 16')")


def test_numbers_are_there_in_words(open_page: Open) -> None:
    page = open_page(SMALL + "&step=100")
    wait_for_step(page, 100)
    page.click("summary:has-text('The numbers')")
    page.wait_for_selector("table caption:has-text('step 100')")
    shares = [float(text) for text in page.locator("tbody tr td:last-child").all_text_contents()]
    assert math.isclose(sum(shares), 1, abs_tol=2e-3)
    label = page.get_attribute(".panel canvas", "aria-label")
    assert re.search(r"class 1 at step 100: most on distinct token 19, \d+ percent; common tokens together \d+", label)
