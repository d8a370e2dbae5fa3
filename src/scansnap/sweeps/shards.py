"""A sweep cut into shards: runs of one group that fit the memory allowed, trained by one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.dynamics.engine import suits_kernel
from scansnap.dynamics.train import train
from scansnap.model.compact import CompactLayout
from scansnap.results.dataset import shape_of
from scansnap.sweeps.grid import Grid, Group

MOST_PER_SHARD = 1024
"""Runs in a shard: more gain no speed and lose more when one is interrupted."""

PIECES = 20
"""A sweep is cut into about this many shards if it is large enough, so that progress can be seen."""

LEAST_PER_SHARD = 16

Arrays = dict[str, NDArray[Any]]


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

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"shard {self.index} (runs {self.first} to {self.first + len(self) - 1})"


def cut(grid: Grid, memory: float, shard_size: int | None = None) -> list[Shard]:
    """The shards of a grid, each within `memory` bytes; `shard_size` says how many runs instead of a good guess."""
    shards: list[Shard] = []
    guess = int(np.clip(math.ceil(len(grid) / PIECES), LEAST_PER_SHARD, MOST_PER_SHARD))
    for group in grid.groups:
        needed = bytes_per_run(grid, group)
        fitting = int(memory // needed)
        if fitting < 1:
            raise InputError(
                f"one run of {group.name} needs {needed / 2**30:.2g} GiB and {memory / 2**30:.2g} GiB are allowed: "
                "allow more with memory, record less, or start from zeros, which merges output columns."
            )
        size = min(shard_size or guess, fitting)
        for start in range(0, len(group), size):
            shards.append(Shard(len(shards), group, start, min(start + size, len(group))))
    return shards


def bytes_per_run(grid: Grid, group: Group) -> float:
    """Memory that a run takes while it trains: its matrices, a batch on the tensor path, and its records twice."""
    options = group.train_options
    layout = _layout(group)
    item = np.dtype(grid.dtype).itemsize
    heads, columns = options.architecture.heads, len(layout.multiplicity)
    rows = heads * layout.num_decoder_rows
    matrices = rows * columns + heads * layout.num_queries * layout.num_rows
    copies = 4 if options.optimizer == "adam" else 2
    batch = options.batch_size or options.num_sequences or group.classes.num_classes
    buckets = getattr(group.classes, "num_buckets", 0)
    on_kernel = suits_kernel(options) and not buckets
    scratch = 0 if on_kernel else batch * ((4 + 3 * buckets) * rows + 3 * columns) + 2 * matrices
    if options.architecture.layers > 1:  # features of every token in every layer, kept for autograd
        scratch += 8 * options.architecture.layers * batch * (rows + layout.num_queries) ** 2
    kept = (options.num_sequences or 0) * layout.num_rows
    records = sum(math.prod(shape_of(name, layout, 1, len(grid.record_steps))) for name in grid.record)
    return item * (copies * matrices + scratch + kept) + 16 * records


def _layout(group: Group) -> CompactLayout:
    distinct = np.arange(group.classes.vocab_size) if group.options["init"] == "uniform" else None
    return CompactLayout.of(group.classes, distinct, group.train_options.architecture)


def run_shard(shard: Shard) -> Arrays:
    """Train the shard's runs and return every variable (runs, records, ...) and the runs' status."""
    group, part = shard.group, slice(shard.start, shard.stop)
    found = train(
        group.classes,
        lr_y=group.lr_y[part],
        lr_z=group.lr_z[part],
        seeds=group.seeds[part],
        progress=False,
        **group.options,
    )
    return {name: found[name].values for name in (*found.data_vars, "status", "diverged_step")}
