"""The flow of (Y, Z) as an equation for the integrator.

Why the flow is stiff
---------------------
In log time u, with t + s = s e^u, the flow is (`gradients.py`; f, g, x and a = f . g are those of class n of query m)

    dY/du = (t + s) eta_Y sum_n P(n) f x^T,      dz_m/du = (t + s) eta_Z sum_n P(n) f o (g - a f).

Late, x falls like 1/(eta_Y t), and dY/du and its derivatives by Y stay of order one.  But g = Y x falls no faster, so
dz/du is of order eta_Z/eta_Y.  For given Y, the logits move up the gradient of J, toward f = g / |g| among the tokens
with g_l > 0, and they relax in a time of order eta_Y/eta_Z: the Hessian there is about -2 a f_l^2 (t + s) eta_Z, down
to -(eta_Z/eta_Y) ln t.  An explicit method would need as many steps as that, however smooth the solution.  So z is the
fast part of `integrator.py`, and Y the slow one.  The fast block is the Hessian of J by z_m; it does not mix queries.
Differences of the gradient measure it: entry k of all blocks is changed at once.

What rounding leaves
--------------------
The dz of a class sums to zero: a neutral direction of its Hessian.  In all others, errors of rounding, which are
eta_Z/eta_Y times as large as the velocity, decay at once.  In this one they would add up, so the gradients subtract the
sum from the tokens in proportion to f_l^2: the logits of tokens without attention do not decay, and must get no errors.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.batches import Batches
from scansnap.dynamics.engine import SINGULAR, Task, matrix_entries
from scansnap.dynamics.integrator import integrate
from scansnap.dynamics.kernel_engine import KernelGradient, has_kernel
from scansnap.dynamics.options import FlowOptions, Runs
from scansnap.dynamics.start import Start
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory, needs_torch, one_thread

FloatArray = NDArray[np.float64]

DIFFERENCE = 1e-6
"""The change of a logit by which slopes are measured.  They steer the iteration; its result does not depend on them."""

SMALL_STATE = 200_000
"""A run with at most this many entries of (y, z) is integrated by tensor operations on one thread."""


@dataclass(frozen=True)
class FlowWork(Task[FlowOptions]):
    """What an engine integrates."""

    @property
    def numbers_per_run(self) -> float:
        """How many numbers a run holds in memory: its state at every time, and what the integrator needs."""
        return matrix_entries(self.start_layout) * (2.0 * len(self.options.times) + 40)

    def check_size(self) -> None:
        count = len(self.options.times)
        check_memory(f"a run at {count:,} times needs", 8 * self.numbers_per_run, "ask for fewer times")

    def log_times(self, runs: Runs, run: int) -> tuple[FloatArray, float]:
        """The times u = ln(1 + t/s) of a run, and s = 1 / max(eta_Y, eta_Z)."""
        scale = 1.0 / (max(float(runs.lr_y[run]), float(runs.lr_z[run])) or 1.0)
        return np.log1p(np.array(self.options.times) / scale), scale


@dataclass(frozen=True)
class Solution:
    """R runs at n times; NaN where the integration did not reach."""

    decoder: FloatArray  # (R, n, H D, C) compact y
    attention_logits: FloatArray  # (R, n, Q H, S) z
    position_bias: FloatArray | None  # (R, n, G), where tokens depend on their position
    loss: FloatArray  # (R, n)
    accuracy: FloatArray  # (R, n)
    reached: FloatArray  # (R,) the time that was reached


@dataclass(frozen=True)
class StateLayout:
    """A run's state as one vector: y, then the logits that can move, by query, then a bias that is learned."""

    start: Start
    entries: NDArray[np.int64]  # of the flattened z (Q H, S) that can move, query by query
    blocks: NDArray[np.int64]  # (B + 1,) where the blocks of the fast part begin
    learned: bool

    @classmethod
    def of(cls, start: Start, *, learned: bool) -> StateLayout:
        layout, heads = start.layout, start.layout.layer.heads
        offsets, rows = layout.query_entries()
        by_query = [
            ((q * heads + np.arange(heads))[:, None] * layout.num_rows + rows[offsets[q] : offsets[q + 1]]).ravel()
            for q in range(layout.num_queries)
        ]
        sizes = [len(entries) for entries in by_query]
        if learned:  # the bias acts on all queries: one block
            sizes = [sum(sizes) + len(_bias(start))]
        return cls(start, np.concatenate(by_query), np.cumsum([0, *sizes]), learned)

    def first_state(self, run: int) -> FloatArray:
        """The state in which a run starts."""
        start = self.start
        parts = [start.decoder[run].ravel(), start.attention_logits[run].ravel()[self.entries]]
        return np.concatenate([*parts, _bias(start)] if self.learned else parts).astype(np.float64)

    def split(self, run: int, states: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """y (n, H D, C), z (n, Q H, S) and the bias (n, G) of states (n, ...)."""
        count, shape_y, logits = len(states), self.start.decoder.shape[1:], self.start.attention_logits[run]
        entries, fast = math.prod(shape_y), len(self.entries)
        z = np.repeat(logits.reshape(1, -1).astype(np.float64), count, axis=0)
        z[:, self.entries] = states[:, entries : entries + fast]
        bias = states[:, entries + fast :] if self.learned else np.tile(_bias(self.start), (count, 1))
        return states[:, :entries].reshape(count, *shape_y), z.reshape(count, *logits.shape), bias


def _bias(start: Start) -> FloatArray:
    return np.empty(0) if start.position_bias is None else start.position_bias


class StateGradient(Protocol):
    """The gradient at states, one vector each."""

    def __call__(self, states: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The gradient of J (n, N) at states (n, N), and whether it exists."""

    def measures(self, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss and accuracy (n,)."""


def state_gradient(work: FlowWork, layout: StateLayout, run: int) -> StateGradient:
    """Compiled code for layers of built-in parts, tensors for everything else."""
    modified = work.options.decoder_gradient == "modified"
    if has_kernel(work.layer):
        population = Batches(work.source, None, 0)
        return KernelGradient(
            layout.start[slice(run, run + 1)],
            population,
            entries=layout.entries,
            modified=modified,
            learned=layout.learned,
        )
    with needs_torch("flow with parts of your own"):
        from scansnap.dynamics.gradients import PopulationGradient

    return PopulationGradient(layout, run, modified=modified)


def solve(work: FlowWork, start: Start, runs: Runs, most_evaluations: int, show: Callable[[float], None]) -> Solution:
    """The runs at the times of the options; `show` is called with the number of runs done."""
    options = work.options
    layout = StateLayout.of(start, learned=options.learn_position_bias)
    shape = (len(runs), len(options.times))
    states = np.full((*shape, len(layout.first_state(0))), np.nan)
    loss, accuracy = np.full((2, *shape), np.nan)
    reached, singular = np.zeros(len(runs)), 0
    for r in range(len(runs)):
        times, scale = work.log_times(runs, r)
        first = layout.first_state(r)
        gradient = state_gradient(work, layout, r)
        equation = Equation(gradient, layout, runs, r, scale)
        if not gradient(first[None])[1][0]:
            singular += 1
            continue
        with one_thread() if len(first) <= SMALL_STATE else contextlib.nullcontext():
            u, _ = integrate(
                equation, layout.blocks, first, times, options.rtol, options.atol, most_evaluations, states[r]
            )
            loss[r], accuracy[r] = gradient.measures(states[r])
        reached[r] = scale * math.expm1(u)
        show(r + 1)
    if singular == len(runs):
        raise InputError(SINGULAR)
    decoder, logits, bias = zip(*(layout.split(r, run) for r, run in enumerate(states)), strict=True)
    return Solution(
        decoder=np.stack(decoder),
        attention_logits=np.stack(logits),
        position_bias=None if start.position_bias is None else np.stack(bias),
        loss=loss,
        accuracy=np.where(np.isnan(loss), np.nan, accuracy),
        reached=reached,
    )


class Equation:
    """The flow of a run in log time."""

    def __init__(self, gradient: StateGradient, layout: StateLayout, runs: Runs, run: int, scale: float) -> None:
        self._gradient, self._blocks = gradient, layout.blocks
        size = len(layout.first_state(run))
        self._rates = scale * np.where(np.arange(size) < size - layout.blocks[-1], runs.lr_y[run], runs.lr_z[run])

    def velocity(self, u: float, state: FloatArray, out: FloatArray) -> None:
        """Fill `out` with (t + s) times the gradient, each part at its rate."""
        np.multiply(self._velocities(state[None])[0], math.exp(u), out=out)

    def _velocities(self, states: FloatArray) -> FloatArray:
        """Of states (n, N), at u = 0."""
        slopes, exists = self._gradient(states)
        slopes *= self._rates
        slopes[~exists] = np.nan
        return slopes

    def curvature(self, u: float, state: FloatArray, out: FloatArray) -> None:
        """Fill `out` with the fast blocks, from differences of the velocity, made symmetric."""
        blocks, width = self._blocks, out.shape[1]
        first = len(state) - blocks[-1]
        changed = np.repeat(state[None], width + 1, axis=0)
        for begin, end in pairwise(blocks):
            changed[np.arange(end - begin), first + np.arange(begin, end)] += DIFFERENCE
        slopes = self._velocities(changed)[:, first:]
        slopes = (slopes[:-1] - slopes[-1]) * (math.exp(u) / DIFFERENCE)
        for b, (begin, end) in enumerate(pairwise(blocks)):
            block = slopes[: end - begin, begin:end]
            out[b, : end - begin, : end - begin] = (block + block.T) / 2
