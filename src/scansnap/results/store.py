"""Results on disk: zarr stores that xarray opens without this package.

`save` and `load` handle whole results.  `RunStore` writes runs while they advance: records or runs in blocks, and from
time to time a checkpoint (plain arrays, no pickles) from which the work continues to identical numbers.  A checkpoint
and the blocks before it are committed together (`storage/folder.py`): after a crash the store is as it was at its last
checkpoint.  A run in progress has the attribute `complete = 0` until its last record is written.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from scansnap.runtime.errors import StoreError, brief
from scansnap.storage.files import write_errors
from scansnap.storage.folder import MANIFEST, CheckedFolder, Condition, is_new, part_of
from scansnap.storage.provenance import RESULT_FORMAT, WATCH_KIND
from scansnap.validation.validate import validated

EAGER_BYTES = 2 * 2**30
"""Results up to this size are read when they are opened, so that damage is noticed immediately."""

CHECKPOINT = ".checkpoint.npz"
"""The file of an unfinished run's last checkpoint, in its store."""

UNCHANGED_NOTE = "; nothing was changed there"
RESUMABLE_NOTE = "; what was written before is kept; fix the cause and start the same run again to continue"

NO_PROGRESS = "nothing yet"
"""What a run holds before its first checkpoint."""

METADATA = "zarr.json"
"""The file with the attributes of a store, or with the shape of an array."""

VALUES_ATTRIBUTE = "plain_values"
"""The attribute that holds a coordinate's values as JSON, if an array cannot hold them."""


@validated
def save(dataset: xr.Dataset, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a result to a zarr store; an existing one is replaced only if `overwrite` is true.

    >>> run = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5)
    >>> ss.save(run, "kept.zarr").name
    'kept.zarr'
    """
    path = Path(path)
    folder = CheckedFolder(path)
    if not is_new(path):
        if not overwrite:
            raise StoreError(f"{path} exists already: give another name, or overwrite=True to replace it.")
        _attributes(folder)  # refuses to replace anything but a result
    with write_errors(path, UNCHANGED_NOTE), folder.locked():
        _zarr().write_dataset(folder, encoded(dataset).assign_attrs(format=RESULT_FORMAT))
        _zarr().consolidate(folder)
        folder.commit()
    return path


@validated
def load(path: str | Path, *, partial: bool = False, lazy: bool | None = None) -> xr.Dataset:
    """Open a result.

    A damaged result and an unfinished run are refused unless `partial` is true: then missing records and numbers that
    were damaged are NaN, and other variables that were damaged are left out.  With `lazy` the arrays stay on disk until
    they are used, and are checked then; by default this holds for results over `EAGER_BYTES`.

    >>> path = ss.save(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5), "opened.zarr")
    >>> ss.load(path).sizes["step"]
    6
    """
    path = Path(path)
    folder = CheckedFolder(path)
    attrs = _attributes(folder)
    if not attrs.get("complete", 1) and not partial:
        raise StoreError(
            f"{path} holds an unfinished run ({_progress(folder, attrs)}): start the same run again to finish it, "
            "or read what is there with partial=True."
        )
    damaged = folder.damaged() if partial else []
    if not partial:
        folder.check_presence()
    try:
        dataset = _zarr().open_dataset(folder, damaged)
        missing = set(json.loads(attrs["options"])["record"]) - set(dataset.data_vars)
        if missing and not partial:
            raise KeyError(f"no {', '.join(sorted(missing))}")
        stays = dataset.nbytes > EAGER_BYTES if lazy is None else lazy
        return decoded(_without(dataset, damaged, path) if stays else _without(dataset, damaged, path).load())
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{path} cannot be read: its data are damaged or incomplete ({brief(error)}).") from None


def _without(dataset: xr.Dataset, damaged: list[str], path: Path) -> xr.Dataset:
    """The dataset without the variables of damaged files, except numbers, of which only the damaged ones are lost."""
    lost = {part_of(name) for name in damaged if not name.endswith(METADATA)} & {
        str(name) for name in dataset.variables
    }
    if lost:
        warnings.warn(f"{path} is damaged: {', '.join(sorted(lost))} is not all there.", UserWarning, stacklevel=3)
    return dataset.drop_vars([name for name in lost if dataset[name].dtype.kind != "f"])


@validated
def check_store(path: str | Path) -> Condition:
    """Read every file of a result, of snapshots or of a trained model, and report which parts are intact.

    >>> path = ss.save(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5), "checked.zarr")
    >>> condition = ss.check_store(path)
    >>> condition.complete, any(condition.damaged.values())
    (True, False)
    """
    folder = CheckedFolder(Path(path))
    is_array_store = METADATA in folder.files or not folder.committed
    complete = bool(_attributes(folder, snapshots=True).get("complete", 1)) if is_array_store else True
    return replace(folder.condition(), complete=complete)


@dataclass(frozen=True)
class Variable:
    """What `RunStore` needs to create an array of a store."""

    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    attributes: Mapping[str, str]

    @property
    def nbytes(self) -> int:
        """The size of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


class RunStore:
    """A store that one process is writing.  Make it with `begin`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished = False
        self._folder = CheckedFolder(path)
        self._group: Any = None

    @classmethod
    def begin(cls, path: str | Path, template: xr.Dataset, variables: Mapping[str, Variable]) -> RunStore:
        """The store for a run: new, or that of the same run, unfinished or `finished`.

        `template` has the coordinates and attributes.
        """
        store = cls(Path(path))
        folder = store._folder
        if not is_new(store.path):
            folder.read_manifest()  # another process may just have committed for the first time
            store.finished = _is_finished(folder, template.attrs)
            if store.finished and not folder.leftovers():
                return store
        folder.lock()
        try:
            if folder.committed:
                store._continue(template.attrs)
            else:
                store._create(template, variables)
        except BaseException:
            store.unlock()
            raise
        return store

    def _continue(self, attrs: Mapping[str, Any]) -> None:
        """Take up the run that is there, which another process may just have finished."""
        self.finished = _is_finished(self._folder, attrs)
        self._folder.refuse_damage(
            f"remove it to start the run again, or keep what scansnap check {self.path} lists as intact with "
            "load(..., partial=True)"
        )
        if self.finished:
            self.unlock()

    def _create(self, template: xr.Dataset, variables: Mapping[str, Variable]) -> None:
        with write_errors(self.path, UNCHANGED_NOTE), self._folder.staging():
            zarr = _zarr()
            zarr.write_dataset(self._folder, encoded(template).assign_attrs(format=RESULT_FORMAT, complete=0))
            for name, variable in variables.items():
                self._opened_group().create_array(
                    name,
                    shape=variable.shape,
                    chunks=variable.chunks,
                    dtype=variable.dtype,
                    fill_value=np.nan,
                    compressors=zarr.COMPRESSORS,
                    dimension_names=variable.dimensions,
                    attributes=dict(variable.attributes),
                )
            zarr.consolidate(self._folder)
            self._folder.commit()

    def unlock(self) -> None:
        """Let other processes write."""
        self._folder.unlock()

    def write(self, block: Mapping[str, NDArray[Any]], place: tuple[slice, ...]) -> None:
        """Write a block of variables or coordinates at a place of their leading axes, and as much of the others.

        It counts from the next checkpoint on.
        """
        with self._writing():
            for name, values in block.items():
                self._opened_group()[name][inner(place, values)] = values

    def write_checkpoint(self, step: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Save everything needed to continue after `step` updates, with all that was written before."""
        with self._writing():
            self._folder.write_with(CHECKPOINT, lambda file: np.savez(file, step=np.int64(step), **state))  # type: ignore[arg-type]
            self._folder.commit()

    def read_checkpoint(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """The last checkpoint, or None if there is none yet."""
        return read_checkpoint(self._folder)

    def finish(self, coordinates: Mapping[str, NDArray[Any]]) -> None:
        """Fill in the coordinates that are known only now, and mark the run complete."""
        with self._writing():
            group = self._opened_group()
            for name, values in coordinates.items():
                group[name][...] = values
            group.attrs["complete"] = 1
            _zarr().consolidate(self._folder)
            self._folder.remove(CHECKPOINT)
            self._folder.commit()
        self.unlock()

    def describe_progress(self) -> str:
        """One sentence on what an interrupted run leaves."""
        folder = CheckedFolder(self.path)
        words = _progress(folder, _attributes(folder))
        return f"{self.path} holds {words}: start the same again to go on{' from there' * (words != NO_PROGRESS)}."

    def _opened_group(self) -> Any:
        if self._group is None:
            self._group = _zarr().open_group(self._folder)
        return self._group

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with write_errors(self.path, RESUMABLE_NOTE):
            try:
                yield
            except OSError:  # an interrupt keeps what is staged: the next commit writes it
                with contextlib.suppress(OSError):
                    self._folder.discard()
                raise


def read_checkpoint(folder: CheckedFolder) -> tuple[int, dict[str, NDArray[Any]]] | None:
    """The last checkpoint of an unfinished run and how far it had come, or None."""
    data = folder.read(CHECKPOINT)
    if data is None:
        return None
    with np.load(io.BytesIO(data), allow_pickle=False) as content:
        state = {name: content[name] for name in content.files}
    return int(state.pop("step")), state


def inner(place: tuple[slice, ...], values: NDArray[Any]) -> tuple[slice, ...]:
    """The index of a place of the leading axes, and of as much of the others as there are values."""
    return (*place, *(slice(size) for size in values.shape[len(place) :]))[: values.ndim]


def encoded(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with coordinates that contain None turned into text for zarr; an attribute keeps their values."""
    mixed = [str(name) for name, values in dataset.coords.items() if values.dtype == object]
    texts = {
        name: (
            dataset[name].dims,
            np.array([value if isinstance(value, str) else json.dumps(value) for value in dataset[name].values]),
            {**dataset[name].attrs, VALUES_ATTRIBUTE: json.dumps(dataset[name].values.tolist())},
        )
        for name in mixed
    }
    return dataset.assign_coords(texts) if mixed else dataset


def decoded(dataset: xr.Dataset) -> xr.Dataset:
    """The inverse of `encoded`."""
    for name, values in dataset.coords.items():
        if VALUES_ATTRIBUTE in values.attrs:
            attrs = dict(values.attrs)
            index = pd.Index(json.loads(attrs.pop(VALUES_ATTRIBUTE)), dtype=object)  # an array would turn None into NaN
            dataset = dataset.assign_coords({name: (values.dims, index, attrs)})
    return dataset


def _is_finished(folder: CheckedFolder, attrs: Mapping[str, Any]) -> bool:
    """Whether the run in a store is finished; it must be the one that `attrs` describes."""
    path, stored = folder.root, _attributes(folder)
    old, new = _identity(stored), _identity(attrs)
    old_code, new_code = old.pop("code", {}), new.pop("code", {})
    if any(old.get(name) != new[name] for name in ("version_scansnap", "commit")):
        origin = f"{old.get('version_scansnap', '?')} (commit {old.get('commit', 'unknown')})"
        raise StoreError(
            f"{path} holds a run of scansnap {origin}: continue it with that version, or give another name."
        )
    for name in new:
        if old.get(name) != new[name] and name in ("classes_fingerprint", "classes", "system_fingerprint", "system"):
            raise StoreError(
                f"{path} holds a run on other data: give the same classes, and your own source with the same code, to "
                "continue it, or another name."
            )
        if old.get(name) != new[name]:
            raise StoreError(
                f"{path} holds another run, with {name} = {_short(old.get(name))} and not {_short(new[name])}: "
                "give the same options to continue it, or another name."
            )
    for part, digest in new_code.items():
        if old_code.get(part) != digest:
            raise StoreError(
                f"{path} was begun with other code of the {part}: undo the change to continue it, or give another name."
            )
    return bool(stored.get("complete", 1))


def _identity(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two runs the same run: their configuration, the code that made them, and the user's code in them."""
    same = ("kind", "classes_fingerprint", "system_fingerprint", "version_scansnap", "commit")
    return {**{name: attrs.get(name) for name in same}, **json.loads(attrs["options"])}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _attributes(folder: CheckedFolder, *, snapshots: bool = False) -> dict[str, Any]:
    """The attributes of a result, or of snapshots if they are allowed; refuses anything else."""
    path = folder.root
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that a run was written to.")
    if not folder.committed:
        raise StoreError(
            f"{path} is not a result of scansnap, or its {MANIFEST} is missing: give another one; if an earlier "
            f"version wrote it, save(xarray.open_zarr('{path}'), 'new.zarr') converts it."
        )
    attrs = _metadata(folder).get("attributes", {})
    if snapshots and attrs.get("kind") == WATCH_KIND:
        return attrs
    if not {"kind", "format", "options"} <= set(attrs):
        raise StoreError(f"{path} is a zarr store, but not a result of scansnap: open it with xarray.open_zarr.")
    if attrs["format"] != RESULT_FORMAT:
        raise StoreError(
            f"{path} has result format {attrs['format']}, written by scansnap {attrs.get('version_scansnap', '?')}; "
            f"this version reads formats up to {RESULT_FORMAT}: use that version, or xarray.open_zarr."
        )
    try:
        _ = set(json.loads(attrs["options"])["record"])
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{path} is damaged: its attribute 'options' cannot be read.") from None
    return attrs


def _metadata(folder: CheckedFolder, array: str = "") -> dict[str, Any]:
    """The zarr metadata of a store, or of one of its arrays."""
    data = folder.read(f"{array}/{METADATA}" if array else METADATA)
    return {} if data is None else dict(json.loads(data))


def _progress(folder: CheckedFolder, attrs: Mapping[str, Any]) -> str:
    """How far an unfinished run had come, in words."""
    checkpoint = read_checkpoint(folder)
    if not checkpoint or not checkpoint[0]:
        return NO_PROGRESS
    if attrs["kind"] == "sweep":
        return f"{checkpoint[0]:,} of {_num_runs(folder):,} runs"
    return f"{checkpoint[0]:,} of {json.loads(attrs['options'])['steps']:,} steps"


def _num_runs(folder: CheckedFolder) -> int:
    return math.prod(_metadata(folder, "status")["shape"])


def runs_done(path: Path) -> int:
    """How many runs of a sweep are in its store."""
    folder = CheckedFolder(path)
    attrs = _attributes(folder)
    if attrs.get("complete", 1):
        return _num_runs(folder)
    checkpoint = read_checkpoint(folder)
    return checkpoint[0] if checkpoint else 0


def _zarr() -> ModuleType:
    """The module that writes zarr stores, imported late: zarr takes as long as all else."""
    from scansnap.storage import zarr_store

    return zarr_store
