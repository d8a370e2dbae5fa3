"""Changing the data in the browser, with good input and bad."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import scansnap as ss
from tests.explorer.conftest import Open, message, set_field, wait_for_address, wait_for_step, wait_for_text

PETS = """
vocab_size = 7
token_names = ["the", "cat", "dog", "sat", "ran", "mat", "bone"]
[[class]]
query = "sat"
next_token = "mat"
tokens = ["the", "cat"]
probs = [0.5, 0.5]
[[class]]
query = "sat"
next_token = "bone"
tokens = ["the", "dog"]
probs = [0.25, 0.75]
"""
GUIDE = (Path(__file__).parents[2] / "docs/explore.md").read_text(encoding="utf-8")
HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">'


def drop(page: Any, name: str, text: str) -> None:
    """Drop a file on the page."""
    page.evaluate(
        """([name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name));
            for (const kind of ["dragover", "drop"]) {
                const options = {dataTransfer: data, bubbles: true, cancelable: true};
                document.body.dispatchEvent(new DragEvent(kind, options));
            }
        }""",
        [name, text],
    )


def still_works(page: Any) -> None:
    page.click("#reset")
    wait_for_step(page, 0)
    page.click("#step")
    wait_for_step(page, 1)


def test_presets_at_a_click(open_page: Open) -> None:
    page = open_page()
    for chip, classes in (("Syn-Medium 3", ss.syn_medium(num_query=3)), ("Single common", ss.single_common())):
        page.click(f".chip:text-is('{chip}')")
        wait_for_text(page, ".about", f"K = {classes.num_classes} classes")
        wait_for_text(page, ".about", f"M = {classes.vocab_size:,} tokens")
        assert page.get_attribute(f".chip:text-is('{chip}')", "aria-pressed") == "true"


def test_numbers_of_tokens(open_page: Open) -> None:
    page = open_page("#classes=syn-small&step=5")
    page.click("text=Numbers of tokens and classes")
    for name, value in {"num_query": 3, "next_per_query": 2, "num_common": 4, "num_distinct": 6}.items():
        set_field(page, f"#size-{name}", str(value))
        wait_for_address(page, f"{name}={value}")
    classes = ss.data.synthetic.synthetic(num_query=3, next_per_query=2, num_common=4, num_distinct=6)
    wait_for_text(page, ".about", f"K = 6 classes, 3 queries, M = {classes.vocab_size} tokens")
    set_field(page, "#size-vocab_size", "500")
    wait_for_text(page, ".about", "M = 500 tokens")
    set_field(page, "#size-vocab_size", "5")
    assert "these classes use" in message(page)
    page.fill("#size-vocab_size", "")
    set_field(page, "#size-num_query", "1000")
    assert "Queries is 1000: give a whole number from 1 to 32." in message(page)
    set_field(page, "#size-num_query", "32")
    set_field(page, "#size-next_per_query", "32")
    assert "That makes 1024 classes" in message(page)
    still_works(page)


def test_probabilities_are_dragged(open_page: Open) -> None:
    page = open_page("#classes=rivals")
    page.click("text=Drag the probabilities")
    cat = page.locator("[role=slider][aria-label*='token cat']")
    assert cat.get_attribute("aria-valuenow") == "0.200"
    cat.scroll_into_view_if_needed()
    box = cat.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] - 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + 4)
    page.mouse.up()
    page.wait_for_function("document.querySelector('[role=slider][aria-label*=\"token cat\"]').ariaValueNow > 0.5")
    salt = float(page.get_attribute("[role=slider][aria-label*='token cat']", "aria-valuenow"))
    page.click(".class-title >> nth=1")  # every class alike
    assert float(page.get_attribute("[role=slider][aria-label*='token salt']", "aria-valuenow")) == salt
    page.uncheck("#alike")
    page.focus("[role=slider][aria-label*='token the']")
    page.keyboard.press("ArrowUp")
    page.wait_for_function("document.activeElement.getAttribute('aria-label')?.includes('token the')")
    page.click(".class-title >> nth=0")
    page.wait_for_selector("[role=slider][aria-label*='token dog']")
    still_works(page)


def test_the_query_map(open_page: Open) -> None:
    page = open_page("#classes=syn-small")
    page.click("summary:text-is('Query map')")
    wait_for_text(page, ".about", "2 queries")
    page.select_option("select[aria-label='query of class 2']", "30")
    wait_for_text(page, ".about", "1 query")
    page.select_option("select[aria-label='query of class 1']", "-1")
    wait_for_text(page, ".about", "2 queries")
    still_works(page)


def test_which_word_wins(open_page: Open) -> None:
    """The sentences of docs/explore.md."""
    page = open_page("#classes=words&lr_y=5&lr_z=10&momentum=0.9&steps=60", height=500)
    page.click("summary:has-text('which word wins')")
    (sentences,) = re.findall(r"^```text\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    page.fill("#sentences", sentences)
    page.fill("#speed", "8")
    page.click("text=Train on these sentences")
    wait_for_text(page, ".about", "Your own: K = 2 classes")
    page.wait_for_function("scrollY === 0")  # the pictures are seen
    wait_for_step(page, 60)
    pets, cooking = page.locator(".leader").all_text_contents()
    assert pets.startswith("most: dog")
    assert cooking.startswith(("most: butter", "most: pan"))  # each is there twice
    page.fill("#sentences", "no label here")
    page.click("text=Train on these sentences")
    assert "line 1 has no label" in message(page)
    still_works(page)


def test_a_long_word_is_cut_at_once(open_page: Open) -> None:
    """Not character by character, which froze the page: the number of times that text is measured is small."""
    page = open_page()
    page.evaluate(
        """() => {
            const { measureText } = CanvasRenderingContext2D.prototype;
            window.measured = 0;
            CanvasRenderingContext2D.prototype.measureText = function (text) {
                if (text.length > 100) window.measured++;
                return measureText.call(this, text);
            };
        }"""
    )
    page.click("summary:has-text('which word wins')")
    page.fill("#sentences", f"{'pets' * 4000}: the {'dog' * 5000}\nfood: the soup")
    page.click("text=Train on these sentences")
    wait_for_text(page, ".about", "Your own: K = 2 classes")
    wait_for_step(page, 40)
    assert 0 < page.evaluate("window.measured") < 100
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_classes_file_pasted_and_dropped(open_page: Open) -> None:
    page = open_page()
    page.click("summary:text-is('Your classes file')")
    page.fill("#classes-text", PETS)
    page.click("text=Use these classes")
    wait_for_text(page, ".class-title", "query sat → next mat")
    page.click(".chip:text-is('Syn-Small')")
    wait_for_text(page, ".class-title", "query 30")
    drop(page, "pets.toml", PETS)
    wait_for_text(page, ".class-title", "query sat → next mat")
    wait_for_address(page, '"token_names":["the","cat"')
    link = page.evaluate("location.hash")
    again = open_page(link)  # the classes are in the link
    wait_for_text(again, ".class-title", "query sat → next mat")


BROKEN = {
    "wrong probabilities": PETS.replace("[0.5, 0.5]", "[0.5, 0.7]"),
    "deep": "[" * 5000,
    "many classes": json.dumps(
        {
            "vocab_size": 2000,
            "class": [{"query": 0, "next_token": 1 + i, "tokens": [1 + i], "probs": [1]} for i in range(500)],
        }
    ),
    "too large": "#" * 1_100_000,
}
"""What a page can be given; `test_files.py` asks the engine about more."""


def test_broken_files_are_answered_in_a_sentence(open_page: Open) -> None:
    page = open_page("#classes=syn-small")
    for what, text in BROKEN.items():
        drop(page, "broken.toml", text)
        assert re.fullmatch(r"(?!.*(undefined|NaN|TypeError|\[object)).{20,400}\.", message(page)), what
        page.click("[aria-label='Close the message']")
    assert page.text_content("#count") == "Step 0"  # a file that is refused starts nothing
    still_works(page)
    wait_for_text(page, ".about", "K = 2 classes")  # the last good classes are still there


def test_hostile_names_are_only_names(open_page: Open, tmp_path: Path) -> None:
    classes = {
        "vocab_size": 5,
        "token_names": [HOSTILE, "'\"&<b>", "=1+1", "line\nbreak " + "long " * 100, "__proto__"],
        "class": [
            {"query": 4, "next_token": 3, "tokens": [0, 1], "probs": [0.5, 0.5]},
            {"query": 4, "next_token": 2, "tokens": [0, 2], "probs": [0.5, 0.5]},
        ],
    }
    page = open_page("#classes=" + quote(json.dumps(classes)) + "&theory=both&step=30")
    wait_for_step(page, 30)
    for summary in page.query_selector_all("summary"):
        summary.click()
    page.wait_for_selector("table tbody tr")
    with page.expect_download() as download:
        page.click("button:text-is('SVG')")
    svg = Path(download.value.path())
    assert "<script" not in svg.read_text()
    page.goto(svg.rename(tmp_path / "picture.svg").as_uri())  # opened as a document, it runs nothing
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    page.go_back()
    wait_for_step(page, 30)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('#explorer script, #explorer :not(.model) > img').length") == 0


GARBAGE = {
    "#%E0%A4%A": "",
    "#&&&===": "",
    "#classes=%7B%22": "",
    "#classes=no-such": "classes is “no-such”",
    "#classes=__proto__": "classes is “__proto__”",
    "#classes=constructor": "classes is “constructor”",
    "#lr_y=-1&lr_z=1e999&momentum=2&batch_size=0&seq_len=1.5&seeds=-3": "lr_y is “-1”",
    "#steps=99999999999&step=5": "steps is “99999999999”",
    "#optimizer=magic": "optimizer is “magic”: give sgd, adam, sign_sgd, normalized_sgd.",
    "#residual=maybe": "residual is “maybe”: give yes or no.",
    "#classes=synthetic&num_query=1e9": "num_query is “1e9”",
    "#classes=synthetic&num_query=32&next_per_query=32": "That makes 1024 classes",
    "#changes=soon:lr_y=1": "changes has “soon:lr_y=1”",
    "#changes=5:no_option=1": "changes names “no_option”",
    "#class=0": "class is “0”",
    "#batch_size=4096&seq_len=4096": "",
    f"#{HOSTILE}": "in the address is unknown",
    "#" + "x" * 100_000: "in the address is unknown",
}


@pytest.mark.parametrize("address", ["#%E0%A4%A", f"#{HOSTILE}"], ids=["no text", "hostile"])
def test_a_page_opened_with_garbage_after_the_hash(open_page: Open, address: str) -> None:
    page = open_page(address)
    answers_in_a_sentence(page, address)


def test_garbage_put_after_the_hash(open_page: Open) -> None:
    page = open_page()
    for address in GARBAGE:
        if page.query_selector(".messages.on"):
            page.click("[aria-label='Close the message']")
        page.evaluate("address => { location.hash = address; }", address)
        answers_in_a_sentence(page, address)


def answers_in_a_sentence(page: Any, address: str) -> None:
    sentence = message(page)
    assert GARBAGE[address] in sentence
    assert sentence.endswith(".")
    assert page.evaluate("window.hacked") is None
    still_works(page)


def test_the_address_of_the_guide_opens(open_page: Open) -> None:
    (address,) = re.findall(r"^    (#\S+)$", GUIDE, re.MULTILINE)
    page = open_page(address)
    wait_for_step(page, 40)
    assert not page.query_selector(".messages.on")


def test_a_class_beyond_the_last_shows_the_last(open_page: Open) -> None:
    page = open_page("#classes=syn-medium-3&class=999")
    wait_for_text(page, ".pager", "classes 5 to 6 of 6")


def test_bad_numbers_in_controls(open_page: Open) -> None:
    page = open_page("#classes=syn-small")
    for field, text, words in (
        ("#option-lr_y", "fast", "lr_y is “fast”: give a number from 0 to 1,000,000."),
        ("#option-lr_y", "1e400", "lr_y is “1e400”"),
        ("#end", "-5", "until is “-5”"),
        ("#end", "9e99", "until is “9e99”"),
    ):
        set_field(page, field, text)
        assert words in message(page)
    still_works(page)
