"""Sequences drawn on a GPU: those of `data/sampling.py` and `data/position_sampling.py`, bit for bit, in Triton.

One program per sequence: it hashes its key, finds its class, makes the same 32-bit draws and counts them against the
same thresholds.  Nothing but the counts leaves the registers.  Runs of one seed share its sequences.  A batch is put in
the order of its sequences' classes, which `support_products.py` builds on.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.sampling_tables import SamplingTables, padded_length, position_thresholds
from scansnap.data.source import DataSource
from scansnap.dynamics.gradients import Batch, LayoutTensors
from scansnap.dynamics.options import Runs, StepOptions
from scansnap.dynamics.random_entries import CHOICE_STREAM
from scansnap.runtime.machine import has_triton
from scansnap.systems.yz.compact import CompactLayout

LONGEST, WIDEST = 1023, 256
"""One warp draws a sequence of at most this many contextual tokens, from a class of at most this many tokens."""

ORDERED = 1024
"""Batches of at most this many sequences are put in order: each program hashes all keys of its batch for it."""

AT_ONCE = 32
"""Buckets of positions that a program draws at once."""


def suits(source: DataSource, layout: CompactLayout, options: StepOptions) -> bool:
    """Whether a program's draws and thresholds fit its registers, and the CPU makes the same draws."""
    drawn = source.independent or type(source) is PositionedClasses
    small = options.length <= LONGEST and layout.support.shape[1] <= WIDEST
    return drawn and has_triton() and options.batch_size is not None and options.length > 0 and small


class DeviceSampler:
    """Batches drawn where they are used."""

    capturable = True

    def __init__(self, layout: CompactLayout, tensors: LayoutTensors, options: StepOptions, runs: Runs) -> None:
        batch = options.batch_size
        assert batch is not None  # `make_sampler` gives expected updates to another sampler
        self.in_class_order = batch <= ORDERED
        classes, device, dtype = layout.classes, tensors.probs.device, tensors.probs.dtype
        self._length, self._support = options.length, tensors.support
        seeds, seed_of_run = np.unique(runs.seed, return_inverse=True)

        def put(array: NDArray[np.generic]) -> Tensor:
            return torch.tensor(array, device=device)

        tables = SamplingTables.of(classes)
        self._seeds = put(seeds.astype("int64"))
        self._size, self._class_thresholds = put(tables.size), put(tables.class_thresholds)
        positioned = isinstance(classes, PositionedClasses)
        self._thresholds = put(position_thresholds(classes) if positioned else tables.thresholds)  # (.., K, W)
        sizes = classes.position_counts if isinstance(classes, PositionedClasses) else np.empty(0, np.int64)
        self._largest = int(sizes.max(initial=0))  # positions of a bucket; 0 where there are no buckets
        self._sizes, self._starts = put(sizes), put(np.cumsum(sizes) - sizes)
        shape = (len(seeds), batch)
        self._class_index = torch.empty(shape, dtype=torch.int64, device=device)
        buckets = (classes.num_buckets,) if positioned else ()
        self._counts = torch.empty((*shape, *buckets, layout.num_rows), dtype=dtype, device=device)
        self._weights = torch.full(shape, 1.0 / batch, dtype=dtype, device=device)
        self._seed_of_run = put(seed_of_run) if len(seeds) < len(runs) else None

    def draw(self, t: int, step: Tensor) -> Batch:
        import triton

        from scansnap.dynamics import triton_sampling

        (seeds, batch), (num_classes, width) = self._class_index.shape, self._support.shape
        table, num_rows, power = self._thresholds.shape[-1], self._counts.shape[-1], triton.next_power_of_2
        tables = (self._seeds, step, self._size, self._thresholds, self._class_thresholds, self._support)
        sizes = {
            "CLASSES": power(num_classes),
            "WIDTH": power(width),
            "num_warps": 1,
            "BATCH": power(batch) if self.in_class_order else 0,
        }
        self._counts.zero_()
        if not self._largest:
            padded = int(padded_length(self._length))
            triton_sampling.draw[(seeds * batch,)](
                *tables,
                self._class_index,
                self._counts,
                batch,
                num_classes,
                width,
                table,
                num_rows,
                self._length,
                padded // 2,
                DRAWS=power(padded),
                **sizes,
            )
            return Batch(self._class_index, self._counts, self._weights, seed_of_run=self._seed_of_run)
        triton_sampling.draw_by_position[(seeds * batch,)](
            *tables,
            self._sizes,
            self._starts,
            self._class_index,
            self._counts,
            batch,
            num_classes,
            width,
            table,
            num_rows,
            len(self._sizes),
            self._largest,
            BUCKETS=min(AT_ONCE, power(len(self._sizes))),
            **sizes,
        )
        return Batch(self._class_index, self._counts.sum(2), self._weights, self._counts, seed_of_run=self._seed_of_run)


def choose_on_device(seeds: Tensor, step: Tensor, count: int, choice: Tensor) -> None:
    """Fill choice (R, B) with the places of an update's sequences in a fixed set of `count`."""
    import triton

    from scansnap.dynamics.triton_sampling import choose

    runs, batch = choice.shape
    choose[(runs,)](seeds, step, CHOICE_STREAM, choice, batch, count, BATCH=triton.next_power_of_2(batch))
