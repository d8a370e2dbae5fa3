"""Looks on disk: a zarr store that grows by one look at a time while training goes on.

A look costs training time, so it is appended by writing files: a chunk of zarr's format 2 is a file of bytes.  A look
at 12 by 12 heads takes 4 ms of processor time where resizing and writing the arrays through zarr takes 45.  Quantities
lie in chunks of `BLOCK` looks, not compressed, into which the numbers of a look are written at their place; a pattern
has a chunk of its own.

What is there is what `.zmetadata` says, the file in which zarr consolidates the shapes of all arrays and which
`xarray.open_zarr` reads.  It is replaced last and in one move, so a reader sees whole looks only, and a look that a
kill cut short was never there: the next one is written over it.  No other file is replaced, since file systems make
sure that the content of one that is moved over another is on the disk, which takes milliseconds.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.door import door
from scansnap.base.errors import StoreError, brief
from scansnap.base.printable import shortened
from scansnap.results.store import RunStore, save

KIND = "watch"
"""The attribute `kind` of a store of looks."""

BLOCK = 64
"""Looks in a chunk of a quantity: few files to read, and little to write again with each look."""

TEXT = np.dtype("<U160")
"""The type of text that differs from look to look: zarr's arrays have a fixed width."""

SAME = ("model", "probe", "rows")
"""The attributes by which two watches are of the same training."""


@door
def read_looks(path: str | Path) -> xr.Dataset:
    """The looks that a store holds so far; arrays stay on disk until they are used."""
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that a watch was told to store its looks in.")
    try:
        looks = xr.open_zarr(path, chunks=None, consolidated=True)
    except Exception as error:
        raise StoreError(f"{path} is not a store of looks: it cannot be opened with zarr ({brief(error)}).") from None
    if looks.attrs.get("kind") != KIND:
        raise StoreError(f"{path} holds something else than looks: give what ss.watch(..., store=...) wrote.")
    return looks


class LookStore:
    """A store that one process appends looks to; an existing one is continued.

    `last_step` is that of the last look, or None if there is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        steps = read_looks(self.path)["step"].values.tolist() if self.path.exists() else []
        self.last_step: int | None = steps[-1] if steps else None
        self._writer = RunStore(self.path)
        self._writer.lock()
        self._arrays: dict[str, _Array] = {}
        self._consolidated: dict[str, Any] = {}

    def append(self, look: xr.Dataset) -> None:
        """Add a look: a Dataset with one `step`, later than the last one that is there."""
        step = int(look["step"].item())
        if self.last_step is not None and step <= self.last_step:
            raise StoreError(
                f"{self.path} has looks up to step {self.last_step:,}, so the look at step {step:,} was not added: "
                "count on from there, or give another store."
            )
        try:
            if not self._arrays:
                self._begin(look)
            for name, array in self._arrays.items():
                array.append(look[name].values[0])
            _replace(self.path / ".zmetadata", json.dumps(self._consolidated).encode())
        except OSError as error:
            self._arrays = {}  # what is there is what the file says
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
                    f"{self.path} holds looks with {name} {shortened(stored.attrs.get(name))} and not "
                    f"{shortened(look.attrs.get(name))}: give the same to continue it, or another store."
                )
        for name in sorted(set(map(str, stored.variables)) ^ set(map(str, look.variables))):
            raise StoreError(
                f"{self.path} was begun {'with' if name in stored.variables else 'without'} '{name}': record the same "
                "quantities to continue it, or give another store."
            )
        for variable in [*stored.coords, *stored.data_vars]:
            old, new = stored.variables[variable], look.variables[variable]
            if old.shape[1:] != new.shape[1:] if "step" in old.dims else not old.equals(new):
                raise StoreError(
                    f"{self.path} holds looks at another model, with another '{variable}': give the same model to "
                    "continue it, or another store."
                )

    def close(self) -> None:
        """Let others write, and let readers that do not consolidate see the looks."""
        for array in self._arrays.values():
            _replace(array.folder / ".zarray", json.dumps(array.layout).encode())
        self._writer.unlock()

    def _begin(self, look: xr.Dataset) -> None:
        """Create the store for looks like this one, or check that it is for such looks."""
        if self.path.exists():
            self.check(look)
        else:
            empty = look.isel(step=slice(0)).assign_attrs(kind=KIND)
            for name, values in empty.variables.items():
                if values.dims[:1] == ("step",):
                    if values.dtype.kind == "U":
                        empty[name] = values.astype(TEXT)
                    if values.ndim > 3:
                        empty[name].encoding = {"chunks": (1, *values.shape[1:])}
                    else:
                        empty[name].encoding = {"chunks": (BLOCK, *values.shape[1:]), "compressors": None}
            save(empty, self.path)
        self._consolidated = json.loads((self.path / ".zmetadata").read_text())
        metadata = self._consolidated["metadata"]
        self._arrays = {
            name: _Array(self.path / name, metadata[f"{name}/.zarray"])
            for name in map(str, look.variables)
            if metadata[f"{name}/.zattrs"]["_ARRAY_DIMENSIONS"][:1] == ["step"]
        }


class _Array:
    """An array whose first axis grows; `layout` is its part of the consolidated metadata."""

    def __init__(self, folder: Path, layout: dict[str, Any]) -> None:
        import numcodecs

        self.folder = folder
        self.layout = layout
        self._codec = layout["compressor"] and numcodecs.get_codec(layout["compressor"])

    def append(self, values: NDArray[Any]) -> None:
        """Write the values behind the last ones; they count as soon as the metadata are written."""
        looks, *rest = self.layout["chunks"]
        number, place = divmod(self.layout["shape"][0], looks)
        file = self.folder / ".".join([str(number), *("0" for _ in rest)])
        values = np.ascontiguousarray(values, self.layout["dtype"])
        if self._codec:
            _write(file, self._codec.encode(values))
        elif place == 0:
            _write(file, values.tobytes().ljust(looks * values.nbytes, b"\0"))
        else:
            _write(file, values.tobytes(), place * values.nbytes)
        self.layout["shape"][0] += 1


def _write(file: Path, data: bytes, place: int | None = None) -> None:
    """Write a file, or a part of one that is there."""
    with file.open("wb" if place is None else "r+b") as content:
        content.seek(place or 0)
        content.write(data)


def _replace(file: Path, data: bytes) -> None:
    """Write a file so that others see all of it or none."""
    draft = file.with_name(f"{file.name}.new")
    _write(draft, data)
    draft.replace(file)
