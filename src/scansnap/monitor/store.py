"""Looks on disk: a zarr store that grows by one look at a time while training goes on.

A look costs training time, so it is appended by writing files: a chunk of zarr's format 2 is a file of bytes.  A look
at 12 by 12 heads takes 6 ms of processor time where resizing and writing the arrays through zarr takes 45.  Quantities
lie in chunks of `BLOCK` looks, not compressed, into which the numbers of a look are written at their place; a pattern
has a chunk of its own.

What is there is what `.zmetadata` says, the file in which zarr consolidates the shapes of all arrays and which
`xarray.open_zarr` reads; it also lists the checksum of every file (`storage/sealed_folder.py`), of a chunk that is not
full that of its first bytes, which the next look continues.  It is replaced last and in one move, when the look is on
the disk, so a reader sees whole looks only, and a look that a kill or a power cut cut short was never there: the next
one is written over it.
"""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.results.store import LOOKS, open_folder, save
from scansnap.runtime.errors import StoreError, brief, short_repr
from scansnap.storage.files import checksum, sync
from scansnap.storage.lock import WriterLock
from scansnap.storage.sealed_folder import SealedFolder
from scansnap.validation.validate import validated

BLOCK = 64
"""Looks in a chunk of a quantity: few files to read, and little to write again with each look."""

TEXT = np.dtype("<U160")
"""The type of text that differs from look to look: zarr's arrays have a fixed width."""

SAME = ("model", "probe", "rows")
"""The attributes by which two watches are of the same training."""


@validated
def read_looks(path: str | Path) -> xr.Dataset:
    """The looks that a store holds so far; arrays stay on disk until they are used."""
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that a watch was told to store its looks in.")
    folder = SealedFolder(path)
    try:
        looks = open_folder(folder)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{path} is not a store of looks: it cannot be opened with zarr ({brief(error)}).") from None
    if looks.attrs.get("kind") != LOOKS:
        raise StoreError(f"{path} holds something else than looks: give what ss.watch(..., store=...) wrote.")
    folder.check_presence()
    return looks


class LookStore:
    """A store that one process appends looks to; an existing one is continued.

    `last_step` is that of the last look, or None if there is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = WriterLock(self.path)
        self._lock.acquire()
        try:
            steps = read_looks(self.path)["step"].values.tolist() if self.path.exists() else []
        except StoreError:
            self._lock.release()
            raise
        self.last_step: int | None = steps[-1] if steps else None
        self._arrays: dict[str, _Array] = {}
        self._is_closed = False

    def append(self, look: xr.Dataset) -> None:
        """Add a look: a Dataset with one `step`, later than the last one that is there."""
        step = int(look["step"].item())
        if self._is_closed:
            raise StoreError(
                f"{self.path} was closed before step {step:,}, so the look at it was not added: make another watch."
            )
        if self.last_step is not None and step <= self.last_step:
            raise StoreError(
                f"{self.path} has looks up to step {self.last_step:,}, so the look at step {step:,} was not added: "
                "count on from there, or give another store."
            )
        try:
            if not self._arrays:
                self._begin(look)
            files = [array.append(look[name].values[0]) for name, array in self._arrays.items()]
            sync({*files, *(file.parent for file in files)})
            self._folder.write_list()
        except BaseException as error:
            self._arrays = {}  # what is there is what the file says
            if not isinstance(error, OSError):
                raise
            raise StoreError(
                f"cannot write {self.path}: {error.strerror or error}; the looks before step {step:,} are kept."
            ) from None
        self.last_step = step

    def clear(self) -> None:
        """Begin anew, without the looks that are there."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.last_step, self._arrays = None, {}

    def check(self, look: xr.Dataset) -> None:
        """Refuse a look at another model, at another probe or with other quantities than those that are there."""
        stored = read_looks(self.path)
        for name in SAME:
            if stored.attrs.get(name) != look.attrs.get(name):
                raise StoreError(
                    f"{self.path} holds looks with {name} {short_repr(stored.attrs.get(name))} and not "
                    f"{short_repr(look.attrs.get(name))}: give the same to continue it, or another store."
                )
        if stored.attrs.get("probe_checksum") != look.attrs.get("probe_checksum"):
            raise StoreError(
                f"{self.path} holds looks on another probe, {short_repr(look.attrs.get('probe'))} with other numbers: "
                "give the same probe to continue it, or another store."
            )
        for name in sorted(set(map(str, stored.variables)) ^ set(map(str, look.variables))):
            raise StoreError(
                f"{self.path} was begun {'with' if name in stored.variables else 'without'} '{name}': record the same "
                "quantities to continue it, or give another store."
            )
        for variable in [*stored.coords, *stored.data_vars]:
            old, new = stored.variables[variable], look.variables[variable]
            if old.shape[1:] != new.shape[1:] if "step" in old.dims else not old.equals(new):
                what = "on another probe" if variable == "token" else "at another model"
                raise StoreError(
                    f"{self.path} holds looks {what}, with another '{variable}': give the same to continue it, or "
                    "another store."
                )

    def close(self) -> None:
        """Let others write, and let readers that do not consolidate see the looks."""
        arrays, self._arrays, self._is_closed = self._arrays, {}, True
        try:
            for array in arrays.values():
                self._folder.write(f"{array.name}/.zarray", json.dumps(array.layout).encode())
            if arrays:
                self._folder.commit()
        finally:
            self._lock.release()

    def _begin(self, look: xr.Dataset) -> None:
        """Create the store for looks like this one, or check that it is for such looks."""
        if self.path.exists():
            self.check(look)
        else:
            empty = look.isel(step=slice(0)).assign_attrs(kind=LOOKS)
            for name, values in empty.variables.items():
                if values.dims[:1] == ("step",):
                    if values.dtype.kind == "U":
                        empty[name] = values.astype(TEXT)
                    if values.ndim > 3:
                        empty[name].encoding = {"chunks": (1, *values.shape[1:])}
                    else:
                        empty[name].encoding = {"chunks": (BLOCK, *values.shape[1:]), "compressors": None}
            save(empty, self.path)
        self._folder = SealedFolder(self.path)
        if self._folder.sums is None:
            raise StoreError(f"{self.path} was begun by a version without checksums: give another store.")
        self._folder.recover()
        metadata = self._folder.metadata
        self._arrays = {
            name: _Array(self._folder, name)
            for name in map(str, look.variables)
            if metadata[f"{name}/.zattrs"]["_ARRAY_DIMENSIONS"][:1] == ["step"]
        }


class _Array:
    """An array whose first axis grows; `layout` is its part of the consolidated metadata."""

    def __init__(self, folder: SealedFolder, name: str) -> None:
        import numcodecs

        self.name = name
        self.layout = folder.metadata[f"{name}/.zarray"]
        self._folder = folder
        self._codec = self.layout["compressor"] and numcodecs.get_codec(self.layout["compressor"])

    def append(self, values: NDArray[Any]) -> Path:
        """Write the values behind the last ones; they count as soon as the list is written.  Returns the file."""
        looks, *rest = self.layout["chunks"]
        number, place = divmod(self.layout["shape"][0], looks)
        name = f"{self.name}/{'.'.join([str(number), *('0' for _ in rest)])}"
        file = self._folder.root / name
        data = np.ascontiguousarray(values, self.layout["dtype"]).tobytes()
        size = looks * len(data)
        if self._codec:
            data = bytes(self._codec.encode(data))
            _write(file, data)
            self._folder.note(name, checksum(data))
        else:
            _write(file, data if place else data.ljust(size, b"\0"), place * len(data))
            before = self._folder.sums[name][1] if place else 0  # type: ignore[index]
            self._folder.note(name, [size, zlib.crc32(data, before), (place + 1) * len(data)])
        self.layout["shape"][0] += 1
        return file


def _write(file: Path, data: bytes, place: int = 0) -> None:
    """Write a file, or a part of one that is there."""
    with file.open("r+b" if place else "wb") as content:
        content.seek(place)
        content.write(data)
