"""The engine that runs the CPU kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from scansnap.base.threads import available_threads
from scansnap.data.sampling import SamplingTables
from scansnap.dynamics.engine import Array, Work, matrix_entries, needs_decoder
from scansnap.dynamics.kernel import ROOM, KernelPlan, KernelRule, KernelState, advance
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.dynamics.update_rules import SGD, Adam
from scansnap.model.architecture import BASIC
from scansnap.model.compact import CompactLayout
from scansnap.results.snapshot import Parts


class KernelEngine:
    """Compiled code without Python's lock: one run per core at a time, each computed independently."""

    spins = False

    @staticmethod
    def serves(work: Work) -> bool:
        """The paper's basic setting on a CPU, under SGD and Adam."""
        options = work.options
        return (
            options.device == "cpu"
            and options.decoder_gradient == "true"
            and work.layer == BASIC
            and options.layers == 1
            and type(options.rule) in (SGD, Adam)  # a subclass may move differently
            and options.num_sequences is None
            and work.source.independent
        )

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """Y and Z with their velocities, and Adam's moments."""
        return (4 if isinstance(work.options.rule, Adam) else 2) * matrix_entries(work.start_layout)

    def __init__(self, work: Work, start: Start, runs: Runs) -> None:
        self.step = 0
        self._runs = runs
        options, rule = work.options, work.options.rule
        dtype = np.dtype(options.dtype)
        self._plan = _plan(start.layout, dtype)
        adam = rule if isinstance(rule, Adam) else Adam()
        self._rule = KernelRule(
            batch_size=options.batch_size or 0,
            length=options.length,
            momentum=rule.momentum if isinstance(rule, SGD) else 0.0,
            adam=rule is adam,
            beta_1=adam.beta_1,
            beta_2=adam.beta_2,
            epsilon=adam.epsilon,
        )
        self._state = _state(start, adam=self._rule.adam)
        threads = available_threads()
        self._pool = ThreadPoolExecutor(threads)
        self._groups = _groups(runs.seed, threads)
        self._compiled = False

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        result = self._call(stop, update=True)
        self.step = stop
        return result

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        loss, accuracy = self._call(self.step + 1, update=False)
        return loss[:, 0], accuracy[:, 0]

    def _call(self, stop: int, *, update: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        shape = (len(self._runs), stop - self.step)
        losses, accuracies = np.empty(shape), np.empty(shape)
        runs = self._runs

        def take(group: NDArray[np.int64]) -> None:
            advance(
                self._plan, self._state, self._rule, group, runs.seed, runs.lr_y, runs.lr_z,
                self.step, stop, update, losses, accuracies,
            )  # fmt: skip

        if not self._compiled:
            self._pool.submit(take, self._groups[0][:0]).result()  # compiles, and does nothing
            self._compiled = True
        list(self._pool.map(take, self._groups))
        return losses, accuracies

    def show(self, needs: Collection[str]) -> Parts:
        state = self._state
        with np.errstate(invalid="ignore", over="ignore"):  # in runs that have diverged
            drift = self._drift(state.attention_age, self._runs.lr_z)
            logits = state.attention_logits + drift[..., None] * state.attention_velocity
            if not needs_decoder(needs):
                return Parts(attention_logits=logits)
            drift = self._drift(state.decoder_age, self._runs.lr_y)
            decoder = state.decoder + drift[..., None] * self._plan.column_rate[0] * state.decoder_velocity
        return Parts(attention_logits=logits, decoder=decoder)

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


def _groups(seeds: NDArray[np.uint64], cores: int) -> list[NDArray[np.int64]]:
    """Group runs of one seed, whose sequences are drawn once for all; no group is so large that cores idle."""
    most = max(1, len(seeds) // (4 * cores))
    order = np.argsort(seeds, kind="stable")
    same_seed = np.split(order, np.flatnonzero(np.diff(seeds[order])) + 1)
    return [runs[k : k + most] for runs in same_seed for k in range(0, len(runs), most)]


def _plan(layout: CompactLayout, dtype: np.dtype[np.floating]) -> KernelPlan:
    tables = SamplingTables.of(layout.classes)
    query_offsets, query_rows = layout.query_entries()
    return KernelPlan(
        size=layout.size,
        support=layout.support,
        support_probs=layout.support_probs.astype(dtype),
        query_index=layout.query_index,
        next_column=layout.next_column,
        class_weights=layout.classes.weights,
        multiplicity=_apart(layout.multiplicity.astype(dtype)[None]),
        column_rate=_apart(layout.column_rate.astype(dtype)[None]),
        num_columns=layout.num_columns,
        query_offsets=query_offsets,
        query_rows=query_rows,
        thresholds=tables.thresholds,
        conditional=tables.conditional,
        class_thresholds=tables.class_thresholds,
    )


def _state(start: Start, *, adam: bool) -> KernelState:
    runs, rows, columns = start.decoder.shape
    queries = start.attention_logits.shape[1]
    dtype = start.decoder.dtype
    return KernelState(
        decoder=_apart(start.decoder),
        decoder_velocity=_apart(np.zeros_like(start.decoder)),
        decoder_age=np.zeros((runs, rows), np.int64),
        attention_logits=_apart(start.attention_logits),
        attention_velocity=_apart(np.zeros_like(start.attention_logits)),
        attention_age=np.zeros((runs, queries), np.int64),
        decoder_moments=_apart(np.zeros((runs, 2, rows, columns) if adam else (runs, 2, 0, 0), dtype)),
        attention_moments=_apart(np.zeros((runs, 2, queries, rows) if adam else (runs, 2, 0, 0), dtype)),
        diverged=np.full(runs, -1, np.int64),
    )


def _apart(array: NDArray[np.floating]) -> NDArray[np.floating]:
    """The array with room around it; `kernel._apart` says why."""
    space = np.zeros(array.size + 2 * ROOM, array.dtype)
    inner = space[ROOM : ROOM + array.size].reshape(array.shape)
    inner[...] = array
    return inner
