"""Experiments and sweeps in TOML files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics.grid import cells
from tests.cli.test_cli import run

FILE = """
classes = ["syn-medium-1", "mine.toml"]
lr_z = [0.5, 1]
lr_y_over_lr_z = [1, 2]
seeds = "0:3"
steps = 4
batch_size = ["none", 8]
seq_len = inf
"""


def test_a_file_says_what_sweep_is_asked(tmp_path) -> None:
    ss.write_classes(ss.syn_small(), tmp_path / "mine.toml")
    (tmp_path / "sweep.toml").write_text(FILE)
    classes, outcome = ss.read_sweep(tmp_path / "sweep.toml")
    assert classes == {"syn-medium-1": ss.syn_medium(num_query=1), "mine": ss.syn_small()}
    assert outcome["seeds"] == [0, 1, 2]
    assert outcome["batch_size"] == [None, 8]
    assert outcome["seq_len"] == math.inf
    result = ss.sweep(classes, **outcome)
    assert result["status"].dims == ("classes", "batch_size", "lr_z", "lr_y_over_lr_z", "seed")
    assert result["status"].shape == (2, 2, 2, 2, 3)
    assert result["batch_size"].values.tolist() == [None, 8]

    table = cells(result)
    assert len(table) == 16
    assert all(cell["runs"] == cell["ok"] == 3 for cell in table)
    (cell,) = [c for c in table if (c["classes"], c["lr_z"], c["lr_y"], c["batch_size"]) == ("mine", 1.0, 2.0, 8)]
    losses = result["loss"].sel(classes="mine", lr_z=1, lr_y_over_lr_z=2, batch_size=8).isel(step=-1).values
    assert losses.shape == (3,)
    assert cell["loss"] == pytest.approx(losses.mean())
    assert cell["loss_error"] == pytest.approx(losses.std(ddof=1) / np.sqrt(3))


def test_one_setting_keeps_its_name(tmp_path) -> None:
    text = "lr_z = 1\nlr_y = 1\nsteps = 2\n"
    for name in ("'syn-small'", "['syn-small']"):
        (tmp_path / "sweep.toml").write_text(f"classes = {name}\n{text}")
        classes, options = ss.read_sweep(tmp_path / "sweep.toml")
        assert classes == {"syn-small": ss.syn_small()}
        assert ss.sweep(classes, **options)["classes"].values.tolist() == ["syn-small"]
        assert ss.read_experiment(tmp_path / "sweep.toml")[0] == ss.syn_small()


EXPERIMENTS: list[dict[str, Any]] = [
    {},
    {"batch_size": None, "seq_len": math.inf, "momentum": 0.9, "record_every": None},
    {"optimizer": "normalized_sgd", "normalization": "layer", "residual": True, "heads": 2, "init": "uniform"},
    {"lr_y": [1.0, 2.0], "seeds": [3, 4], "record": ("loss", "entropy"), "attention_prior": {"common": -2.0}},
    {"layers": 2, "nonlinearity": "relu", "init": "uniform", "num_sequences": 8, "device": "cpu"},
]


@pytest.mark.parametrize("options", EXPERIMENTS, ids=str)
def test_an_experiment_is_written_and_read(tmp_path, options: dict[str, Any]) -> None:
    written = ss.TrainOptions(**{"lr_y": 1.0, "lr_z": 0.5, "steps": 4, **options})
    path = ss.write_experiment("syn-small", written, tmp_path / "experiment.toml")
    classes, read = ss.read_experiment(path)
    assert (classes, read) == (ss.syn_small(), written)
    assert len(path.read_text().splitlines()) < 24  # what is not the default
    with pytest.raises(ss.InputError, match=r"experiment\.toml exists already"):
        ss.write_experiment("syn-small", written, path)
    assert ss.read_experiment(path)[1] == written


class Still:
    memory = ()

    def move(self, update: ss.Update) -> None: ...


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", Still()),
        ("init", (np.zeros((34, 34)), np.zeros((34, 34)))),
        ("attention_prior", np.zeros(34)),
        ("record", ss.Quantity("own", (), lambda now: now.loss, ("loss",))),
    ],
    ids=["optimizer", "init", "prior", "quantity"],
)
def test_what_no_file_can_hold_is_not_written(tmp_path, name: str, value: Any) -> None:
    options = ss.TrainOptions(**{"lr_y": 1.0, "lr_z": 1.0, "steps": 4, name: value})
    with pytest.raises(ss.InputError, match=f"^{name} is .*, which a file cannot hold"):
        ss.write_experiment("syn-small", options, tmp_path / "experiment.toml")
    with pytest.raises(ss.InputError, match="unknown class setting 'syn-smal'"):
        ss.write_experiment("syn-smal", ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=4), tmp_path / "experiment.toml")
    with pytest.raises(ss.InputError, match=r"^classes is SequenceClasses: give their name, or a file made with"):
        ss.write_experiment(ss.syn_small(), options, tmp_path / "a.toml")  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match=r"^options is dict: give TrainOptions\.$"):
        ss.write_experiment("syn-small", {"lr_y": 1.0}, tmp_path / "a.toml")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


RATES = "lr_y = 1\nlr_z = 1\n"
SMALL = f"classes = 'syn-small'\n{RATES}"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (ss.read_experiment, f"{RATES}steps = 3", "names no classes, or several"),
        (ss.read_experiment, f"classes = ['syn-small', 'near-distinct']\n{RATES}steps = 3", "names no classes, or"),
        (ss.read_experiment, SMALL, "file.toml: steps must be given"),
        (ss.read_experiment, f"{SMALL}steps = 3\nmomentum = [0, 0.9]", "file.toml: momentum is"),
        (
            ss.read_experiment,
            "classes = 'syn-small'\nlr_y_over_lr_z = 1\nlr_z = 1\nsteps = 3",
            "file.toml: unknown option",
        ),
        (ss.read_sweep, SMALL, "has no steps"),
        (ss.read_sweep, f"{RATES}steps = 3", "has no classes"),
        (ss.read_sweep, "clases = 1", "unknown key 'clases': did you mean 'classes'"),
        (ss.read_sweep, "store = 'x'", "unknown key 'store'"),
        (ss.read_sweep, f"classes = ['syn-smal']\n{RATES}steps = 3", "did you mean 'syn-small'"),
        (ss.read_sweep, f"classes = 'absent.toml'\n{RATES}steps = 3", "No such file"),
        (ss.read_sweep, f"{SMALL}steps = 3\nseeds = '0:x'", "seeds is '0:x'"),
        (ss.read_sweep, f"classes = 3\n{RATES}steps = 3", "file.toml: "),
        (ss.read_sweep, f"{SMALL}steps = 3\nseeds = '0:1000000000000'", "at most 10,000,000 of them"),
        (ss.read_sweep, f"{SMALL}steps = 3\ntimes = [1]", "file.toml: steps and times are both given"),
        (ss.read_sweep, "lr_z = [", "not a valid TOML file"),
        (ss.read_sweep, None, r"cannot read .*file\.toml: No such file"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, read: Callable[[Path], object], text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "file.toml").write_text(text)
    with pytest.raises(ss.InputError, match=message):
        read(tmp_path / "file.toml")


def test_options_files_and_commands_say_the_same(tmp_path) -> None:
    options = ss.FlowOptions(lr_y=1.0, lr_z=1.0, times=(1.0, 1e3))
    by_object = ss.sweep("syn-small", **{**vars(options), "lr_z": [0.5, 1.0]})
    (tmp_path / "flows.toml").write_text('classes = "syn-small"\nlr_y = 1\nlr_z = [0.5, 1]\ntimes = "log:1:1e3:2"\n')
    classes, written = ss.read_sweep(tmp_path / "flows.toml")
    by_file = ss.sweep(classes, **written)
    np.testing.assert_array_equal(by_object["loss"], by_file["loss"].isel(classes=0))
    flags = ["--classes", "syn-small", "--lr-y", "1", "--lr-z", "0.5,1", "--times", "1,1e3"]
    for command in (["--config", "flows.toml"], flags, ["--preset", "single-common", *flags]):
        done = run("sweep", *command, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        table = json.loads(done.stdout)["cells"]
        assert [cell["loss"] for cell in table] == by_object["loss"].values[:, 0, 0, -1].tolist()
