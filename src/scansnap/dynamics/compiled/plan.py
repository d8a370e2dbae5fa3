"""What the CPU kernel works on: arrays by name, so that compiled code reads `plan.slots` and not the eleventh argument.

One compiled function serves every layer and rule.  Arrays that a setting does not need are empty.  Compiled code only
loops over entries: every further function of arrays, and every literal number among its arguments, is compiled anew.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.number)

ROOM = 512
"""Entries left free around arrays that compiled loops write: more than any loop handles at once."""

LINE = 64
"""Bytes of a cache line."""

GROUP = 8
"""The number of sequences of one class taken together: `loops` loads a row of Y once for all of them."""

TOGETHER = 4
"""The number of sequences whose positions are drawn and weighed in turn (`portions`)."""

MEAN, LENGTH, ENTRY, SCALE, ROWS = range(5)
"""Rows of `shape` for each head (`readout`): mean(c^), L, u_m, and w over c/|c|_2, of each sequence."""

SGD_RULE, ADAM_RULE, SIGN_RULE, NORMALIZED_RULE = range(4)
"""How a gradient moves its matrix (`update_rules.py`)."""


class KernelPlan(NamedTuple):
    """What does not change during training: the layer on the compact layout, and the sampling tables.

    Y has a block of rows for each head.  `readout` explains slots and the last row of a block.
    """

    size: NDArray[np.int32]  # (K,)
    support: NDArray[np.int32]  # (K, W)
    support_probs: NDArray[np.floating]  # (1, K, W), weighed by a fixed bias on positions
    bucket: NDArray[np.int64]  # (E,) the bucket of each portion of a sequence (`portions`); (0,) if it has none
    bucket_scale: NDArray[np.floating]  # (E,) exp(b) of a fixed bias on positions
    bucket_probs: NDArray[np.floating]  # (K, G W) by bucket of positions, where a bias on them is learned
    position_thresholds: NDArray[np.int32]  # (K, D, W, ROW) where the kernel draws positions
    position_rows: NDArray[np.int64]  # which of the D each row of positions has (`thresholds_by_distance`)
    query_index: NDArray[np.int64]  # (K,)
    next_column: NDArray[np.int64]  # (K,)
    class_weights: NDArray[np.float64]  # (K,) P(n)
    multiplicity: NDArray[np.floating]  # (1, C)
    column_rate: NDArray[np.floating]  # (1, C) 1 / multiplicity
    num_columns: int  # C without padding
    query_offsets: NDArray[np.int64]  # (Q + 1,)
    query_rows: NDArray[np.int64]  # entries of Z that can move, query by query
    thresholds: NDArray[np.int32]  # (K, W)
    conditional: NDArray[np.float64]  # (K, W)
    class_thresholds: NDArray[np.float64]  # (K,)
    heads: int  # H
    residual: bool  # whether the query is added
    num_tokens: float  # M if the mean over tokens is subtracted, otherwise 0
    slots: NDArray[np.int32]  # (K H, W + 2) the rows of Y that a class reads, head by head
    alone: NDArray[np.bool_]  # (K H, W + 2) slots, two by two, whose rows no other class reads
    own: NDArray[np.int64]  # (K,) which of its tokens is the class's query; -1 if none
    row_sign: NDArray[np.floating]  # (rows of Y,) -1 for rows that move against their gradient
    row_multiplicity: NDArray[np.floating]  # (rows of Y,) tokens that a row stands for; 0 for the sum of a block


class KernelState(NamedTuple):
    """What training changes, for every run; all of it is needed to continue a run to identical numbers."""

    decoder: NDArray[np.floating]  # (R, rows, C) y
    decoder_velocity: NDArray[np.floating]  # (R, rows, C) u = mu v
    decoder_age: NDArray[np.int64]  # (R, rows) updates seen
    attention_logits: NDArray[np.floating]  # (R, Q H, S) z
    attention_velocity: NDArray[np.floating]  # (R, Q H, S)
    attention_age: NDArray[np.int64]  # (R, Q H)
    position_bias: NDArray[np.floating]  # (R, 1, G) where it is learned; (R, 1, 0) otherwise
    position_velocity: NDArray[np.floating]  # (R, 1, G)
    decoder_moments: NDArray[np.floating]  # (R, 2, rows, C) Adam's; (R, 2, 0, 0) otherwise
    attention_moments: NDArray[np.floating]  # (R, 2, Q H, S)
    position_moments: NDArray[np.floating]  # (R, 2, 1, G)
    diverged: NDArray[np.int64]  # (R,) the step whose loss was not finite; -1 if none yet
    singular: NDArray[np.int64]  # (R,) the step at which Lemma 3's matrix had no inverse; -1 if none yet


class KernelRule(NamedTuple):
    """How a step is taken."""

    balanced: bool  # whether dz is freed from what rounding leaves of its sum, where a class has one sequence
    batch_size: int  # 0: every class once, with weight P(n)
    length: int  # contextual tokens T - 1; 0: T -> infinity, counts replaced by P(l|n)
    kind: int
    momentum: float
    beta_1: float
    beta_2: float
    epsilon: float
    modified: bool  # Lemma 3's decoder gradient


class KernelPool(NamedTuple):
    """Sequences drawn beforehand, for each seed (U, P); (U, 0) where the kernel draws them itself."""

    class_index: NDArray[np.int64]  # (U, P)
    counts: NDArray[np.floating]  # (U, P, W), or (U, P, G W) where a bias on positions is learned
    start: int  # the update that begins with sequence 0
    stride: int  # sequences from one update to the next; 0 where all updates use the same set
    chosen: bool  # whether an update takes sequences at random, instead of in order


class KernelCall(NamedTuple):
    """What one call does: updates start .. stop-1 of runs that share a seed; without runs it only compiles.

    Losses, and the shares of sequences that are right, are those of each batch before its update.  If `update` is false
    nothing is learned: the batches are only evaluated.
    """

    seed_index: int  # u
    runs: NDArray[np.int64]
    seeds: NDArray[np.uint64]  # (R,)
    rates_y: NDArray[np.float64]  # (R,)
    rates_z: NDArray[np.float64]  # (R,)
    start: int
    stop: int
    origin: int  # the update of the first column of losses and shares
    update: bool
    losses: NDArray[np.float64]  # (R, steps)
    shares: NDArray[np.float64]  # (R, steps)


class KernelScratch(NamedTuple):
    """Room to work in, for one thread."""

    firsts: NDArray[np.int64]  # (steps, K + 1) where each class's sequences begin (`draw_batch`)
    weights: NDArray[np.floating]  # (steps, B, W) their counts
    places: NDArray[np.int32]  # (steps, B and more, whole rows) their portions (`portions`) if they are drawn
    amounts: NDArray[np.floating]  # (steps, B, E) if they are given; both of one step alone unless a bias is learned
    class_index: NDArray[np.int64]  # (B,)
    order: NDArray[np.int64]  # (B,) sequences in the order of their classes
    draws: NDArray[np.int32]
    counts: NDArray[np.int32]  # (W,)
    boost: NDArray[np.floating]  # (H, W) exp(z) of a class's tokens, relative to the largest
    f: NDArray[np.floating]  # (H slots, GROUP) coefficients of rows of Y, a column per sequence
    parts: NDArray[np.floating]  # (H GROUP, C) the logits of each head; `logits` itself for one head
    logits: NDArray[np.floating]  # (GROUP, C) then residuals up to a factor
    factor: NDArray[np.floating]  # (2, GROUP) that factor, and a_s, both times the sequence's weight
    shape: NDArray[np.floating]  # (H ROWS, GROUP) `readout`
    bends: NDArray[np.floating]  # (H ROWS, GROUP)
    pull: NDArray[np.floating]  # (H slots,) sum_j y_lj G_lj
    bend: NDArray[np.floating]  # (H slots,) sum_s f_sl^2 a_s, and what other layers add
    moves: NDArray[np.bool_]  # (W,) which of a class's tokens have a gradient
    touched_rows: NDArray[np.int32]  # how many rows of Y this step moves, then which
    touched_queries: NDArray[np.int64]  # the same for Z
    ones: NDArray[np.floating]  # (1, .)
    bias_scale: NDArray[np.floating]  # (G,) exp(b) of a learned bias on positions
    portion_scale: NDArray[np.floating]  # (E,) the same, portion by portion, of any bias
    portion_slope: NDArray[np.floating]  # (E,) (dJ/db_g)/exp(b_g) in parts
    slopes: NDArray[np.floating]  # (W, GROUP) dJ/d ln a_l
    products: NDArray[np.floating]  # (W and more, GROUP)
    per_count: NDArray[np.floating]  # (GROUP, W) (dJ/d ln a_l)/a_l
    bias_weights: NDArray[np.floating]  # (1, B, W) counts with that bias
    bias_probs: NDArray[np.floating]  # (1, K, W) P(l|n) with that bias
    residuals: NDArray[np.floating]  # (K, C) of all sequences of a class, for Lemma 3's gradient
    coefficients: NDArray[np.floating]  # (K, H slots) of the classes
    dense: NDArray[np.float64]  # (K, rows of Y) the same, row by row
    gram: NDArray[np.float64]  # (K, K) V^T V
    solution: NDArray[np.float64]  # (K, C)


def apart(array: NDArray[Number], room: int = ROOM) -> NDArray[Number]:
    """The array with room around it, from the beginning of a cache line on.

    If the arrays that compiled loops read and write begin within a few registers of each other, the loops fall back to
    one entry at a time, which rounds differently.  Room around each array rules this out, wherever memory is allocated.
    A register that lies across two lines takes twice as long to load.
    """
    space = np.zeros(array.size + ROOM + room, array.dtype)
    first = ROOM + -space.ctypes.data % LINE // array.itemsize
    inner = space[first : first + array.size].reshape(array.shape)
    inner[...] = array
    return inner
