"""The engine that runs the compiled flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.collocation import tableau
from scansnap.dynamics.compiled.flow import BasicSystem, solve
from scansnap.dynamics.flow_engine import FloatArray, FlowWork, Solution
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.runtime.machine import available_threads
from scansnap.systems.yz.compact import CompactLayout


class KernelFlow:
    """Runs side by side, each computed independently: its numbers cannot depend on the others."""

    def __init__(self, work: FlowWork, start: Start) -> None:
        self._work = work
        self._start = start
        layout = start.layout
        blocks, self._rows = layout.query_entries()
        self._query = np.repeat(np.arange(layout.num_queries), np.diff(blocks))
        self._system = _system(layout, blocks.astype(np.int64), self._rows)

    @staticmethod
    def serves(work: FlowWork) -> bool:
        """The paper's basic setting."""
        return work.is_basic and work.options.device == "cpu"

    def solve(self, runs: Runs, most_evaluations: int, show: Callable[[float], None]) -> Solution:
        start, layout = self._start, self._start.layout
        decoders = start.decoder[:, :, : layout.num_columns].reshape(len(runs), -1)
        entries = decoders.shape[1] if self._work.shows_decoder else 0
        moving = start.attention_logits[:, self._query, self._rows]
        beginning = np.concatenate([decoders, moving], axis=1)
        states, losses, accuracies, reached = self._integrate(
            runs, beginning, decoders.shape[1] - entries, most_evaluations, show
        )
        logits = np.repeat(start.attention_logits[:, None], states.shape[1], axis=1)
        logits[:, :, self._query, self._rows] = states[:, :, entries:]
        shape = (*states.shape[:2], layout.num_rows, layout.num_columns)
        decoder = states[:, :, :entries].reshape(shape) if entries else None
        return Solution(decoder, logits, None, losses, accuracies, reached)

    def _integrate(
        self, runs: Runs, beginning: FloatArray, first: int, most_evaluations: int, show: Callable[[float], None]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The entries of states from `first` on (R, n, .), losses and accuracies (R, n), and the time reached (R,)."""
        options = self._work.options
        count = len(options.times)
        states = np.full((len(runs), count, beginning.shape[1]), np.nan)
        losses, accuracies = np.full((2, len(runs), count), np.nan)
        reached = np.zeros(len(runs))

        def take(r: int) -> None:
            times, scale = self._work.log_times(runs, r)
            system = self._system._replace(lr_y=float(runs.lr_y[r]), lr_z=float(runs.lr_z[r]), scale=scale)
            u, _ = solve(
                system,
                tableau(),
                beginning[r],
                times,
                options.rtol,
                options.atol,
                most_evaluations,
                states[r],
                losses[r],
                accuracies[r],
            )
            reached[r] = scale * math.expm1(u)

        with ThreadPoolExecutor(available_threads()) as pool:
            futures = [pool.submit(take, r) for r in range(len(runs))]
            for done, future in enumerate(as_completed(futures)):
                future.result()
                show(done + 1)
        return states[:, :, first:], losses, accuracies, reached


def _system(layout: CompactLayout, blocks: NDArray[np.int64], rows: NDArray[np.int64]) -> BasicSystem:
    place = np.zeros(layout.support.shape, np.int64)
    for n, size in enumerate(layout.size):
        first, stop = blocks[layout.query_index[n]], blocks[layout.query_index[n] + 1]
        place[n, :size] = first + np.searchsorted(rows[first:stop], layout.support[n, :size])
    columns = layout.num_columns
    return BasicSystem(
        size=layout.size,
        support=layout.support,
        place=place,
        probs=layout.support_probs,
        query_index=layout.query_index.astype(np.int64),
        blocks=blocks,
        next_column=layout.next_column,
        class_weights=layout.classes.weights,
        multiplicity=layout.multiplicity[:columns].copy(),
        column_rate=layout.column_rate[:columns].copy(),
        rows=layout.num_rows,
        lr_y=0.0,
        lr_z=0.0,
        scale=1.0,
    )
