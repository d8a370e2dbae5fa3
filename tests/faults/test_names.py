"""Names that are markup or commands elsewhere: they stay names in terminals, pictures, pages and JSON."""

from __future__ import annotations

import ast
import io
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from rich.console import Console

import scansnap as ss
from scansnap.figures import attention_over_time
from scansnap.figures.style import plain
from scansnap.figures.text_attention import draw_pattern
from scansnap.report.html import render
from scansnap.runtime.errors import InputError, printable, unknown
from scansnap.runtime.progress import progress_bar
from tests.faults.inputs import run
from tests.faults.values import HOSTILE_NAMES

SOURCE = Path(ss.__file__).parent


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Fonts lack some of these characters, which matplotlib says in warnings."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="matplotlib")
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield


def classes_named(names: tuple[str, ...]) -> ss.SequenceClasses:
    """Two classes whose tokens, queries and next tokens have these names, five at a time."""
    return ss.SequenceClasses.from_supports(
        tokens=[[0, 1], [1, 2]],
        probs=[[0.5, 0.5], [0.5, 0.5]],
        query=[3, 3],
        next_token=[4, 5],
        vocab_size=6,
        token_names=names,
    )


WORST = ("$\\frac{$", "$$", "\x1b[31mred\x1b[0m", "\u202eabc", "<script>alert(1)</script>", "W" * 10_000)
OTHERS = [HOSTILE_NAMES[i : i + 6] for i in range(0, len(HOSTILE_NAMES) - 5, 6)]


@pytest.mark.parametrize("names", [WORST, *(pytest.param(names, marks=pytest.mark.slow) for names in OTHERS)])
def test_pictures_show_names_as_text(names: tuple[str, ...]) -> None:
    result = ss.train(classes_named(names), lr_y=1.0, lr_z=1.0, steps=3, batch_size=2, seq_len=4)
    figure = attention_over_time.draw(attention_over_time.prepare(result))
    for form in ("png", "svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=40)
        assert buffer.tell() > 1000
    ElementTree.fromstring(buffer.getvalue())  # SVG that is no XML would raise
    width, height = figure.canvas.get_width_height()
    assert 300 < width < 3000
    assert 100 < height < 3000


def test_the_words_of_a_text_are_drawn_as_text() -> None:
    words = np.array([name[:50] for name in HOSTILE_NAMES])
    figure = Figure(figsize=(4, 4))
    draw_pattern(figure.subplots(), np.tril(np.ones((len(words), len(words)))), words, "step 0", inches=5.0)
    for form in ("png", "svg"):
        figure.savefig(io.BytesIO(), format=form, dpi=40)


@pytest.mark.parametrize("name", ["$\\frac{$", "$$", "$x^2$", "\\$", "a$b", "$", "\\\\$x$"])
def test_dollar_signs_are_no_mathematics(name: str) -> None:
    """The picture of a plain name is the picture of its letters, drawn where mathematics is off."""
    pictures = []
    for text, parse_math in ((plain(name), True), (name, False)):
        figure = Figure(figsize=(2, 1))
        figure.text(0.1, 0.5, text, parse_math=parse_math)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="raw", dpi=60)
        pictures.append(buffer.getvalue())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_terminals_get_no_codes(name: str) -> None:
    shown = printable(name, 60)
    assert shown.isprintable()
    assert len(shown) <= 60
    for error in (unknown("token name", name, ["a"]), InputError(f"there is no {name}.")):
        assert str(error).isprintable()


def test_progress_bars_show_markup_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with progress_bar("reading [bold red]x[/] [link=file:///x]y[/link] \x1b[31m", 2, True) as show:
        show(1)
    assert "[bold red]x[/] [link=file:///x]y[/link] \\x1b[31m" in stream.getvalue()


def test_commands_print_names_as_text(tmp_path: Path) -> None:
    file = ss.write_classes(classes_named(HOSTILE_NAMES[8:14]), tmp_path / "[bold]\x1b[31mx\u202e.toml")
    words = ["--lr-y", "1", "--lr-z", "1", "--steps", "3", "--batch-size", "2", "--seq-len", "4"]
    result = run(["train", "--classes", str(file), *words])
    assert result.exit_code == 0
    assert all(line.isprintable() for line in result.output.splitlines())
    assert "[bold]\\x1b[31mx\\u202e" in result.output
    result = run(["train", "--classes", str(file), *words, "--json"])
    facts = json.loads(result.output)
    assert "[bold]\x1b[31mx\u202e" in facts["result"]


def test_pages_show_names_as_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Through the renderer of all pages: no tag comes from a name, and no character turns the text around."""
    (tmp_path / "names.jinja").write_text("<p>{% for name in names %}<b>{{ name }}</b>{% endfor %}</p>")
    import jinja2

    monkeypatch.setattr(jinja2, "PackageLoader", lambda *_: jinja2.FileSystemLoader(tmp_path))
    text = render("names.jinja", names=HOSTILE_NAMES)
    page = ElementTree.fromstring(text)
    assert {node.tag for node in page.iter()} == {"p", "b"}
    assert "<script>alert(1)</script>" in "".join(page.itertext())
    assert not re.search("[\x1b\x9b\u202e\u2066]", text)


def test_stored_names_come_back_unchanged(tmp_path: Path) -> None:
    names = HOSTILE_NAMES[:6]
    classes = classes_named(names)
    for suffix in (".toml", ".json"):
        assert ss.read_classes(ss.write_classes(classes, tmp_path / f"names{suffix}")).token_names == names
    result = ss.train(classes, lr_y=1.0, lr_z=1.0, steps=1, batch_size=2, seq_len=4)
    loaded = ss.load(ss.save(result, tmp_path / "names.zarr"))
    xr.testing.assert_identical(loaded, result)


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_nothing_prints_but_the_helper() -> None:
    """`cli/console.py` is the only way to a terminal: a new `print` elsewhere fails here."""
    printing = {
        path.relative_to(SOURCE).as_posix()
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert printing == {"cli/console.py"}


def test_what_draws_names_uses_the_helper() -> None:
    """A picture that reads names of tokens, or words, makes them plain: a new one that does not fails here."""
    names = re.compile(r"""["'](?:\w*token_name|word)["']""")
    drawing = re.compile(r"set_title|set_.ticks|annotate|\.text\(|label=")
    for path in (SOURCE / "figures").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if names.search(text) and drawing.search(text):
            assert re.search(r"\b(plain|draw_pattern|heatmap)\(", text), path
