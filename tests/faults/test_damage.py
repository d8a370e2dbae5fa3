"""Damage is never read as data: a damaged store is refused in a sentence, or gives the numbers that were written."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.storage.files import checksummed_json, read_checksummed_json
from scansnap.storage.folder import MANIFEST, CheckedFolder
from scansnap.text.model_file import load_model, model_folder
from tests.cli.test_cli import run
from tests.faults.works import OPTIONS, text, watch


def flip(path: Path, place: float = 0.5) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)


def test_the_sentence_names_the_variable_and_what_is_intact_can_be_had(tmp_path) -> None:
    path, options = tmp_path / "s.zarr", {**OPTIONS, "lr_z": [0.5, 1.0], "lr_y": [1.0, 2.0], "seeds": range(8)}

    def sweep() -> Any:
        return ss.sweep("syn-small", **options, steps=2, shard_size=8, store=path).load()

    whole = sweep()
    assert ss.check_store(path).is_intact
    chunks = sorted(file for file in (path / "loss" / "c").rglob("*") if file.is_file())
    assert len(chunks) > 1
    chunks[0].unlink()
    with pytest.raises(ss.StoreError, match=r"the file loss/c/[0-9/]+ of 'loss' is missing; scansnap check"):
        ss.load(path)
    with pytest.raises(ss.StoreError, match="'loss' is missing"):
        sweep()
    with pytest.warns(UserWarning, match="loss is not all there"):
        partial = ss.load(path, partial=True)
    intact = np.isfinite(partial["loss"].values)
    assert 0 < intact.sum() < intact.size
    assert np.array_equal(partial["loss"].values[intact], whole["loss"].values[intact])
    assert partial.drop_vars("loss").equals(whole.drop_vars("loss"))
    assert [name for name, files in ss.check_store(path).damaged.items() if files] == ["loss"]


def test_a_lazy_result_is_checked_when_it_is_read(tmp_path) -> None:
    path = tmp_path / "r.zarr"
    ss.train("syn-small", **{**OPTIONS, "record": ("loss", "accuracy")}, steps=4, store=path)
    file = next(file for file in (path / "loss" / "c").rglob("*") if file.is_file())
    flip(file, 0.99)
    lazy = ss.load(path, lazy=True)
    lazy["accuracy"].load()
    with pytest.raises(ss.StoreError, match="of 'loss' has other bytes than were written"):
        lazy["loss"].load()
    file.write_bytes(file.read_bytes()[:-1])  # another size shows at once
    with pytest.raises(ss.StoreError, match="of 'loss' has other bytes than were written"):
        ss.load(path, lazy=True)


def test_a_store_of_an_earlier_version_is_refused_and_can_be_converted(tmp_path) -> None:
    result = ss.train("syn-small", **OPTIONS, steps=4).assign_attrs(format=1)
    result.to_zarr(tmp_path / "old.zarr", zarr_format=2, consolidated=True)
    for read in (ss.load, ss.check_store):
        with pytest.raises(ss.StoreError, match=r"if an earlier version wrote it, save\(xarray\.open_zarr"):
            read(tmp_path / "old.zarr")
    assert ss.load(ss.save(xr.open_zarr(tmp_path / "old.zarr"), tmp_path / "new.zarr")).equals(result)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    "metadata",
    [
        {"dtype": "|O", "fill_value": None, "filters": [{"id": "pickle"}]},
        {"filters": [{"id": "pickle"}]},
        {"compressor": {"id": "pickle"}},
    ],
    ids=str,
)
def test_a_pickle_in_a_zarr_store_is_not_run(tmp_path, metadata: dict[str, Any], committed: bool) -> None:
    """Zarr's format 2 has a codec that unpickles what is in a file; stores of this package are of format 3 only.

    A forged manifest changes nothing.
    """

    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    path = tmp_path / "old.zarr"
    ss.train("syn-small", **OPTIONS, steps=1).to_zarr(path, zarr_format=2, consolidated=False)
    (path / "loss" / "0.0").write_bytes(pickle.dumps(np.array([[Bomb(), Bomb()]], object)))
    stored = json.loads((path / "loss" / ".zarray").read_text())
    (path / "loss" / ".zarray").write_text(json.dumps({**stored, "filters": None, "compressor": None, **metadata}))
    if committed:
        folder = CheckedFolder(path)
        folder.adopt_all()
        folder.commit({})
    with pytest.raises(ss.StoreError):
        ss.load(path)
    assert not (tmp_path / "executed").exists()


def test_commands_refuse_damage_and_say_where_it_is(tmp_path, monkeypatch) -> None:
    for work in (text, watch):
        (tmp_path / work.__name__).mkdir()
        work(tmp_path / work.__name__)
    model = model_folder(tmp_path / "text" / "r.zarr")
    numbers = {
        kind: next(file for file in (tmp_path / kind / "r.zarr" / variable / "c").rglob("*") if file.is_file())
        for kind, variable in (("text", "entropy"), ("watch", "normalized_entropy"))
    }
    for file, part, command in (
        (numbers["text"], "entropy", "text show text/r.zarr"),
        (numbers["watch"], "normalized_entropy", "watch show watch/r.zarr --once"),
        (numbers["watch"], "normalized_entropy", "watch show watch/r.zarr --json"),
        (model / "model.safetensors", "the store", f"check {model}"),
    ):
        store = Path(command.split()[2 if " show " in command else 1])
        assert ss.check_store(store).is_intact
        data = file.read_bytes()
        flip(file)
        assert len(ss.check_store(store).damaged[part]) == 1
        ended = run(command, cwd=tmp_path)
        assert ended.returncode == 2, command
        assert "damaged" in ended.stderr, command
        assert "Traceback" not in ended.stderr
        file.write_bytes(data)
    content = read_checksummed_json((model / MANIFEST).read_bytes())
    (model / MANIFEST).write_bytes(checksummed_json({**content, "info": {**content["info"], "width": "x"}}))
    with pytest.raises(ss.StoreError, match="is damaged"):
        load_model(model)
