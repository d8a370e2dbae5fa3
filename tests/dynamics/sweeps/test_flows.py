"""Sweeps of flows: the numbers of `flow`, wherever they run, stored and resumed like those of training."""

from __future__ import annotations

import json

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics.sweeps import shards as shards_module
from scansnap.dynamics.sweeps.cells import cells
from tests.cli.test_cli import run

FLOWS = {"lr_z": [0.05, 5.0], "lr_y": [0.5, 1.0, 2.0], "times": [1.0, 1e6, 1e12], "record": ("loss", "entropy")}


def test_every_combination_is_the_flow_bit_for_bit() -> None:
    result = ss.sweep(
        {"small": ss.syn_small(), "medium": ss.syn_medium(num_query=1)},
        **FLOWS | {"lr_y": [0.5, 2.0]},
        normalization=["l2", "layer"],
        rtol=1e-6,
    )
    assert result["loss"].dims == ("classes", "normalization", "lr_z", "lr_y", "seed", "time")
    assert result["entropy"].dims == (*result["loss"].dims, "layer", "head", "class")
    assert result["time"].values.tolist() == FLOWS["times"]
    assert (result["status"] == "ok").all()
    for name, normalization in (("small", "l2"), ("medium", "l2"), ("medium", "layer")):
        classes = ss.syn_small() if name == "small" else ss.syn_medium(num_query=1)
        alone = ss.flow(classes, lr_y=2.0, lr_z=5.0, times=FLOWS["times"], rtol=1e-6, normalization=normalization)
        single = result.sel(classes=name, normalization=normalization, lr_z=5.0, lr_y=2.0, seed=0)
        np.testing.assert_array_equal(single["loss"], alone["loss"][0])
        np.testing.assert_array_equal(single["entropy"], alone["entropy"][0])
    assert len(cells(result)) == 16
    assert cells(result)[0]["loss"] == float(result["loss"][0, 0, 0, 0, 0, -1])


def test_an_interrupted_sweep_runs_only_what_is_missing(tmp_path, monkeypatch) -> None:
    whole = ss.sweep("syn-small", **FLOWS)
    real, done = shards_module.run_shard, []

    def interrupted(shard):
        done.append(shard.index)
        if len(done) == 2:
            raise KeyboardInterrupt
        return real(shard)

    monkeypatch.setattr(shards_module, "run_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ss.sweep("syn-small", **FLOWS, shard_size=2, store=tmp_path / "s.zarr")
    result = ss.sweep("syn-small", **FLOWS, shard_size=2, store=tmp_path / "s.zarr")
    assert done == [0, 1, 1, 2]
    np.testing.assert_array_equal(result["loss"], whole["loss"])
    assert ss.load(tmp_path / "s.zarr")["loss"].dims == whole["loss"].dims


@pytest.mark.slow
def test_on_ray_the_numbers_are_the_same() -> None:
    ray = pytest.importorskip("ray")
    whole = ss.sweep("syn-small", **FLOWS)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        result = ss.sweep("syn-small", **FLOWS, shard_size=3, cluster="ray")
    finally:
        ray.shutdown()
    np.testing.assert_array_equal(result["loss"], whole["loss"])


def test_options_and_files(tmp_path) -> None:
    """Options as an object, a TOML file and the command line say the same."""
    options = ss.FlowOptions(lr_y=1.0, lr_z=1.0, times=(1.0, 1e3))
    by_object = ss.sweep("syn-small", options, lr_z=[0.5, 1.0])
    (tmp_path / "flows.toml").write_text('classes = "syn-small"\nlr_y = 1\nlr_z = [0.5, 1]\ntimes = "log:1:1e3:2"\n')
    by_file = ss.sweep(*ss.read_sweep(tmp_path / "flows.toml"))
    np.testing.assert_array_equal(by_object["loss"], by_file["loss"].isel(classes=0))
    assert by_object.sizes["time"] == 2
    for words in (
        ["--config", "flows.toml"],
        ["--classes", "syn-small", "--lr-y", "1", "--lr-z", "0.5,1", "--times", "1,1e3"],
        ["--preset", "single-common", "--classes", "syn-small", "--lr-y", "1", "--lr-z", "0.5,1", "--times", "1,1e3"],
    ):
        done = run("sweep", *words, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        table = json.loads(done.stdout)["cells"]
        assert [cell["loss"] for cell in table] == by_object["loss"].values[:, 0, 0, -1].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 4}, "steps and times are both given"),
        ({"momentum": 0.9}, "momentum is given, which the flow does not have: leave it out, or give steps"),
        ({"times": None, "steps": 2, "rtol": 1e-6}, "rtol is given, which training does not have"),
        ({"times": None}, "steps must be given: a sweep needs .* times of the flow"),
        ({"record": "fresh_loss"}, "flow has no batches"),
        ({"rtols": 1}, "did you mean 'rtol'"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.sweep("syn-small", **{**FLOWS, **change})
