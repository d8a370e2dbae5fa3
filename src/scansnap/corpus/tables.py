"""Sorted tables of counts: adding them up, and Parquet files of them.

A row is a key, an item and how often the item was counted for the key.  The rows of a table are in order of key and
item, each pair once.  Whatever is counted, a piece of the work ends in such tables, committed to a `CheckedFolder`.
Work that is started again keeps the committed pieces and does the rest; then the tables of all pieces are added up.

On disk, keys stay equal over many rows and cost next to nothing with LZ4.  Items and counts are small, so that their
high bytes, stored separately from the low ones, cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.loops import add_up_groups, new_sums
from scansnap.storage.folder import CheckedFolder

if TYPE_CHECKING:
    import pyarrow as pa


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


def join_rows(blocks: Sequence[CountRows]) -> CountRows:
    """All rows of some blocks."""
    return (
        blocks[0] if len(blocks) == 1 else CountRows(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
    )


def add_up(rows: CountRows, num_items: int) -> CountRows:
    """The rows as a table: in order, each key and item once; items are below `num_items`."""
    order = np.argsort(rows.keys, kind="stable")  # which takes sorted stretches as they are
    size = len(order)
    total = CountRows(np.empty(size, np.int64), np.empty(size, np.int32), np.empty(size, np.int64))
    rows = rows.part(order)
    return total.part(slice(add_up_groups(rows.keys, rows.items, rows.counts, new_sums(num_items), *total)))


def merge(tables: Iterable[Iterator[CountRows]], num_items: int) -> Iterator[CountRows]:
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


def _whole_keys(blocks: Iterator[CountRows]) -> Iterator[CountRows]:
    """The blocks, cut between keys."""
    rest: list[CountRows] = []
    for rows in blocks:
        cut = int(np.searchsorted(rows.keys, rows.keys[-1]))  # where the last key begins
        if cut:
            yield join_rows([*rest, rows.part(slice(cut))])
            rest = []
        rest.append(rows.part(slice(cut, None)))
    if rest:
        yield join_rows(rest)


def write_tables(
    paths: Mapping[str, Path], tables: Mapping[str, Table], blocks: Iterable[tuple[str, CountRows]]
) -> None:
    """Write files of some tables from blocks of their rows, which come in order."""
    with ExitStack() as stack:
        writers = {}
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            writers[name] = stack.enter_context(_writer(path, tables[name]))
        for name, rows in blocks:
            if len(rows.keys):
                writers[name].write_table(_to_arrow(rows, tables[name]), row_group_size=len(rows.keys))


def read_table(folder: CheckedFolder, name: str, table: Table, batch: int) -> Iterator[CountRows]:
    """The rows of a file in order, at most `batch` at a time."""
    from pyarrow import parquet  # imported late: it takes as long as all else

    with parquet.ParquetFile(folder.checked_path(name)) as file:
        for block in file.iter_batches(batch, use_threads=False):
            yield _from_arrow(block, table)


def read_first_column(folder: CheckedFolder, name: str, table: Table, low: int, high: int) -> Iterator[CountRows]:
    """The rows of a file whose first column is from `low` up to `high`, block by block; other blocks are not read."""
    from pyarrow import parquet

    with parquet.ParquetFile(folder.checked_path(name)) as file:
        for group in range(file.num_row_groups):
            limits = file.metadata.row_group(group).column(0).statistics
            if limits.max < low or limits.min >= high:
                continue
            rows = _from_arrow(file.read_row_group(group, use_threads=False), table)
            yield rows.part(slice(*np.searchsorted(rows.keys, [low * table.base, high * table.base])))


def _writer(path: Path, table: Table) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(
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
    return pa.schema([pa.field(name, column_type, nullable=False) for name, column_type in types.items()])


def _to_arrow(rows: CountRows, table: Table) -> pa.Table:
    import pyarrow as pa

    columns = (*table.split_keys(rows.keys), rows.items, rows.counts)
    return pa.table([pa.array(values) for values in columns], schema=_schema(table))


def _from_arrow(block: pa.Table | pa.RecordBatch, table: Table) -> CountRows:
    *keys, items, counts = (block.column(i).to_numpy() for i in range(block.num_columns))
    key = keys[0].astype(np.int64)
    return CountRows(key * table.base + keys[1] if len(keys) == 2 else key, items, counts)
