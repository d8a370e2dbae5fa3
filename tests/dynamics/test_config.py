"""Experiments and sweeps in TOML files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics.grid import cells

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
    result = ss.sweep(classes, outcome)
    other = ss.sweep(classes, outcome, lr_y=[3.0], seeds=0)  # what is given beside a file takes precedence
    assert other["lr_y"].values.tolist() == [3.0]
    assert other.sizes["seed"] == 1
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
        assert ss.sweep(classes, options)["classes"].values.tolist() == ["syn-small"]
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
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr_y = 1\nlr_z = 1\nsteps = 3", "names no classes, or several"),
        ("classes = ['syn-small', 'near-distinct']\nlr_y = 1\nlr_z = 1\nsteps = 3", "names no classes, or several"),
        ("classes = 'syn-small'\nlr_y = 1\nlr_z = 1", "experiment.toml: steps must be given"),
        ("classes = 'syn-small'\nlr_y = 1\nlr_z = 1\nsteps = 3\nmomentum = [0, 0.9]", "experiment.toml: momentum is"),
        ("classes = 'syn-small'\nlr_y_over_lr_z = 1\nlr_z = 1\nsteps = 3", "experiment.toml: unknown option"),
    ],
)
def test_files_that_are_no_experiment(tmp_path, text: str, message: str) -> None:
    (tmp_path / "experiment.toml").write_text(text)
    with pytest.raises(ss.InputError, match=message):
        ss.read_experiment(tmp_path / "experiment.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes = 'syn-small'\nlr_z = 1", "has no steps"),
        ("lr_z = 1\nsteps = 3", "has no classes"),
        ("clases = 1", "unknown key 'clases': did you mean 'classes'"),
        ("store = 'x'", "unknown key 'store'"),
        ("classes = ['syn-smal']\nlr_z = 1\nsteps = 3", "did you mean 'syn-small'"),
        ("classes = 'absent.toml'\nlr_z = 1\nsteps = 3", "No such file"),
        ("classes = 'syn-small'\nlr_z = 1\nsteps = 3\nseeds = '0:x'", "seeds is '0:x'"),
        ("classes = 3\nlr_z = 1\nsteps = 3", "sweep.toml: "),
        ("classes = 'syn-small'\nlr_z = 1\nsteps = 3\nseeds = '0:1000000000000'", "at most 10,000,000 of them"),
        ("lr_z = [", "not a valid TOML file"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text: str, message: str) -> None:
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(ss.InputError, match=message):
        ss.read_sweep(tmp_path / "sweep.toml")


def test_a_missing_file_is_said(tmp_path) -> None:
    with pytest.raises(ss.InputError, match=r"cannot read .*absent\.toml: No such file"):
        ss.read_sweep(tmp_path / "absent.toml")


def test_only_names_and_options_can_be_written(tmp_path) -> None:
    options = ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=2)
    with pytest.raises(
        ss.InputError, match=r"^classes is SequenceClasses: give their name, or a file made with write_"
    ):
        ss.write_experiment(ss.syn_small(), options, tmp_path / "a.toml")  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match=r"^options is dict: give TrainOptions\.$"):
        ss.write_experiment("syn-small", {"lr_y": 1.0}, tmp_path / "a.toml")  # type: ignore[arg-type]
    assert not (tmp_path / "a.toml").exists()
