"""The engine for several layers: the tensor path's batches and update rules, with gradients by autograd.

There is no closed form here: autograd differentiates `model/layered.py`.  With one layer it agrees with other engines.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.devices import find_device
from scansnap.dynamics.batches import make_sampler
from scansnap.dynamics.engine import Work, matrix_entries
from scansnap.dynamics.gradients import Batch, LayoutTensors, population_batch, softmax_residual
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.random_entries import uniform_entries
from scansnap.dynamics.start import Start
from scansnap.dynamics.tensor_state import TensorState
from scansnap.model.compact import CompactLayout
from scansnap.model.layered import layered_logits
from scansnap.results.snapshot import Parts

LAYER_STREAM = 2**61
"""Step numbers that no update has: the random streams of the layers' starts, one for each matrix."""


class LayeredEngine(TensorState):
    """All runs on one tensor axis."""

    @staticmethod
    def serves(work: Work) -> bool:
        """Several layers."""
        return work.options.layers > 1

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """The matrices with their gradients, and the features of every token in every layer, kept for autograd."""
        layout, layers = work.start_layout, work.options.layers
        features = layout.num_rows + layout.num_queries
        matrices = layers * (matrix_entries(layout) + 2 * features**2)
        return 5 * matrices + 8 * layers * work.batch * features**2

    def __init__(self, work: Work, start: Start, runs: Runs) -> None:
        self._options = options = work.options
        dtype, device = getattr(torch, options.dtype), find_device(options.device)
        self._layout = LayoutTensors.of(start.layout, dtype=dtype, device=device)
        self._sampler = make_sampler(work.source, start.layout, self._layout, options, runs)
        self._query = torch.as_tensor(_feature(start.layout), device=device)
        parameters = {
            name: torch.as_tensor(values, dtype=dtype, device=device)
            for name, values in _start(start.layout, options, runs).items()
        }
        by_matrix = {"decoder": runs.lr_y, "attention": runs.lr_z}
        rates = {
            name: torch.as_tensor(by_matrix[name.split("_")[0]], dtype=dtype, device=device).reshape(-1, 1, 1)
            for name in parameters
        }
        # For merged output columns autograd gives the gradient of the group.
        shares = {f"decoder_{options.layers - 1}": self._layout.entry_rate}
        super().__init__(parameters, rates, shares, options.rule, len(runs), device)

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        losses, accuracies = [], []
        for t in range(self.step, stop):
            loss, accuracy = self._update(t)
            losses.append(loss)
            accuracies.append(accuracy)
            self._step += 1
        return np.stack(losses, 1), np.stack(accuracies, 1)

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with torch.no_grad():
            loss, accuracy, _ = self._forward(self._sampler.draw(self.step, self._step))
        return self._checked(loss, accuracy)

    def _update(self, t: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy of the batch, and a step along the gradient of J."""
        parameters = list(self._parameters.values())
        for parameter in parameters:
            parameter.requires_grad_()
        loss, accuracy, _ = self._forward(self._sampler.draw(t, self._step))
        gradients = torch.autograd.grad(-loss.sum(), parameters)
        with torch.no_grad():
            for name, parameter, gradient in zip(self._parameters, parameters, gradients, strict=True):
                parameter.requires_grad_(False)
                self.move(name, gradient)
        return self._checked(loss.detach(), accuracy)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor, list[Tensor]]:
        layers = self._options.layers
        logits, seen = layered_logits(
            [self._parameters[f"decoder_{j}"] for j in range(layers)],
            [self._parameters[f"attention_logits_{j}"] for j in range(layers)],
            torch.log(batch.token_weights),
            self._query[batch.class_index],
            self._options.nonlinearity,
        )
        next_column = self._layout.next_column[batch.class_index]
        with torch.no_grad():
            _, _, correct = softmax_residual(self._layout, logits, next_column)
        log_p = torch.log_softmax(logits + self._layout.log_multiplicity, dim=2)
        loss = -log_p.gather(2, next_column[..., None]).squeeze(2)
        weights = batch.sample_weights
        return (loss * weights).sum(1), (correct * weights).sum(1), seen

    def _checked(self, loss: Tensor, accuracy: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """On the host; NaN from the step at which a run's loss was first not finite."""
        values = loss.double().cpu().numpy()
        self._diverged = np.where((self._diverged < 0) & ~np.isfinite(values), self.step, self._diverged)
        failed = self._diverged >= 0
        return np.where(failed, np.nan, values), np.where(failed, np.nan, accuracy.double().cpu().numpy())

    def show(self, needs: Collection[str]) -> Parts:
        """Attention of every layer (R, L, 1, K, S), from the exact P(l|n)."""
        with torch.no_grad():
            _, _, seen = self._forward(population_batch(self._layout, len(self._diverged)))
        return Parts(attention=torch.stack(seen, 1)[:, :, None].double().cpu().numpy())


def _feature(layout: CompactLayout) -> NDArray[np.int64]:
    """(K,) the coordinate of each class's query among contextual tokens, then the other queries."""
    tokens = _tokens(layout)
    order = np.argsort(tokens)
    return order[np.searchsorted(tokens, layout.classes.query, sorter=order)]


def _tokens(layout: CompactLayout) -> NDArray[np.int64]:
    return np.concatenate([layout.rows, np.setdiff1d(layout.classes.queries, layout.rows)])


def _start(layout: CompactLayout, options: TrainOptions, runs: Runs) -> dict[str, NDArray[np.floating]]:
    """Y and Z of every layer, the last layer's Y (R, N, C) last: zeros, or each entry uniform in +-1/sqrt(M)."""
    layers = options.layers
    size, columns = len(_tokens(layout)), len(layout.multiplicity)
    names = [f"attention_logits_{j}" for j in range(layers)] + [f"decoder_{j}" for j in range(layers)]
    parameters = {}
    for i, name in enumerate(names):
        last = name == names[-1]
        values = np.zeros((len(runs), size, columns if last else size), options.dtype)
        if options.init == "uniform":
            scale = options.init_scale_z if name.startswith("attention") else 1.0
            places = layout.column_of_token if last else np.arange(size)
            uniform_entries(
                runs.seed, np.uint64(LAYER_STREAM + i), 0, scale * layout.classes.vocab_size**-0.5, places, values
            )
        parameters[name] = values
    return parameters
