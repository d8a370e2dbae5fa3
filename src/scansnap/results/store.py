"""Results on disk: zarr stores that xarray opens without this package.

`save` and `load` handle whole results.  `RunStore` writes runs while they advance: records or runs in blocks, and now
and then a checkpoint beside the store (plain arrays, no pickles) from which the work continues to identical numbers.
Nothing incomplete ever has its final name: new stores are filled beside it and renamed, and checkpoints are replaced
in one move.  A run in progress is marked `complete = 0` until its last record is written.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.errors import StoreError, brief
from scansnap.results.provenance import FORMAT

EAGER_BYTES = 2 * 2**30
"""Results up to this size are read when they are opened, so that damage shows immediately."""

ZARR_FORMAT = 2  # the format whose text columns every reader knows

PLAIN = "plain_values"
"""The attribute that holds a coordinate's values as JSON, if an array cannot hold them."""


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
        _attributes(path)  # refuses to replace anything but a result
    _zarr()
    with _beside(path) as draft:
        encoded(dataset).to_zarr(draft, mode="w", zarr_format=ZARR_FORMAT, consolidated=True)
    return path


def load(path: str | Path, *, partial: bool = False, lazy: bool | None = None) -> xr.Dataset:
    """Open a result.

    An unfinished run is refused unless `partial` is true: its missing records are NaN.  With `lazy` the arrays stay on
    disk until they are used; by default this holds for results over `EAGER_BYTES`.

    >>> path = ss.save(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5), "opened.zarr")
    >>> ss.load(path).sizes["step"]
    6
    """
    path = Path(path)
    attrs = _attributes(path)
    if not attrs.get("complete", 1) and not partial:
        raise StoreError(
            f"{path} holds an unfinished run ({_progress(path, attrs)}): start the same run again to finish it, "
            "or read what is there with partial=True."
        )
    try:
        dataset = xr.open_zarr(path, chunks=None, consolidated=False)
        missing = set(json.loads(attrs["options"])["record"]) - set(dataset.data_vars)
        if missing:
            raise KeyError(f"no {', '.join(sorted(missing))}")
        stays = dataset.nbytes > EAGER_BYTES if lazy is None else lazy
        return decoded(dataset if stays else dataset.load())
    except Exception as error:
        raise StoreError(f"{path} cannot be read: its data are damaged or incomplete ({brief(error)}).") from None


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

    def __init__(self, path: Path, *, finished: bool = False) -> None:
        self.path = path
        self.finished = finished
        self.checkpoint = path.with_name(f"{path.name}.checkpoint.npz")
        self._locked = path.with_name(f"{path.name}.lock")

    @classmethod
    def begin(cls, path: str | Path, template: xr.Dataset, variables: Mapping[str, Variable]) -> RunStore:
        """The store for a run: new, or that of the same run, unfinished or `finished`.

        `template` has the coordinates and attributes.
        """
        path = Path(path)
        store = cls(path)
        if path.exists():
            store.finished = _check_same_run(path, template.attrs)
            if not store.finished:
                store.lock()
            return store
        zarr = _zarr()
        store.lock()
        store.checkpoint.unlink(missing_ok=True)  # left by an earlier run
        with _beside(path) as draft:
            encoded(template).assign_attrs(complete=0).to_zarr(
                draft, mode="w", zarr_format=ZARR_FORMAT, consolidated=False
            )
            group = zarr.open_group(draft, mode="r+", zarr_format=ZARR_FORMAT)
            for name, kind in variables.items():
                array = group.create_array(
                    name, shape=kind.shape, chunks=kind.chunks, dtype=kind.dtype, fill_value=np.nan
                )
                array.attrs.update({**kind.attributes, "_ARRAY_DIMENSIONS": list(kind.dimensions)})
        return store

    def lock(self) -> None:
        """Refuse to write what another living process is writing."""
        with self._writing():
            self._locked.parent.mkdir(parents=True, exist_ok=True)
        try:
            owner = int(self._locked.read_text())
            os.kill(owner, 0)
        except PermissionError:
            pass  # another user's process, alive
        except (OSError, ValueError):
            owner = os.getpid()  # no lock, or one left by a process that has ended
        if owner != os.getpid():
            raise StoreError(f"process {owner} is writing {self.path}: wait for it, or give another name.")
        with self._writing():
            self._locked.write_text(str(os.getpid()))

    def unlock(self) -> None:
        """Let others write."""
        self._locked.unlink(missing_ok=True)

    def write(self, block: Mapping[str, NDArray[Any]], place: tuple[slice, ...]) -> None:
        """Write a block of variables or coordinates at a place of their leading axes, and as much of the others."""
        with self._writing():
            group = _zarr().open_group(self.path, mode="r+", zarr_format=ZARR_FORMAT)
            for name, values in block.items():
                group[name][inner(place, values)] = values

    def write_checkpoint(self, step: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Save everything needed to continue after `step` updates, replacing the last checkpoint."""
        draft = self.checkpoint.with_suffix(".new")
        with self._writing():
            with draft.open("wb") as file:
                np.savez(file, step=np.int64(step), **state)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.checkpoint)

    def read_checkpoint(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """The last checkpoint, or None if there is none yet."""
        if not self.checkpoint.exists():
            return None
        try:
            with np.load(self.checkpoint, allow_pickle=False) as content:
                state = {name: content[name] for name in content.files}
        except (OSError, ValueError, zipfile.BadZipFile, KeyError):
            raise StoreError(
                f"{self.checkpoint} is damaged: remove it and {self.path}, and start the run again."
            ) from None
        return int(state.pop("step")), state

    def finish(self, coordinates: Mapping[str, NDArray[Any]]) -> None:
        """Fill in the coordinates that are known only now, and mark the run complete."""
        with self._writing():
            zarr = _zarr()
            group = zarr.open_group(self.path, mode="r+", zarr_format=ZARR_FORMAT)
            for name, values in coordinates.items():
                group[name][...] = values
            group.attrs["complete"] = 1
            self.checkpoint.unlink(missing_ok=True)
            self.unlock()
            zarr.consolidate_metadata(self.path, zarr_format=ZARR_FORMAT)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):
                self.checkpoint.with_suffix(".new").unlink(missing_ok=True)
            raise StoreError(
                f"cannot write {self.path}: {error.strerror or error}; what was written before is kept; "
                "fix the cause and start the same run again to continue."
            ) from None


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


def _check_same_run(path: Path, attrs: Mapping[str, Any]) -> bool:
    """Whether the run stored there is finished; it must be the one that `attrs` describes."""
    stored = _attributes(path)
    old, new = _identity(stored), _identity(attrs)
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


def _attributes(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that a run was written to.")
    try:
        attrs = dict(_zarr().open_group(path, mode="r").attrs)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"{path} is not a result of scansnap: no zarr store can be opened there ({brief(error)})."
        ) from None
    if not {"kind", "format", "options"} <= set(attrs):
        raise StoreError(f"{path} is a zarr store, but not a result of scansnap: open it with xarray.open_zarr.")
    if attrs["format"] != FORMAT:
        raise StoreError(
            f"{path} has result format {attrs['format']}, written by scansnap {attrs.get('version_scansnap', '?')}; "
            f"this version reads format {FORMAT}: use that version, or xarray.open_zarr."
        )
    return attrs


def _progress(path: Path, attrs: Mapping[str, Any]) -> str:
    checkpoint = RunStore(path).read_checkpoint()
    done = checkpoint[0] if checkpoint else 0
    if attrs["kind"] == "sweep":
        return f"{done} runs done"
    return f"{done} of {json.loads(attrs['options']).get('steps', '?')} steps"


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
            shutil.rmtree(old)
        else:
            draft.rename(path)
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
