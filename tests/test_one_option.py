"""An option is stated once: one field added to the options is found everywhere an option is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scansnap

FIELD = """
    patience: int | None = option(
        "Steps without progress after which to wonder", default=None, least=1, none="never wonders"
    )
"""

PROGRAM = """
import inspect, json, subprocess, sys
import scansnap as ss

assert inspect.signature(ss.train).parameters["patience"].default is None
assert inspect.signature(ss.sweep).parameters["patience"].default is None
assert "Steps without progress after which to wonder; None never wonders." in ss.train.__doc__
help_text = subprocess.run(
    [sys.executable, "-c", "from scansnap.cli.app import main; main()", "train", "--help"],
    capture_output=True, text=True, check=True,
).stdout
assert "--patience" in help_text, help_text

run = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=2, patience=7, store="run.zarr")
assert json.loads(ss.load("run.zarr").attrs["options"])["patience"] == 7
try:
    ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=2, patience=0)
except ss.InputError as error:
    assert "patience is 0: give a whole number from 1" in str(error)
else:
    raise AssertionError("a patience of 0 was taken")

grid = ss.sweep("syn-small", lr_y=1.0, lr_z=1.0, steps=2, patience=[None, 3, 5])
assert grid.sizes["patience"] == 3 and grid.sel(patience=3)["loss"].size == 2
assert grid["patience"].values.tolist() == [None, 3, 5]

options = ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=2, patience=4)
ss.write_experiment("syn-small", options, "experiment.toml")
assert "patience = 4" in open("experiment.toml").read()
assert ss.read_experiment("experiment.toml")[1] == options
"""


@pytest.fixture
def package_with_one_more_option(tmp_path: Path) -> Path:
    """A copy of the package, with its compiled code, in which one field was added, and its name to an engine's list."""
    source = tmp_path / "src"
    shutil.copytree(Path(scansnap.__file__).parent, source / "scansnap")
    field, known = "    steps: int = option(", "KERNEL_OPTIONS = {"
    for file, anchor, new in (
        ("options.py", field, FIELD.lstrip("\n") + field),
        ("kernel_engine.py", known, f'{known}"patience", '),
    ):
        module = source / "scansnap" / "dynamics" / file
        text = module.read_text()
        assert text.count(anchor) == 1
        module.write_text(text.replace(anchor, new))
    return source


def test_one_field_is_an_option_everywhere(package_with_one_more_option: Path, tmp_path: Path) -> None:
    """In signatures, documentation, flags, checks, sweeps, TOML files and stored attributes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(package_with_one_more_option), "COLUMNS": "200", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
