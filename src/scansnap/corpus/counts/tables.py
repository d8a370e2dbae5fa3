"""The counts as Parquet tables, which other programs open as they are.

A store has three tables of counts and a vocabulary.  Each table of counts is a folder of files, one for each range of
queries, and its rows are in order:

    triples     query, next_token, token, count     c(l, m, n)
    pairs       query, token, count                 c(l, m)
    bigrams     query, next_token, count            c(m, n)

Beside them, `sums` has a file for each part with the checksums of its three files and of their footers, which is
written last: a part whose sums are there is complete and on the disk.  The pages of data have checksums of their own,
which Parquet has a place for, so a few rows can be read and checked without the rest.

Keys stay equal over many rows and cost next to nothing with LZ4; items and counts are small, so that their high bytes,
set apart from the low ones, cost little.  Together a triple takes two to three bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scansnap.corpus.counts.events import Rows
from scansnap.runtime.errors import StoreError, brief
from scansnap.storage.files import DamagedFile, Sum, checksum, file_checksum, replace_file, sealed, sync, unsealed

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "bigrams": ("query", "next_token", "count"),
    "pairs": ("query", "token", "count"),
    "triples": ("query", "next_token", "token", "count"),
}
"""The columns of each table: its keys, what is counted, and the count.  Triples are written last."""


def part_file(folder: Path, table: str, part: int) -> Path:
    """The file of a table for one range of queries."""
    return folder / table / f"part-{part:05d}.parquet"


def sums_file(folder: Path, part: int) -> Path:
    """The file with the checksums of a part."""
    return folder / "sums" / f"part-{part:05d}.json"


def is_written(folder: Path, part: int) -> bool:
    """Whether all tables have this part."""
    return sums_file(folder, part).exists()


def write_part(folder: Path, part: int, blocks: Iterable[tuple[str, Rows]]) -> None:
    """Write a part of every table from blocks of their rows; it counts when its sums are written, after all else."""
    parquet = _parquet()
    drafts = {table: part_file(folder, table, part).with_suffix(f".{os.getpid()}") for table in COLUMNS}
    try:
        with ExitStack() as stack:
            writers = {}
            sums_file(folder, part).parent.mkdir(parents=True, exist_ok=True)
            for table, draft in drafts.items():
                draft.parent.mkdir(exist_ok=True)
                writers[table] = stack.enter_context(_writer(parquet, draft, COLUMNS[table]))
            for table, rows in blocks:
                writers[table].write_table(_arrow(rows, COLUMNS[table]), row_group_size=len(rows.items))
        sums = {table: [*_footer_sum(draft), file_checksum(draft)[1]] for table, draft in drafts.items()}
        sync(drafts.values())
        for table, draft in drafts.items():
            draft.replace(part_file(folder, table, part))
        sync([*(folder / table for table in COLUMNS), folder, *folder.parents[:2]])  # runs are in a folder of their own
        replace_file(sums_file(folder, part), sealed(sums))
    except OSError as error:
        raise StoreError(
            f"cannot write {folder} ({error.strerror or error}): what was counted before is kept; fix the cause and "
            "start the same command again."
        ) from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def remove_part(folder: Path, part: int) -> None:
    """Remove a part of every table, and before it what says that it is there."""
    for path in (sums_file(folder, part), *(part_file(folder, table, part) for table in COLUMNS)):
        path.unlink(missing_ok=True)


def remove_drafts(folder: Path) -> None:
    """Remove what writers that were killed have left."""
    tables = [path for table in COLUMNS for path in (folder / table).iterdir() if path.suffix != ".parquet"]
    for draft in (*tables, *folder.rglob("*.new")):
        draft.unlink(missing_ok=True)


def read_part(folder: Path, table: str, part: int, batch: int) -> Iterator[Rows]:
    """The rows of a part in order, at most `batch` at a time."""
    with _opened(folder, table, part) as file:
        for block in file.iter_batches(batch, use_threads=False):
            yield _rows(block)


def read_queries(folder: Path, table: str, part: int, low: int, high: int) -> Iterator[Rows]:
    """The rows of a part whose query is from `low` up to `high`, block by block; the others' blocks are not read."""
    with _opened(folder, table, part) as file:
        for group in range(file.num_row_groups):
            limits = file.metadata.row_group(group).column(0).statistics
            if limits.max < low or limits.min >= high:
                continue
            rows = _rows(file.read_row_group(group, use_threads=False))
            first, stop = np.searchsorted(rows.keys[0], [low, high])
            yield Rows(rows.keys[:, first:stop], rows.items[first:stop], rows.counts[first:stop])


def is_intact(folder: Path, table: str, part: int) -> bool:
    """Whether a part has the bytes that were written; in counts of before, whether it can be read."""
    try:
        if (folder / "sums").exists():
            size, _, value = unsealed(sums_file(folder, part).read_bytes())[table]
            return file_checksum(part_file(folder, table, part)) == [size, value]
        return all(True for _ in read_part(folder, table, part, 2**16))
    except (OSError, DamagedFile, StoreError):
        return False


@contextmanager
def _opened(folder: Path, table: str, part: int) -> Iterator[Any]:
    """The file of a part, whose footer is checked now and whose pages are checked when they are read."""
    path = part_file(folder, table, part)
    try:
        has_sums = (folder / "sums").exists()  # not in counts of before
        if has_sums and unsealed(sums_file(folder, part).read_bytes())[table][:2] != _footer_sum(path):
            raise DamagedFile("it has other bytes than were written")
        with _parquet().ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (OSError, ValueError, DamagedFile) as error:
        raise _damaged(path, error) from None


def _footer_sum(path: Path) -> Sum:
    """The size of a Parquet file, and the CRC-32 of what describes its pages: its end, whose length stands there."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(size - length, 0))
        return [size, checksum(file.read())[1]]


def write_columns(path: Path, columns: dict[str, Any]) -> None:
    """Write a small table."""
    import pyarrow as pa

    _parquet().write_table(pa.table(columns), path, compression="zstd", store_schema=False)


def read_columns(path: Path, names: list[str]) -> dict[str, Any]:
    """Columns of a small table."""
    try:
        table = _parquet().read_table(path, columns=names)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    return {name: table[name].to_numpy() for name in names}


def _writer(parquet: Any, path: Path, columns: tuple[str, ...]) -> Any:
    keys, numbers = columns[:-2], columns[-2:]
    return parquet.ParquetWriter(
        path,
        _schema(columns),
        use_dictionary=False,
        store_schema=False,
        write_statistics=["query"],
        compression="lz4",
        column_encoding=dict.fromkeys(keys, "PLAIN") | dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
        write_batch_size=2**16,
        data_page_size=2**23,
        write_page_checksum=True,
    )


def _schema(columns: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [pa.field(name, pa.int64() if name == "count" else pa.int32(), nullable=False) for name in columns]
    )


def _arrow(rows: Rows, columns: tuple[str, ...]) -> pa.Table:
    import pyarrow as pa

    return pa.table([pa.array(values) for values in (*rows.keys, rows.items, rows.counts)], schema=_schema(columns))


def _rows(block: pa.Table | pa.RecordBatch) -> Rows:
    *keys, items, counts = (block.column(i).to_numpy() for i in range(block.num_columns))
    return Rows(np.stack(keys), items, counts)


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} is damaged ({brief(error)}): remove its folder and count again.")


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise StoreError(
            "counts are kept as Parquet, which pyarrow reads and writes: pip install 'scansnap[text]'."
        ) from None
    return pyarrow.parquet
