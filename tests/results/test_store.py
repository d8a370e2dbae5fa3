"""Stores: open without this package, survive trouble, and say what is wrong."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.results import store
from scansnap.storage.folder import MANIFEST, CheckedFolder
from tests.small_text import SMALL, small_corpus


@pytest.fixture
def result() -> xr.Dataset:
    return ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=4, seeds=[0, 1])


def flip(file: Path) -> None:
    """Flip a bit of a file."""
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


def test_round_trip_and_plain_xarray(tmp_path, result) -> None:
    path = ss.save(result, tmp_path / "r.zarr")
    assert ss.load(path).identical(result)
    assert xr.open_zarr(path, chunks=None).load().identical(result)
    flip(next(file for file in (path / "loss" / "c").rglob("*") if file.is_file()))
    with pytest.raises(ValueError, match="checksum"):
        xr.open_zarr(path, chunks=None).load()


def test_a_result_describes_itself(result) -> None:
    options = json.loads(result.attrs["options"])
    assert options["steps"] == 4
    assert options["seeds"] == [0, 1]
    from scansnap.data.named_classes import classes_from_mapping

    assert classes_from_mapping(json.loads(result.attrs["classes"])) == ss.syn_small()
    assert {"version_numpy", "commit", "created", "machine"} <= set(result.attrs)


def test_equal_classes_keep_names_of_their_own() -> None:
    for names in (["a", "b", "c", "d"], None, ["e", "f", "g", "h"]):
        classes = ss.SequenceClasses(
            probs=[[0.5, 0.5, 0, 0]], query=[2], next_token=[3], vocab_size=4, token_names=names
        )
        described = ss.train(classes, lr_y=1.0, lr_z=1.0, steps=1).attrs["classes"]
        assert json.loads(described).get("token_names") == names


def test_nothing_is_overwritten_unasked(tmp_path, result) -> None:
    path = ss.save(result, tmp_path / "r.zarr")
    with pytest.raises(ss.StoreError, match="exists already"):
        ss.save(result.isel(run=[0]), path)
    assert ss.load(path).sizes["run"] == 2
    ss.save(result.isel(run=[0]), path, overwrite=True)
    assert ss.load(path).sizes["run"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["r.zarr"]


def test_a_full_disk_leaves_what_was_there(tmp_path, result, monkeypatch) -> None:
    path = ss.save(result, tmp_path / "r.zarr")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_zarr", full)
    with pytest.raises(ss.StoreError, match="No space left on device; nothing was changed"):
        ss.save(result, path, overwrite=True)
    with pytest.raises(ss.StoreError, match="No space left on device"):
        ss.save(result, tmp_path / "other.zarr")
    monkeypatch.undo()
    assert ss.load(path).identical(result)
    assert [p.name for p in tmp_path.iterdir()] == ["r.zarr"]


def test_only_results_are_replaced(tmp_path, result) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    for name in ("notes.txt", "thesis"):
        with pytest.raises(ss.StoreError, match="is not a result of scansnap"):
            ss.save(result, tmp_path / name, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"


def test_what_is_no_result_is_refused(tmp_path, result) -> None:
    with pytest.raises(ss.StoreError, match="does not exist"):
        ss.load(tmp_path / "absent.zarr")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(ss.StoreError, match="is not a result of scansnap"):
        ss.load(tmp_path / "empty.zarr")
    (tmp_path / "file.zarr").write_text("not a folder")
    with pytest.raises(ss.StoreError, match="is not a result of scansnap"):
        ss.load(tmp_path / "file.zarr")
    path = ss.save(result, tmp_path / "r.zarr")
    (path / MANIFEST).unlink()
    with pytest.raises(ss.StoreError, match=r"its manifest\.json is missing"):
        ss.load(path)


def test_a_store_of_another_format_is_refused(tmp_path, result, monkeypatch) -> None:
    monkeypatch.setattr(store, "RESULT_FORMAT", 99)
    path = ss.save(result.assign_attrs(version_scansnap="9.9"), tmp_path / "r.zarr")
    monkeypatch.undo()
    with pytest.raises(ss.StoreError, match=r"result format 99, written by scansnap 9\.9"):
        ss.load(path)


def test_unwritable_folder(tmp_path, result) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ss.StoreError, match="cannot write"):
        ss.save(result, tmp_path / "file" / "r.zarr")
    with pytest.raises(ss.StoreError, match="cannot write"):
        ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=2, store=tmp_path / "file" / "r.zarr")


def _verbs(folder: Path) -> dict[str, Callable[..., xr.Dataset]]:
    """Every verb that goes on with a store, and its options."""
    small: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 2, "batch_size": 4, "seq_len": 8}
    return {
        "train": lambda **more: ss.train("syn-small", **{**small, **more}),
        "flow": lambda **more: ss.flow("syn-small", **{"lr_y": 1.0, "lr_z": 1.0, "times": [1.0], **more}),
        "sweep": lambda **more: ss.sweep("syn-small", **{**small, **more}),
        "text": lambda **more: ss.train_text(small_corpus(folder), **{**SMALL, "steps": 1, **more}),
    }


@pytest.mark.parametrize(
    ("verb", "option", "other"),
    [
        ("train", "residual", True),
        ("flow", "rtol", 1e-4),
        ("sweep", "optimizer", "adam"),
        ("sweep", "residual", [True, False]),
        ("text", "clip", 1.0),
    ],
)
def test_a_store_holds_one_run(tmp_path, verb: str, option: str, other: object) -> None:
    """The same call reads it; with another value of an option it is another run."""
    (folder := tmp_path / "words").mkdir()
    run = _verbs(folder)[verb]
    first = run(store=tmp_path / "r.zarr")
    assert run(store=tmp_path / "r.zarr").identical(first)
    with pytest.raises(ss.ScanSnapError, match=rf"holds another run, with {option} = "):
        run(store=tmp_path / "r.zarr", **{option: other})


def test_a_disk_that_fills_up_mid_run(tmp_path, monkeypatch) -> None:
    """The run stops with a sentence, keeps its last checkpoint, and resumes from it when the disk has space."""
    from scansnap.dynamics import train as training

    options = {"lr_y": 1.0, "lr_z": 1.0, "steps": 40, "record_every": 1, "momentum": 0.9}
    path = tmp_path / "run.zarr"
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(training, "FIRST_PIECE", 1)
    savez, calls = np.savez, []

    def fills_up(file, **arrays):
        calls.append(int(arrays["step"]))
        if len(calls) == 6:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        savez(file, **arrays)

    monkeypatch.setattr(np, "savez", fills_up)
    with pytest.raises(ss.StoreError, match="No space left on device; what was written before is kept"):
        ss.train(ss.syn_small(), **options, store=path)
    monkeypatch.setattr(np, "savez", savez)
    assert not list(tmp_path.rglob("*.new"))
    checkpoint = store.read_checkpoint(CheckedFolder(path))
    assert checkpoint is not None
    assert checkpoint[0] == calls[4]
    resumed = ss.train(ss.syn_small(), **options, store=path).load()
    expected = ss.train(ss.syn_small(), **options)
    assert all(np.array_equal(expected[name], resumed[name]) for name in expected.data_vars)


def test_a_run_of_another_commit_is_refused(tmp_path, monkeypatch) -> None:
    options = {"lr_y": 1.0, "lr_z": 1.0, "steps": 2, "store": tmp_path / "r.zarr"}
    ss.train("syn-small", **options)
    monkeypatch.setattr("scansnap.storage.provenance.commit", lambda: "another")
    with pytest.raises(ss.StoreError, match=r"a run of scansnap .* \(commit \w+.*\): continue it with that version"):
        ss.train("syn-small", **options)
