"""`scansnap figure`, as a person or a script meets it."""

from __future__ import annotations

import json

import pytest

import scansnap as ss
from tests.cli.test_cli import run


def test_a_figure_of_formulas(tmp_path) -> None:
    result = run("figure", "8", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "✓ The gap goes to zero. holds:" in result.stdout
    assert result.stdout.splitlines()[-1] == "picture: results/figure_8.png, results/figure_8.pdf"
    assert (tmp_path / "results" / "figure_8.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_of_runs(tmp_path) -> None:
    words = ["figure", "6", "--seeds", "2", "--json", "--store", "six.zarr", "--picture", "six.svg"]
    result = run(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pictures"] == ["six.svg"]
    assert "<svg" in (tmp_path / "six.svg").read_text()
    kept = ss.load(tmp_path / found["result"])
    assert kept.sizes["seed"] == 2
    assert found["numbers"]["mean"]["values"] == kept["mean"].values.tolist()
    assert {"statement", "verdict", "holds", "p_value"} <= set(found["trends"][0])


REFUSED = [
    (["99"], "unknown figure '99': "),
    (["7"], "this figure is made from text: give"),
    (["6", "--text", "example"], "figure 6 is not made from text and has no text: leave out --text."),
    (["10", "--text", "nowhere/at/all"], "there is no text at nowhere/at/all"),
    (["8", "--seeds", "3"], "figure 8 is made of formulas and has no seeds"),
    (["6", "--seeds", "1"], "seeds is 1: give a number of seeds from 2 to 10,000."),
    (["6", "--picture", "x.gif"], "name ends in .png, .pdf or .svg"),
    (["6", "--store", "."], "exists already: give another name"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_refusals_are_one_sentence(tmp_path, words: list[str], message: str) -> None:
    result = run("figure", *words, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    assert list(tmp_path.iterdir()) == []
