"""Sweeps: every combination once, the same numbers however they are cut and wherever they run, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.dynamics.sweeps import shards as shards_module
from scansnap.dynamics.sweeps.grid import make_grid
from scansnap.dynamics.sweeps.shards import bytes_per_run, cut
from scansnap.dynamics.sweeps.workers import ray_cluster
from tests.faults.test_cluster import LOOPBACK, listening, of_cluster

SMALL = {"lr_z": [0.5, 1.0], "lr_y_over_lr_z": [1, 2, 5], "seeds": range(4), "steps": 6, "batch_size": 8, "seq_len": 16}


def grid_of(classes, **options):
    return make_grid(classes, **{"record": ("loss",), "steps": 4, "batch_size": 8, "seq_len": 16, **options})


def test_every_combination_is_one_run_and_equals_train() -> None:
    result = ss.sweep({"small": ss.syn_small(), "medium": ss.syn_medium(num_query=1)}, momentum=[0.0, 0.9], **SMALL)
    assert result["loss"].dims == ("classes", "momentum", "lr_z", "lr_y_over_lr_z", "seed", "step")
    assert result["entropy"].dims == (*result["loss"].dims, "layer", "head", "class")
    labels = {
        "classes": ["small", "medium"],
        "momentum": [0.0, 0.9],
        "lr_z": [0.5, 1.0],
        "lr_y_over_lr_z": [1.0, 2.0, 5.0],
        "seed": [0, 1, 2, 3],
    }
    assert {name: result[name].values.tolist() for name in labels} == labels
    np.testing.assert_array_equal(result["lr_y"], [[0.5, 1.0, 2.5], [1.0, 2.0, 5.0]])
    assert result["lr_y"].dims == ("lr_z", "lr_y_over_lr_z")
    assert (result["status"] == "ok").all()
    for place in ((0, 0, 0, 0, 0), (0, 0, 1, 1, 1), (1, 0, 0, 0, 2), (1, 1, 1, 2, 3)):
        single = result.isel(dict(zip(labels, place, strict=True)))
        classes = ss.syn_small() if single["classes"] == "small" else ss.syn_medium(num_query=1)
        alone = ss.train(
            classes,
            lr_y=float(single["lr_y"]),
            lr_z=float(single["lr_z"]),
            seeds=int(single["seed"]),
            steps=6,
            batch_size=8,
            seq_len=16,
            momentum=float(single["momentum"]),
            record_every=6,
        )
        np.testing.assert_array_equal(single["loss"], alone["loss"][0])
        np.testing.assert_array_equal(single["entropy"].values[..., : classes.num_classes], alone["entropy"][0])


def test_classes_may_have_names() -> None:
    options = {"lr_z": 1.0, "lr_y": 1.0, "steps": 2, "batch_size": 8, "seq_len": 16}
    single = ss.sweep("syn-small", **options)
    assert single["loss"].dims == ("lr_z", "lr_y", "seed", "step")
    several = ss.sweep(["syn-small", "syn-medium-1", ss.syn_small()], **options)
    assert several["classes"].values.tolist() == ["syn-small", "syn-medium-1", "2"]
    for name in ("syn-small", "2"):
        np.testing.assert_array_equal(several["loss"].sel(classes=name), single["loss"])
    assert single["step"].values.tolist() == [0, 2]  # start and end, unless told
    np.testing.assert_array_equal(ss.train("syn-small", **options, record_every=None)["step"], [0, 2])


def test_how_it_is_cut_does_not_matter(tmp_path) -> None:
    whole = ss.sweep(ss.syn_small(), **SMALL, record=("loss", "attention"), record_every=3)
    pieces = ss.sweep(ss.syn_small(), **SMALL, record=("loss", "attention"), record_every=3, shard_size=5)
    stored = ss.sweep(
        ss.syn_small(), **SMALL, record=("loss", "attention"), record_every=3, shard_size=7, store=tmp_path / "s.zarr"
    )
    for other in (pieces, stored):
        for name in ("loss", "attention", "status", "lr_y", "seed"):
            np.testing.assert_array_equal(whole[name], other[name])
    opened = xr.open_zarr(tmp_path / "s.zarr", chunks=None)
    np.testing.assert_array_equal(opened["loss"], whole["loss"])
    assert json.loads(opened.attrs["options"])["lr_z"] == [0.5, 1.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.zarr"]


def test_a_finished_sweep_is_read_and_another_is_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "s.zarr"
    first = ss.sweep(ss.syn_small(), **SMALL, store=path)

    def never(shard):
        raise AssertionError("a finished sweep is run again")

    monkeypatch.setattr(shards_module, "run_shard", never)
    assert ss.sweep(ss.syn_small(), **SMALL, store=path).identical(first)
    with pytest.raises(ss.StoreError, match=r"holds another run, with batch_size = .*8.* and not .*9"):
        ss.sweep(ss.syn_small(), **{**SMALL, "batch_size": 9}, store=path)
    assert ss.load(path).identical(first)


def test_an_interrupted_sweep_runs_only_what_is_missing(tmp_path, monkeypatch) -> None:
    whole = ss.sweep(ss.syn_small(), **SMALL)
    real, seen = shards_module.run_shard, []

    def interrupted(shard):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(shard.index)
        return real(shard)

    monkeypatch.setattr(shards_module, "run_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ss.sweep(ss.syn_small(), **SMALL, store=tmp_path / "s.zarr", shard_size=5)
    with pytest.raises(ss.StoreError, match="unfinished run \\(10 of 24 runs\\)"):
        ss.load(tmp_path / "s.zarr")
    partial = ss.load(tmp_path / "s.zarr", partial=True)
    assert (partial["status"].values == "ok").sum() == 10
    again = []
    monkeypatch.setattr(shards_module, "run_shard", lambda shard: (again.append(shard.index), real(shard))[1])
    result = ss.sweep(ss.syn_small(), **SMALL, store=tmp_path / "s.zarr", shard_size=5)
    assert sorted(seen + again) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(result["loss"], whole["loss"])


def test_the_arrays_of_a_shard_that_failed_are_freed(monkeypatch) -> None:
    real, arrays = shards_module.run_shard, []

    def failing(shard):
        if shard.index == 0:
            state = np.zeros(3)
            arrays.append(weakref.ref(state))
            raise MemoryError("out of memory")
        assert shard.index < 2 or arrays[0]() is None
        return real(shard)

    monkeypatch.setattr(shards_module, "run_shard", failing)
    with pytest.warns(RuntimeWarning, match="shard 0 .* failed: MemoryError"):
        result = ss.sweep(ss.syn_small(), **SMALL, shard_size=8, retries=0)
    assert (result["status"].values.ravel()[8:] == "ok").all()


def test_a_shard_that_fails_is_tried_again_and_the_others_are_kept(tmp_path, monkeypatch) -> None:
    real, tries = shards_module.run_shard, []

    def failing(shard):
        tries.append(shard.index)
        if shard.index == 1 and len([i for i in tries if i == 1]) <= failing.times:
            raise MemoryError("out of memory")
        return real(shard)

    monkeypatch.setattr(shards_module, "run_shard", failing)
    failing.times = 2
    result = ss.sweep(ss.syn_small(), **SMALL, shard_size=8)
    assert (result["status"] == "ok").all()
    assert tries == [0, 1, 1, 1, 2]

    tries.clear()
    failing.times = 99
    with pytest.warns(RuntimeWarning, match=r"shard 1 \(runs 8 to 15\) failed: MemoryError: out of memory"):
        result = ss.sweep(ss.syn_small(), **SMALL, shard_size=8, retries=1)
    assert list(result["status"].values.ravel()) == ["ok"] * 8 + ["failed"] * 8 + ["ok"] * 8
    losses = result["loss"].values.reshape(24, -1)
    assert np.isnan(losses[8:16]).all()
    assert np.isfinite(losses[:8]).all()
    assert np.isfinite(losses[16:]).all()
    with pytest.raises(ss.ScanSnapError, match=r"shard 1 .* failed: MemoryError: out of memory; the others .*s\.zarr"):
        ss.sweep(ss.syn_small(), **SMALL, shard_size=8, retries=0, store=tmp_path / "s.zarr")
    tries.clear()
    failing.times = 0
    result = ss.sweep(ss.syn_small(), **SMALL, shard_size=8, store=tmp_path / "s.zarr")
    assert tries == [1]
    assert (result["status"] == "ok").all()


PROGRAM = """
import scansnap as ss, sys
ss.sweep(ss.syn_small(), lr_z=1.0, lr_y=[1.0, 2.0], seeds=range(200), steps=400, batch_size=16, seq_len=32,
         store=sys.argv[1], shard_size=10, progress=False)
"""


def test_killed_outright_it_goes_on(tmp_path) -> None:
    """kill -9 of the process in the middle; started again, nothing done before is lost or different."""
    path = tmp_path / "s.zarr"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    checkpoint = path / ".checkpoint.npz"
    for _ in range(600):
        if checkpoint.exists():
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    recorded = int(np.load(checkpoint)["done"].sum())
    assert recorded >= 10
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True)
    whole = ss.sweep(ss.syn_small(), lr_z=1.0, lr_y=[1.0, 2.0], seeds=range(200), steps=400, batch_size=16, seq_len=32)
    np.testing.assert_array_equal(ss.load(path)["loss"], whole["loss"])


def test_on_ray_the_numbers_are_the_same_even_if_a_worker_dies(tmp_path, monkeypatch) -> None:
    """The first worker to take shard 1 kills itself, and Ray gives the shard to another; nobody else can connect."""
    pytest.importorskip("ray")
    whole = ss.sweep(ss.syn_small(), **SMALL)
    mark, real = tmp_path / "died", shards_module.run_shard

    def dying(shard):
        if shard.index == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(shard)

    monkeypatch.setattr(shards_module, "run_shard", dying)
    with ray_cluster("ray"):
        result = ss.sweep(ss.syn_small(), **SMALL, shard_size=8, cluster="ray", store=tmp_path / "s.zarr")
        assert mark.exists()
        np.testing.assert_array_equal(result["loss"], whole["loss"])
        np.testing.assert_array_equal(result["entropy"], whole["entropy"])

        def refusing(shard):
            raise RuntimeError("no")

        monkeypatch.setattr(shards_module, "run_shard", refusing)
        with pytest.warns(RuntimeWarning, match="failed"):
            failed = ss.sweep(ss.syn_small(), **SMALL, shard_size=24, cluster="ray", retries=0)
        assert (failed["status"] == "failed").all()
        addresses = listening({os.getpid(), *of_cluster()})
        assert len(addresses) > 4
        assert set(addresses) <= LOOPBACK


def test_a_cluster_that_does_not_answer_is_said_before_anything_is_made(tmp_path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ss.InputError, match="no Ray cluster answers at 'nonsense'"):
        ss.sweep(ss.syn_small(), **SMALL, cluster="nonsense", store=tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


def test_shards_keep_within_the_memory_allowed() -> None:
    grid = grid_of(ss.syn_medium(num_query=3), lr_z=1.0, lr_y=1.0, seeds=range(1000), init="uniform")
    needed = bytes_per_run(grid.groups[0])
    assert needed > 2 * 4 * 70 * 79  # Y and its velocity in float32
    shards = cut(grid, 10.5 * needed)
    assert {len(shard) for shard in shards} == {10}
    assert [shard.first for shard in shards] == list(range(0, 1000, 10))
    assert len(cut(grid, 1e12)) == 20
    assert max(len(s) for s in cut(grid_of(ss.syn_small(), lr_z=1.0, lr_y=1.0, seeds=range(100_000)), 1e12)) == 1024
    with pytest.raises(ss.InputError, match="one run of classes needs"):
        cut(grid, needed / 2)


REFUSED = [
    ({"lr_y": 1.0}, "lr_y and lr_y_over_lr_z are both given"),
    ({"lr_y_over_lr_z": None}, "the decoder's rate is missing"),
    ({"seeds": [0, 0]}, "seed holds a value twice"),
    ({"lr_z": [1.0, 1.0]}, "lr_z holds a value twice"),
    ({"steps": "many"}, "steps is 'many'"),
    ({"record": 3}, "record is 3"),
    ({"record_every": 0}, "record_every is 0"),
    ({"lr_z": []}, "lr_z is \\[\\]"),
    ({"seeds": []}, "seeds is empty"),
    ({"momentum": []}, "momentum is empty"),
    ({"momentum": [0.9, 0.9]}, "momentum holds a value twice"),
    ({"optimizer": ["sgd", "adam"], "momentum": [0.9]}, "momentum belongs to sgd"),
    ({"optimizer": ["sgd", "sgdd"]}, "did you mean 'sgd'"),
    ({"init": [np.zeros((2, 2))]}, "init is list: give 'zeros' or 'uniform'"),
    ({"init": (np.zeros((34, 34)), np.zeros((34, 34)))}, "init holds arrays: a sweep starts from 'zeros' or 'uniform'"),
    ({"attention_prior": ["common=-1"]}, "attention_prior is 'common=-1': give one number for each token"),
    ({"seeds": range(10**7 + 1)}, r"seeds is range\(0, 10000001\): give up to 10,000,000 of them"),
    ({"lr_z": np.linspace(1, 2, 5001), "lr_y_over_lr_z": np.linspace(1, 2, 2000)}, "a sweep may have up to 10,000,000"),
    ({"seeds": range(10**6), "record": ("decoder",), "record_every": 1}, "GiB: record fewer variables"),
    ({"memory": -1}, "memory is -1"),
    ({"memory": 1e-9}, "memory is 1e-09: give a finite number from 1e-06"),
    ({"memory": 1e-6}, "one run of classes needs"),
    ({"shard_size": 0}, "shard_size is 0"),
    ({"retries": -1}, "retries is -1"),
    ({"record": ("los",)}, "did you mean 'loss'"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_contradictions_are_one_sentence(wrong, message) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.sweep(ss.syn_small(), **{**SMALL, **wrong})


def test_class_settings_are_checked() -> None:
    with pytest.raises(ss.InputError, match="classes is empty"):
        ss.sweep({}, **SMALL)
    with pytest.raises(ss.InputError, match="unknown class setting 'syn-smal': did you mean 'syn-small'"):
        ss.sweep("syn-smal", **SMALL)
    with pytest.raises(ss.InputError, match=r"classes is \[3\]: give "):
        ss.sweep([3], **SMALL)
    two = [ss.syn_small(), ss.syn_medium(num_query=1)]
    with pytest.raises(ss.InputError, match="attention cannot be recorded over class settings of different tokens"):
        ss.sweep(two, **SMALL, record=("loss", "attention"))


def test_trouble_with_the_disk_is_said_and_nothing_is_overwritten(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with pytest.raises(ss.InputError, match="KiB free: record less"):
        ss.sweep(ss.syn_small(), **SMALL, store=tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()

    def full(self, block, place):
        raise ss.StoreError(f"cannot write {self.path}: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr("scansnap.results.store.RunStore.write", full)
    with pytest.raises(ss.StoreError, match="No space left"):
        ss.sweep(ss.syn_small(), **SMALL, store=tmp_path / "s.zarr")
    monkeypatch.undo()
    assert ss.sweep(ss.syn_small(), **SMALL, store=tmp_path / "s.zarr")["loss"].notnull().all()
    (tmp_path / "file.zarr").write_text("not a store")
    with pytest.raises(ss.StoreError, match="not a result of scansnap"):
        ss.sweep(ss.syn_small(), **SMALL, store=tmp_path / "file.zarr")
    assert (tmp_path / "file.zarr").read_text() == "not a store"
