"""What the compiled kernel reads and writes: arrays by name, and how they are made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics import kernel, update_rules
from scansnap.dynamics.kernel import Rule
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.start import Start
from scansnap.dynamics.update_rules import UpdateRule
from scansnap.systems.yz.compact import probs_by_bucket

FloatArray = NDArray[np.floating]

RULES: dict[type, int] = {
    update_rules.SGD: kernel.SGD,
    update_rules.Adam: kernel.ADAM,
    update_rules.SignSGD: kernel.SIGN,
    update_rules.NormalizedSGD: kernel.NORMALIZED,
}
"""Compiled rules; a subclass may move differently, and a user's rule is called for every step."""


class KernelLayer(NamedTuple):
    """The classes and the columns of Y; what does not change during training."""

    size: NDArray[np.int32]  # (K,) tokens of each class
    rows: NDArray[np.int32]  # (K, W) their rows
    query: NDArray[np.int64]  # (K,) row of Z of each class, before heads
    next_column: NDArray[np.int64]  # (K,)
    multiplicity: FloatArray  # (C,) columns in a group
    column_rate: FloatArray  # (C,) 1 / multiplicity
    prior: FloatArray  # (S,) the logits that weight decay pulls z to


class KernelSwitches(NamedTuple):
    """What layers other than the basic one need, with their scratch."""

    heads: int  # H; Y has H blocks of D rows, Z has H rows for each query
    num_tokens: float  # M
    centered: bool  # whether the normalization subtracts the mean
    residual: bool  # whether the query is added
    modified: bool  # whether the decoder gradient is Lemma 3's
    own_row: NDArray[np.int64]  # (K,) the row of Y of each class's query
    own_slot: NDArray[np.int64]  # (K,) which of its tokens is the class's query; -1 if none
    row_multiplicity: FloatArray  # (D,) tokens that a row stands for
    probs: FloatArray  # (K, W) P(l|n), weighed by a fixed bias on positions
    bucket_probs: FloatArray  # (K, G, W) the same by bucket of positions, where a bias on them is learned
    shape: FloatArray  # (H, 4) of a sequence: sum of w, c^-mean, L, u_m
    parts: FloatArray  # (H, C) logits of the heads up to each
    slopes: FloatArray  # (W,) dJ/d ln a_l of a sequence
    scale: FloatArray  # (G,) exp(b) of a bias on positions that is learned
    weights: FloatArray  # (B, W) a, with a bias on positions that is learned
    biased_probs: FloatArray  # (K, W) P(l|n) with that bias
    moves: NDArray[np.bool_]  # (W,) which of a class's tokens have a gradient
    mean_row: FloatArray  # (H, C) S/M
    mean_gradient: FloatArray  # (H, C) sum_s (sum_l w_sl) x_s
    residuals: FloatArray  # (K, C) sum_s x_s of each class, for Lemma 3's gradient
    v: NDArray[np.float64]  # (K, H D) the directions of the classes for T -> infinity
    gram: NDArray[np.float64]  # (K, K) V'V, then its Cholesky factor
    column: NDArray[np.float64]  # (K,)


class KernelBatches(NamedTuple):
    """The sequences of n updates, in order of class."""

    first: NDArray[np.int64]  # (n, K + 1) where the sequences of each class begin
    weights: FloatArray  # (n, B, W) a; not read where a bias on positions is learned
    buckets: FloatArray  # (n, B, G, W) the counts by bucket, where a bias on positions is learned
    class_weight: FloatArray  # (K,) the weight of a sequence in the loss


class Exponential(NamedTuple):
    """exp(x) = 2^k q(x - k ln 2) with k the integer nearest to x/ln 2, in a form that compilers vectorize.

    Adding `magic` rounds to an integer, whose bits are then the exponent of a float.
    """

    polynomial: FloatArray  # the coefficients of r, highest power first
    constants: FloatArray  # 1/ln 2, ln 2 in two parts, magic, and the least x
    shift: NDArray[Any]  # (1,) the digits of the mantissa
    powers: FloatArray  # (C,) scratch
    bits: NDArray[Any]  # the same memory as integers
    rest: FloatArray  # (C,) scratch


POLYNOMIALS = {
    "float32": (0.0, 0.0, 0.0, 0.0, 0.0, 1.3814467e-3, 8.3687808e-3, 4.1668393e-2, 1.6666520e-1, 4.9999994e-1),
    "float64": (
        2.502463332219875e-08,
        2.763115485562374e-07,
        2.755750743856256e-06,
        2.480149026903066e-05,
        0.00019841269596823096,
        0.00138888889467478,
        0.008333333333451622,
        0.04166666666651608,
        0.16666666666666483,
        0.5000000000000012,
    ),
}
"""q(t) = 1 + t + t^2 r(t) on |t| <= ln(2)/2, with the r that minimizes the largest relative error: 3e-9 and 1.3e-17."""

CONSTANTS = {
    "float32": (1.4426950408889634, 0.693359375, -2.12194440e-4, 1.5 * 2**23 + 127, -87.0),
    "float64": (1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10, 1.5 * 2**52 + 1023, -708.0),
}


PADDING = 512
"""Entries left free before and after arrays that compiled loops write."""


def padded_zeros(shape: tuple[int, ...], dtype: np.dtype[np.floating]) -> FloatArray:
    """Zeros with unused memory around them.

    Compiled loops check that their arrays are not too close to each other, and otherwise take one entry at a time,
    which rounds differently.  Padding makes results independent of where memory is allocated.
    """
    size = int(np.prod(shape))
    return np.zeros(size + 2 * PADDING, dtype)[PADDING : PADDING + size].reshape(shape)


def exponential(columns: int, dtype: np.dtype[np.floating]) -> Exponential:
    """What `exponentials` needs for rows of this many numbers."""
    powers = padded_zeros((columns,), dtype)
    bits = powers.view(np.int32 if dtype == np.float32 else np.int64)
    shift = np.array([23 if dtype == np.float32 else 52], bits.dtype)
    return Exponential(
        np.array(POLYNOMIALS[dtype.name], dtype),
        np.array(CONSTANTS[dtype.name], dtype),
        shift,
        powers,
        bits,
        padded_zeros((columns,), dtype),
    )


class KernelScratch(NamedTuple):
    """Memory that a thread works in."""

    exp_z: FloatArray  # (H, W) exp(z) relative to the class's largest
    w: FloatArray  # (H, W + 1) the coefficients of a sequence's rows; the last is its query's
    logits: FloatArray  # (C,)
    x: FloatArray  # (C,) residual
    G: FloatArray  # (H, W + 1, C) a class's decoder gradient
    dz: FloatArray  # (H, W) sum_s (w^2 square + w linear + own) of a class, then the gradient of its logits
    squares: FloatArray  # (H, W) sum_s w^2
    dY: FloatArray  # (H D, C)
    dZ: FloatArray  # (Q H, S)
    db: FloatArray  # (1, G)
    exponential: Exponential


def kernel_scratch(
    layer: KernelLayer, heads: int, shape_y: tuple[int, ...], shape_z: tuple[int, ...], buckets: int
) -> KernelScratch:
    """Memory for one thread."""
    dtype, width, columns = layer.multiplicity.dtype, layer.rows.shape[1], shape_y[1]

    def floats(*shape: int) -> FloatArray:
        return padded_zeros(shape, dtype)

    return KernelScratch(
        exp_z=floats(heads, width),
        w=floats(heads, width + 1),
        logits=floats(columns),
        x=floats(columns),
        G=floats(heads, width + 1, columns),
        dz=floats(heads, width),
        squares=floats(heads, width),
        dY=floats(*shape_y),
        dZ=floats(*shape_z),
        db=floats(1, buckets),
        exponential=exponential(columns, dtype),
    )


class KernelState(NamedTuple):
    """What training changes, for every run; all of it is needed to continue a run to identical numbers."""

    decoder: FloatArray  # (R, H D, C) y
    attention_logits: FloatArray  # (R, Q H, S) z
    position_bias: FloatArray  # (R, 1, G) where it is learned; (R, 1, 0) otherwise
    decoder_velocity: FloatArray  # what the rule remembers, or empty
    attention_logits_velocity: FloatArray
    position_bias_velocity: FloatArray
    decoder_square: FloatArray
    attention_logits_square: FloatArray
    position_bias_square: FloatArray
    diverged: NDArray[np.int64]  # (R,) the step whose loss was not finite; -1 if none yet
    singular: NDArray[np.int64]  # (R,) the step at which Lemma 3's matrix had no inverse; -1 if none yet


def kernel_layer(start: Start, dtype: np.dtype[np.floating]) -> KernelLayer:
    """The classes and columns as the kernel reads them."""
    layout = start.layout
    return KernelLayer(
        size=np.array(layout.size),
        rows=np.array(layout.support),
        query=np.array(layout.query_index),
        next_column=np.array(layout.next_column),
        multiplicity=layout.multiplicity.astype(dtype),
        column_rate=layout.column_rate.astype(dtype),
        prior=start.prior.astype(dtype),
    )


def kernel_switches(
    start: Start, batch: int, dtype: np.dtype[np.floating], *, modified: bool, learned: bool
) -> KernelSwitches:
    """The layer's switches as the kernel reads them; `learned` is whether a bias on positions is."""
    layout = start.layout
    layer, classes, (num_classes, width) = layout.layer, layout.classes, layout.support.shape
    residual = layer.addition is not None
    own_row, own_slot = np.zeros(num_classes, np.int64), np.full(num_classes, -1)
    if residual:
        own_row[:] = layout.own_row
        for n, size in enumerate(layout.size):
            own_slot[n] = np.flatnonzero(np.append(layout.support[n, :size], own_row[n]) == own_row[n])[0]
        own_slot[own_slot == layout.size] = -1
    by_bucket = probs_by_bucket(layout)  # (K, G, W)
    columns, rows, buckets = layout.num_columns, layer.heads * layout.num_decoder_rows, by_bucket.shape[1] * learned
    gram = num_classes * modified

    def floats(*shape: int) -> NDArray[np.floating]:
        return padded_zeros(shape, dtype)

    return KernelSwitches(
        heads=layer.heads,
        num_tokens=float(classes.vocab_size),
        centered=layer.spreads,
        residual=residual,
        modified=modified,
        own_row=own_row,
        own_slot=own_slot,
        row_multiplicity=layout.row_multiplicity.astype(dtype),
        probs=np.einsum("g,ngw->nw", bucket_scale(start.position_bias), by_bucket).astype(dtype),
        bucket_probs=by_bucket[:, :buckets].astype(dtype),
        shape=floats(layer.heads, 4),
        parts=floats(layer.heads, columns),
        slopes=floats(width),
        scale=floats(buckets),
        weights=floats(batch if learned else 0, width),
        biased_probs=floats(num_classes if learned else 0, width),
        moves=np.zeros(width, np.bool_),
        mean_row=floats(layer.heads, columns),
        mean_gradient=floats(layer.heads, columns),
        residuals=floats(gram, columns),
        v=np.zeros((gram, rows)),
        gram=np.zeros((gram, gram)),
        column=np.zeros(gram),
    )


def bucket_scale(bias: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """exp(b) of a fixed bias on positions; the largest is one."""
    return np.ones(1) if bias is None else np.exp(bias - bias.max())


def has_kernel_rule(rule: object) -> bool:
    """Whether the kernel has this rule with all its settings."""
    return type(rule) in RULES and {field.name for field in fields(rule)} <= set(Rule._fields)  # type: ignore[arg-type]


def kernel_rule(rule: UpdateRule, options: TrainOptions) -> Rule:
    """The rule, its settings and the options of a step, as the kernel reads them."""
    values = (getattr(rule, name, getattr(options, name, None)) for name in Rule._fields[1:])
    return Rule(RULES[type(rule)], *(float(value or 0.0) for value in values))


def has_plain_steps(rule: Rule) -> bool:
    """Whether a step is SGD's, with or without momentum, and nothing else: all that the basic kernel compiles."""
    return rule == Rule(kernel.SGD, rule.momentum, *[0.0] * (len(rule) - 2))


def kernel_state(
    start: Start, runs: int, memory: tuple[str, ...], dtype: np.dtype[np.floating], *, learned: bool
) -> KernelState:
    """The start, and the rule's memory of it."""
    bias = start.position_bias if learned and start.position_bias is not None else np.empty(0)
    starts = {
        "decoder": start.decoder,
        "attention_logits": start.attention_logits,
        "position_bias": np.tile(bias, (runs, 1, 1)),
    }
    parameters = {name: padded_zeros(values.shape, dtype) for name, values in starts.items()}
    for name, values in starts.items():
        parameters[name][...] = values
    remembered = {
        f"{name}_{word}": padded_zeros(array.shape if word in memory else (runs, 0, 0), dtype)
        for word in ("velocity", "square")
        for name, array in parameters.items()
    }
    never = np.full((2, runs), -1, np.int64)
    return KernelState(**parameters, **remembered, diverged=never[0], singular=never[1])
