"""The flow of any layer, with the gradient of `gradients.py` and the integrator of `collocation.py`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.threads import one_thread
from scansnap.dynamics.collocation import integrate, tableau
from scansnap.dynamics.flow_engine import FlowWork, Solution
from scansnap.dynamics.gradients import (
    Batch,
    Gradients,
    LayoutTensors,
    check_independent,
    gradients,
    measures,
    population_batch,
)
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start

FloatArray = NDArray[np.float64]

SMALL_STATE = 200_000
"""A run with at most this many entries of (y, z) is integrated on one thread."""

DIFFERENCE = 1e-6
"""The change of a logit by which slopes are measured.  They steer the iteration; its result does not depend on them."""


class FlowOnTensors:
    """One run after another."""

    def __init__(self, work: FlowWork, start: Start) -> None:
        self._work = work
        self._start = start
        self._layout = LayoutTensors.of(start.layout, dtype=torch.float64)

    @staticmethod
    def serves(work: FlowWork) -> bool:
        return True

    def solve(self, runs: Runs, most_evaluations: int, show: Callable[[float], None]) -> Solution:
        options = self._work.options
        solutions = []
        for r in range(len(runs)):
            times, scale = self._work.log_times(runs, r)
            system = _System(self._work, self._layout, self._start, runs, r, scale)
            states = np.full((len(times), len(system.start)), np.nan)
            with one_thread() if len(system.start) <= SMALL_STATE else contextlib.nullcontext():
                u, _ = integrate(
                    system, system.blocks, tableau(), system.start, times, options.rtol, options.atol,
                    most_evaluations, states,
                )  # fmt: skip
                solutions.append((*system.measured(states), scale * math.expm1(u)))
            show(r + 1)
        decoder, logits, bias, loss, accuracy, reached = zip(*solutions, strict=True)
        return Solution(
            decoder=np.stack(decoder),
            attention_logits=np.stack(logits),
            position_bias=None if bias[0] is None else np.stack(bias),
            loss=np.stack(loss),
            accuracy=np.stack(accuracy),
            reached=np.array(reached),
        )


class _System:
    """A run's equation.  Its state is y, then the logits that can move, by query, then a bias that is learned."""

    def __init__(self, work: FlowWork, layout: LayoutTensors, start: Start, runs: Runs, run: int, scale: float) -> None:
        self._layout = layout
        self._modified = work.options.decoder_gradient == "modified"
        self._decoder_rate = float(runs.lr_y[run]) * layout.entry_rate
        self._lr_z = float(runs.lr_z[run])
        self._scale = scale
        self._decoder, self._logits = start.decoder[run], start.attention_logits[run]
        self._bias = start.position_bias
        self._learned = self._bias is not None and work.options.learn_position_bias
        self._entries, sizes = _moving(start)
        parts = [self._decoder.ravel(), self._logits.ravel()[self._entries]]
        if self._bias is not None and self._learned:
            parts.append(self._bias)
            sizes = [sum(sizes) + len(self._bias)]  # the bias acts on all queries: one block
        self.blocks = np.cumsum([0, *sizes])
        self.start = np.concatenate(parts)
        if self._modified:
            _, z, bias = self._split(self.start[None])
            check_independent(layout, z, bias)

    def velocity(self, u: float, state: FloatArray, out: FloatArray, whole: bool) -> None:
        gradient = self._gradient(state[None])
        clock = self._scale * math.exp(u)
        out[self._decoder.size :] = clock * self._fast(gradient)[0]
        if whole:
            out[: self._decoder.size] = clock * (self._decoder_rate * gradient.decoder).detach().flatten().numpy()

    def curvature(self, u: float, state: FloatArray, out: FloatArray) -> None:
        """Differences: entry k of all blocks is changed at once, for every k in one batch."""
        width, clock = out.shape[1], self._scale * math.exp(u)
        moved = np.repeat(state[None], width + 1, axis=0)
        fast = moved[:, self._decoder.size :]
        for first, stop in zip(self.blocks[:-1], self.blocks[1:], strict=True):
            fast[np.arange(stop - first), np.arange(first, stop)] += DIFFERENCE
        slopes = self._fast(self._gradient(moved))
        slopes = clock * (slopes[:-1] - slopes[-1]) / DIFFERENCE
        for b, (first, stop) in enumerate(zip(self.blocks[:-1], self.blocks[1:], strict=True)):
            block = slopes[: stop - first, first:stop]
            out[b, : stop - first, : stop - first] = (block + block.T) / 2

    def measured(self, states: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray, FloatArray]:
        """y, z, the bias if there is one, the loss and the accuracy of states (n, ...)."""
        y, z, bias = self._split(states)
        loss, accuracy = measures(self._layout, y, z, self._batch(len(states)), bias)
        lost = torch.isnan(loss)
        accuracy = accuracy.masked_fill(lost, torch.nan)
        shown = None if bias is None else bias[:, 0].numpy()
        return y.numpy(), z.numpy(), shown, loss.numpy(), accuracy.numpy()

    def _gradient(self, states: FloatArray) -> Gradients:
        y, z, bias = self._split(states)
        batch = self._batch(len(states))
        return gradients(self._layout, y, z, batch, modified=self._modified, bias=bias, balanced=True)

    def _batch(self, count: int) -> Batch:
        return population_batch(self._layout, count)

    def _fast(self, gradient: Gradients) -> FloatArray:
        """eta_Z dJ/d(z, b) (n, ...)."""
        parts = [gradient.attention_logits.detach().flatten(1).numpy()[:, self._entries]]
        if self._learned and gradient.position_bias is not None:
            parts.append(gradient.position_bias[:, 0].detach().numpy())
        return self._lr_z * np.concatenate(parts, axis=1)

    def _split(self, states: FloatArray) -> tuple[Tensor, Tensor, Tensor | None]:
        """(y, z, b) of states (n, ...)."""
        count, entries = len(states), self._decoder.size
        z = np.repeat(self._logits.reshape(1, -1), count, axis=0)
        z[:, self._entries] = states[:, entries : entries + len(self._entries)]
        bias = None
        if self._bias is not None:
            own = states[:, entries + len(self._entries) :] if self._learned else np.tile(self._bias, (count, 1))
            bias = torch.from_numpy(own)[:, None]
        y = torch.from_numpy(states[:, :entries]).reshape(count, *self._decoder.shape)
        return y, torch.from_numpy(z).reshape(count, *self._logits.shape), bias


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
