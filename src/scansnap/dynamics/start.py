"""Where training starts: Y(0) and Z(0), in the compact layout that fits them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.start_options import StartArrays, StartOptions, bias_by_bucket, prior_logits
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory
from scansnap.systems.yz.architecture import BASIC, Layer
from scansnap.systems.yz.compact import CompactLayout

DECODER_STREAM, ATTENTION_STREAM = np.uint64(2**64 - 1), np.uint64(2**64 - 2)
"""Steps -1 and -2: the random streams of the start, separate from those of any batch."""


@dataclass(frozen=True)
class Start:
    """Compact y (R, H D, C) and z (R, Q H, S), and the terms added to z."""

    layout: CompactLayout
    decoder: NDArray[np.floating]
    attention_logits: NDArray[np.floating]  # with the prior in it
    prior: NDArray[np.float64]  # (S,)
    position_bias: NDArray[np.float64] | None  # (G,), where tokens depend on their position

    def __getitem__(self, runs: slice) -> Start:
        return replace(self, decoder=self.decoder[runs], attention_logits=self.attention_logits[runs])


def make_start(
    classes: SequenceClasses, options: StartOptions, seeds: NDArray[np.uint64], dtype: str, layer: Layer = BASIC
) -> Start:
    """The start that the options name, one copy per seed, with the prior added to Z.

    "zeros" leaves the output columns symmetric, "uniform" draws each entry of Y and Z uniformly in +-1/sqrt(M) as the
    published runs did (Z's `init_scale_z` times as wide), and a pair (Y, Z) of M x M arrays, or of R x M x M for a
    different start in each run, is used unchanged; with several heads both have one more axis, before the last two.
    Columns of Y are merged if they start equal in every run, so a run that starts from arrays may differ by rounding
    between training alone and training beside others.
    """
    if isinstance(options.init, StartArrays):
        layout, decoder, attention_logits = _from_arrays(classes, options.init, len(seeds), dtype, layer)
    else:
        layout = start_layout(classes, options, layer)
        _check_memory(layout, len(seeds), dtype)
        if options.init == "uniform":
            different, of_run = np.unique(seeds, return_inverse=True)
            decoder, attention_logits = (entries[of_run] for entries in _uniform(layout, different, options, dtype))
        else:
            decoder, attention_logits = _zeros(layout, len(seeds), dtype)
    prior = prior_logits(classes, options.attention_prior)  # type: ignore[arg-type]  # plain since it was checked
    attention_logits[...] += prior.astype(attention_logits.dtype)
    bias = bias_by_bucket(classes, options.position_bias) if classes.num_buckets else None  # type: ignore[arg-type]
    return Start(layout, decoder, attention_logits, prior, bias)


def start_layout(classes: SequenceClasses, options: StartOptions, layer: Layer) -> CompactLayout:
    """The layout for a start given by name: output columns merge from zeros, and none merge from random entries."""
    groups = np.arange(classes.vocab_size) if options.init == "uniform" else None
    return CompactLayout.of(classes, groups, layer)


def _uniform(
    layout: CompactLayout, seeds: NDArray[np.uint64], options: StartOptions, dtype: str
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    from scansnap.data.sampling import uniform_entries, uniform_means

    decoder, attention_logits = _zeros(layout, len(seeds), dtype)
    vocab_size, heads = layout.classes.vocab_size, layout.layer.heads
    bound = vocab_size**-0.5
    own, rows = len(layout.decoder_tokens), layout.num_decoder_rows
    for head in range(heads):
        first = head * vocab_size  # rows of a head's streams; those of the first head are the basic setting's
        block = decoder[:, head * rows : (head + 1) * rows]
        uniform_entries(seeds, DECODER_STREAM, first, bound, layout.column_of_token, block[:, :own])
        if rows > own:
            uniform_means(
                seeds,
                DECODER_STREAM,
                first + own,
                len(layout.other_tokens),
                bound,
                layout.column_of_token,
                block[:, own],
            )
        uniform_entries(
            seeds,
            ATTENTION_STREAM,
            first,
            options.init_scale_z * bound,
            np.arange(layout.num_rows),
            attention_logits[:, head::heads],
        )
    return decoder, attention_logits


def _from_arrays(
    classes: SequenceClasses, arrays: StartArrays, runs: int, dtype: str, layer: Layer
) -> tuple[CompactLayout, NDArray[np.floating], NDArray[np.floating]]:
    shape = CompactLayout.of(classes, layer=layer)  # rows are the same for all groups of columns
    whole_y = _by_run("Y", arrays.decoder, classes.vocab_size, runs, layer.heads)  # (1 or R, H, M, M)
    whole_z = _by_run("Z", arrays.attention_logits, classes.vocab_size, runs, layer.heads)
    full_y = whole_y[:, :, shape.decoder_tokens]
    if len(shape.other_tokens):
        full_y = np.concatenate([full_y, whole_y[:, :, shape.other_tokens].mean(2, keepdims=True)], axis=2)
    full_y = full_y.reshape(len(full_y), -1, classes.vocab_size)  # (1 or R, H D, M)
    full_z = whole_z[:, :, classes.queries][..., classes.contextual_tokens].swapaxes(1, 2)  # (1 or R, Q, H, S)
    # Columns that start equal in every run are one group.
    columns = full_y.reshape(-1, classes.vocab_size).T
    _, groups = np.unique(columns, axis=0, return_inverse=True)
    layout = CompactLayout.of(classes, groups.reshape(-1), layer)
    _check_memory(layout, runs, dtype)
    compact_y, compact_z = _zeros(layout, runs, dtype)
    compact_y[:, :, layout.column_of_token] = full_y
    compact_z[:] = full_z.reshape(len(full_z), *compact_z.shape[1:])
    return layout, compact_y, compact_z


def _by_run(name: str, array: NDArray[np.float64], vocab_size: int, runs: int, heads: int) -> NDArray[np.float64]:
    """(1 or R, H, M, M)."""
    single = (vocab_size, vocab_size) if heads == 1 else (heads, vocab_size, vocab_size)
    if array.shape not in (single, (runs, *single)):
        raise InputError(
            f"init's {name} has shape {array.shape}: give {single}, or {(runs, *single)} for one start per run."
        )
    return array.reshape(-1, heads, vocab_size, vocab_size)


def _shapes(layout: CompactLayout, runs: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Of y and z."""
    heads = layout.layer.heads
    shape_y = (runs, heads * layout.num_decoder_rows, len(layout.multiplicity))
    return shape_y, (runs, layout.num_queries * heads, layout.num_rows)


def _zeros(layout: CompactLayout, runs: int, dtype: str) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    shape_y, shape_z = _shapes(layout, runs)
    return np.zeros(shape_y, dtype), np.zeros(shape_z, dtype)


def _check_memory(layout: CompactLayout, runs: int, dtype: str) -> None:
    shape_y, shape_z = _shapes(layout, runs)
    needed = 2 * (np.prod(shape_y, dtype=float) + np.prod(shape_z, dtype=float)) * np.dtype(dtype).itemsize
    check_memory(
        f"{runs} runs with {shape_y[1]} contextual tokens and {layout.num_columns} output columns need",
        needed,
        "start from zeros, which merges output columns, or train fewer runs at a time",
    )
