"""Sweeps that are interrupted, killed or partly fail: nothing done is lost, and the numbers are the same."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics import sweep as sweeping
from scansnap.dynamics.grid import Arrays, Shard, run_shard
from scansnap.results import store
from scansnap.runtime.ray import ray_cluster
from tests.faults.test_writers import LOOPBACK, MARK, listening, marked, needs_ray

SMALL = {"lr_z": [0.5, 1.0], "lr_y_over_lr_z": [1, 2, 5], "seeds": range(4), "steps": 6, "batch_size": 8, "seq_len": 16}
FLOWS = {"lr_z": [0.05, 0.5], "lr_y": [0.5, 1.0, 2.0], "seeds": range(4), "times": [1.0, 100.0], "record": "loss"}


@pytest.fixture
def shards(monkeypatch) -> Callable[..., list[int]]:
    """A function that lets another one see every shard before it is run; returns the list of their indices."""

    def watch(before: Callable[[Shard, list[int]], None] = lambda shard, seen: None) -> list[int]:
        seen: list[int] = []

        def run(shard: Shard) -> Arrays:
            seen.append(shard.index)
            before(shard, seen)
            return run_shard(shard)

        monkeypatch.setattr(sweeping, "run_shard", run)
        return seen

    return watch


def test_a_finished_sweep_is_read_and_another_is_refused(tmp_path, shards) -> None:
    path = tmp_path / "s.zarr"
    first = ss.sweep("syn-small", **SMALL, store=path)
    seen = shards()
    assert ss.sweep("syn-small", **SMALL, store=path).identical(first)
    with pytest.raises(ss.StoreError, match=r"holds another run, with batch_size = .*8.* and not .*9"):
        ss.sweep("syn-small", **{**SMALL, "batch_size": 9}, store=path)
    assert not seen
    assert ss.load(path).identical(first)


@pytest.mark.parametrize(
    ("owner", "name", "call", "seconds"),
    [(store, "inner", 7, 1.0), (np, "savez", 3, -1.0)],
    ids=["a shard", "a checkpoint"],
)
def test_an_interrupt_within_a_write_loses_nothing(
    tmp_path, monkeypatch, owner: object, name: str, call: int, seconds: float
) -> None:
    """What is staged by then is in the commit that follows; it must not count as done and be thrown away."""
    options = {**SMALL, "record": "loss", "shard_size": 2}
    real, calls = getattr(owner, name), []

    def interrupted(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(sweeping, "COMMIT_SECONDS", seconds)
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ss.sweep("syn-small", **options, store=tmp_path / "s.zarr")
    monkeypatch.undo()
    resumed = ss.sweep("syn-small", **options, store=tmp_path / "s.zarr")
    np.testing.assert_array_equal(resumed["loss"], ss.sweep("syn-small", **options)["loss"])


@pytest.mark.parametrize("options", [SMALL, FLOWS], ids=["training", "flow"])
@pytest.mark.parametrize("then", [8, 5], ids=["the same shards", "other shards"])
def test_an_interrupted_sweep_runs_only_what_is_missing(tmp_path, shards, options, then: int) -> None:
    path = tmp_path / "s.zarr"
    whole = ss.sweep("syn-small", **options)

    def interrupt(shard: Shard, seen: list[int]) -> None:
        if len(seen) == 3:
            raise KeyboardInterrupt

    shards(interrupt)
    with pytest.raises(KeyboardInterrupt):
        ss.sweep("syn-small", **options, store=path, shard_size=8)
    with pytest.raises(ss.StoreError, match=r"unfinished run \(12 of 24 runs\)"):
        ss.load(path)
    assert (ss.load(path, partial=True)["status"] == "ok").sum() == 12
    again = shards()
    result = ss.sweep("syn-small", **options, store=path, shard_size=then)
    assert again == ([2, 3] if then == 8 else [3, 4, 5])
    np.testing.assert_array_equal(result["loss"], whole["loss"])


def test_a_shard_that_fails_is_tried_again_and_the_others_are_kept(tmp_path, shards) -> None:
    times, arrays = 2, []

    def fail(shard: Shard, seen: list[int]) -> None:
        if shard.index == 1 and seen.count(1) <= times:
            state = np.zeros(3)
            arrays.append(weakref.ref(state))
            raise MemoryError("out of memory")
        assert shard.index < 2 or all(array() is None for array in arrays), "a failed shard keeps its arrays"

    tries = shards(fail)
    assert (ss.sweep("syn-small", **SMALL, shard_size=4)["status"] == "ok").all()
    assert tries == [0, 1, 1, 1, 2, 3, 4, 5]
    times = 99
    with pytest.warns(RuntimeWarning, match=r"shard 1 \(4 runs\) failed: MemoryError: out of memory"):
        result = ss.sweep("syn-small", **SMALL, shard_size=4, retries=1)
    assert result["status"].values.ravel().tolist() == ["ok"] * 4 + ["failed"] * 4 + ["ok"] * 16
    np.testing.assert_array_equal(result["loss"].isnull().any("step"), result["status"] == "failed")
    with pytest.raises(ss.ScanSnapError, match=r"shard 1 .* failed: MemoryError: out of memory; the others .*s\.zarr"):
        ss.sweep("syn-small", **SMALL, shard_size=4, retries=0, store=tmp_path / "s.zarr")
    again = shards()
    assert (ss.sweep("syn-small", **SMALL, shard_size=4, store=tmp_path / "s.zarr")["status"] == "ok").all()
    assert again == [1]


PROGRAM = """
import scansnap as ss, sys
ss.sweep("syn-small", lr_z=1.0, lr_y=[1.0, 2.0], seeds=range(200), steps=400, batch_size=16, seq_len=32,
         store=sys.argv[1], shard_size=10, progress=False)
"""


@pytest.mark.slow  # `tests/faults/test_attacks.py` simulates kills at some moments
def test_killed_outright_it_goes_on(tmp_path) -> None:
    """kill -9 of the process in the middle; started again, nothing done before is lost or different."""
    path = tmp_path / "s.zarr"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    done = 0
    for _ in range(600):
        time.sleep(0.1)
        if path.exists() and (done := sweeping.runs_in_store(path)):
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert done >= 10
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True)
    whole = ss.sweep("syn-small", lr_z=1.0, lr_y=[1.0, 2.0], seeds=range(200), steps=400, batch_size=16, seq_len=32)
    np.testing.assert_array_equal(ss.load(path)["loss"], whole["loss"])


@needs_ray
def test_on_ray_the_numbers_are_the_same_even_if_a_worker_dies(tmp_path, monkeypatch) -> None:
    """The first worker to take shard 1 kills itself, and Ray gives the shard to another; nobody else can connect."""
    whole = ss.sweep("syn-small", **SMALL)
    died, real = tmp_path / "died", run_shard

    def dying(shard):
        if shard.index == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(shard)

    def refusing(shard):
        raise RuntimeError("no")

    monkeypatch.setenv(MARK, str(tmp_path))
    monkeypatch.setattr(sweeping, "run_shard", dying)
    with ray_cluster("ray"):
        result = ss.sweep("syn-small", **SMALL, shard_size=8, cluster="ray", store=tmp_path / "s.zarr")
        assert died.exists()
        np.testing.assert_array_equal(result["loss"], whole["loss"])
        np.testing.assert_array_equal(result["entropy"], whole["entropy"])
        monkeypatch.setattr(sweeping, "run_shard", refusing)
        with pytest.warns(RuntimeWarning, match="failed: RuntimeError: no"):
            failed = ss.sweep("syn-small", **SMALL, shard_size=24, cluster="ray", retries=0)
        assert (failed["status"] == "failed").all()
        monkeypatch.setattr(sweeping, "run_shard", real)
        flows = ss.sweep("syn-small", **FLOWS, shard_size=3, cluster="ray")
        addresses = listening({Path(f"/proc/{os.getpid()}"), *marked(str(tmp_path))})
        assert len(addresses) > 4
        assert set(addresses) <= LOOPBACK
    np.testing.assert_array_equal(flows["loss"], ss.sweep("syn-small", **FLOWS)["loss"])


@needs_ray
def test_a_cluster_that_does_not_answer_is_said_before_anything_is_made(tmp_path) -> None:
    with pytest.raises(ss.InputError, match="no Ray cluster answers at 'nonsense'"):
        ss.sweep("syn-small", **SMALL, cluster="nonsense", store=tmp_path / "s.zarr")
    assert list(tmp_path.iterdir()) == []


def test_trouble_with_the_disk_is_said_and_nothing_is_overwritten(tmp_path, monkeypatch) -> None:
    path: Path = tmp_path / "s.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})())
        with pytest.raises(ss.InputError, match="KiB free: record less"):
            ss.sweep("syn-small", **SMALL, store=path)
        assert list(tmp_path.iterdir()) == []

    def full(self, block, place):
        raise ss.StoreError(f"cannot write {self.path}: {os.strerror(errno.ENOSPC)}")

    with monkeypatch.context() as patch:
        patch.setattr("scansnap.results.store.RunStore.write", full)
        with pytest.raises(ss.StoreError, match="No space left"):
            ss.sweep("syn-small", **SMALL, store=path)
    assert ss.sweep("syn-small", **SMALL, store=path)["loss"].notnull().all()
    (tmp_path / "file.zarr").write_text("not a store")
    with pytest.raises(ss.StoreError, match="not a result of scansnap"):
        ss.sweep("syn-small", **SMALL, store=tmp_path / "file.zarr")
    assert (tmp_path / "file.zarr").read_text() == "not a store"
