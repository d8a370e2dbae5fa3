"""Where training starts: Y(0) and Z(0), in the compact layout that they allow."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.source_stamp import source_stamp
from scansnap.data.random_stream import sequence_key, uniform
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.options import STARTS, one_of
from scansnap.dynamics.position_bias import Positions
from scansnap.dynamics.prior import prior_logits
from scansnap.model.architecture import BASIC, Architecture
from scansnap.model.compact import CompactLayout

Init = str | tuple[Any, Any]

DECODER_STREAM, ATTENTION_STREAM = np.uint64(2**64 - 1), np.uint64(2**64 - 2)
"""Updates -1 and -2, as it were: the random streams of the start, apart from those of any batch."""


@dataclass(frozen=True)
class Start:
    """Compact y (R, H D, C) and z (R, Q H, S)."""

    name: str  # what tells it from other starts
    layout: CompactLayout
    decoder: NDArray[np.floating]
    attention: NDArray[np.floating]  # with the prior in it
    prior: NDArray[np.float64] = field(default_factory=lambda: np.zeros(()))  # (S,), or one number for all
    positions: Positions | None = None  # with their bias, where tokens depend on their position
    scale_z: float = 1.0  # how many times as wide Z starts


def make_start(
    classes: SequenceClasses,
    init: Init,
    seeds: Sequence[int] | NDArray[np.uint64],
    dtype: str,
    architecture: Architecture = BASIC,
    *,
    init_scale_z: float = 1.0,
    attention_prior: Any = None,
    position_bias: Any = None,
    learn_position_bias: bool = False,
) -> Start:
    """The start that `init` names, one copy per seed, with the prior added to Z.

    "zeros" leaves the output columns symmetric, "uniform" draws each entry of Y and Z uniformly in +-1/sqrt(M) as the
    published runs did (Z's `init_scale_z` times as wide), and a pair (Y, Z) of M x M arrays, or of R x M x M for a
    start of its own for each run, is taken as it is; with several heads both have one more axis, before the last two.
    Columns of Y are merged where they start equal in every run; so a run whose start is given with others may differ
    from the same run alone by rounding.
    """
    prior, positions = check_start(
        classes, init=init, init_scale_z=init_scale_z, attention_prior=attention_prior, position_bias=position_bias,
        learn_position_bias=learn_position_bias,
    )  # fmt: skip
    check_layers(architecture, init, attention_prior, positions)
    if isinstance(init, str):
        if init == "uniform":
            start = _uniform(classes, seeds, dtype, architecture, init_scale_z)
        else:
            start = _zeros(classes, len(seeds), dtype, architecture)
        return replace(_with_priors(start, prior, positions), scale_z=init_scale_z)
    if not (isinstance(init, tuple | list) and len(init) == 2):
        raise InputError(
            f"init is {type(init).__name__}: give {' or '.join(map(repr, STARTS))}, or a pair of arrays (Y, Z)."
        )
    return _with_priors(_given(classes, init[0], init[1], len(seeds), dtype, architecture), prior, positions)


def check_start(
    classes: SequenceClasses,
    *,
    init: Init,
    init_scale_z: float,
    attention_prior: Any,
    position_bias: Any,
    learn_position_bias: bool,
) -> tuple[NDArray[np.float64], Positions | None]:
    """Refuse a start that cannot be, before it is made; the prior (S,) and the positions."""
    if isinstance(init, str):
        one_of("init", init, STARTS)
    if isinstance(init_scale_z, bool) or not isinstance(init_scale_z, Real) or not 0 <= init_scale_z < math.inf:
        raise InputError(f"init_scale_z is {init_scale_z!r}: give a finite number of at least 0.")
    if init_scale_z != 1 and init != "uniform":
        what = repr(init) if isinstance(init, str) else "a pair of arrays"
        raise InputError(f"init_scale_z is {init_scale_z} but init is {what}: it scales the start 'uniform' alone.")
    return prior_logits(classes, attention_prior), Positions.checked(classes, position_bias, learn_position_bias)


def check_layers(architecture: Architecture, init: Init, attention_prior: Any, positions: Positions | None) -> None:
    """Refuse starts that several layers cannot have."""
    if architecture.layers == 1:
        return
    if not isinstance(init, str):
        raise InputError("init is a pair of arrays but there are several layers: start them from 'zeros' or 'uniform'.")
    if attention_prior is not None or positions is not None:
        raise InputError("priors and positions are for one layer: leave them out, or give layers=1.")
    if architecture.nonlinearity == "relu" and init == "zeros":
        raise InputError("ReLU has no slope at zero, where nothing would ever move: give init='uniform', or tanh.")


def _with_priors(start: Start, prior: NDArray[np.float64], positions: Positions | None) -> Start:
    start.attention[...] += prior.astype(start.attention.dtype)
    return replace(start, prior=prior, positions=positions)


def _zeros(classes: SequenceClasses, runs: int, dtype: str, architecture: Architecture) -> Start:
    layout = CompactLayout.of(classes, architecture=architecture)
    decoder, attention = _empty(layout, runs, dtype)
    return Start("zeros", layout, decoder, attention)


def _uniform(
    classes: SequenceClasses,
    seeds: Sequence[int] | NDArray[np.uint64],
    dtype: str,
    architecture: Architecture,
    scale_z: float,
) -> Start:
    layout = CompactLayout.of(classes, np.arange(classes.vocab_size), architecture)
    decoder, attention = _empty(layout, len(seeds), dtype)
    bound = classes.vocab_size**-0.5
    keys = np.asarray(seeds, np.uint64)
    own, rows = len(layout.decoder_tokens), layout.num_decoder_rows
    for head in range(architecture.heads):
        first = head * classes.vocab_size  # rows of a head's streams; those of the first head are the basic setting's
        mine = decoder[:, head * rows : (head + 1) * rows]
        uniform_entries(keys, DECODER_STREAM, first, bound, layout.column_of_token, mine[:, :own])
        if rows > own:
            uniform_means(keys, DECODER_STREAM, first + own, len(layout.other_tokens), bound, layout.column_of_token,
                          mine[:, own])  # fmt: skip
        uniform_entries(keys, ATTENTION_STREAM, first, scale_z * bound, np.arange(layout.num_rows),
                        attention[:, head :: architecture.heads])  # fmt: skip
    return Start("uniform", layout, decoder, attention)


def _given(
    classes: SequenceClasses, decoder: Any, attention: Any, runs: int, dtype: str, architecture: Architecture
) -> Start:
    shape = CompactLayout.of(classes, architecture=architecture)  # rows are the same for all groups of columns
    whole_y = _matrix("Y", decoder, classes.vocab_size, runs, architecture.heads)  # (1 or R, H, M, M)
    whole_z = _matrix("Z", attention, classes.vocab_size, runs, architecture.heads)
    full_y = whole_y[:, :, shape.decoder_tokens]
    if len(shape.other_tokens):
        full_y = np.concatenate([full_y, whole_y[:, :, shape.other_tokens].mean(2, keepdims=True)], axis=2)
    full_y = full_y.reshape(len(full_y), -1, classes.vocab_size)  # (1 or R, H D, M)
    full_z = whole_z[:, :, classes.queries][..., classes.contextual_tokens].swapaxes(1, 2)  # (1 or R, Q, H, S)
    # Columns that start equal in every run are one group.
    columns = full_y.reshape(-1, classes.vocab_size).T
    _, groups = np.unique(columns, axis=0, return_inverse=True)
    layout = CompactLayout.of(classes, groups.reshape(-1), architecture)
    compact_y, compact_z = _empty(layout, runs, dtype)
    compact_y[:, :, layout.column_of_token] = full_y
    compact_z[:] = full_z.reshape(len(full_z), *compact_z.shape[1:])
    digest = hashlib.sha256(full_y.tobytes() + full_z.tobytes()).hexdigest()[:16]
    return Start(f"given {digest}", layout, compact_y, compact_z)


def _matrix(name: str, values: Any, vocab_size: int, runs: int, heads: int) -> NDArray[np.float64]:
    """(1 or R, H, M, M)."""
    if hasattr(values, "detach"):  # a tensor or a parameter of a model
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"init's {name} cannot be read as an array of numbers.") from None
    one = (vocab_size, vocab_size) if heads == 1 else (heads, vocab_size, vocab_size)
    if array.shape not in (one, (runs, *one)):
        raise InputError(f"init's {name} has shape {array.shape}: give {one}, or {(runs, *one)} for one start per run.")
    if not np.isfinite(array).all():
        raise InputError(f"init's {name} contains NaN or infinity: give finite numbers.")
    return array.reshape(-1, heads, vocab_size, vocab_size)


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _empty(layout: CompactLayout, runs: int, dtype: str) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    heads = layout.architecture.heads
    shape_y = (runs, heads * layout.num_decoder_rows, len(layout.multiplicity))
    shape_z = (runs, layout.num_queries * heads, layout.num_rows)
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
    """The functions kept on disk; `stamp` makes the cache notice changes in what they call."""

    @njit(cache=True)
    def uniform_entries(seeds, stream, first, bound, columns, out):  # type: ignore[no-untyped-def]
        """out[r, i, columns[j]] uniform in +-bound, from word j of the stream of row first + i."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            for i in range(out.shape[1]):
                key = sequence_key(seeds[r], stream, first + i)
                for j in range(columns.shape[0]):
                    out[r, i, columns[j]] = bound * (2.0 * uniform(key, j) - 1.0)

    @njit(cache=True)
    def uniform_means(seeds, stream, first, count, bound, columns, out):  # type: ignore[no-untyped-def]
        """out[r, columns[j]]: the mean over `count` such rows from `first` on."""
        if stamp < 0:
            return
        for r in range(seeds.shape[0]):
            total = np.zeros(columns.shape[0])
            for i in range(count):
                key = sequence_key(seeds[r], stream, first + i)
                for j in range(columns.shape[0]):
                    total[j] += bound * (2.0 * uniform(key, j) - 1.0)
            for j in range(columns.shape[0]):
                out[r, columns[j]] = total[j] / count

    return uniform_entries, uniform_means


uniform_entries, uniform_means = _compile(source_stamp("data.random_stream"))
