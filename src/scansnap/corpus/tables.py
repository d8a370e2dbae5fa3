"""Sorted tables of counts: adding them up, and Parquet files of them.

A row is a key, an item and how often the item was counted for the key.  The rows of a table are in order of key and
item, each pair once.  Whatever is counted, a piece of the work ends in such tables, committed to a `CheckedFolder`.
Work that is started again keeps the committed pieces and does the rest; then the tables of all pieces are added up.

On disk, keys stay equal over many rows and cost next to nothing with LZ4.  Items and counts are small, so that their
high bytes, stored separately from the low ones, cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.storage.folder import CheckedFolder


class CountRows(NamedTuple):
    """Rows of a table."""

    keys: NDArray[np.int64]
    items: NDArray[np.int32]
    counts: NDArray[np.int64]

    def part(self, chosen: slice | NDArray[np.bool_] | NDArray[np.int64]) -> CountRows:
        """Some of the rows."""
        return CountRows(self.keys[chosen], self.items[chosen], self.counts[chosen])


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


def add_up(rows: CountRows, num_items: int) -> CountRows:
    """The rows as a table: in order, each key and item once; items are below `num_items`."""
    rows = rows.part(np.argsort(rows.keys, kind="stable"))  # fast, since the rows of each table are sorted
    key_number = np.cumsum(np.diff(rows.keys, prepend=rows.keys[:1]) != 0)
    place = key_number * num_items + rows.items
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    return CountRows(rows.keys[order][first], rows.items[order][first], np.add.reduceat(rows.counts[order], first))


def merge(tables: Iterable[Iterator[CountRows]], num_items: int) -> Iterator[CountRows]:
    """The sum of tables that come block by block, in blocks; one block of each table is in memory at once."""
    waiting = [(source, rows) for source in tables if (rows := next(source, None)) is not None]
    while waiting:
        limit = min((rows.keys[-1], rows.items[-1]) for _, rows in waiting)  # up to here every table has been read
        ready, later = [], []
        for source, rows in waiting:
            start, stop = np.searchsorted(rows.keys, limit[0], "left"), np.searchsorted(rows.keys, limit[0], "right")
            cut = start + np.searchsorted(rows.items[start:stop], limit[1], "right")
            ready.append(rows.part(slice(cut)))
            rest = rows.part(slice(cut, None)) if cut < len(rows.keys) else next(source, None)
            if rest is not None:
                later.append((source, rest))
        yield add_up(CountRows(*map(np.concatenate, zip(*ready, strict=True))), num_items)
        waiting = later


def write_tables(
    paths: Mapping[str, Path], tables: Mapping[str, Table], blocks: Iterable[tuple[str, CountRows]]
) -> None:
    """Write files of some tables from blocks of their rows, which come in order."""
    import pyarrow as pa
    from pyarrow import parquet  # imported late: it takes as long as all else

    with ExitStack() as stack:
        writers = {}
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            keys, item = tables[name].keys, tables[name].item
            integers = [pa.field(column, pa.int32(), nullable=False) for column in (*keys, item)]
            writer = parquet.ParquetWriter(
                path,
                pa.schema([*integers, pa.field("count", pa.int64(), nullable=False)]),
                use_dictionary=False,
                store_schema=False,
                write_statistics=[keys[0]],
                compression="lz4",
                column_encoding=dict.fromkeys(keys, "PLAIN") | dict.fromkeys((item, "count"), "BYTE_STREAM_SPLIT"),
                write_batch_size=2**16,
                data_page_size=2**23,
            )
            writers[name] = stack.enter_context(writer)
        for name, rows in blocks:
            if len(rows.keys):
                columns = (*tables[name].split_keys(rows.keys), rows.items, rows.counts)
                table = pa.table(dict(zip(tables[name].names, columns, strict=True)), schema=writers[name].schema)
                writers[name].write_table(table, row_group_size=len(rows.keys))


def read_table(folder: CheckedFolder, name: str, table: Table, batch: int) -> Iterator[CountRows]:
    """The rows of a file in order, at most `batch` at a time."""
    from pyarrow import parquet

    with parquet.ParquetFile(folder.checked_path(name)) as file:
        for block in file.iter_batches(batch, use_threads=False):
            *keys, items, counts = (column.to_numpy() for column in block.columns)
            key = keys[0].astype(np.int64)
            yield CountRows(key * table.base + keys[1] if len(keys) == 2 else key, items, counts)
