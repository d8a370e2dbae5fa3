"""Calls, files and command lines with mistakes in them: a result, or one sentence and never a traceback."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.runtime.errors import InputError
from tests.faults.calls import public_functions
from tests.faults.inputs import BASE, command_names, run


def test_every_public_function_is_validated() -> None:
    """A new function gets the checks by its decorator; one without it fails here."""
    functions = {name: value for name, value in public_functions().items() if inspect.isfunction(value)}
    assert {name for name, function in functions.items() if not hasattr(function, "validator")} == set()


def test_every_command_has_words_to_spoil() -> None:
    assert set(BASE) == set(command_names())


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
        (["text", "classes", "example", "--output", "/"], "a classes file ends in .toml or .json"),
    ],
)
def test_what_was_traced_before(words: list[str], sentence: str) -> None:
    assert sentence in str(run(words).exception)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"vocab_size": ' + "9" * 100_000 + "}", '{"class": ' * 50_000])
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_deep_and_long_files(text: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"deep{suffix}"
    path.write_text(f"x = {text}" if suffix == ".toml" else text)
    with pytest.raises(InputError, match="is not valid"):
        ss.read_classes(path)
