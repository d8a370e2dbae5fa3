"""A sweep cut into shards: runs of one group that fit the memory allowed, trained by one call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.sweeps.grid import Grid, Group
from scansnap.results.dataset import shape_of, sizes
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import gibibytes

MOST_PER_SHARD = 1024
"""The most runs in a shard: more gain no speed and lose more work when interrupted."""

PIECES = 20
"""A sweep is cut into about this many shards if it is large enough, so that progress can be seen."""

LEAST_PER_SHARD = 16

Arrays = dict[str, NDArray[Any]]
Place = tuple[slice, ...]


@dataclass(frozen=True)
class Shard:
    """Some runs of a group."""

    index: int
    group: Group
    start: int  # within the group
    stop: int

    @property
    def first(self) -> int:
        """The number of its first run in the sweep."""
        return self.group.first + self.start

    @property
    def numbers(self) -> slice:
        """The numbers of its runs in the sweep."""
        return slice(self.first, self.first + len(self))

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"shard {self.index} (runs {self.first} to {self.first + len(self) - 1})"


def cut(grid: Grid, memory: float, shard_size: int | None = None) -> list[Shard]:
    """The shards of a grid, each within `memory` bytes; `shard_size` overrides the number of runs in each."""
    shards: list[Shard] = []
    guess = int(np.clip(math.ceil(len(grid) / PIECES), LEAST_PER_SHARD, MOST_PER_SHARD))
    for group in grid.groups:
        needed = bytes_per_run(group)
        fitting = int(memory // needed)
        if fitting < 1:
            raise InputError(
                f"one run of {group.name} needs {gibibytes(needed)} and {gibibytes(memory)} are allowed: allow more "
                "with memory, record less, or start from zeros, which merges output columns."
            )
        size = min(shard_size or guess, fitting)
        for start in range(0, len(group), size):
            shards.append(Shard(len(shards), group, start, min(start + size, len(group))))
    return shards


def bytes_per_run(group: Group) -> float:
    """Memory of a run while it is computed: what its engine needs, and twice its records."""
    subject, work, options = group.subject, group.work, group.work.options
    dimension_sizes = sizes(work.layout, subject.layers(options))
    per_record = sum(math.prod(shape_of(quantity, dimension_sizes)) for quantity in options.recorded)
    return subject.bytes_per_run(work) + 16 * per_record * len(subject.records(options))


def run_shard(shard: Shard) -> Arrays:
    """Compute the shard's runs and return every variable (runs, records, ...) and the runs' outcome."""
    subject = shard.group.subject
    result = subject.run(shard.group.work, shard.group.runs[shard.start : shard.stop])
    return {str(name): result[name].values for name in (*result.data_vars, *subject.outcome)}


def places(numbers: slice, shape: tuple[int, ...]) -> Iterator[tuple[slice, Place]]:
    """Consecutive runs of a grid as blocks: which of the runs each block holds, and its place in the grid."""
    done = 0
    for place in _blocks(numbers.start, numbers.stop, shape):
        count = math.prod(part.stop - part.start for part in place)
        yield slice(done, done + count), place
        done += count


def _blocks(first: int, stop: int, shape: tuple[int, ...]) -> Iterator[Place]:
    """The runs `first` to `stop` - 1, in order, as a few rectangular blocks of a grid of that shape."""
    if first >= stop:
        return
    inner = math.prod(shape[1:])
    row, offset = divmod(first, inner)
    last_row, rest = divmod(stop, inner)
    if row == last_row:
        yield from (((slice(row, row + 1), *block)) for block in _blocks(offset, rest, shape[1:]))
        return
    if offset:
        yield from (((slice(row, row + 1), *block)) for block in _blocks(offset, inner, shape[1:]))
        row += 1
    if last_row > row:
        yield (slice(row, last_row), *(slice(0, size) for size in shape[1:]))
    yield from (((slice(last_row, last_row + 1), *block)) for block in _blocks(0, rest, shape[1:]))


def block_shape(count: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a block of about `count` runs that spans the last axes of a grid."""
    sizes_from_last = []
    for size in reversed(shape):
        sizes_from_last.append(max(1, min(size, count)))
        count //= max(size, 1)
    return tuple(reversed(sizes_from_last))
