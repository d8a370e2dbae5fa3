"""Command lines with mistakes in them: an answer, or one sentence and status 2, never a traceback."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.faults.calls import stop_before_long_work
from tests.faults.commands import BASE, command_names, run, spoiled


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, where only short work starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    stop_before_long_work(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield tmp_path


def tracebacks(lines: Iterable[list[str]]) -> tuple[int, Counter[str]]:
    count, wrong = 0, Counter[str]()
    for words in lines:
        count += 1
        _, traceback = run(words)
        if traceback:
            wrong[f"{words}: {traceback}"[:400]] += 1
    return count, wrong


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "--store", "."], "a result cannot be written over the folder ."),
        (["train", "--store", ""], "a result cannot be written over the folder ."),
        (["train", "--store", "/"], "a result cannot be written over the folder /"),
        (["train", "--store", "x" * 300], "give a path whose names have 1 to 255 bytes"),
        (["train", "--picture", "x" * 300 + ".png"], "give a path whose names have 1 to 255 bytes"),
        (["text", "train", "~nouser/x"], "there is no such home"),
        (
            ["sweep", "--classes", "syn-small", "--lr-y", "1", "--lr-z", "1", "--steps", "1", "--memory", "inf"],
            "memory is inf: give a finite number",
        ),
        (["verify", "lemma_6", "--lr-z", "1e300"], "lr_z is 1e+300: give a rate of at most 1e+06"),
        (["train", "--classes", "\x1b[31mx.toml"], "cannot read the classes file \\x1b[31mx.toml"),
        (["corpus", "count", "missing.txt", "--output", "/"], "/"),
    ],
)
def test_what_was_traced_before(words: list[str], sentence: str) -> None:
    result, traceback = run(words)
    assert not traceback
    assert sentence in str(result.exception)


def test_a_rate_that_is_not_used_is_not_shown_as_if_it_were() -> None:
    result, _ = run(["verify", "lemma_6", "--lr-z", "0.3"])
    assert "lemma_6 does not use lr_z: its check goes through rates of its own; leave it out" in str(result.exception)


def test_command_lines_with_mistakes() -> None:
    assert set(BASE) == set(command_names())
    _, wrong = tracebacks(line for i, line in enumerate(spoiled(1, seed=1)) if i % 2 == 0)
    assert not wrong


@pytest.mark.slow
def test_a_thousand_command_lines_with_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    count, wrong = tracebacks(spoiled(8, seed=2))
    with capsys.disabled():
        print(f"\n{count:,} command lines, {wrong.total()} tracebacks")
    assert not wrong
