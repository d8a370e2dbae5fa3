"""Where training starts: Y(0) and Z(0), in the compact layout that they allow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.data.random_stream import sequence_key, uniform
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source_stamp import source_stamp
from scansnap.dynamics.options import STARTS, one_of
from scansnap.errors import InputError
from scansnap.model.compact import CompactLayout

Init = str | tuple[Any, Any]

DECODER_STREAM, ATTENTION_STREAM = np.uint64(2**64 - 1), np.uint64(2**64 - 2)
"""Updates -1 and -2, as it were: the random streams of the start, apart from those of any batch."""


@dataclass(frozen=True)
class Start:
    """Compact y (R, S, C) and z (R, Q, S)."""

    name: str  # what tells it from other starts
    layout: CompactLayout
    decoder: NDArray[np.floating]
    attention: NDArray[np.floating]


def make_start(classes: SequenceClasses, init: Init, seeds: Sequence[int] | NDArray[np.uint64], dtype: str) -> Start:
    """The start that `init` names, one copy per seed.

    "zeros" leaves the output columns symmetric, "uniform" draws each entry of Y and Z uniformly in +-1/sqrt(M) as the
    published runs did, and a pair (Y, Z) of M x M arrays, or of R x M x M for a start of its own for each run, is taken
    as it is.  Columns of Y are merged where they start equal in every run; so a run whose start is given with others
    may differ from the same run alone by rounding.
    """
    if isinstance(init, str):
        one_of("init", init, STARTS)
        return _uniform(classes, seeds, dtype) if init == "uniform" else _zeros(classes, len(seeds), dtype)
    if not (isinstance(init, tuple | list) and len(init) == 2):
        raise InputError(
            f"init is {type(init).__name__}: give {' or '.join(map(repr, STARTS))}, or a pair of arrays (Y, Z)."
        )
    return _given(classes, init[0], init[1], len(seeds), dtype)


def _zeros(classes: SequenceClasses, runs: int, dtype: str) -> Start:
    layout = CompactLayout.of(classes)
    decoder, attention = _empty(layout, runs, dtype)
    return Start("zeros", layout, decoder, attention)


def _uniform(classes: SequenceClasses, seeds: Sequence[int] | NDArray[np.uint64], dtype: str) -> Start:
    layout = CompactLayout.of(classes, np.arange(classes.vocab_size))
    decoder, attention = _empty(layout, len(seeds), dtype)
    bound = classes.vocab_size**-0.5
    keys = np.asarray(seeds, np.uint64)
    uniform_entries(keys, DECODER_STREAM, bound, layout.column_of_token, decoder)
    uniform_entries(keys, ATTENTION_STREAM, bound, np.arange(layout.num_rows), attention)
    return Start("uniform", layout, decoder, attention)


def _given(classes: SequenceClasses, decoder: Any, attention: Any, runs: int, dtype: str) -> Start:
    full_y = _matrix("Y", decoder, classes.vocab_size, runs)[:, classes.contextual_tokens]  # (1 or R, S, M)
    full_z = _matrix("Z", attention, classes.vocab_size, runs)[:, classes.queries][:, :, classes.contextual_tokens]
    # Columns that start equal in every run are one group.
    columns = full_y.reshape(-1, classes.vocab_size).T
    _, groups = np.unique(columns, axis=0, return_inverse=True)
    layout = CompactLayout.of(classes, groups.reshape(-1))
    compact_y, compact_z = _empty(layout, runs, dtype)
    compact_y[:, :, layout.column_of_token] = full_y
    compact_z[:] = full_z
    digest = hashlib.sha256(full_y.tobytes() + full_z.tobytes()).hexdigest()[:16]
    return Start(f"given {digest}", layout, compact_y, compact_z)


def _matrix(name: str, values: Any, vocab_size: int, runs: int) -> NDArray[np.float64]:
    if hasattr(values, "detach"):  # a tensor or a parameter of a model
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"init's {name} cannot be read as an array of numbers.") from None
    shapes = ((vocab_size, vocab_size), (runs, vocab_size, vocab_size))
    if array.shape not in shapes:
        raise InputError(
            f"init's {name} has shape {array.shape}: give {shapes[0]}, or {shapes[1]} for one start per run."
        )
    if not np.isfinite(array).all():
        raise InputError(f"init's {name} contains NaN or infinity: give finite numbers.")
    return array if array.ndim == 3 else array[None]


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _empty(layout: CompactLayout, runs: int, dtype: str) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    shape_y = (runs, layout.num_rows, len(layout.multiplicity))
    shape_z = (runs, layout.num_queries, layout.num_rows)
    needed = 2 * (np.prod(shape_y, dtype=float) + np.prod(shape_z, dtype=float)) * np.dtype(dtype).itemsize
    available = physical_memory()
    if needed > available:
        raise InputError(
            f"{runs} runs with {shape_y[1]} contextual tokens and {layout.num_columns} output columns need "
            f"{needed / 2**30:.0f} GiB, more than this machine's {available / 2**30:.0f} GiB: start from zeros, "
            "which merges output columns, or train fewer runs at a time."
        )
    return np.zeros(shape_y, dtype), np.zeros(shape_z, dtype)


def _compile(stamp: int):  # type: ignore[no-untyped-def]
    """The function kept on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True)
    def uniform_entries(seeds, stream, bound, columns, out):  # type: ignore[no-untyped-def]
        """out[r, i, columns[j]] uniform in +-bound, from word j of row i's stream."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            for i in range(out.shape[1]):
                key = sequence_key(seeds[r], stream, i)
                for j in range(columns.shape[0]):
                    out[r, i, columns[j]] = bound * (2.0 * uniform(key, j) - 1.0)

    return uniform_entries


uniform_entries = _compile(source_stamp("data.random_stream"))
