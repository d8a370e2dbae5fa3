"""The Triton kernels behind `support_products.py`; imported only if there is a GPU to run them.

A class has few sequences of a batch: a program multiplies them by eights or sixteens.  g adds up several hundred terms
on tensor cores, float32 numbers in parts ("tf32x3"); its error is below that of adding one term after another.
"""

from __future__ import annotations

import triton
import triton.language as tl

COLUMNS = 128
"""Columns of Y of one program."""

CHUNK = tl.constexpr(COLUMNS)


@triton.jit
def span(class_index, run, first, last, batch, BATCH: tl.constexpr):
    """The sequences of the classes first .. last of a run's batch: where they begin and end."""
    b = tl.arange(0, BATCH)
    classes = tl.load(class_index + run * batch + b, mask=b < batch, other=2147483647)
    return tl.sum((classes < first).to(tl.int32)), tl.sum((classes <= last).to(tl.int32))


@triton.jit
def read(
    v,
    decoder,
    class_index,
    rows,
    logits,
    batch,
    all_rows,
    columns,
    classes,
    width,
    BATCH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One program per run, class and chunk of columns."""
    SEQUENCES: tl.constexpr = 8
    run, n = (tl.program_id(0) // classes).to(tl.int64), tl.program_id(0) % classes
    c = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    begin, end = span(class_index, run, n, n, batch, BATCH)
    w = tl.arange(0, WIDTH)
    row = tl.load(rows + n * width + w, mask=w < width, other=-1)
    y = tl.load(
        decoder + (run * all_rows + row[:, None]) * columns + c[None, :],
        mask=(row[:, None] >= 0) & (c[None, :] < columns),
        other=0.0,
    )
    for b0 in range(begin, end, SEQUENCES):
        b = b0 + tl.arange(0, SEQUENCES)
        inside = b[:, None] < end
        direction = tl.load(
            v + (run * batch + b[:, None]) * all_rows + row[None, :], mask=inside & (row[None, :] >= 0), other=0.0
        )
        value = tl.dot(direction, y, input_precision="ieee")
        tl.store(
            logits + (run * batch + b[:, None]) * columns + c[None, :], value, mask=inside & (c[None, :] < columns)
        )


@triton.jit
def back(
    x,
    decoder,
    class_index,
    rows,
    g,
    batch,
    all_rows,
    columns,
    classes,
    width,
    BATCH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One program per run and class, chunk after chunk."""
    SEQUENCES: tl.constexpr = 16
    CHUNK: tl.constexpr = 64
    run, n = (tl.program_id(0) // classes).to(tl.int64), tl.program_id(0) % classes
    begin, end = span(class_index, run, n, n, batch, BATCH)
    w = tl.arange(0, WIDTH)
    row = tl.load(rows + n * width + w, mask=w < width, other=-1)
    for b0 in range(begin, end, SEQUENCES):
        b = b0 + tl.arange(0, SEQUENCES)
        inside = b[:, None] < end
        value = tl.zeros((SEQUENCES, WIDTH), dtype=g.dtype.element_ty)
        for c0 in range(0, columns, CHUNK):
            c = c0 + tl.arange(0, CHUNK)
            residual = tl.load(
                x + (run * batch + b[:, None]) * columns + c[None, :], mask=inside & (c[None, :] < columns), other=0.0
            )
            y = tl.load(
                decoder + (run * all_rows + row[None, :]) * columns + c[:, None],
                mask=(row[None, :] >= 0) & (c[:, None] < columns),
                other=0.0,
            )
            value = tl.dot(residual, y, value, input_precision="tf32x3")
        tl.store(g + (run * batch + b[:, None]) * all_rows + row[None, :], value, mask=inside & (row[None, :] >= 0))


@triton.jit
def outer(
    v,
    x,
    class_index,
    classes_of_rows,
    gradient,
    batch,
    all_rows,
    columns,
    blocks,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One program per run, block of rows and chunk of columns."""
    SEQUENCES: tl.constexpr = 16
    run, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    first, last = tl.load(classes_of_rows + block), tl.load(classes_of_rows + blocks + block)
    begin, end = span(class_index, run, first, last, batch, BATCH)
    row = block * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    value = tl.zeros((ROWS, CHUNK), dtype=gradient.dtype.element_ty)
    for b0 in range(begin, end, SEQUENCES):
        b = b0 + tl.arange(0, SEQUENCES)
        direction = tl.load(
            v + (run * batch + b[None, :]) * all_rows + row[:, None],
            mask=(b[None, :] < end) & (row[:, None] < all_rows),
            other=0.0,
        )
        residual = tl.load(
            x + (run * batch + b[:, None]) * columns + c[None, :],
            mask=(b[:, None] < end) & (c[None, :] < columns),
            other=0.0,
        )
        value = tl.dot(direction, residual, value, input_precision="ieee")
    inside = (row[:, None] < all_rows) & (c[None, :] < columns)
    tl.store(gradient + (run * all_rows + row[:, None]) * columns + c[None, :], value, mask=inside)
