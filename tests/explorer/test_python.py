"""The Python side of the explorer: addresses, the widget, the command."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import scansnap as ss
from scansnap.cli.app import app
from scansnap.dynamics.published import PUBLISHED
from scansnap.explorer.page import PAGE, address_of, page_of
from tests.explorer.engine import ask, draw_classes, for_engine, needs_node
from tests.explorer.test_files import of_engine


@needs_node
def test_the_page_reads_an_address_as_it_was_meant() -> None:
    """Classes by name and as they are, with odd names, and every option."""
    rng = np.random.default_rng(9)
    odd = ss.SequenceClasses(
        probs=[[0.5, 0.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0]],
        query=[3, 3],
        next_token=[4, 5],
        vocab_size=6,
        token_names=["</script>", '"&#=', "%25", "é\U0001f600", "a b", "+"],
    )
    every: dict[str, Any] = {
        "lr_y": 0.5,
        "lr_z": 1e-3,
        "seeds": 7,
        "steps": 250,
        "batch_size": None,
        "seq_len": math.inf,
        "momentum": 0.9,
        "decoder_gradient": "modified",
        "init": "uniform",
        "residual": True,
        "normalization": "layer",
    }
    usual = {"batch_size": 128, "seq_len": 128}
    given: list[tuple[Any, dict[str, Any]]] = [
        ("syn-small", {}),
        ("single-common", {"lr_y": [2.0], "optimizer": "adam"}),
        (odd, every),
        (draw_classes(rng), {"batch_size": 16, "seq_len": 9}),
    ]
    answers = ask("address", [{"text": address_of(classes, options)} for classes, options in given])
    for (classes, options), answer in zip(given, answers, strict=True):
        source = ss.named_classes(classes) if isinstance(classes, str) else classes
        assert answer["problems"] == []
        assert of_engine(answer["classes"]) == source
        assert of_engine(answer["classes"]).token_names == source.token_names
        expected = for_engine(**{**usual, **options, "lr_y": np.ravel(options.get("lr_y", 1.0)).item()})
        assert answer["steps"] == expected.pop("steps", 100)
        assert answer["options"] == expected
    for experiment in PUBLISHED.values():
        (answer,) = ask("address", [{"text": address_of(experiment.classes_name, vars(experiment.options))}])
        assert answer["problems"] == []
        assert (answer["options"]["lrY"], answer["steps"]) == (experiment.options.lr_y, experiment.options.steps)


def test_own_classes_without_options_open_where_they_visibly_snap() -> None:
    assert address_of(ss.syn_small(), {}).endswith("&lr_y=5&lr_z=10&steps=60&momentum=0.9")


def test_an_address_is_put_into_the_page_unharmed() -> None:
    address = '#classes={"<&>\'":1}'
    text = page_of(address, "embedded")
    found = text.split('<meta name="scansnap-address" content="')[1].split('">')[0]
    assert unescape(found) == address
    assert '<meta name="scansnap-view" content="embedded">' in text
    assert len(text) - len(PAGE.read_text()) < 100


@pytest.mark.parametrize(
    ("classes", "options", "sentence"),
    [
        ("near-distinct", {}, "classes is PositionedClasses: the explorer shows SequenceClasses"),
        ("syn-large", {}, "unknown class setting 'syn-large'"),
        ("syn-small", {"heads": 2}, "the explorer does not support heads"),
        ("syn-small", {"lr_y": [1, 2]}, "the explorer shows one run"),
        ("syn-small", {"lr_q": 1}, "unknown option 'lr_q'"),
        ("syn-small", {"optimizer": ss.Adam(beta_1=0.5)}, "of built-in parts"),
        ("syn-small", {"momentum": 0.9, "optimizer": "adam"}, "momentum belongs to sgd"),
        ("syn-small", {"height": 1}, "height is 1"),
    ],
)
def test_what_cannot_be_explored_is_refused(classes: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        ss.explore(classes, **options)


def test_options_are_given_by_name() -> None:
    with pytest.raises(ss.InputError, match="explore takes options by name"):
        ss.explore("syn-small", PUBLISHED["syn-small"].options)  # type: ignore[call-arg]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from scansnap.explorer import page

    page._widget.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ss.ScanSnapError, match=r"pip install '\.\[notebook\]'"):
        ss.explore()


def test_the_command_opens_or_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) is None)
    path = ss.write_classes(ss.syn_small(), tmp_path / "mine.toml")
    runs = [["explore"], ["explore", str(path), "--lr-y", "2", "--json"]]
    outcomes = [CliRunner().invoke(app, words) for words in runs]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0]
    assert len(opened) == 2
    page = Path(json.loads(outcomes[1].stdout)["page"])
    assert page.as_uri() == opened[1]
    assert page.read_text() == page_of(address_of(str(path), {"lr_y": [2.0]}))

    written = tmp_path / "page.html"
    for _ in range(2):  # it may be written again
        assert CliRunner().invoke(app, ["explore", "--output", str(written)]).exit_code == 0
    assert written.read_text() == page_of("")  # as the page opens by itself, on words
    assert CliRunner().invoke(app, ["explore", "syn-small", "--output", str(written)]).exit_code == 0
    assert "&amp;momentum=0.9&amp;" in written.read_text()  # as published
    adam = CliRunner().invoke(app, ["explore", "syn-small", "--optimizer", "adam", "--output", str(written)])
    assert adam.exit_code == 0, adam.exception  # without the momentum of the published optimizer
    assert "&amp;optimizer=adam" in written.read_text()
    (tmp_path / "mine.html").write_text("my page")
    refused = CliRunner().invoke(app, ["explore", "--output", str(tmp_path / "mine.html")])
    assert isinstance(refused.exception, ss.StoreError)
    assert (tmp_path / "mine.html").read_text() == "my page"
    assert len(opened) == 2


def test_the_commands_of_the_document_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    document = (Path(__file__).parents[2] / "docs" / "explore.md").read_text()
    commands = re.findall(r"^scansnap (.*)$", document, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        outcome = CliRunner().invoke(app, shlex.split(command))
        assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "explorer.html").exists()
