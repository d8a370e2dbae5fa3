"""The engine that runs the CPU kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sampling_tables import (
    COUNTING_LIMIT,
    ROW,
    WIDE,
    SamplingTables,
    bucket_of,
    padded_length,
    thresholds_by_distance,
)
from scansnap.dynamics.compiled.plan import (
    ADAM_RULE,
    GROUP,
    NORMALIZED_RULE,
    ROOM,
    ROWS,
    SGD_RULE,
    SIGN_RULE,
    TOGETHER,
    KernelCall,
    KernelPlan,
    KernelRule,
    KernelScratch,
    KernelState,
    apart,
)
from scansnap.dynamics.compiled.pool import Pools, is_compiled
from scansnap.dynamics.engine import SINGULAR, Array, Work, matrix_entries, needs_decoder
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.dynamics.update_rules import SGD, Adam, NormalizedSGD, SignSGD
from scansnap.results.snapshot import Parts
from scansnap.runtime.errors import InputError
from scansnap.runtime.kept_code import KeptFunction, Packed
from scansnap.runtime.machine import available_threads
from scansnap.systems.yz.architecture import ADD_QUERY
from scansnap.systems.yz.attention import SOFTMAX
from scansnap.systems.yz.compact import CompactLayout
from scansnap.systems.yz.lanes import LANES
from scansnap.systems.yz.normalization import L2Normalization, LayerNormalization

advance, advance_basic = (
    KeptFunction("scansnap.dynamics.compiled.training", name) for name in ("advance", "advance_basic")
)

RULES: dict[type, int] = {SGD: SGD_RULE, Adam: ADAM_RULE, SignSGD: SIGN_RULE, NormalizedSGD: NORMALIZED_RULE}
"""Compiled rules; a subclass may move differently, and a user's rule is called for every step."""


class KernelEngine:
    """Compiled code without Python's lock: one run per core at a time, each computed independently."""

    spins = False

    @staticmethod
    def serves(work: Work) -> bool:
        """One layer on a CPU, made of built-in parts."""
        options, layer = work.options, work.layer
        return (
            options.device == "cpu"
            and options.layers == 1
            and layer.map == SOFTMAX
            and type(layer.normalizer) in (L2Normalization, LayerNormalization)
            and layer.addition in (None, ADD_QUERY)
            and type(options.rule) in RULES
        )

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """What is kept, and a fixed set."""
        fixed = (work.options.num_sequences or 0) * work.start_layout.support.shape[1]
        return KernelEngine.numbers_kept(work) + fixed

    @staticmethod
    def numbers_kept(work: Work) -> float:
        """Y and Z with their velocities, and Adam's moments."""
        return (4 if isinstance(work.options.rule, Adam) else 2) * matrix_entries(work.start_layout)

    @staticmethod
    def numbers_at_once(work: Work) -> float:
        """A batch for each thread: the weights of its tokens, and where each token stands."""
        return available_threads() * float(work.batch) * (3 * work.start_layout.support.shape[1] + 2)

    def __init__(self, work: Work, start: Start, runs: Runs, *, stream: int = 0, balanced: bool = False) -> None:
        """A fixed set is the first sequences of batch number `stream`; `balanced` is as in `KernelRule`."""
        self.step = 0
        self._runs = runs
        options, rule, layout = work.options, work.options.rule, start.layout
        dtype = np.dtype(options.dtype)
        self._seeds, self._lr_y, self._lr_z = np.array(runs.seed), np.array(runs.lr_y), np.array(runs.lr_z)
        seeds, self._seed_index = np.unique(runs.seed, return_inverse=True)
        bias, is_learned = start.position_bias, options.learn_position_bias
        self._fixed_bias = None if bias is None or is_learned else np.tile(bias.astype(dtype), (len(runs), 1))
        self._pools = Pools(work, layout, seeds, None if is_learned else bias, dtype, stream)
        draws_positions = (
            layout.classes.num_buckets > 0
            and options.length > 0
            and options.num_sequences is None
            and is_compiled(work.source)
        )
        self._plan = _plan(layout, self._pools, dtype, draws_positions=draws_positions)
        adam = rule if isinstance(rule, Adam) else Adam()
        self._rule = KernelRule(
            balanced=balanced,
            batch_size=options.batch_size or options.num_sequences or 0,
            length=options.length,
            kind=RULES[type(rule)],
            momentum=rule.momentum if isinstance(rule, SGD) else 0.0,
            beta_1=adam.beta_1,
            beta_2=adam.beta_2,
            epsilon=adam.epsilon,
            modified=options.decoder_gradient == "modified",
        )
        self._kernel = advance_basic if _is_basic(self._plan, self._rule, self._pools) else advance
        self._layout = layout
        biases = np.tile(np.empty(0) if bias is None or not is_learned else bias, (len(runs), 1))
        self.place(start.decoder, start.attention_logits, biases)
        threads = available_threads()
        self._pool = ThreadPoolExecutor(threads)
        self._rooms: SimpleQueue[Packed] = SimpleQueue()  # those that no thread works in
        for _ in range(threads):
            self._rooms.put(Packed(_scratch(self._plan, self._state, self._rule)))
        self._groups = _groups(runs.seed, threads)
        self._compiled = False

    def place(
        self,
        decoder: NDArray[np.floating],
        attention_logits: NDArray[np.floating],
        position_bias: NDArray[np.floating],
    ) -> None:
        """Put the runs at y (R, H D, C), z (R, Q H, S) and a learned bias (R, G or 0), at rest before step 0."""
        self.step = 0
        self._state = _state(
            self._layout, self._plan, decoder, attention_logits, position_bias, adam=self._rule.kind == ADAM_RULE
        )
        self._what = [Packed(fields) for fields in (self._plan, self._state, self._rule)]
        self._first_sum = self._blocks(self._state.decoder)[:, :, self._layout.num_decoder_rows :].copy()

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        result = self._call(stop, update=True)
        self.check_independent()
        self.step = stop
        return result

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        loss, accuracy = self._call(self.step + 1, update=False)
        return loss[:, 0], accuracy[:, 0]

    def _call(self, stop: int, *, update: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        shape = (len(self._runs), stop - self.step)
        losses, accuracies = np.empty(shape), np.empty(shape)
        piece = self._pools.steps_at_once or max(stop - self.step, 1)
        for begin in range(self.step, stop, piece):
            self._take(begin, min(begin + piece, stop), update, losses, accuracies)
        return losses, accuracies

    def check_independent(self) -> None:
        """Refuse Lemma 3's gradient if the directions of the classes depend on each other in every run."""
        singular = self._state.singular
        if (singular >= 0).all() and (singular == singular[0]).all():
            raise InputError(SINGULAR)

    def _take(
        self,
        begin: int,
        end: int,
        update: bool,
        losses: NDArray[np.float64],
        accuracies: NDArray[np.float64],
    ) -> None:
        """Updates begin .. end-1 of all runs."""
        pool = Packed(self._pools.of(begin, end))

        def take(group: NDArray[np.int64]) -> None:
            u = int(self._seed_index[group[0]]) if len(group) else 0
            call = KernelCall(
                u, group, self._seeds, self._lr_y, self._lr_z, begin, end, self.step, update, losses, accuracies
            )
            room = self._rooms.get()
            try:
                self._kernel(*self._what, pool, room, call)
            finally:
                self._rooms.put(room)

        if not self._compiled:
            self._pool.submit(take, self._groups[0][:0]).result()  # compiles, and does nothing
            self._compiled = True
        list(self._pool.map(take, self._groups))

    def show(self, needs: Collection[str]) -> Parts:
        state = self._state
        position_bias = state.position_bias[:, 0].copy() if state.position_bias.size else self._fixed_bias
        with np.errstate(invalid="ignore", over="ignore"):  # in runs that have diverged
            drift = self._drift(state.attention_age, self._runs.lr_z)
            logits = state.attention_logits + drift[..., None] * state.attention_velocity
            decoder = self._decoder() if needs_decoder(needs) else None
        return Parts(attention_logits=logits, decoder=decoder, position_bias=position_bias)

    def _decoder(self) -> NDArray[np.floating]:
        """Y (R, H D, C), from Y^ where means over tokens are subtracted (`readout.py`)."""
        plan, state = self._plan, self._state
        drift = self._drift(state.decoder_age, self._runs.lr_y) * plan.row_sign
        decoder = state.decoder + drift[..., None] * plan.column_rate[0] * state.decoder_velocity
        if plan.num_tokens == 0:
            return decoder
        rows = self._layout.num_decoder_rows
        blocks = self._blocks(decoder)
        inner = blocks[:, :, :rows]
        if self._rule.kind == SGD_RULE:
            inner = inner - (blocks[:, :, rows:] - self._first_sum) / np.sqrt(decoder.dtype.type(plan.num_tokens))
        return inner.reshape(len(decoder), -1, decoder.shape[-1])

    def _blocks(self, decoder: NDArray[np.floating]) -> NDArray[np.floating]:
        """Rows of Y by head (R, H, rows of a head, C)."""
        return decoder.reshape(len(decoder), self._plan.heads, -1, decoder.shape[-1])

    def _drift(self, age: NDArray[np.int64], rates: NDArray[np.float64]) -> NDArray[np.floating]:
        """eta (1 + mu + ... + mu^(k-1)): how far rows have moved after k idle steps, per unit of velocity.

        For reading only, never applied: a run's numbers must not depend on when it was observed.
        """
        mu = self._rule.momentum
        moved = rates[:, None] * (1.0 - mu ** (self.step - age)) / (1.0 - mu) if mu > 0 else np.zeros(age.shape)
        with np.errstate(over="ignore"):
            return moved.astype(self._state.decoder.dtype)

    def diverged(self) -> NDArray[np.int64]:
        return self._state.diverged

    def state(self) -> dict[str, Array]:
        return self._state._asdict()

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        self.step = step
        for name, array in self._state._asdict().items():
            array[...] = state[name]


def _is_basic(plan: KernelPlan, rule: KernelRule, pools: Pools) -> bool:
    """Whether the kernel without switches serves: one head, Eq. 5 alone, SGD, sequences that it draws by counting."""
    return (
        plan.heads == 1
        and not plan.residual
        and plan.num_tokens == 0
        and rule.kind == SGD_RULE
        and not rule.modified
        and not rule.balanced
        and len(plan.bucket) == 0
        and pools.are_empty
        and rule.length <= COUNTING_LIMIT
        and int(plan.size.max()) <= WIDE
    )


def _groups(seeds: NDArray[np.uint64], cores: int) -> list[NDArray[np.int64]]:
    """Group runs of one seed, whose sequences are drawn once for all; no group is so large that cores idle."""
    most = max(1, len(seeds) // (4 * cores))
    order = np.argsort(seeds, kind="stable")
    same_seed = np.split(order, np.flatnonzero(np.diff(seeds[order])) + 1)
    return [runs[k : k + most] for runs in same_seed for k in range(0, len(runs), most)]


NO_POSITIONS = np.empty((0, 0, 0, ROW), np.int32), np.empty(0, np.int64)
"""In place of `thresholds_by_distance`."""


def _plan(layout: CompactLayout, pools: Pools, dtype: np.dtype[np.floating], *, draws_positions: bool) -> KernelPlan:
    """`draws_positions` is whether the kernel draws tokens that depend on their position."""
    tables = SamplingTables.of(layout.classes)
    query_offsets, query_rows = layout.query_entries()
    heads, residual, centered = layout.layer.heads, layout.layer.addition is not None, layout.layer.spreads
    rows = layout.num_decoder_rows
    block = rows + centered
    slots = np.zeros((len(layout.size), layout.support.shape[1] + 2), np.int32)
    own = np.full(len(layout.size), -1)
    for n, size in enumerate(layout.size):
        tokens = layout.support[n, :size]
        further = [*([layout.own_row[n]] if residual else []), *([rows] if centered else [])]
        slots[n, : size + len(further)] = [*tokens, *further]
        if residual and layout.own_row[n] in tokens:
            own[n] = np.flatnonzero(tokens == layout.own_row[n])[0]
    by_head = slots[:, None] + block * np.arange(heads, dtype=np.int32)[:, None]
    by_head = by_head.reshape(-1, slots.shape[1])
    is_sum = np.arange(heads * block) % block >= rows
    used = np.arange(slots.shape[1]) < (layout.size + int(residual) + int(centered)).repeat(heads)[:, None]
    readers = np.bincount(by_head[used], minlength=heads * block)
    alone = used & (readers == 1)[by_head] & ~is_sum[by_head]
    alone[:, -1:] &= len(alone.T) % 2 == 0
    for w in range(0, len(alone.T) - 1, 2):
        alone[:, w : w + 2] = alone[:, w : w + 2].all(axis=1, keepdims=True)
    classes, width, class_probs, scale = layout.classes, layout.support.shape[1], pools.class_probs, pools.bucket_scale
    learned = classes.num_buckets if scale is None else 0
    bucket = bucket_of(classes) if draws_positions else np.repeat(np.arange(learned), width)
    thresholds, rows_of = thresholds_by_distance(classes) if draws_positions else NO_POSITIONS
    # Copies, since compiled code is made for arrays that may be written and again for arrays that may not.
    return KernelPlan(
        size=np.array(layout.size),
        support=np.array(layout.support),
        support_probs=_rows(class_probs[None, :, :width]),
        bucket=bucket,
        bucket_scale=np.zeros(len(bucket), dtype) if scale is None else scale[bucket],
        bucket_probs=np.ascontiguousarray(class_probs[:, : learned * width]),
        position_thresholds=apart(thresholds),
        position_rows=rows_of,
        query_index=np.array(layout.query_index),
        next_column=np.array(layout.next_column),
        class_weights=np.array(layout.classes.weights),
        multiplicity=apart(layout.multiplicity.astype(dtype)[None]),
        column_rate=apart(layout.column_rate.astype(dtype)[None]),
        num_columns=layout.num_columns,
        query_offsets=np.array(query_offsets),
        query_rows=np.array(query_rows),
        thresholds=np.array(tables.thresholds),
        conditional=np.array(tables.conditional),
        class_thresholds=np.array(tables.class_thresholds),
        heads=heads,
        residual=residual,
        num_tokens=float(layout.classes.vocab_size if centered else 0),
        slots=by_head,
        alone=alone,
        own=own,
        row_sign=np.where(is_sum, -1, 1).astype(dtype),
        row_multiplicity=np.tile(np.append(layout.row_multiplicity, [0] * centered), heads).astype(dtype),
    )


def _state(
    layout: CompactLayout,
    plan: KernelPlan,
    decoder: NDArray[np.floating],
    attention_logits: NDArray[np.floating],
    position_bias: NDArray[np.floating],
    *,
    adam: bool,
) -> KernelState:
    dtype = decoder.dtype
    runs, _, columns = decoder.shape
    if plan.num_tokens > 0:
        by_head = decoder.reshape(runs, plan.heads, -1, columns)
        nu = layout.row_multiplicity.astype(dtype)
        total = np.einsum("d,rhdc->rhc", nu, by_head)[:, :, None] / np.sqrt(dtype.type(plan.num_tokens))
        decoder = np.concatenate([by_head, total], axis=2).reshape(runs, -1, columns)
    position_bias = position_bias[:, None].astype(dtype)

    def moments(matrix: NDArray[np.floating]) -> NDArray[np.floating]:
        return apart(np.zeros((runs, 2, *(matrix.shape[1:] if adam else (0, 0))), dtype))

    return KernelState(
        decoder=apart(decoder),
        decoder_velocity=apart(np.zeros_like(decoder)),
        decoder_age=np.zeros(decoder.shape[:2], np.int64),
        attention_logits=apart(attention_logits),
        attention_velocity=apart(np.zeros_like(attention_logits)),
        attention_age=np.zeros(attention_logits.shape[:2], np.int64),
        position_bias=position_bias,
        position_velocity=np.zeros_like(position_bias),
        decoder_moments=moments(decoder),
        attention_moments=moments(attention_logits),
        position_moments=moments(position_bias),
        diverged=np.full(runs, -1, np.int64),
        singular=np.full(runs, -1, np.int64),
    )


DRAWN_AT_ONCE = 2**16
"""Numbers drawn ahead for the runs of a seed: enough to keep a run in the cache for many steps before the next run
takes its place, few enough to fit there beside it.  At least one batch is drawn."""


def _rows(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Weights of tokens (., sequences, W), of which a group of sequences is read at once, in whole vectors."""
    return apart(weights, ROOM + GROUP * (weights.shape[2] + 1))


def _scratch(plan: KernelPlan, state: KernelState, rule: KernelRule) -> KernelScratch:
    (num_classes, width), dtype, heads = plan.support.shape, state.decoder.dtype, plan.heads
    columns, stride = plan.multiplicity.shape[1], plan.slots.shape[1]
    buckets = state.position_bias.shape[2]
    batch = rule.batch_size or num_classes
    portions, drawn = len(plan.bucket), ROW * len(plan.position_rows)
    window = max(1, DRAWN_AT_ONCE // (batch * (width + (portions if buckets else 0)) + num_classes))
    steps = window if buckets else 1  # portions are needed again only where a bias is learned
    modified = num_classes if rule.modified else 0

    def floats(*shape: int) -> NDArray[np.floating]:
        return apart(np.zeros(shape, dtype))

    logits = floats(GROUP, columns)
    whole_vectors = -(-width // LANES) * LANES
    return KernelScratch(
        firsts=np.zeros((window, num_classes + 1), np.int64),
        weights=_rows(np.zeros((window, batch, width), dtype)),
        places=apart(np.zeros((steps, batch + TOGETHER - 1, drawn), np.int32)),
        amounts=np.zeros((steps, batch, 0 if drawn else portions), dtype),
        class_index=np.zeros(batch, np.int64),
        order=np.zeros(batch, np.int64),
        draws=np.zeros(padded_length(min(rule.length, COUNTING_LIMIT)), np.int32),
        counts=np.zeros(width, np.int32),
        boost=floats(heads, whole_vectors),
        f=floats(heads * stride + GROUP, GROUP),
        parts=logits if heads == 1 else floats(heads * GROUP, columns),
        logits=logits,
        factor=floats(2, GROUP),
        shape=floats(heads * ROWS, GROUP),
        bends=floats(heads * ROWS, GROUP),
        pull=floats(heads * stride),
        bend=floats(heads * stride),
        moves=np.zeros(width, np.bool_),
        touched_rows=np.zeros(state.decoder.shape[1] + 1, np.int32),
        touched_queries=np.zeros(state.attention_logits.shape[1] + 1, np.int64),
        ones=np.ones((1, max(whole_vectors, *state.attention_logits.shape[1:], buckets)), dtype),
        bias_scale=np.zeros(buckets, dtype),
        portion_scale=np.array(plan.bucket_scale),
        portion_slope=np.zeros(portions, dtype),
        slopes=floats(width, GROUP),
        products=floats(width + GROUP, GROUP),
        per_count=floats(GROUP, width),
        bias_weights=_rows(np.zeros((1, batch if buckets else 0, width), dtype)),
        bias_probs=_rows(np.zeros((1, num_classes if buckets else 0, width), dtype)),
        residuals=floats(modified, columns),
        coefficients=floats(modified, heads * stride),
        dense=np.zeros((modified, state.decoder.shape[1])),
        gram=np.zeros((modified, modified)),
        solution=np.zeros((modified, columns)),
    )
