"""The engine for several layers: the tensor path's batches and update rules, with gradients by autograd.

Autograd differentiates `systems/yz/layered.py`, which needs only the tokens of each sequence's class.  With one layer
it agrees with other engines.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.batches import make_sampler
from scansnap.dynamics.engine import Work
from scansnap.dynamics.gradients import Batch, LayoutTensors, population_batch, softmax_residual
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.random_entries import uniform_entries
from scansnap.dynamics.start import Start
from scansnap.dynamics.tensor_state import TensorState
from scansnap.dynamics.update_rules import memory_of
from scansnap.results.snapshot import Parts
from scansnap.runtime.machine import find_device
from scansnap.systems.yz.compact import CompactLayout
from scansnap.systems.yz.layered import layered_logits

LAYER_STREAM = 2**61
"""Step numbers that no update has: the random streams of the layers' starts, one for each matrix."""

Measures = tuple[Tensor, Tensor, Tensor]
"""Loss (R,), accuracy (R,), and the attention of every layer at each sequence's tokens (R, B, L, W)."""


class LayeredEngine(TensorState):
    """All runs on one tensor axis."""

    @staticmethod
    def serves(work: Work) -> bool:
        """Several layers."""
        return work.options.layers > 1

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """The matrices with their gradients, and the features of a sequence's tokens in every layer, for autograd."""
        layout, layers = work.start_layout, work.options.layers
        features = len(feature_tokens(layout))
        rows = layout.support.shape[1] + 1
        return 5 * layer_entries(work) + 12 * layers * work.batch * rows * features

    @staticmethod
    def numbers_kept(work: Work) -> float:
        """The matrices, and the rule's memory of them."""
        return (1 + len(memory_of(work.options.rule))) * layer_entries(work)

    def __init__(self, work: Work, start: Start, runs: Runs) -> None:
        self._options = options = work.options
        dtype, device = getattr(torch, options.dtype), find_device(options.device)
        self._layout = LayoutTensors.of(start.layout, dtype=dtype, device=device)
        self._sampler = make_sampler(work.source, start.layout, self._layout, options, runs)
        self._population = population_batch(self._layout, len(runs))
        self._query = torch.as_tensor(query_features(start.layout), device=device)
        parameters = {
            name: torch.as_tensor(values, dtype=dtype, device=device)
            for name, values in _start(start.layout, options, runs).items()
        }
        by_matrix = {"decoder": runs.lr_y, "attention": runs.lr_z}
        rates = {
            name: torch.as_tensor(by_matrix[name.split("_")[0]], dtype=dtype, device=device).reshape(-1, 1, 1)
            for name in parameters
        }
        # For merged output columns the gradient is that of the group.
        shares = {f"decoder_{options.layers - 1}": self._layout.entry_rate}
        super().__init__(parameters, rates, shares, options.rule, len(runs), device)

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        losses, accuracies = [], []
        for t in range(self.step, stop):
            loss, accuracy, gradients = self._gradients(self._sampler.draw(t, self.step_tensor).of_runs())
            for name, gradient in gradients.items():
                self.move(name, gradient)
            values = self._checked(loss, accuracy)
            losses.append(values[0])
            accuracies.append(values[1])
            self.step_tensor.add_(1)
        return np.stack(losses, 1), np.stack(accuracies, 1)

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        loss, accuracy, _ = self._measures(self._sampler.draw(self.step, self.step_tensor).of_runs())
        return self._checked(loss, accuracy)

    def _gradients(self, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss and accuracy of the batch, and the gradient of J by every parameter."""
        parameters = {name: tensor.detach().requires_grad_() for name, tensor in self.parameters.items()}
        loss, accuracy, _ = self._forward(parameters, batch)
        gradients = torch.autograd.grad(-loss.sum(), list(parameters.values()))
        return loss.detach(), accuracy, dict(zip(parameters, gradients, strict=True))

    def _measures(self, batch: Batch) -> Measures:
        with torch.no_grad():
            return self._forward(self.parameters, batch)

    def _forward(self, parameters: dict[str, Tensor], batch: Batch) -> Measures:
        layers, support = self._options.layers, self._layout.support[batch.class_index]  # (R, B, W)
        counts = torch.nn.functional.pad(batch.token_weights, (0, 1)).gather(2, support)  # padding occurs 0 times
        logits, seen = layered_logits(
            [parameters[f"decoder_{j}"] for j in range(layers)],
            [parameters[f"attention_logits_{j}"] for j in range(layers)],
            torch.log(counts),
            support.clamp(max=self._layout.probs.shape[1] - 1),
            self._query[batch.class_index],
            self._options.nonlinearity,
        )
        next_column = self._layout.next_column[batch.class_index]
        with torch.no_grad():
            _, _, correct = softmax_residual(self._layout, logits, next_column)
        log_p = torch.log_softmax(logits + self._layout.log_multiplicity, dim=2)
        loss = -log_p.gather(2, next_column[..., None]).squeeze(2)
        weights = batch.sample_weights
        return (loss * weights).sum(1), (correct * weights).sum(1), torch.stack(seen, 2)

    def _checked(self, loss: Tensor, accuracy: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """On the host; NaN from the step at which a run's loss was first not finite."""
        values = loss.double().cpu().numpy()
        self._diverged = np.where((self._diverged < 0) & ~np.isfinite(values), self.step, self._diverged)
        failed = self._diverged >= 0
        return np.where(failed, np.nan, values), np.where(failed, np.nan, accuracy.double().cpu().numpy())

    def show(self, needs: Collection[str]) -> Parts:
        """Attention of every layer (R, L, 1, K, S), from the exact P(l|n)."""
        seen = self._measures(self._population)[2].transpose(1, 2)  # (R, L, K, W)
        support, size = self._layout.support, self._layout.probs.shape[1]
        attention = seen.new_zeros(*seen.shape[:3], size + 1).scatter_(3, support.expand_as(seen), seen)
        return Parts(attention=attention[:, :, None, :, :size].double().cpu().numpy())


def feature_tokens(layout: CompactLayout) -> NDArray[np.int64]:
    """(N,) the token of each coordinate of features: contextual tokens, then the other queries."""
    return np.concatenate([layout.rows, np.setdiff1d(layout.classes.queries, layout.rows)])


def query_features(layout: CompactLayout) -> NDArray[np.int64]:
    """(K,) the coordinate of each class's query."""
    tokens = feature_tokens(layout)
    order = np.argsort(tokens)
    return order[np.searchsorted(tokens, layout.classes.query, sorter=order)]


def layer_entries(work: Work) -> int:
    """The number of entries of Y and Z of all layers."""
    layout, size = work.start_layout, len(feature_tokens(work.start_layout))
    return (2 * work.options.layers - 1) * size**2 + size * len(layout.multiplicity)


def _start(layout: CompactLayout, options: TrainOptions, runs: Runs) -> dict[str, NDArray[np.floating]]:
    """Y and Z of every layer, the last layer's Y (R, N, C) last: zeros, or each entry uniform in +-1/sqrt(M)."""
    layers = options.layers
    size, columns = len(feature_tokens(layout)), len(layout.multiplicity)
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
