"""A `SealedFolder` as zarr sees a store.  The only module that needs zarr on import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, default_buffer_prototype

from scansnap.storage.sealed_folder import SealedFolder


class ZarrFiles(Store):
    """Every file passes through `read` and `write` of the folder; those `left_out` are as if they were not there."""

    supports_writes = supports_deletes = supports_listing = True
    supports_partial_writes = False

    def __init__(self, folder: SealedFolder, *, read_only: bool = False, left_out: Collection[str] = ()) -> None:
        super().__init__(read_only=read_only)
        self._folder = folder
        self._left_out = left_out

    def with_read_only(self, read_only: bool = False) -> ZarrFiles:
        return ZarrFiles(self._folder, read_only=read_only, left_out=self._left_out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrFiles) and self._folder is other._folder

    def __repr__(self) -> str:
        return f"ZarrFiles('{self._folder.root}')"

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Buffer | None:
        data = None if key in self._left_out else self._folder.read(key)
        if data is None:
            return None
        if isinstance(byte_range, RangeByteRequest):
            data = data[byte_range.start : byte_range.end]
        elif isinstance(byte_range, OffsetByteRequest):
            data = data[byte_range.offset :]
        elif isinstance(byte_range, SuffixByteRequest):
            data = data[-byte_range.suffix :]
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._folder.has(key) and key not in self._left_out

    async def set(self, key: str, value: Buffer, byte_range: Any = None) -> None:
        self._check_writable()
        self._folder.write(key, value.to_bytes())

    async def set_partial_values(self, key_start_values: Iterable[Any]) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        self._check_writable()
        if self._folder.has(key):
            self._folder.remove(key)

    async def list(self) -> AsyncIterator[str]:
        for name in self._folder.names():
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in self._folder.names():
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        for name in dict.fromkeys(
            name.removeprefix(start).partition("/")[0] for name in self._folder.names() if name.startswith(start)
        ):
            yield name
