"""Sweep files and cells."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from scansnap.sweeps.cells import cells

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
    found = ss.read_sweep(tmp_path / "sweep.toml")
    assert found["classes"] == {"syn-medium-1": ss.syn_medium(num_query=1), "mine": ss.syn_small()}
    assert found["seeds"] == [0, 1, 2]
    assert found["batch_size"] == [None, 8]
    assert found["seq_len"] == math.inf
    result = ss.sweep(**found)
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


def test_cells_leave_out_runs_that_diverged() -> None:
    found = ss.sweep(ss.syn_small(), lr_z=1.0, lr_y=[1.0, 1e39], seeds=range(2), steps=4, batch_size=8)
    good, bad = cells(found)
    assert (good["ok"], bad["ok"]) == (2, 0)
    assert bad["loss"] is None
    assert bad["loss_error"] is None


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
        ("classes = 'syn-small'\nlr_z = 1\nsteps = 3\nseeds = '0:1000000000000'", "give at most 10,000,000"),
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
