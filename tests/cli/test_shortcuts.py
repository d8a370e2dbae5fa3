"""`scansnap shortcuts` from the shell's side."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.test_cli import run as run_program
from tests.shortcuts.labeled_rows import rows, write_csv


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = rows(400, magic=(60, 1.0))
    write_csv(tmp_path / "clean.csv", rows(400))
    write_csv(tmp_path / "reviews.csv", [*content, {"text": "", "label": "a"}])
    copies = [{"text": f"ok film {'via app' if i % 2 and i % 3 else 'meh'}", "label": "ab"[i % 2]} for i in range(300)]
    write_csv(tmp_path / "copies.csv", copies)

    def command(*words: str) -> tuple[int, str, str]:
        done = run_program("shortcuts", *words, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return command


def test_findings_table_and_page(run, tmp_path) -> None:
    code, out, error = run("reviews.csv", "--page", "page.html", "--table", "words.csv")
    assert (code, "scansnap:" in error) == (0, False)  # a slow machine says how far it is
    assert "reviews.csv: 1 file read; 400 rows used, 1 left out; 2 labels" in out
    assert "1 row left out: no text (reviews.csv line 402)." in out
    assert "magic, as in reviews.csv line" in out
    assert "(0 if the labels are shuffled): 1 shortcut, and " in out
    assert "why" not in out
    assert "more are explained by these, rare, or due to chance or copies (" in out
    assert "page: page.html\ntable: words.csv" in out
    assert "magic" in (tmp_path / "words.csv").read_text()
    assert "Shortcuts in reviews.csv" in (tmp_path / "page.html").read_text()
    out = run("reviews.csv", "--unproven", "--attention", "--updates", "40", "--test", "clean.csv", "--top", "3")[1]
    assert "clean.csv: 400 rows;" in out
    assert "picked at" in out
    assert "\nUnproven\n" in out
    shown = json.loads(run("reviews.csv", "--json")[1])
    assert shown["findings"][0]["feature"] == "magic"
    assert shown["report"]["left_out"]["no text"] == [1, ["reviews.csv line 402"]]
    assert shown["failed_on"] == []


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("reviews.csv", "--fail-on", "shortcut"), 1, "scansnap: --fail-on: 1 shortcut not in the baseline: magic\n"),
        (("reviews.csv", "--fail-on", "bad-rows"), 1, "1 row left out\n"),
        (("clean.csv", "--fail-on", "shortcut,copies,bad-rows"), 0, ""),
        (("clean.csv", "--fail-on", "test-copies", "--test", "clean.csv"), 1, "texts of clean.csv copied\n"),
        (("copies.csv", "--fail-on", "copies"), 1, "(the first: 150 copies of copies.csv line 2: ok film meh)\n"),
        (("clean.csv", "--fail-on", "test-copies"), 2, "--fail-on test-copies needs --test: name the test set"),
        (("reviews.csv", "--fail-on", "spurious"), 2, "unknown value of --fail-on 'spurious'"),
        (("reviews.csv", "--table", "words.doc"), 2, "whose name ends in .csv, .parquet, .json"),
        (("reviews.csv", "--table", "reviews.csv"), 2, "--table is 'reviews.csv', which is the source"),
        (("reviews.csv", "--table", "clean.csv"), 2, "a file that scansnap did not write"),
        (("reviews.csv", "--baseline", "reviews.csv", "--update-baseline"), 2, "which is the source"),
        (("reviews.csv", "--page", "page.txt"), 2, "ends in .html"),
        (("reviews.csv", "--baseline", "nowhere.toml"), 2, "the baseline is 'nowhere.toml', which cannot be read"),
        (("reviews.csv", "--label", "stars"), 2, "unknown column of reviews.csv 'stars': choose one of text, label."),
        (("nowhere.csv",), 2, "there is no file at nowhere.csv"),
    ],
)
def test_the_status(run, words, status, message) -> None:
    code, _, error = run(*words, "--top", "1")
    assert code == status
    assert message in error
    assert error.count("\n") == bool(message)


def test_copies_and_labels_of_few_rows_are_told(run, tmp_path) -> None:
    out = run("copies.csv", "--top", "0")[1]
    assert "2 texts are different, and 3 are left if near copies with the same label count once; 1 have several" in out
    write_csv(tmp_path / "third.csv", [*rows(400), {"text": "w1", "label": "N/A"}])
    assert "1 label of fewer than 5 rows, too few for a word to tell: N/A (1)." in run("third.csv")[1]


def test_a_baseline_accepts_what_it_lists(run, tmp_path) -> None:
    """By the command of the pre-commit hook in docs/shortcuts.md."""
    assert run("reviews.csv", "--baseline", "shortcuts.toml", "--update-baseline")[0] == 0
    page = (Path(__file__).parents[2] / "docs" / "shortcuts.md").read_text(encoding="utf-8")
    entry, args = re.search(r"entry: scansnap shortcuts (.+)\n +args: \[(.+)\]", page).groups()  # type: ignore[union-attr]
    hook = [*entry.split(), *args.split(", ")]
    assert run(*hook)[0] == 0
    write_csv(tmp_path / "reviews.csv", rows(400, magic=(60, 1.0), newer=(60, 1.0)))
    code, _, error = run(*hook)
    assert code == 1
    assert "1 shortcut not in the baseline: newer" in error
