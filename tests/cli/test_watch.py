"""`scansnap watch`."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from scansnap.cli.app import main
from scansnap.monitor.store import LookStore
from tests.monitor.looks import first, look


@pytest.fixture
def command(monkeypatch):
    """Runs the program and gives its status."""

    def run(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["scansnap", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0)

    return run


@pytest.fixture
def store(tmp_path):
    looks = LookStore(tmp_path / "a.zarr")
    for i in range(3):
        looks.append(look(50 * i, np.broadcast_to(first(12, 0.9), (2, 2, 12, 12))).assign_attrs(version_scansnap="0"))
    looks.close()
    return tmp_path / "a.zarr"


def test_show_once(command, store, capsys) -> None:
    assert command("watch", "show", store, "--once", "--quantity", "first_token") == 0
    shown = capsys.readouterr().out
    assert "look 3 at step 100" in shown
    assert "sink" in shown


def test_show_a_page(command, store, capsys, tmp_path) -> None:
    assert command("watch", "show", store, "--page", tmp_path / "page.html") == 0
    assert capsys.readouterr().out.startswith(f"page: {tmp_path / 'page.html'}   (3 looks")
    assert "4 heads are <strong>sink</strong>" in (tmp_path / "page.html").read_text()


def test_show_json(command, store, capsys) -> None:
    assert command("watch", "show", store, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["steps"] == [0, 50, 100]
    assert {verdict["name"] for verdict in facts["verdicts"]} >= {"sink"}


def test_refusals(command, store, capsys, tmp_path) -> None:
    for words, sentence in (
        (["show", tmp_path / "none.zarr"], "does not exist"),
        (["show", store, "--refresh", "0"], "give a number of seconds above 0"),
        (["show", store, "--once", "--quantity", "entrophy"], "did you mean 'entropy'"),
    ):
        assert command("watch", *words) == 2
        assert sentence in capsys.readouterr().err
