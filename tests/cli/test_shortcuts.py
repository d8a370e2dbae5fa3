"""`scansnap shortcuts` from the shell's side."""

from __future__ import annotations

import json
import sys

import pytest

from scansnap.cli.app import main
from tests.shortcuts.labelled_rows import rows, write_csv


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    content = rows(400, magic=(60, 1.0))
    write_csv(tmp_path / "clean.csv", rows(400))
    write_csv(tmp_path / "reviews.csv", [*content, {"text": "", "label": "a"}])
    (tmp_path / "allowed.txt").write_text("Magic\n\n")
    copies = [{"text": f"ok film {'via app' if i % 2 and i % 3 else 'meh'}", "label": "ab"[i % 2]} for i in range(300)]
    write_csv(tmp_path / "copies.csv", copies)

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["scansnap", "shortcuts", *words, "--text", "text", "--label", "label"])
        with pytest.raises(SystemExit) as stop:
            main()
        return (stop.value.code or 0, *capsys.readouterr())

    return command


def test_words_table_and_page(run, tmp_path) -> None:
    code, out, error = run("reviews.csv", "--updates", "40", "--page", "page.html", "--table", "words.csv")
    assert (code, "scansnap:" in error) == (0, False)  # a slow machine says how far it is
    assert "reviews.csv: 400 rows used, 1 left out; 2 labels" in out
    assert "1 row (line 402) left out: no text." in out
    assert out.index("magic") < out.index("Unproven")
    assert "page: page.html\ntable: words.csv" in out
    assert "magic" in (tmp_path / "words.csv").read_text()
    assert "Shortcuts in reviews.csv" in (tmp_path / "page.html").read_text()


def test_json_is_for_programs(run) -> None:
    code, out, _ = run("reviews.csv", "--no-attention", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["findings"][0]["word"] == "magic"
    assert shown["remarks"]["left_out"]["no text"] == {"rows": 1, "first": [402]}
    assert shown["failed_on"] == []


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("reviews.csv", "--fail-on", "shortcut"), 1, "scansnap: --fail-on: 1 shortcut that is not allowed: magic\n"),
        (("reviews.csv", "--fail-on", "shortcut", "--allow", "allowed.txt"), 0, ""),
        (("reviews.csv", "--fail-on", "shortcut,bad-rows", "--allow", "allowed.txt"), 1, "1 row left out\n"),
        (("clean.csv", "--fail-on", "shortcut,copies,bad-rows"), 0, ""),
        (("copies.csv", "--fail-on", "copies"), 1, "3 words distinct only by copies of a text: app, meh, via\n"),
        (("reviews.csv", "--fail-on", "unproven"), 2, "--no-attention trains none: leave one out."),
        (("reviews.csv", "--fail-on", "spurious"), 2, "unknown value of --fail-on 'spurious'"),
        (("reviews.csv", "--fail-on", "bad"), 2, "unknown value of --fail-on 'bad'"),
        (("reviews.csv", "--table", "words.doc"), 2, "whose name ends in .csv, .parquet, .json"),
        (("reviews.csv", "--page", "page.txt"), 2, "ends in .html"),
        (("reviews.csv", "--allow", "nowhere.txt"), 2, "--allow is 'nowhere.txt', which cannot be read"),
        (("nowhere.csv",), 2, "there is no file at nowhere.csv"),
    ],
)
def test_the_status(run, words, status, message) -> None:
    code, _, error = run(*words, "--no-attention", "--top", "1")
    assert code == status
    assert message in error
    assert error.count("\n") == bool(message)


def test_copies_and_labels_of_few_rows_are_told(run, tmp_path) -> None:
    out = run("copies.csv", "--no-attention", "--top", "0")[1]
    assert "300 rows, but only 2 different texts, 1 of them with several labels." in out
    assert "\n  3 (--top, --table)\n" in out  # no "and", since none is shown
    write_csv(tmp_path / "third.csv", [*rows(400), {"text": "w1", "label": "N/A"}])
    assert "1 label of fewer than 5 rows, too few for a word to tell: N/A (1)." in run("third.csv", "--no-attention")[1]
