"""The products of `products.py` on a GPU, over the rows of each class alone.

The sequences of a batch are in the order of their classes, so that those of one class are neighbors: one program reads
the class's rows of Y once and multiplies them with all of its sequences.  For dY, a program owns a block of neighboring
rows and adds up the sequences from the first class that reads any of them to the last, in order: no sum depends on
which program finishes first.  This pays where neighboring rows belong to few classes, as in `synthetic`, which numbers
each class's own tokens in turn; a row that all classes share takes the whole batch, as it must.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scansnap.dynamics.options import StepOptions
from scansnap.runtime.machine import has_triton
from scansnap.systems.yz.compact import CompactLayout

WORTH_IT = 3
"""Products over a class's rows alone pay if all rows are at least this many times as many."""

LARGEST_BATCH = 1024
"""Each program looks through the classes of its whole batch."""

ROWS = 16
"""Rows of dY of one program."""


def suits(layout: CompactLayout, options: StepOptions) -> bool:
    """Whether products over the rows of each class are exact here, faster, and within what the kernels can do."""
    rows = layout.layer.heads * (layout.support.shape[1] + 1)
    few = WORTH_IT * _power_of_two(rows) <= layout.layer.heads * layout.num_decoder_rows
    batch = options.batch_size or options.num_sequences or layout.classes.num_classes
    exact = options.dtype == "float32" and not layout.layer.spreads  # float64 has fast products of its own
    return has_triton() and few and exact and batch <= LARGEST_BATCH


@dataclass(frozen=True)
class SupportProducts:
    """Products over the rows of each class, for batches in the order of their classes."""

    rows: Tensor  # (K, H (W + 1)) rows of Y that directions of each class read, padded with -1
    classes_of_rows: Tensor  # (2, blocks) the first and the last class that reads any of a block of ROWS rows

    in_class_order = True

    @classmethod
    def of(cls, layout: CompactLayout, device: torch.device | str) -> SupportProducts:
        inside = np.arange(layout.support.shape[1]) < layout.size[:, None]
        own = np.full((len(layout.size), 1), -1)
        if layout.layer.addition is not None:
            is_contextual = (layout.support == layout.own_row[:, None]) & inside
            own[:, 0] = np.where(is_contextual.any(1), -1, layout.own_row)  # no row twice
        one_head = np.concatenate([np.where(inside, layout.support, -1), own], axis=1)  # (K, W + 1)
        first = np.arange(layout.layer.heads)[:, None] * layout.num_decoder_rows
        rows = np.where(one_head[:, None] >= 0, one_head[:, None] + first, -1).reshape(len(one_head), -1)
        reads = np.zeros((len(rows), layout.layer.heads * layout.num_decoder_rows), bool)
        reads[np.nonzero(rows >= 0)[0], rows[rows >= 0]] = True
        blocks = [reads[:, i : i + ROWS].any(1) for i in range(0, reads.shape[1], ROWS)]
        ranges = [(users[0], users[-1]) if len(users := np.flatnonzero(block)) else (0, -1) for block in blocks]
        return cls(
            rows=torch.as_tensor(rows, dtype=torch.int64, device=device),
            classes_of_rows=torch.as_tensor(np.array(ranges).T.copy(), dtype=torch.int64, device=device),
        )

    def read(self, v: Tensor, decoder: Tensor, class_index: Tensor) -> Tensor:
        return _read(v, decoder, class_index, self.rows)

    def back(self, x: Tensor, decoder: Tensor, class_index: Tensor) -> Tensor:
        return _back(x, decoder, class_index, self.rows)

    def outer(self, v: Tensor, x: Tensor, class_index: Tensor) -> Tensor:
        return _outer(v, x, class_index, self.classes_of_rows)


def _power_of_two(number: int) -> int:
    return max(16, 1 << (number - 1).bit_length())  # products on a GPU have at least 16 of everything


@torch.library.custom_op("scansnap::read_rows", mutates_args=())
def _read(v: Tensor, decoder: Tensor, class_index: Tensor, rows: Tensor) -> Tensor:
    from scansnap.dynamics.triton_products import COLUMNS, read

    runs, batch, _ = v.shape
    columns, classes = decoder.shape[2], len(rows)
    logits = v.new_empty(runs, batch, columns)
    read[(runs * classes, -(-columns // COLUMNS))](
        v.contiguous(),
        decoder,
        class_index.contiguous(),
        rows,
        logits,
        batch,
        decoder.shape[1],
        columns,
        classes,
        rows.shape[1],
        BATCH=_power_of_two(batch),
        WIDTH=_power_of_two(rows.shape[1]),
        num_warps=2,
    )
    return logits


@_read.register_fake
def _(v: Tensor, decoder: Tensor, class_index: Tensor, rows: Tensor) -> Tensor:
    return v.new_empty(v.shape[0], v.shape[1], decoder.shape[2])


@torch.library.custom_op("scansnap::back_to_rows", mutates_args=())
def _back(x: Tensor, decoder: Tensor, class_index: Tensor, rows: Tensor) -> Tensor:
    from scansnap.dynamics.triton_products import back

    runs, batch, columns = x.shape
    g = x.new_zeros(runs, batch, decoder.shape[1])
    back[(runs * len(rows),)](
        x.contiguous(),
        decoder,
        class_index.contiguous(),
        rows,
        g,
        batch,
        decoder.shape[1],
        columns,
        len(rows),
        rows.shape[1],
        BATCH=_power_of_two(batch),
        WIDTH=_power_of_two(rows.shape[1]),
        num_warps=2,
    )
    return g


@_back.register_fake
def _(x: Tensor, decoder: Tensor, class_index: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], decoder.shape[1])


@torch.library.custom_op("scansnap::outer_of_rows", mutates_args=())
def _outer(v: Tensor, x: Tensor, class_index: Tensor, classes_of_rows: Tensor) -> Tensor:
    from scansnap.dynamics.triton_products import COLUMNS, outer

    (runs, batch, all_rows), columns = v.shape, x.shape[2]
    gradient = v.new_empty(runs, all_rows, columns)
    blocks = classes_of_rows.shape[1]
    outer[(runs * blocks, -(-columns // COLUMNS))](
        v.contiguous(),
        x.contiguous(),
        class_index.contiguous(),
        classes_of_rows,
        gradient,
        batch,
        all_rows,
        columns,
        blocks,
        BATCH=_power_of_two(batch),
        ROWS=ROWS,
        num_warps=4,
    )
    return gradient


@_outer.register_fake
def _(v: Tensor, x: Tensor, class_index: Tensor, classes_of_rows: Tensor) -> Tensor:
    return v.new_empty(v.shape[0], v.shape[2], x.shape[2])
