"""A checked folder as a zarr store.  The only module that imports zarr on import.

Arrays have zarr's format 3 with its crc32c codec, so that other readers notice a damaged chunk too.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer
from zarr.abc.store import Store
from zarr.buffer import default_buffer_prototype
from zarr.codecs import Crc32cCodec, ZstdCodec

from scansnap.storage.folder import CheckedFolder

COMPRESSORS = (ZstdCodec(level=1), Crc32cCodec())
ZARR_FORMAT: Literal[3] = 3


class Overlay:
    """Changes to the files of a folder that stay in memory."""

    def __init__(self, folder: CheckedFolder) -> None:
        self._folder = folder
        self._changes: dict[str, bytes | None] = {}

    def has(self, name: str) -> bool:
        return self._changes[name] is not None if name in self._changes else self._folder.has(name)

    def names(self) -> list[str]:
        return [name for name in {**dict.fromkeys(self._folder.names()), **self._changes} if self.has(name)]

    def read(self, name: str) -> bytes | None:
        return self._changes[name] if name in self._changes else self._folder.read(name)

    def write(self, name: str, data: bytes) -> None:
        self._changes[name] = data

    def remove(self, name: str) -> None:
        self._changes[name] = None


Files = CheckedFolder | Overlay


class ZarrStore(Store):
    """Named files as a zarr store, without those `left_out` and those whose name begins with a dot."""

    supports_writes = supports_deletes = supports_listing = True
    supports_partial_writes = False

    def __init__(self, files: Files, *, read_only: bool = False, left_out: Collection[str] = ()) -> None:
        super().__init__(read_only=read_only)
        self._files = files
        self._left_out = left_out

    def with_read_only(self, read_only: bool = False) -> ZarrStore:
        return ZarrStore(self._files, read_only=read_only, left_out=self._left_out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrStore) and self._files is other._files

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Buffer | None:
        data = None if key in self._left_out else self._files.read(key)
        if data is None:
            return None
        if byte_range is not None:
            raise NotImplementedError  # needed for shards only, which have several chunks in one file
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._files.has(key) and key not in self._left_out

    async def set(self, key: str, value: Buffer, byte_range: Any = None) -> None:
        self._check_writable()
        self._files.write(key, value.to_bytes())

    async def delete(self, key: str) -> None:
        self._check_writable()
        if self._files.has(key):
            self._files.remove(key)

    async def list(self) -> AsyncIterator[str]:
        for name in self._listed(""):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in self._listed(prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        for name in dict.fromkeys(name.removeprefix(start).partition("/")[0] for name in self._listed(start)):
            yield name

    def _listed(self, prefix: str) -> Iterator[str]:
        return (name for name in self._files.names() if name.startswith(prefix) and name[0] != ".")


@contextmanager
def _without_notices() -> Iterator[None]:
    """Silence zarr's notices that text of a fixed width and consolidated metadata are extensions of its format."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Zarr (V3|format 3) specification")
        yield


def write_dataset(files: Files, dataset: xr.Dataset, chunks: dict[str, tuple[int, ...]] | None = None) -> None:
    """Write a dataset as the whole content of a store, with `chunks` for some variables."""
    encoding: dict[str, dict[str, Any]] = {str(name): {"compressors": COMPRESSORS} for name in dataset.variables}
    for name, shape in (chunks or {}).items():
        encoding[name]["chunks"] = shape
    with _without_notices():
        dataset.drop_encoding().to_zarr(
            ZarrStore(files), mode="w", zarr_format=ZARR_FORMAT, consolidated=False, encoding=encoding
        )


def open_group(files: Files) -> Any:
    """The zarr group of a store, to write arrays."""
    return zarr.open_group(ZarrStore(files), mode="r+", zarr_format=ZARR_FORMAT, use_consolidated=False)


def append(files: Files, blocks: Mapping[str, NDArray[Any]]) -> None:
    """Append blocks of values to arrays, along their first axis."""
    group = open_group(files)
    with _without_notices():
        for name, values in blocks.items():
            group[name].append(values.astype(group[name].dtype, copy=False))
    consolidate(files)


def consolidate(files: Files) -> None:
    """Copy the metadata of all arrays into that of the group, so that readers open one file."""
    with _without_notices():
        zarr.consolidate_metadata(ZarrStore(files))


def open_dataset(files: Files, left_out: Collection[str] = ()) -> xr.Dataset:
    """The dataset in a store; arrays are read, and their files checked, when they are used."""
    return xr.open_zarr(ZarrStore(files, read_only=True, left_out=left_out), chunks=None, consolidated=True)
