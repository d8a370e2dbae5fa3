"""The flow of any layer: one run after another, by the integrator of `collocation.py`."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.collocation import integrate, tableau
from scansnap.dynamics.flow_engine import FloatArray, FlowWork, Solution
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.runtime.machine import one_thread

SMALL_STATE = 200_000
"""A run with at most this many entries of (y, z) is integrated on one thread."""

DIFFERENCE = 1e-6
"""The change of a logit by which slopes are measured.  They steer the iteration; its result does not depend on them."""


class Field(ABC):
    """Which way the states of a layer move."""

    @abstractmethod
    def movement(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How y (n, H D, C), z (n, Q H, S) and a bias (n, G) move for each unit of their rates.

        The dz of a sequence under the softmax sums to zero; what rounding leaves of the sum is taken out, which a stiff
        flow would add up (`compiled/flow.py`).  Only a bias that is learned need move.
        """

    @abstractmethod
    def measures(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss and accuracy (n,)."""

    @abstractmethod
    def check(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> None:
        """Refuse to start where Lemma 3's gradient does not exist."""


class FlowOfLayers(ABC):
    """An engine that integrates along a field."""

    def __init__(self, work: FlowWork, start: Start) -> None:
        self._work = work
        self._start = start

    @abstractmethod
    def _field(self) -> Field:
        """The field of the layer."""

    def solve(self, runs: Runs, most_evaluations: int, show: Callable[[float], None]) -> Solution:
        options, field = self._work.options, self._field()
        solutions = []
        for r in range(len(runs)):
            times, scale = self._work.log_times(runs, r)
            system = _System(self._work, field, self._start, runs, r, scale)
            states = np.full((len(times), len(system.start)), np.nan)
            with one_thread() if len(system.start) <= SMALL_STATE else contextlib.nullcontext():
                u, _ = integrate(
                    system,
                    system.blocks,
                    tableau(),
                    system.start,
                    times,
                    options.rtol,
                    options.atol,
                    most_evaluations,
                    states,
                )
                solutions.append((*system.measured(states), scale * math.expm1(u)))
            show(r + 1)
        decoder, logits, bias, loss, accuracy, reached = zip(*solutions, strict=True)
        return Solution(
            decoder=np.stack(decoder),
            attention_logits=np.stack(logits),
            position_bias=None if self._start.position_bias is None else np.stack(bias),
            loss=np.stack(loss),
            accuracy=np.stack(accuracy),
            reached=np.array(reached),
        )


class _System:
    """A run's equation.  Its state is y, then the logits that can move, by query, then a bias that is learned."""

    def __init__(self, work: FlowWork, field: Field, start: Start, runs: Runs, run: int, scale: float) -> None:
        self._field = field
        self._lr_y, self._lr_z = float(runs.lr_y[run]), float(runs.lr_z[run])
        self._scale = scale
        self._decoder, self._logits = start.decoder[run], start.attention_logits[run]
        self._bias = np.empty(0) if start.position_bias is None else start.position_bias
        self._learned = work.options.learn_position_bias
        self._entries, sizes = _moving(start)
        parts = [self._decoder.ravel(), self._logits.ravel()[self._entries]]
        if self._learned:
            parts.append(self._bias)
            sizes = [sum(sizes) + len(self._bias)]  # the bias acts on all queries: one block
        self.blocks = np.cumsum([0, *sizes])
        self.start = np.concatenate(parts)
        field.check(*self._split(self.start[None]))

    def velocity(self, u: float, state: FloatArray, out: FloatArray, whole: bool) -> None:
        decoder, *fast = self._field.movement(*self._split(state[None]))
        clock = self._scale * math.exp(u)
        out[self._decoder.size :] = clock * self._fast(*fast)[0]
        if whole:
            out[: self._decoder.size] = clock * self._lr_y * decoder.ravel()

    def curvature(self, u: float, state: FloatArray, out: FloatArray) -> None:
        """Differences: entry k of all blocks is changed at once, for every k in one batch."""
        width, clock = out.shape[1], self._scale * math.exp(u)
        moved = np.repeat(state[None], width + 1, axis=0)
        fast = moved[:, self._decoder.size :]
        for first, stop in zip(self.blocks[:-1], self.blocks[1:], strict=True):
            fast[np.arange(stop - first), np.arange(first, stop)] += DIFFERENCE
        _, *moves = self._field.movement(*self._split(moved))
        slopes = self._fast(*moves)
        slopes = clock * (slopes[:-1] - slopes[-1]) / DIFFERENCE
        for b, (first, stop) in enumerate(zip(self.blocks[:-1], self.blocks[1:], strict=True)):
            block = slopes[: stop - first, first:stop]
            out[b, : stop - first, : stop - first] = (block + block.T) / 2

    def measured(self, states: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """y, z, the bias, the loss and the accuracy of states (n, ...)."""
        y, z, bias = self._split(states)
        loss, accuracy = self._field.measures(y, z, bias)
        return y, z, bias, loss, np.where(np.isnan(loss), np.nan, accuracy)

    def _fast(self, logits: FloatArray, bias: FloatArray) -> FloatArray:
        """eta_Z dJ/d(z, b) (n, ...)."""
        parts = [logits.reshape(len(logits), -1)[:, self._entries], *([bias] if self._learned else [])]
        return self._lr_z * np.concatenate(parts, axis=1)

    def _split(self, states: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(y, z, b) of states (n, ...)."""
        count, entries = len(states), self._decoder.size
        z = np.repeat(self._logits.reshape(1, -1), count, axis=0)
        z[:, self._entries] = states[:, entries : entries + len(self._entries)]
        bias = states[:, entries + len(self._entries) :] if self._learned else np.tile(self._bias, (count, 1))
        y = states[:, :entries].reshape(count, *self._decoder.shape)
        return y, z.reshape(count, *self._logits.shape), bias


def _moving(start: Start) -> tuple[NDArray[np.int64], list[int]]:
    """The entries of the flattened z (Q H, S) that can move, query by query, and their number in each query."""
    layout = start.layout
    offsets, rows = layout.query_entries()
    heads = layout.layer.heads
    by_query = [
        ((q * heads + np.arange(heads))[:, None] * layout.num_rows + rows[offsets[q] : offsets[q + 1]]).ravel()
        for q in range(layout.num_queries)
    ]
    return np.concatenate(by_query), [len(entries) for entries in by_query]
