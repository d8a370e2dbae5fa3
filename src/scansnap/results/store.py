"""Results on disk: zarr stores that xarray opens without this package.

`save` and `load` handle whole results.  `RunStore` writes runs while they advance: records or runs in blocks, and now
and then a checkpoint (plain arrays, no pickles) from which the work continues to identical numbers.  A checkpoint and
the blocks before it are committed together (`sealed_folder.py`): a store is always as it was at its last checkpoint,
and on the disk.  New stores are filled beside their final name and renamed.  A run in progress is marked `complete = 0`
until its last record is written.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from scansnap.results.provenance import FORMAT
from scansnap.runtime.errors import StoreError, brief
from scansnap.storage.files import sync
from scansnap.storage.lock import WriterLock
from scansnap.storage.sealed_folder import LIST, SealedFolder, advice, is_metadata, variable_of
from scansnap.validation.validate import validated

EAGER_BYTES = 2 * 2**30
"""Results up to this size are read when they are opened, so that damage shows immediately."""

ZARR_FORMAT = 2  # the format whose text columns every reader knows

CHECKPOINT = ".checkpoint.npz"
"""The file of an unfinished run's last checkpoint, in its store."""

LOOKS = "watch"
"""The attribute `kind` of a store of looks."""

NOTHING = "nothing yet"
"""What a run holds before its first checkpoint."""

WHOLE = "the store"
"""What files belong to that belong to no variable."""

PLAIN = "plain_values"
"""The attribute that holds a coordinate's values as JSON, if an array cannot hold them."""


@validated
def save(dataset: xr.Dataset, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a result to a zarr store; an existing one is replaced only if `overwrite` is true.

    >>> run = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5)
    >>> ss.save(run, "kept.zarr").name
    'kept.zarr'
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise StoreError(f"{path} exists already: give another name, or overwrite=True to replace it.")
    if path.exists():
        _attributes(SealedFolder(path))  # refuses to replace anything but a result
    with _beside(path) as draft:
        _fill(draft, dataset).commit()
    return path


def _fill(path: Path, dataset: xr.Dataset) -> SealedFolder:
    """A new store with this content, before its first commit."""
    folder = SealedFolder(path, new=True)
    path.mkdir()
    content = encoded(dataset).assign_attrs(format=FORMAT)
    content.to_zarr(_files(folder), mode="w", zarr_format=ZARR_FORMAT, consolidated=False)
    return folder


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
    folder = SealedFolder(path)
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
        dataset = open_folder(folder, left_out=damaged)
        missing = set(json.loads(attrs["options"])["record"]) - set(dataset.data_vars)
        if missing and not partial:
            raise KeyError(f"no {', '.join(sorted(missing))}")
        stays = dataset.nbytes > EAGER_BYTES if lazy is None else lazy
        return decoded(_without(dataset, damaged, path) if stays else _without(dataset, damaged, path).load())
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{path} cannot be read: its data are damaged or incomplete ({brief(error)}).") from None


def open_folder(folder: SealedFolder, left_out: Collection[str] = ()) -> xr.Dataset:
    """The content of a store; files are checked when they are read, unless the store is of before."""
    if folder.sums is not None:
        return xr.open_zarr(_files(folder, read_only=True, left_out=left_out), chunks=None, consolidated=True)
    dataset = xr.open_zarr(folder.root, chunks=None, consolidated=(folder.root / LIST).exists())
    warnings.warn(
        f"{folder.root} carries no checksums, so damage would not show: it was written by an earlier version; save it "
        "again to add them.",
        UserWarning,
        stacklevel=3,
    )
    return dataset


def _without(dataset: xr.Dataset, damaged: list[str], path: Path) -> xr.Dataset:
    """The dataset without the variables of damaged files, except numbers, of which only the damaged ones are lost."""
    lost = {variable_of(name) for name in damaged if not is_metadata(name)} & {str(name) for name in dataset.variables}
    if lost:
        warnings.warn(f"{path} is damaged: {', '.join(sorted(lost))} is not all there.", UserWarning, stacklevel=3)
    return dataset.drop_vars([name for name in lost if dataset[name].dtype.kind != "f"])


@dataclass(frozen=True)
class Condition:
    """What `check_store` found."""

    has_checksums: bool
    complete: bool
    damaged: dict[str, list[str]]
    """The damaged files of each part of the store, none for a part that is intact."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing is damaged, as far as this can be seen."""
        return not any(self.damaged.values())


@validated
def check_store(path: str | Path) -> Condition:
    """Read every file of a result, or of looks, and say which variables are intact.

    >>> path = ss.save(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5), "checked.zarr")
    >>> condition = ss.check_store(path)
    >>> condition.complete, any(condition.damaged.values())
    (True, False)
    """
    folder = SealedFolder(Path(path))
    attrs = _attributes(folder, looks=True)
    parts: dict[str, list[str]] = {variable_of(name) or WHOLE: [] for name in sorted(folder.sums or {})}
    for name in folder.damaged():
        parts[variable_of(name) or WHOLE].append(name)
    return Condition(folder.sums is not None, bool(attrs.get("complete", 1)), parts)


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

    def __init__(self, path: Path, folder: SealedFolder, *, finished: bool = False) -> None:
        self.path = path
        self.finished = finished
        self._folder = folder
        self._lock = WriterLock(path)
        self._group: Any = None

    @classmethod
    def begin(
        cls, path: str | Path, template: xr.Dataset, variables: Mapping[str, Variable], defaults: Mapping[str, Any]
    ) -> RunStore:
        """The store for a run: new, or that of the same run, unfinished or `finished`.

        `template` has the coordinates and attributes; `defaults` are values of options that a store of before lacks.
        """
        path = Path(path)
        store = cls(path, SealedFolder(path, new=True))
        if path.exists() and _is_finished(path, template.attrs, defaults) and not SealedFolder(path).drafts():
            store.finished = True
            return store
        store._lock.acquire()
        try:
            store._open(template, variables, defaults)
        except BaseException:
            store.unlock()
            raise
        return store

    def _open(self, template: xr.Dataset, variables: Mapping[str, Variable], defaults: Mapping[str, Any]) -> None:
        """Take up the run that is there, or begin a new one, while no other process can."""
        if self.path.exists():
            # Another process may just have finished it.
            self.finished = _is_finished(self.path, template.attrs, defaults)
            self._folder = SealedFolder(self.path)
            if self._folder.sums is None and not self.finished:
                raise StoreError(
                    f"{self.path} was begun by a version without checksums: finish it with that version, or give "
                    "another name."
                )
            with self._writing():
                self._folder.recover()
            if self.finished:
                self.unlock()
            return
        with _beside(self.path) as draft:
            self._folder = _fill(draft, template.assign_attrs(complete=0))
            for name, kind in variables.items():
                array = self._opened_group().create_array(
                    name, shape=kind.shape, chunks=kind.chunks, dtype=kind.dtype, fill_value=np.nan
                )
                array.attrs.update({**kind.attributes, "_ARRAY_DIMENSIONS": list(kind.dimensions)})
            self._folder.commit()
        self._folder.root = self.path

    def unlock(self) -> None:
        """Let others write."""
        self._folder.close()
        self._lock.release()

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
            self._folder.write_by(CHECKPOINT, lambda file: np.savez(file, step=np.int64(step), **state))  # type: ignore[arg-type]
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
            self._folder.remove(CHECKPOINT)
            self._folder.commit()
        self.unlock()

    def standing(self) -> str:
        """What an interrupted run leaves, in a sentence."""
        folder = SealedFolder(self.path)
        words = _progress(folder, folder.metadata[".zattrs"])
        return f"{self.path} holds {words}: start the same again to go on{' from there' * (words != NOTHING)}."

    def _opened_group(self) -> Any:
        if self._group is None:
            self._group = _zarr().open_group(
                _files(self._folder), mode="r+", zarr_format=ZARR_FORMAT, use_consolidated=False
            )
        return self._group

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):
                self._folder.discard()
            raise StoreError(
                f"cannot write {self.path}: {error.strerror or error}; what was written before is kept; "
                "fix the cause and start the same run again to continue."
            ) from None


def read_checkpoint(folder: SealedFolder) -> tuple[int, dict[str, NDArray[Any]]] | None:
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
            {**dataset[name].attrs, PLAIN: json.dumps(dataset[name].values.tolist())},
        )
        for name in mixed
    }
    return dataset.assign_coords(texts) if mixed else dataset


def decoded(dataset: xr.Dataset) -> xr.Dataset:
    """The inverse of `encoded`."""
    for name, values in dataset.coords.items():
        if PLAIN in values.attrs:
            attrs = dict(values.attrs)
            index = pd.Index(json.loads(attrs.pop(PLAIN)), dtype=object)  # an array would turn None into NaN
            dataset = dataset.assign_coords({name: (values.dims, index, attrs)})
    return dataset


def _is_finished(path: Path, attrs: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the run stored there is finished; it must be the one that `attrs` describes.

    An option that it lacks did not exist when it was begun, and was what its default is now.
    """
    stored = _attributes(SealedFolder(path))
    old, new = {**defaults, **_identity(stored)}, _identity(attrs)
    old_code, new_code = old.pop("code", {}), new.pop("code", {})
    for name in new:
        if old.get(name) != new[name] and name in ("classes_fingerprint", "classes"):
            raise StoreError(
                f"{path} holds a run on other data: give the same classes, and your own source with the same code, to "
                "continue it, or another name."
            )
        if old.get(name) != new[name]:
            raise StoreError(
                f"{path} holds another run, with {name} = {_short(old.get(name))} and not {_short(new[name])}: "
                "give the same options to the same version to continue it, or another name."
            )
    for part, digest in new_code.items():
        if old_code.get(part) != digest:
            raise StoreError(
                f"{path} was begun with other code of the {part}: undo the change to continue it, or give another name."
            )
    return bool(stored.get("complete", 1))


def _identity(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two runs the same run: their configuration, the code that made them, and the user's code in them."""
    same = ("kind", "classes_fingerprint", "version_scansnap", "commit")
    return {**{name: attrs.get(name) for name in same}, **json.loads(attrs["options"])}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _attributes(folder: SealedFolder, *, looks: bool = False) -> dict[str, Any]:
    """The attributes of a result, or of looks if they are allowed; refuses anything else."""
    path = folder.root
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that a run was written to.")
    attrs = folder.metadata.get(".zattrs", {}) if folder.sums is not None else _plain_attributes(path)
    if looks and attrs.get("kind") == LOOKS:
        return attrs
    if not {"kind", "format", "options"} <= set(attrs):
        raise StoreError(f"{path} is a zarr store, but not a result of scansnap: open it with xarray.open_zarr.")
    if attrs["format"] not in (1, FORMAT):
        raise StoreError(
            f"{path} has result format {attrs['format']}, written by scansnap {attrs.get('version_scansnap', '?')}; "
            f"this version reads format {FORMAT}: use that version, or xarray.open_zarr."
        )
    try:
        _ = set(json.loads(attrs["options"])["record"])
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{path} is damaged: its attribute 'options' cannot be read; {advice(path)}") from None
    return attrs


def _plain_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a store without a list."""
    try:
        return dict(_zarr().open_group(path, mode="r").attrs)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"{path} is not a result of scansnap: no zarr store can be opened there ({brief(error)})."
        ) from None


def _progress(folder: SealedFolder, attrs: Mapping[str, Any]) -> str:
    """How far an unfinished run had come, in words."""
    checkpoint = read_checkpoint(folder) if folder.sums else None
    if not checkpoint or not checkpoint[0]:
        return NOTHING
    if attrs["kind"] == "sweep":
        return f"{checkpoint[0]:,} of {_num_runs(folder):,} runs"
    return f"{checkpoint[0]:,} of {json.loads(attrs['options'])['steps']:,} steps"


def _num_runs(folder: SealedFolder) -> int:
    return math.prod(folder.metadata["status/.zarray"]["shape"])


def runs_done(path: Path) -> int:
    """How many runs of a sweep are in its store."""
    folder = SealedFolder(path)
    attrs = _attributes(folder)
    if not folder.sums:
        return load(path)["status"].size if attrs.get("complete", 1) else 0
    if attrs.get("complete", 1):
        return _num_runs(folder)
    checkpoint = read_checkpoint(folder)
    return checkpoint[0] if checkpoint else 0


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A temporary folder to fill, which then becomes `path`; it is removed if anything fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        yield draft
        if path.exists():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            path.rename(old)
            try:
                draft.rename(path)
            except OSError:
                old.rename(path)
                raise
            sync([path.parent])  # before the old one is gone
            shutil.rmtree(old, ignore_errors=True)  # the new one is in place, whatever becomes of it
        else:
            draft.rename(path)
            sync([path.parent])
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}; nothing was changed there.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _zarr() -> ModuleType:
    try:
        import zarr
    except ImportError:
        raise StoreError("results are stored with zarr, which is not installed here: pip install zarr.") from None
    return zarr


def _files(folder: SealedFolder, *, read_only: bool = False, left_out: Collection[str] = ()) -> Any:
    _zarr()
    from scansnap.storage.zarr_files import ZarrFiles

    return ZarrFiles(folder, read_only=read_only, left_out=left_out)
