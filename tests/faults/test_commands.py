"""Command lines with mistakes in them: an answer, or one sentence and status 2, never a traceback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from scansnap.cli.app import COMMANDS, GROUPS, app
from scansnap.runtime.errors import ScanSnapError
from scansnap.validation.user_code import user_mistake
from tests.faults.calls import stop_before_long_work
from tests.faults.values import HOSTILE_NAMES, attempt

PLAIN_WORDS = """
    0 -1 1e300 -1e300 nan inf 1e-400 0x10 1,2 , 1,,2 none yes x . .. / ./ ~ ~nouser/x /dev/null /dev/null/x
    /proc/nothing x.toml missing.json x.png log:1:10:1e11 log:0:1:2 0:10 10:0 0:99999999999 1;2 {} [] a=b
    a=1,b= common=nan alibi=x ' " \\ %s -- *
"""
WORDS = (
    *PLAIN_WORDS.split(),
    *("", " ", "9" * 5000, "x" * 300 + ".zarr", "a/b/" * 100, "\udce4"),
    *(name for name in HOSTILE_NAMES if len(name) < 200),
)
"""Words that mean nothing, or too much, to an option."""

BASE = {
    "train": "--classes syn-small --lr-y 1 --lr-z 1 --steps 1 --batch-size 2 --seq-len 4 --store s.zarr",
    "flow": "--classes syn-small --lr-y 1 --lr-z 1 --times 1 --store f.zarr",
    "sweep": "--classes syn-small --lr-y 1 --lr-z 1 --steps 1 --batch-size 2 --seq-len 4 --store w.zarr",
    "verify": "lemma_6",
    "figure": "none-such",
    "explore": "--output page.html",
    "reproduce": "--output /dev/null/x",
    "check": "missing.zarr",
    "systems": "reversal",
    "text train": "missing.txt --steps 1",
    "text show": "missing.zarr",
    "watch show": "missing.zarr --once",
    "watch checkpoints": "missing",
    "watch compare": "missing.zarr others.zarr",
    "watch demo": "--output /dev/null/x",
    "corpus count": "missing.txt",
    "corpus show": "missing",
    "corpus classes": "missing",
    "corpus predict": "missing.txt",
    "shortcuts": "missing.csv --text x --label y",
}
"""Good and quick words for each command, or words that stop it before long work."""


def command_names() -> list[str]:
    """Every command of the program."""
    return [*COMMANDS, *(f"{group} {name}" for group, (_, commands) in GROUPS.items() for name in commands)]


def options_of_command(name: str) -> list[str]:
    """The options of a command, and "" for its argument."""
    command: Any = typer.main.get_command(app)
    for word in name.split():
        _, command, _ = command.resolve_command(typer.Context(command), [word])
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    flags = [max(option.opts, key=len) for option in options if not option.is_flag]
    return ["", *flags]


def spoiled(rng: np.random.Generator) -> list[str]:
    """A command line, in which most often one option, or the argument, has one of the odd words."""
    name = str(rng.choice(command_names()))
    base, option = BASE[name].split(), str(rng.choice(options_of_command(name)))
    word = str(WORDS[rng.integers(len(WORDS))])
    if rng.random() < 0.25:
        return [*name.split(), *base]
    if option:
        return [*name.split(), *base, option, word]
    return [*name.split(), word, *(base if base and base[0].startswith("-") else base[1:])]


def run(words: list[str]) -> Any:
    """The result of a command; raises what a user would see as a traceback."""
    result = CliRunner().invoke(app, words)
    error = result.exception
    if error is None or isinstance(error, SystemExit | ScanSnapError | OSError) or user_mistake(error) is not None:
        return result
    raise error


def run_spoiled(count: int, seed: int) -> Counter[str]:
    """Run command lines with mistakes, and count what came out."""
    rng, seen = np.random.default_rng(seed), Counter[str]()
    for _ in range(count):
        words = spoiled(rng)
        result: list[Any] = []
        end = attempt(lambda words=words, result=result: result.append(run(words)), " ".join(words))  # type: ignore[misc]
        seen["refused" if end == "valid" and result[0].exit_code else end] += 1
    return seen


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, where only short work starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    stop_before_long_work(monkeypatch)
    return tmp_path


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
    assert sentence in str(run(words).exception)


def test_command_lines_with_mistakes() -> None:
    assert set(BASE) == set(command_names())
    seen = run_spoiled(60, seed=1)
    assert set(seen) <= {"valid", "refused"}, seen
