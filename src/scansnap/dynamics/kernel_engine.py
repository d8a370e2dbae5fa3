"""The engine that trains (Y, Z) in compiled code on a CPU, and the gradient that its kernel gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from scansnap.data.source import Batches
from scansnap.dynamics import kernel
from scansnap.dynamics.kernel_data import (
    KernelBatches,
    KernelScratch,
    KernelSwitches,
    bucket_scale,
    has_kernel_rule,
    has_plain_steps,
    kernel_layer,
    kernel_rule,
    kernel_scratch,
    kernel_state,
    kernel_switches,
)
from scansnap.dynamics.options import Runs, unknown_options
from scansnap.dynamics.start import Start
from scansnap.dynamics.task import Array, Observation
from scansnap.dynamics.update_rules import SCHEDULES, memory_of, rate_shares
from scansnap.dynamics.yz_tasks import SINGULAR, YZTraining, fresh_batches, matrix_entries, needs_decoder, observe
from scansnap.results.quantities import Parts
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import available_threads
from scansnap.storage.code_cache import njit
from scansnap.systems.yz.architecture import ADD_QUERY, SOFTMAX, L2Normalization, Layer, LayerNormalization
from scansnap.systems.yz.compact import probs_by_bucket

DRAWN_AT_ONCE = 2**16
"""Numbers drawn ahead for the runs of a seed: a run stays in the cache for many steps, and so do its batches."""

LAYER_OPTIONS = {"normalization", "residual", "attention_map", "heads"}

KERNEL_OPTIONS = {"optimizer", "schedule", "decoder_gradient", *LAYER_OPTIONS, *kernel.Rule._fields}
"""Options that the kernel implements; training with any other one goes to the tensor engine."""


class KernelEngine:
    """Runs side by side on the cores, each computed independently: its numbers cannot depend on the others."""

    @staticmethod
    def serves(work: YZTraining) -> bool:
        """One layer on a CPU, made of built-in parts."""
        options = work.options
        return not unknown_options(options, KERNEL_OPTIONS) and has_kernel(work.layer) and has_kernel_rule(work.rule)

    @staticmethod
    def numbers_per_run(work: YZTraining) -> float:
        """How many numbers a run holds in memory while it trains: its state, and a fixed set."""
        return work.state_size + (work.options.num_sequences or 0) * work.start_layout.support.shape[1]

    @staticmethod
    def numbers_at_once(work: YZTraining) -> float:
        """How many numbers are in memory whatever the number of runs: a batch and a gradient for each thread."""
        batch = 3.0 * work.batch * work.start_layout.support.shape[1] * max(work.source.classes.num_buckets, 1)
        return available_threads() * (batch + matrix_entries(work.start_layout))

    def __init__(self, work: YZTraining, start: Start, runs: Runs) -> None:
        self.step = 0
        self._work, self._start, self._runs, options = work, start, runs, work.options
        self._schedule, self._steps = SCHEDULES.member(options.schedule), options.steps
        self._rule = kernel_rule(work.rule, options)
        self._batches = Batches(work.source, options.batch_size, options.length, options.num_sequences)
        self._kernel = Kernel(
            start,
            self._batches,
            np.dtype(options.dtype),
            plain_steps=has_plain_steps(self._rule),
            modified=options.decoder_gradient == "modified",
            learned=options.learn_position_bias,
        )
        self._state = kernel_state(
            start, len(runs), memory_of(work.rule), self._kernel.dtype, learned=self._kernel.learned
        )
        width = start.layout.support.shape[1] * max(start.layout.classes.num_buckets, 1)
        self._window = max(1, DRAWN_AT_ONCE // (self._batches.size * width))
        threads = available_threads()
        self._pool = ThreadPoolExecutor(threads)
        self._memory: SimpleQueue[tuple[KernelScratch, KernelSwitches | None]] = SimpleQueue()
        for _ in range(threads):
            self._memory.put(self._kernel.memory())
        self._groups = _groups(runs.seed, threads)
        self._fresh: dict[int, KernelGradient] = {}

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        result = self._call(stop, update=True)
        singular = self._state.singular
        if (singular >= 0).all() and (singular == singular[0]).all():
            raise InputError(SINGULAR)
        self.step = stop
        return result

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        loss, accuracy = self._call(self.step + 1, update=False)
        return loss[:, 0], accuracy[:, 0]

    def _call(self, stop: int, *, update: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        losses, accuracies = np.empty((2, len(self._runs), stop - self.step))

        def take(group: NDArray[np.int64]) -> None:
            scratch, switches = memory = self._memory.get()
            try:
                for begin in range(self.step, stop, self._window):
                    part = slice(begin - self.step, min(begin + self._window, stop) - self.step)
                    batches = self._kernel.batches(int(self._runs.seed[group[0]]), begin, part.stop - part.start)
                    updates = np.arange(begin, begin + part.stop - part.start)
                    shares = rate_shares(self._schedule, self._steps, updates)
                    for r in group:
                        rates = self._runs.rates["lr_y"][r] * shares, self._runs.rates["lr_z"][r] * shares
                        work = batches, begin, *rates, update, losses[r, part], accuracies[r, part]
                        kernel.advance(self._kernel.layer, switches, self._rule, self._state, r, *work, scratch)
            finally:
                self._memory.put(memory)

        list(self._pool.map(take, self._groups))
        return losses, accuracies

    def _parts(self, needs: Collection[str]) -> Parts:
        state = self._state
        bias = state.position_bias[:, 0].copy() if self._kernel.learned else None
        if bias is None and self._kernel.bias is not None:
            bias = np.tile(self._kernel.bias.astype(state.decoder.dtype), (len(self._runs), 1))
        return Parts(
            attention_logits=state.attention_logits.copy(),
            decoder=state.decoder.copy() if needs_decoder(needs) else None,
            position_bias=bias,
        )

    def observe(self, needs: Collection[str]) -> Observation:
        return observe(self._start, self._parts(needs), needs, self._measure_fresh)

    def _measure_fresh(self, parts: Parts) -> NDArray[np.float64]:
        """Loss and accuracy (2, R) on fresh sequences."""
        assert parts.decoder is not None
        assert parts.attention_logits is not None
        learned, results = self._kernel.learned, []
        for r, seed in enumerate(map(int, self._runs.seed)):
            if seed not in self._fresh:
                self._fresh[seed] = KernelGradient(self._start, fresh_batches(self._work), seed, learned=learned)
            state = [parts.decoder[r].ravel(), parts.attention_logits[r].ravel()]
            if learned and parts.position_bias is not None:
                state.append(parts.position_bias[r])
            results.append(self._fresh[seed].measures(np.concatenate(state, dtype=np.float64)[None]))
        return np.array(results)[:, :, 0].T

    def diverged(self) -> NDArray[np.int64]:
        return self._state.diverged

    def state(self) -> dict[str, Array]:
        return self._state._asdict()

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        self.step = step
        for name, array in self._state._asdict().items():
            array[...] = state[name]


class Kernel:
    """The compiled layer on its classes, for one precision, and its batches."""

    def __init__(
        self,
        start: Start,
        batches: Batches,
        dtype: np.dtype[np.floating],
        *,
        plain_steps: bool = True,
        modified: bool = False,
        learned: bool = False,
    ) -> None:
        self._start, self._batches, self._modified = start, batches, modified
        self.layer = kernel_layer(start, dtype)
        self.dtype, self.learned, self.bias = dtype, learned, start.position_bias
        self._plain_steps = plain_steps
        by_bucket = probs_by_bucket(start.layout)
        self._bucket_probs = by_bucket.astype(dtype)  # (K, G, W)
        self._scale = bucket_scale(start.position_bias).astype(dtype)

    @property
    def is_basic(self) -> bool:
        """Whether the kernel needs none of its switches: one head, Eq. 5 alone, plain steps of SGD."""
        layer = self._start.layout.layer
        is_plain = layer.heads == 1 and layer.addition is None and not layer.spreads
        return is_plain and self._plain_steps and not self._modified and not self.learned

    def memory(self) -> tuple[KernelScratch, KernelSwitches | None]:
        """What a thread works in."""
        start, buckets = self._start, self._bucket_probs.shape[1] if self.learned else 0
        shapes = start.decoder.shape[1:], start.attention_logits.shape[1:]
        scratch = kernel_scratch(self.layer, start.layout.layer.heads, *shapes, buckets)
        if self.is_basic:
            return scratch, None
        return scratch, kernel_switches(
            start, self._batches.size, self.dtype, modified=self._modified, learned=self.learned
        )

    def batches(self, seed: int, first_step: int, num_steps: int) -> KernelBatches:
        """The sequences of updates in order of class, weighed by a bias on positions if it is fixed."""
        draw = self._batches.draw(seed, first_step, num_steps)
        class_index = np.ascontiguousarray(draw.class_index, np.int64)
        probs = self._bucket_probs
        classes, buckets, width = probs.shape
        counted = self._batches.length > 0
        by_bucket = draw.counts if draw.counts.ndim == 4 else draw.counts[:, :, None]
        counts = np.ascontiguousarray(by_bucket, np.int32) if counted else np.empty((1, 1, 0, width), np.int32)
        first = np.zeros((num_steps, classes + 1), np.int64)
        weights = np.empty((num_steps, 0 if self.learned else len(class_index[0]), width), self.dtype)
        parts = np.empty((*class_index.shape, buckets if self.learned else 0, width), self.dtype)
        _sort_by_class(class_index, counts, probs, self._scale, first, weights, parts)
        return KernelBatches(first, weights, parts, self._batches.class_weights.astype(self.dtype))


class KernelGradient:
    """The gradient of one batch at any states, in float64.

    A state is one vector: y, then the given entries of the flattened z, by default all, then a bias that is learned.
    """

    def __init__(
        self,
        start: Start,
        batches: Batches,
        seed: int = 0,
        *,
        entries: NDArray[np.int64] | None = None,
        modified: bool = False,
        learned: bool = False,
    ) -> None:
        self._kernel = Kernel(start, batches, np.dtype(np.float64), modified=modified, learned=learned)
        self._batches = self._kernel.batches(seed, batches.stream, 1)
        self._scratch, self._switches = self._kernel.memory()
        z = start.attention_logits[0].astype(np.float64)
        self._entries = np.arange(z.size) if entries is None else entries
        self._z, self._bias = z, np.zeros_like(self._scratch.db)

    def __call__(self, states: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The gradient of J (n, N) at states (n, N), and whether it exists: Lemma 3's may not."""
        slopes = np.empty_like(states)
        return slopes, self._evaluate(states, slopes, update=True)[:, 2] > 0

    def measures(self, states: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy (n,) at states (n, N)."""
        measures = self._evaluate(states, states, update=False)
        return measures[:, 0], measures[:, 1]

    def _evaluate(
        self, states: NDArray[np.float64], slopes: NDArray[np.float64], *, update: bool
    ) -> NDArray[np.float64]:
        measures, place = np.empty((len(states), 3)), (self._entries, self._z, self._bias)
        kernel.gradients(
            self._kernel.layer, self._switches, self._batches, *place, states, update, slopes, measures, self._scratch
        )
        return measures


def has_kernel(layer: Layer) -> bool:
    """Whether compiled code serves this layer: it is made of built-in parts."""
    return (
        not unknown_options(layer, LAYER_OPTIONS)
        and layer.map == SOFTMAX
        and type(layer.normalizer) in (L2Normalization, LayerNormalization)
        and layer.addition in (None, ADD_QUERY)
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _sort_by_class(class_index, counts, probs, scale, first, weights, parts):
    """Fill `first`, and `weights` or `parts`, with the sequences of each update in order of class.

    Counts (n, B, G, W) without buckets are replaced by probs (K, G, W).
    """
    steps, batch = class_index.shape
    counted = counts.shape[2] > 0
    order = np.empty(batch, np.int64)
    for s in range(steps):
        for b in range(batch):
            first[s, class_index[s, b] + 1] += 1
        for n in range(1, first.shape[1]):
            first[s, n] += first[s, n - 1]
        for b in range(batch - 1, -1, -1):  # from behind, which leaves where each class begins in first[n + 1]
            n = class_index[s, b]
            first[s, n + 1] -= 1
            order[first[s, n + 1]] = b
        for n in range(first.shape[1] - 1):
            first[s, n] = first[s, n + 1]
        first[s, first.shape[1] - 1] = batch
        for k in range(batch):
            b, n = order[k], class_index[s, order[k]]
            if k >= weights.shape[1]:  # a bias on positions is learned: keep the buckets
                for g in range(probs.shape[1]):
                    for i in range(probs.shape[2]):
                        parts[s, k, g, i] = counts[s, b, g, i] if counted else probs[n, g, i]
                continue
            for i in range(probs.shape[2]):
                weights[s, k, i] = 0
            for g in range(probs.shape[1]):
                part = scale[g]
                if counted:
                    for i in range(probs.shape[2]):
                        weights[s, k, i] += part * counts[s, b, g, i]
                else:
                    for i in range(probs.shape[2]):
                        weights[s, k, i] += part * probs[n, g, i]


def _groups(seeds: NDArray[np.uint64], cores: int) -> list[NDArray[np.int64]]:
    """Group runs of one seed, whose sequences are drawn once for all; no group is so large that cores idle."""
    most = max(1, len(seeds) // (2 * cores))
    order = np.argsort(seeds, kind="stable")
    same_seed = np.split(order, np.flatnonzero(np.diff(seeds[order])) + 1)
    return [runs[k : k + most] for runs in same_seed for k in range(0, len(runs), most)]


def first_gradient(work: YZTraining, start: Start) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """dJ/dY (S x M) and dJ/dz (Q x S) of the first batch of a run, by entry, for the basic layer."""
    options, (_, rows, columns) = work.options, start.decoder.shape
    batches = Batches(work.source, options.batch_size, options.length, options.num_sequences)
    modified = options.decoder_gradient == "modified"
    gradient = KernelGradient(start, batches, int(options.runs.seed[0]), modified=modified)
    state = np.concatenate([start.decoder[0].ravel(), start.attention_logits[0].ravel()], dtype=np.float64)
    slopes = gradient(state[None])[0][0]
    decoder = slopes[: rows * columns].reshape(rows, columns)
    return start.layout.expand_decoder(decoder)[0], slopes[rows * columns :].reshape(start.attention_logits.shape[1:])
