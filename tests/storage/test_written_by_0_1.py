"""Stores that scansnap 0.1.0 wrote (commit bfe26559) open as they did, and none loses anything.

`written_by_0_1.zip` has finished results, snapshots and text models, among them a result whose writer was killed in the
middle of its last commit and snapshots of a watch that was killed, and two interrupted runs.  `values.npz` in it has
every number, as the version that wrote them read them.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from scansnap.text.model_file import load_model, model_folder

STORES = Path(__file__).with_name("written_by_0_1.zip")
FINISHED = ("flow", "saved", "sweep", "system", "text", "text_yz", "train", "train_staged", "train_two_layers")
WATCHED = ("watch", "watch_killed")
COMMON: dict[str, Any] = {"lr_z": 1.0, "batch_size": 4, "seq_len": 8, "record": "loss", "progress": False}
INTERRUPTED: dict[str, Callable[[Path], xr.Dataset]] = {
    "train": lambda path: ss.train("syn-small", lr_y=1.0, steps=12, record_every=3, **COMMON, store=path),
    "sweep": lambda path: ss.sweep(
        "syn-small", lr_y=[1.0, 2.0], seeds=range(3), steps=2, shard_size=1, **COMMON, store=path
    ),
}


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    with zipfile.ZipFile(STORES) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    with zipfile.ZipFile(STORES) as archive, archive.open("values.npz") as file, np.load(file) as stored:
        return dict(stored)


def of(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The values of a store or of a model."""
    return {key.partition("/")[2]: value for key, value in values.items() if key.startswith(f"{name}/")}


def check_values(dataset: xr.Dataset, expected: dict[str, Any]) -> None:
    assert expected
    assert {str(name) for name in dataset.variables} == set(expected)
    for name, variable in dataset.load().variables.items():
        stored, wanted = variable.values, expected[str(name)]
        if stored.dtype.kind == "O":
            assert json.dumps(stored.tolist()) == wanted.item()
        else:
            np.testing.assert_array_equal(stored, wanted, strict=True)


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".scansnap.lock")
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_result_opens(stores: Path, values: dict[str, Any], name: str) -> None:
    path = stores / f"{name}.zarr"
    check_values(ss.load(path), of(values, path.name))
    condition = ss.check_store(path)
    assert condition.complete
    assert condition.is_intact


@pytest.mark.parametrize("name", WATCHED)
def test_snapshots_open(stores: Path, values: dict[str, Any], name: str) -> None:
    """Also those that were not in the arrays yet when the training was killed."""
    snapshots = read_snapshots(stores / f"{name}.zarr")
    assert snapshots["step"].values.tolist() == [0, 1, 2, 3]
    check_values(snapshots, of(values, f"{name}.zarr"))
    ss.judge_heads(snapshots)


@pytest.mark.parametrize("name", ["text", "text_yz"])
def test_a_trained_model_opens(stores: Path, values: dict[str, Any], name: str) -> None:
    model, tokenizer = load_model(model_folder(stores / f"{name}.zarr"))
    expected = of(values, f"{name}.zarr.model")
    assert {key: value.shape for key, value in model.state_dict().items()} == {k: v.shape for k, v in expected.items()}
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), expected[key])
    assert "cat" in tokenizer.words(range(tokenizer.vocab_size))


@pytest.mark.parametrize("kind", INTERRUPTED)
def test_an_interrupted_run_is_refused_and_kept(stores: Path, kind: str) -> None:
    """Another version may compute other numbers, so the error names the version to finish it with."""
    path = stores / f"{kind}_interrupted.zarr"
    before = digests(path)
    with pytest.raises(ss.StoreError, match=r"scansnap 0\.1\.0 \(commit bfe26559\w+\): continue it with that version"):
        INTERRUPTED[kind](path)
    with pytest.raises(ss.StoreError, match="holds an unfinished run"):
        ss.load(path)
    assert digests(path) == before
    partial = ss.load(path, partial=True)["loss"]
    assert partial.notnull().any()
    assert partial.isnull().any()
