"""Sorted tables of counts: adding them up, and pieces of them on disk, from which interrupted work goes on.

A row is a key, an item and how often the item was counted for the key.  The rows of a table are in order of key and
item, each pair once.  Whatever is counted, a piece of the work ends in such tables, written as Parquet files.  A piece
is complete when the file with its checksums is there, which is written last.  Work that is started again keeps complete
pieces and does the rest; then the tables of all pieces are added up.  Files are checked before they are read.

Keys stay equal over many rows and cost next to nothing with LZ4.  Items and counts are small, so that their high bytes,
set apart from the low ones, cost little.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.loops import add_up_groups, new_sums
from scansnap.runtime.errors import StoreError, brief
from scansnap.storage.files import DamagedFile, file_checksum, replace_file, sealed, sync, unsealed

if TYPE_CHECKING:
    import pyarrow as pa

CHECKSUMS = "sums"
"""The folder with the checksums of each piece."""


class Rows(NamedTuple):
    """Rows of a table."""

    keys: NDArray[np.int64]
    items: NDArray[np.int32]
    counts: NDArray[np.int64]

    def part(self, chosen: slice | NDArray[np.bool_] | NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        return Rows(self.keys[chosen], self.items[chosen], self.counts[chosen])


class Table(NamedTuple):
    """The columns of a table on disk: one or two that make up the key, and the item; the last one is the count.

    Of two columns a and b, the key is a · `base` + b.
    """

    keys: tuple[str, ...]
    item: str
    base: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return (*self.keys, self.item, "count")

    def split_keys(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int32], ...]:
        """The columns that make up the keys."""
        first = keys // self.base
        both = first, keys - first * self.base
        return tuple(column.astype(np.int32) for column in both[: len(self.keys)])


def join_rows(blocks: Sequence[Rows]) -> Rows:
    """All rows of some blocks."""
    return blocks[0] if len(blocks) == 1 else Rows(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def add_up(rows: Rows, num_items: int) -> Rows:
    """The rows as a table: in order, each key and item once; items are below `num_items`."""
    order = np.argsort(rows.keys, kind="stable")  # which takes sorted stretches as they are
    size = len(order)
    total = Rows(np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int64))
    rows = rows.part(order)
    return total.part(slice(add_up_groups(rows.keys, rows.items, rows.counts, new_sums(num_items), *total)))


def merge(tables: Iterable[Iterator[Rows]], num_items: int) -> Iterator[Rows]:
    """The sum of tables that come block by block, as blocks of whole keys; few blocks are in memory at once."""
    waiting = [(source, rows) for source in map(_whole_keys, tables) if (rows := next(source, None)) is not None]
    while waiting:
        limit = min(int(rows.keys[-1]) for _, rows in waiting)  # up to here every table has been read
        ready, later = [], []
        for source, rows in waiting:
            cut = int(np.searchsorted(rows.keys, limit, side="right"))
            ready.append(rows.part(slice(cut)))
            rest = rows.part(slice(cut, None)) if cut < len(rows.keys) else next(source, None)
            if rest is not None:
                later.append((source, rest))
        yield add_up(join_rows(ready), num_items)
        waiting = later


def _whole_keys(blocks: Iterator[Rows]) -> Iterator[Rows]:
    """The blocks, cut between keys."""
    rest: list[Rows] = []
    for rows in blocks:
        cut = int(np.searchsorted(rows.keys, rows.keys[-1]))  # where the last key begins
        if cut:
            yield join_rows([*rest, rows.part(slice(cut))])
            rest = []
        rest.append(rows.part(slice(cut, None)))
    if rest:
        yield join_rows(rest)


def table_file(folder: Path, table: str, piece: int) -> Path:
    """The file of a table for one piece."""
    return folder / table / f"part-{piece:05d}.parquet"


def _checksum_file(folder: Path, piece: int) -> Path:
    return folder / CHECKSUMS / f"part-{piece:05d}.json"


def is_complete(folder: Path, piece: int) -> bool:
    """Whether all tables of a piece were written."""
    return _checksum_file(folder, piece).exists()


def write_piece(folder: Path, piece: int, tables: Mapping[str, Table], blocks: Iterable[tuple[str, Rows]]) -> None:
    """Write the tables of a piece from blocks of their rows; it is complete when its checksums are written."""
    drafts = {name: table_file(folder, name, piece).with_suffix(f".{os.getpid()}") for name in tables}
    try:
        with ExitStack() as stack:
            writers = {}
            _checksum_file(folder, piece).parent.mkdir(parents=True, exist_ok=True)
            for name, draft in drafts.items():
                draft.parent.mkdir(exist_ok=True)
                writers[name] = stack.enter_context(_writer(draft, tables[name]))
            for name, rows in blocks:
                if len(rows.keys):
                    writers[name].write_table(_to_arrow(rows, tables[name]), row_group_size=len(rows.keys))
        sums = {name: file_checksum(draft) for name, draft in drafts.items()}
        sync(drafts.values())
        for name, draft in drafts.items():
            draft.replace(table_file(folder, name, piece))
        sync([*(folder / name for name in tables), folder, *folder.parents[:2]])
        replace_file(_checksum_file(folder, piece), sealed(sums))
    except OSError as error:
        raise StoreError(
            f"cannot write {folder} ({error.strerror or error}): what was counted before is kept; fix the cause and "
            "start the same command again."
        ) from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def remove_piece(folder: Path, piece: int, tables: Iterable[str]) -> None:
    """Remove the tables of a piece, its checksums first."""
    for path in (_checksum_file(folder, piece), *(table_file(folder, name, piece) for name in tables)):
        path.unlink(missing_ok=True)


def remove_drafts(folder: Path, tables: Iterable[str]) -> None:
    """Remove what killed writers left."""
    files = [path for name in tables for path in (folder / name).iterdir() if path.suffix != ".parquet"]
    for draft in (*files, *folder.rglob("*.new")):
        draft.unlink(missing_ok=True)


def read_piece(folder: Path, name: str, table: Table, piece: int, batch: int) -> Iterator[Rows]:
    """The rows of a piece in order, at most `batch` at a time."""
    with _opened(folder, name, piece) as file:
        for block in file.iter_batches(batch, use_threads=False):
            yield _from_arrow(block, table)


def read_first_column(folder: Path, name: str, table: Table, piece: int, low: int, high: int) -> Iterator[Rows]:
    """The rows of a piece whose first column is from `low` up to `high`, block by block; other blocks are not read."""
    with _opened(folder, name, piece) as file:
        for group in range(file.num_row_groups):
            limits = file.metadata.row_group(group).column(0).statistics
            if limits.max < low or limits.min >= high:
                continue
            rows = _from_arrow(file.read_row_group(group, use_threads=False), table)
            yield rows.part(slice(*np.searchsorted(rows.keys, [low * table.base, high * table.base])))


def is_intact(folder: Path, name: str, piece: int) -> bool:
    """Whether a table has the bytes that were written."""
    try:
        size, *_, crc = unsealed(_checksum_file(folder, piece).read_bytes())[name]
        path = table_file(folder, name, piece)
        state = path.stat()
        return state.st_size == size and _crc(path, state.st_size, state.st_mtime_ns) == crc
    except (OSError, DamagedFile):
        return False


@lru_cache(maxsize=4096)
def _crc(path: Path, size: int, changed: int) -> int:
    """The CRC-32 of a file, computed again only if the file has changed."""
    return file_checksum(path)[1]


@contextmanager
def _opened(folder: Path, name: str, piece: int) -> Iterator[Any]:
    path = table_file(folder, name, piece)
    if not is_intact(folder, name, piece):
        raise damaged(path, "it is missing or has other bytes than were written")
    try:
        with import_parquet().ParquetFile(path) as file:
            yield file
    except (OSError, ValueError) as error:
        raise damaged(path, brief(error)) from None


def damaged(path: Path, reason: str) -> StoreError:
    """The error for a damaged table."""
    return StoreError(f"{path} is damaged ({reason}): remove its folder and count again.")


def _writer(path: Path, table: Table) -> Any:
    return import_parquet().ParquetWriter(
        path,
        _schema(table),
        use_dictionary=False,
        store_schema=False,
        write_statistics=[table.keys[0]],
        compression="lz4",
        column_encoding=dict.fromkeys(table.keys, "PLAIN") | dict.fromkeys((table.item, "count"), "BYTE_STREAM_SPLIT"),
        write_batch_size=2**16,
        data_page_size=2**23,
    )


def _schema(table: Table) -> pa.Schema:
    import pyarrow as pa

    types = {name: pa.int64() if name == "count" else pa.int32() for name in table.names}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def _to_arrow(rows: Rows, table: Table) -> pa.Table:
    import pyarrow as pa

    columns = (*table.split_keys(rows.keys), rows.items, rows.counts)
    return pa.table([pa.array(values) for values in columns], schema=_schema(table))


def _from_arrow(block: pa.Table | pa.RecordBatch, table: Table) -> Rows:
    *keys, items, counts = (block.column(i).to_numpy() for i in range(block.num_columns))
    key = keys[0].astype(np.int64)
    return Rows(key * table.base + keys[1] if len(keys) == 2 else key, items, counts)


def import_parquet() -> Any:
    """The module `pyarrow.parquet`."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise StoreError(
            "counts are kept as Parquet, which pyarrow reads and writes: pip install 'scansnap[text]'."
        ) from None
    return pyarrow.parquet
