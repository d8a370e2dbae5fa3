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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scansnap.data.source import Batches
from scansnap.dynamics.integrator import integrate
from scansnap.dynamics.kernel_engine import KernelGradient, has_kernel
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.dynamics.yz_tasks import SINGULAR, YZFlow
from scansnap.results.quantities import Parts, Snapshot
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import needs_torch

if TYPE_CHECKING:
    from scansnap.dynamics.gradients import PopulationGradient

FloatArray = NDArray[np.float64]

DIFFERENCE = 1e-6
"""The change of a logit by which slopes are measured.  They steer the iteration and do not affect its result."""

MOST_EVALUATIONS = 300_000
"""A run fails after this many evaluations of the gradient: about a hundred times what most runs need."""


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


class YZFlowRuns:
    """Runs of (Y, Z) to integrate: y is the slow part, the logits that can move are the fast one."""

    def __init__(self, task: YZFlow, start: Start, runs: Runs) -> None:
        self._task, self._start, self._runs = task, start, runs
        self.layout = StateLayout.of(start, learned=task.options.learn_position_bias)
        self._singular: set[int] = set()

    @property
    def size(self) -> int:
        return len(self.layout.first_state(0))

    def integrate(self, run: int, times: FloatArray, rtol: float, atol: float, states: FloatArray) -> float:
        rates = self._runs.rates["lr_y"][run], self._runs.rates["lr_z"][run]
        scale, blocks = 1.0 / (max(rates) or 1.0), self.layout.blocks
        first, gradient = self.layout.first_state(run), self.gradient(run)
        if not gradient(first[None])[1][0]:
            self._singular.add(run)
            return 0.0
        by_entry = np.repeat(rates, [len(first) - blocks[-1], blocks[-1]])
        equation = FlowEquation(gradient, blocks, scale * by_entry)
        u, _ = integrate(equation, blocks, first, np.log1p(times / scale), rtol, atol, MOST_EVALUATIONS, states)
        return scale * math.expm1(u)

    def measures(self, run: int, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        loss, accuracy = self.gradient(run).measures(states)
        return loss, np.where(np.isnan(loss), np.nan, accuracy)

    @cache  # noqa: B019  (the runs are few, and go with this object)
    def gradient(self, run: int) -> KernelGradient | PopulationGradient:
        """Compiled code for layers of built-in parts, tensors for everything else."""
        modified = self._task.options.decoder_gradient == "modified"
        if has_kernel(self._task.layer):
            return KernelGradient(
                self._start[slice(run, run + 1)],
                Batches(self._task.source, None, 0),
                entries=self.layout.entries,
                modified=modified,
                learned=self.layout.learned,
            )
        with needs_torch("flow with parts of your own"):
            from scansnap.dynamics.gradients import PopulationGradient

        return PopulationGradient(self.layout, run, modified=modified)

    def snapshot(self, states: FloatArray, measures: Mapping[str, FloatArray]) -> Snapshot:
        if len(self._singular) == len(self._runs):
            raise InputError(SINGULAR)
        by_run = (self.layout.split(run, own) for run, own in enumerate(states))
        decoder, logits, bias = (np.concatenate(part) for part in zip(*by_run, strict=True))
        parts = Parts(
            attention_logits=logits,
            decoder=decoder,
            position_bias=None if self._start.position_bias is None else bias,
        )
        return Snapshot(self._start.layout, parts, measures, self._start.prior)


class FlowEquation:
    """The flow of a run in log time: dU/du = (t + s) D grad J, for the integrator."""

    def __init__(
        self, gradient: KernelGradient | PopulationGradient, blocks: NDArray[np.int64], rates: FloatArray
    ) -> None:
        self._gradient, self._blocks, self._rates = gradient, blocks, rates

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
