"""Several layers on a CPU: the tensor path's batches and update rules, with gradients from compiled code.

The code runs without Python's lock, some of the runs on each core, and each run is computed independently of the
others.  At T -> infinity the sequences of a class are alike: a batch is then every class once, weighted by its share
of the batch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.compiled.layers import (
    LayeredBatch,
    LayeredMatrices,
    LayeredPlan,
    layered_gradients,
    make_scratch,
)
from scansnap.dynamics.engine import Work
from scansnap.dynamics.gradients import Batch
from scansnap.dynamics.layered_engine import LayeredEngine, Measures, feature_tokens, layer_entries, query_features
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.dynamics.update_rules import memory_of
from scansnap.runtime.machine import available_threads, one_tensor_thread
from scansnap.systems.yz.compact import CompactLayout
from scansnap.systems.yz.lanes import LANES


class LayeredKernelEngine(LayeredEngine):
    """Compiled gradients, moved by any update rule."""

    spins = False

    @staticmethod
    def serves(work: Work) -> bool:
        """Several layers on a CPU."""
        return work.options.layers > 1 and work.options.device == "cpu"

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """The matrices, the rule's memory of them, their gradients and transposes, and the batch."""
        return (3 + len(memory_of(work.options.rule))) * layer_entries(work) + work.batch * work.start_layout.num_rows

    def __init__(self, work: Work, start: Start, runs: Runs) -> None:
        super().__init__(work, start, runs)
        layers, size = work.options.layers, len(feature_tokens(start.layout))
        features = (size // LANES + 1) * LANES
        self._plan = _plan(start.layout, features, work.options.dtype, smooth=work.options.nonlinearity == "tanh")
        self._matrices, parameters = self._stacks(layers, features)
        self._gradient, self._by_name = self._stacks(layers, features)
        for name, view in parameters.items():
            self.parameters[name] = view.copy_(self.parameters[name])
        threads = min(available_threads(), len(runs))
        self._groups = np.array_split(np.arange(len(runs)), threads)
        self._rooms = [make_scratch(self._plan, layers, features) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        self._compiled = False

    def _stacks(self, layers: int, features: int) -> tuple[LayeredMatrices, dict[str, Tensor]]:
        """Room for the matrices of all layers, padded, and the matrices in it by name."""
        last = self.parameters[f"decoder_{layers - 1}"]
        runs, size, columns = last.shape
        attention = last.new_zeros(runs, layers, features, features)
        hidden = last.new_zeros(runs, layers - 1, features, features)
        decoder = last.new_zeros(runs, features, columns)
        views = {f"attention_logits_{j}": attention[:, j, :size, :size] for j in range(layers)}
        views |= {f"decoder_{j}": hidden[:, j, :size, :size] for j in range(layers - 1)}
        views[f"decoder_{layers - 1}"] = decoder[:, :size]
        return LayeredMatrices(attention.flatten(1, 2).numpy(), hidden.flatten(1, 2).numpy(), decoder.numpy()), views

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with one_tensor_thread():
            return super().advance(stop)

    def _gradients(self, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        loss, accuracy, _ = self._call(batch, learn=True)
        return loss, accuracy, self._by_name

    def _measures(self, batch: Batch) -> Measures:
        return self._call(batch, see=True)

    def _call(self, batch: Batch, *, learn: bool = False, see: bool = False) -> Measures:
        if self._options.length == 0:
            batch = self._by_class(batch)
        runs, sequences = batch.class_index.shape
        arrays = LayeredBatch(
            *(t.contiguous().numpy() for t in (batch.class_index, batch.token_weights, batch.sample_weights))
        )
        shape = (sequences, self._options.layers, self._plan.tokens.shape[1])
        seen = np.zeros((runs if see else 0, *shape), arrays.counts.dtype)
        losses, accuracies = np.empty(runs), np.empty(runs)

        def take(group: NDArray[np.int64], room: int) -> None:
            layered_gradients(
                self._plan,
                self._matrices,
                arrays,
                group,
                self._options.layers,
                learn,
                self._rooms[room],
                self._gradient,
                losses,
                accuracies,
                seen,
            )

        if len(self._groups) == 1:
            take(self._groups[0], 0)
        else:
            if not self._compiled:
                take(self._groups[0][:0], 0)  # compiles, and does nothing
                self._compiled = True
            list(self._pool.map(take, self._groups, range(len(self._groups))))
        width = self._layout.support.shape[1]
        return torch.from_numpy(losses), torch.from_numpy(accuracies), torch.from_numpy(seen[..., :width])

    def _by_class(self, batch: Batch) -> Batch:
        """Every class once, with its share of the batch."""
        weights = torch.zeros_like(self._population.sample_weights)
        weights.scatter_add_(1, batch.class_index, batch.sample_weights)
        return replace(self._population, sample_weights=weights)


def _plan(layout: CompactLayout, features: int, dtype: str, *, smooth: bool) -> LayeredPlan:
    classes, width = layout.support.shape
    tokens = np.full((classes, -(-width // LANES) * LANES), features - 1, np.int32)  # a coordinate that nothing has
    inside = np.arange(width) < layout.size[:, None]
    tokens[:, :width][inside] = layout.support[inside]
    return LayeredPlan(
        size=layout.size,
        tokens=tokens,
        query=query_features(layout),
        next_column=layout.next_column,
        multiplicity=layout.multiplicity.astype(dtype)[None],
        num_columns=layout.num_columns,
        each=np.arange(max(features, len(layout.multiplicity)), dtype=np.int32)[None],
        smooth=smooth,
    )
