"""A run that ends, or whose disk is full, at any moment at which it changes the disk goes on to the same numbers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics import sweep as sweeping
from scansnap.dynamics import train as training
from scansnap.storage import files
from scansnap.storage.files import checksum, read_checksummed_json
from scansnap.storage.folder import MANIFEST, CheckedFolder

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 8, "seq_len": 16, "steps": 10, "record": "loss"}


class Killed(BaseException):
    """The end of the process; nothing catches it."""


class Moments:
    """Counts the changes of the disk, and stops at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, stop_at: int, error: BaseException) -> None:
        self.count = 0
        self._stop_at, self._error = stop_at, error
        for owner, name in (
            (Path, "write_bytes"),
            (Path, "replace"),
            (Path, "rename"),
            (Path, "unlink"),
            (files, "_sync"),
            (CheckedFolder, "write_with"),
        ):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **words: Any) -> Any:
            self.count += 1
            if self.count == self._stop_at:
                raise self._error
            if self.count > self._stop_at and isinstance(self._error, Killed):
                raise Killed  # a process that has ended does nothing more
            return real(first, *rest, **words)

        return call


def train(path: Path) -> Any:
    return ss.train(ss.syn_small(), **OPTIONS, record_every=1, store=path).load()


def sweep(path: Path) -> Any:
    options = {**OPTIONS, "lr_y": [1.0, 2.0], "seeds": range(3), "shard_size": 2}
    return ss.sweep(ss.syn_small(), **options, store=path).load()


@pytest.fixture(autouse=True)
def _many_checkpoints(monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # which takes most of the time
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(training, "FIRST_PIECE", 4)
    monkeypatch.setattr(training, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(sweeping, "COMMIT_SECONDS", -1.0)


def stop_everywhere(folder: Path, run: Callable[[Path], Any], error: BaseException, stride: int) -> tuple[int, int]:
    """Stop at every `stride`-th moment, and in the midst of the last moves, and start again.

    Returns how often the run was stopped, and how many moments there are.
    """
    with pytest.MonkeyPatch.context() as patch:
        whole = Moments(patch, 10**9, error)
        expected = run(folder / "whole.zarr")
    stopped = 0
    for moment in sorted({*range(1, whole.count + 1, stride), whole.count - 2}):
        path = folder / f"{moment}.zarr"
        with pytest.MonkeyPatch.context() as patch:
            Moments(patch, moment, error)
            try:
                run(path)
            except Killed:
                stopped += 1
            except ss.StoreError as refusal:
                stopped += "No space left on device" in str(refusal)
        result = run(path)
        assert all(np.array_equal(result[name], expected[name]) for name in result.variables), moment
        assert not list(path.rglob("*.new")), moment
    return stopped, whole.count


@pytest.mark.parametrize("run", [train, sweep])
@pytest.mark.parametrize("error", [Killed(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["kill", "full"])
def test_stopped_at_some_moments(tmp_path, run, error) -> None:
    stopped, moments = stop_everywhere(tmp_path, run, error, stride=120)
    assert stopped >= 2
    assert moments > 150


@pytest.mark.slow
@pytest.mark.parametrize("run", [train, sweep])
@pytest.mark.parametrize("error", [Killed(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["kill", "full"])
def test_stopped_at_every_moment(tmp_path, run, error, capsys) -> None:
    stopped, moments = stop_everywhere(tmp_path, run, error, stride=1)
    with capsys.disabled():
        print(f"\n{run.__name__}, {error!r}: stopped {stopped} times at {moments} moments, and went on")


@pytest.mark.parametrize("run", [train, sweep])
def test_a_manifest_names_only_what_is_on_the_disk(tmp_path, run, monkeypatch) -> None:
    """When a manifest takes its place, every file that it names, and its folders, have been synced."""
    synced: set[tuple[str, tuple[int, ...]]] = set()
    folders: set[Path] = set()
    root, sync, replace, manifests = tmp_path / "r.zarr", files._sync, Path.replace, []

    def noting_sync(path: Path) -> None:
        sync(path)
        if path.is_dir():
            folders.add(path)
        else:
            synced.add((path.name.removesuffix(".new"), tuple(checksum(path.read_bytes()))))

    def checking_replace(path: Path, target: Path) -> Path:
        if Path(target).name == MANIFEST:
            listed = read_checksummed_json(path.read_bytes())["files"]
            manifests.append(len(listed))
            for name, value in listed.items():
                assert (name.rpartition("/")[2], tuple(value)) in synced, name
                assert {root / folder for folder in Path(name).parents} <= folders, name
        return replace(path, target)

    monkeypatch.setattr(files, "_sync", noting_sync)
    monkeypatch.setattr(Path, "replace", checking_replace)
    run(root)
    assert len(manifests) > 2
