"""The store of snapshots: continued after a kill, read while it is written, refused for another model."""

from __future__ import annotations

import errno
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.monitor import store
from scansnap.monitor.store import BLOCK_SIZE, SnapshotStore, read_snapshots
from scansnap.storage.folder import CheckedFolder
from scansnap.storage.provenance import RESULT_FORMAT
from tests.monitor.given_attention import join, missing, series, softmax


def snapshots(count: int) -> list[xr.Dataset]:
    """Snapshots of which one number tells the step."""
    logits = np.random.default_rng(0).normal(size=(5, 3, 2, 8, 8))
    few = series([softmax(part) for part in logits])
    parts = [few.isel(step=[i % 5]).copy(deep=True).assign_coords(step=[10 * i]) for i in range(count)]
    for i, part in enumerate(parts):
        part["largest_logit"][...] = i
    return parts


def write(path: Path, parts: list[xr.Dataset]) -> None:
    file = SnapshotStore(path)
    for part in parts:
        file.append(part)
    file.close()


def test_it_opens_with_plain_xarray(tmp_path) -> None:
    """Over the border of a block, with a missing snapshot; plain readers find the last block when it is closed."""
    parts = snapshots(BLOCK_SIZE + 3)
    parts[5] = missing(parts[0], 50, "out of memory")
    file = SnapshotStore(tmp_path / "a.zarr")
    for part in parts:
        file.append(part)
    expected = join(parts)
    assert xr.open_zarr(tmp_path / "a.zarr", chunks=None).load().equals(expected.isel(step=slice(BLOCK_SIZE)))
    assert read_snapshots(tmp_path / "a.zarr").load().equals(expected)
    file.close()
    assert xr.open_zarr(tmp_path / "a.zarr", chunks=None).load().equals(expected)
    assert xr.open_zarr(tmp_path / "a.zarr", chunks=None).attrs == {**expected.attrs, "format": RESULT_FORMAT}
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_it_goes_on_where_it_was(tmp_path, monkeypatch, stop: int) -> None:
    monkeypatch.setattr(store, "BLOCK_SIZE", 4)
    parts = snapshots(7)
    write(tmp_path / "a.zarr", parts[:stop])
    file = SnapshotStore(tmp_path / "a.zarr")
    assert file.last_step == 10 * (stop - 1)
    with pytest.raises(
        ss.StoreError, match=r"snapshots up to step \d+, so the snapshot at step 0 was not added: count on"
    ):
        file.append(parts[0])
    for part in parts[stop:]:
        file.append(part)
    assert read_snapshots(tmp_path / "a.zarr").load().equals(join(parts))


def test_what_is_not_a_store_of_snapshots_is_refused(tmp_path) -> None:
    with pytest.raises(ss.StoreError, match="does not exist"):
        read_snapshots(tmp_path / "none.zarr")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    with pytest.raises(ss.StoreError, match="not a scansnap store"):
        SnapshotStore(tmp_path / "thesis")
    xr.Dataset({"a": 1}, attrs={"kind": "train"}).to_zarr(tmp_path / "run.zarr", zarr_format=2)
    with pytest.raises(ss.StoreError, match=r"run\.zarr is not a store of snapshots: give what ss\.watch"):
        read_snapshots(tmp_path / "run.zarr")
    with pytest.raises(ss.StoreError, match="not a scansnap store"):
        SnapshotStore(tmp_path / "run.zarr")


def test_a_full_disk_keeps_the_snapshots_before(tmp_path, monkeypatch) -> None:
    parts = snapshots(3)
    file = SnapshotStore(tmp_path / "a.zarr")
    file.append(parts[0])
    write_with = CheckedFolder.write_with

    def full(self: CheckedFolder, name: str, fill: Any) -> None:
        write_with(self, name, lambda file: file.write(b"half"))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckedFolder, "write_with", full)
    with pytest.raises(ss.StoreError, match="No space left on device; the snapshots before step 10 are kept"):
        file.append(parts[1])
    monkeypatch.undo()
    assert read_snapshots(tmp_path / "a.zarr").load().equals(parts[0])
    file.append(parts[1])  # the disk has space again
    file.append(parts[2])
    assert read_snapshots(tmp_path / "a.zarr").load().equals(join(parts))
    shutil.rmtree(tmp_path / "a.zarr")
    with pytest.raises(ss.StoreError, match="the snapshots before step 30 were deleted with it"):
        file.append(parts[2].assign_coords(step=[30]))


class Killed(BaseException):
    """Nothing catches it."""


class Cut:
    """Ends the process, as it were, at the n-th file that is written, moved or removed; a file may be half written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        write_bytes, write_with = Path.write_bytes, CheckedFolder.write_with
        replace, unlink = Path.replace, Path.unlink

        def half_write(file: Path, data: bytes) -> int:
            write_bytes(file, data[: len(data) // (1 if self.left else 2)])
            return self._count()

        def half_fill(self_: CheckedFolder, name: str, fill: Any) -> None:
            write_with(self_, name, fill if self.left else lambda file: file.write(b"half"))
            self._count()

        def before(real: Any) -> Any:
            def call(file: Path, *rest: Any, **more: Any) -> Any:
                self._count()
                return real(file, *rest, **more)

            return call

        monkeypatch.setattr(Path, "write_bytes", half_write)
        monkeypatch.setattr(CheckedFolder, "write_with", half_fill)
        monkeypatch.setattr(Path, "replace", before(replace))
        monkeypatch.setattr(Path, "unlink", before(unlink))

    def _count(self) -> int:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return 0


@pytest.mark.parametrize("block", [64, 2])
def test_killed_at_any_moment(tmp_path, monkeypatch, block: int) -> None:
    """The snapshot is there as a whole or not at all, and the next process goes on; also where a block is full."""
    parts = [part[["entropy", "pattern"]].reset_coords(drop=True) for part in snapshots(3)]  # few arrays
    write(tmp_path / "a.zarr", parts[:1])
    cuts, finished = 0, False
    while not finished:
        path = shutil.copytree(tmp_path / "a.zarr", tmp_path / f"{cuts}.zarr")
        file = SnapshotStore(path)
        monkeypatch.setattr(store, "BLOCK_SIZE", block - 1)
        Cut(monkeypatch, cuts)
        try:
            file.append(parts[1])
            finished = True
        except Killed:
            pass
        monkeypatch.undo()
        file._folder.unlock()  # as the system does
        seen = read_snapshots(path).load()
        assert seen.equals(join(parts[: seen.sizes["step"]]))
        again = SnapshotStore(path)
        for part in parts[seen.sizes["step"] :]:
            again.append(part)
        assert read_snapshots(path).load().equals(join(parts))
        cuts += 1
    assert cuts > (20 if block == 2 else 4)


WRITER = """
import pickle, sys
from scansnap.monitor.store import SnapshotStore
file = SnapshotStore(sys.argv[1])
parts = pickle.load(open(sys.argv[2], "rb"))
for part in parts[0 if file.last_step is None else file.last_step // 10 + 1 :]:
    file.append(part)
    print(file.last_step, flush=True)
"""


def test_killed_while_it_is_read(tmp_path) -> None:
    """Two processes write and are killed while this one keeps reading."""
    path = tmp_path / "a.zarr"
    parts = snapshots(400)
    expected = join(parts)
    (tmp_path / "parts.pickle").write_bytes(pickle.dumps(parts))
    for _ in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(tmp_path / "parts.pickle")], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline()  # it has begun
        sizes = []
        while len(sizes) < 3 or sizes[-1] < sizes[0] + 10:
            seen = read_snapshots(path).load()
            assert seen.equals(expected.isel(step=slice(seen.sizes["step"])))
            sizes.append(seen.sizes["step"])
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    seen = read_snapshots(path).load()
    assert seen.sizes["step"] >= sizes[-1] > 20
    assert seen.equals(expected.isel(step=slice(seen.sizes["step"])))
