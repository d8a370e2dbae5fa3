"""(Y, Z) on tensors: one layer in closed form, several by autograd, on any device."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.data.sampling import uniform_entries
from scansnap.data.source import Batches
from scansnap.dynamics.gradients import (
    Batch,
    LayoutTensors,
    TensorBatches,
    check_independent,
    gradients,
    measures,
    population_batch,
    residual_of,
)
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.start import Start
from scansnap.dynamics.task import Observation
from scansnap.dynamics.tensor_engine import Measured, TensorEngine, TensorModel, check_known
from scansnap.dynamics.update_rules import memory_of
from scansnap.dynamics.yz_tasks import YZTraining, feature_tokens, fresh_batches, needs_decoder, observe
from scansnap.results.quantities import Parts
from scansnap.runtime.machine import find_device
from scansnap.systems.yz.compact import CompactLayout
from scansnap.systems.yz.layer import layered_logits

YZ_TENSOR_OPTIONS = {
    "normalization",
    "residual",
    "attention_map",
    "heads",
    "layers",
    "nonlinearity",
    "decoder_gradient",
}
"""Options of (Y, Z) that its models implement."""

LAYER_STREAM = 2**61
"""Step numbers that no update has: the random streams of the layers' starts, one for each matrix."""

AT_ONCE = 2**20
"""Numbers that autograd takes together on a CPU: more do not stay in its cache, and take three times as long."""


class YZTensorEngine(TensorEngine):
    """The tensor engine for every setting of (Y, Z) that options allow."""

    @staticmethod
    def check_options(options: TrainOptions) -> None:
        """Refuse options that are not implemented."""
        check_known(options, YZ_TENSOR_OPTIONS)

    @staticmethod
    def numbers_per_run(work: YZTraining) -> float:
        """How many numbers a run holds in memory: its state, gradients, the intermediates of a batch, a fixed set."""
        layout, options = work.start_layout, work.options
        memory = max(len(memory_of(work.rule)), 1)
        matrices = work.state_size / (1 + len(memory_of(work.rule))) * (3 + memory)
        if options.layers > 1:
            rows, features = layout.support.shape[1] + 1, len(feature_tokens(layout))
            return matrices + 12 * options.layers * work.batch * rows * features
        rows, columns = layout.layer.heads * layout.num_decoder_rows, layout.num_columns
        batch = work.batch * ((4 + 3 * layout.classes.num_buckets) * rows + 3 * columns)
        return matrices + batch + (options.num_sequences or 0) * layout.num_rows

    @staticmethod
    def numbers_at_once(work: YZTraining) -> float:
        """None: each run has its own batch."""
        return 0.0

    def __init__(self, work: YZTraining, start: Start, runs: Runs) -> None:
        model = (LayersModel if work.options.layers > 1 else LayerModel)(work, start, runs)
        super().__init__(model, work.options, len(runs), self.numbers_per_run(work) * len(runs))


class YZModel(TensorModel):
    """What one layer and several have in common."""

    def __init__(self, work: YZTraining, start: Start, runs: Runs) -> None:
        options = work.options
        self._work, self._start, self._seeds, self._options = work, start, runs.seed, options
        dtype, device = getattr(torch, options.dtype), find_device(options.device)
        self._layout = LayoutTensors.of(start.layout, dtype=dtype, device=device)
        drawn = Batches(work.source, options.batch_size, options.length, options.num_sequences)
        self._batches = TensorBatches(self._layout, drawn, runs.seed)

    def _put(self, array: NDArray[np.generic]) -> Tensor:
        """A copy on the device, in the precision of the runs."""
        return torch.as_tensor(array, dtype=self._layout.probs.dtype, device=self._layout.probs.device).clone()


class LayerModel(YZModel):
    """One layer, by the closed form of `gradients.py` or, for parts without one, by autograd."""

    def __init__(self, work: YZTraining, start: Start, runs: Runs) -> None:
        super().__init__(work, start, runs)
        self._modified, put = work.options.decoder_gradient == "modified", self._put
        rate_y, rate_z = (put(rates).reshape(-1, 1, 1) for rates in (runs.rates["lr_y"], runs.rates["lr_z"]))
        self.parameters = {"decoder": put(start.decoder), "attention_logits": put(start.attention_logits)}
        self.rates = {"decoder": rate_y, "attention_logits": rate_z, "position_bias": rate_z}
        self.shares = {"decoder": self._layout.entry_rate}
        self.centers = {"attention_logits": put(start.prior)}
        self._bias: Tensor | None = None
        if start.position_bias is not None:
            self._bias = put(start.position_bias).expand(len(runs), 1, -1).clone()
            if work.options.learn_position_bias:
                self.parameters["position_bias"] = self._bias
        if self._modified:
            check_independent(self._layout, self.parameters["attention_logits"], self._bias)

    def gradient(self, step: int) -> tuple[dict[str, Tensor], Measured]:
        y, z = self.parameters["decoder"], self.parameters["attention_logits"]
        result = gradients(self._layout, y, z, self._batches.at(step), modified=self._modified, bias=self._bias)
        return {block: getattr(result, block) for block in self.parameters}, (result.loss, result.accuracy)

    def measure(self, step: int) -> Measured:
        y, z = self.parameters["decoder"], self.parameters["attention_logits"]
        return measures(self._layout, y, z, self._batches.at(step), self._bias)

    def observe(self, needs: Collection[str]) -> Observation:
        return observe(self._start, self._parts(needs), needs, self._measure_fresh)

    def _measure_fresh(self, parts: Parts) -> list[NDArray[np.float64]]:
        """Loss and accuracy (R,) on fresh sequences, in float64."""
        layout = LayoutTensors.of(self._start.layout, dtype=torch.float64, device=self._layout.probs.device)
        batch = TensorBatches(layout, fresh_batches(self._work), self._seeds).at(0)
        y, z = self.parameters["decoder"].double(), self.parameters["attention_logits"].double()
        bias = None if self._bias is None else self._bias.double()
        return [values.cpu().numpy() for values in measures(layout, y, z, batch, bias)]

    def _parts(self, needs: Collection[str]) -> Parts:
        def copied(block: str) -> NDArray[np.floating]:
            return self.parameters[block].cpu().numpy().copy()

        return Parts(
            attention_logits=copied("attention_logits"),
            decoder=copied("decoder") if needs_decoder(needs) else None,
            position_bias=None if self._bias is None else self._bias[:, 0].cpu().numpy().copy(),
        )


class LayersModel(YZModel):
    """Several layers (`systems/yz/layer.py`): the residual in closed form, the rest by autograd."""

    def __init__(self, work: YZTraining, start: Start, runs: Runs) -> None:
        super().__init__(work, start, runs)
        options = work.options
        self._population = population_batch(self._layout, len(runs))
        self._query = torch.as_tensor(_query_features(start.layout), device=self._layout.probs.device)
        first = _layers_start(start.layout, options, runs)
        self.parameters = {name: self._put(values) for name, values in first.items()}
        by_matrix = {"decoder": runs.rates["lr_y"], "attention": runs.rates["lr_z"]}
        self.rates = {name: self._put(by_matrix[name.split("_")[0]]).reshape(-1, 1, 1) for name in self.parameters}
        per_run = YZTensorEngine.numbers_per_run(work)
        piece = len(runs) if options.device != "cpu" else max(1, int(AT_ONCE // per_run))
        self._pieces = [slice(first, first + piece) for first in range(0, len(runs), piece)]
        # For merged output columns the gradient is that of the group.
        self.shares = {f"decoder_{options.layers - 1}": self._layout.entry_rate}
        self.centers = {}

    def gradient(self, step: int) -> tuple[dict[str, Tensor], Measured]:
        batch = self._batches.at(step)
        parts = [self._gradient_of(runs, batch[runs]) for runs in self._pieces]
        gradients, losses, accuracies = zip(*parts, strict=True)
        joined = {block: torch.cat([part[block] for part in gradients]) for block in self.parameters}
        return joined, (torch.cat(losses), torch.cat(accuracies))

    def _gradient_of(self, runs: slice, batch: Batch) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The gradient of some of the runs, and their loss and accuracy."""
        parameters = {name: tensor[runs].detach().requires_grad_() for name, tensor in self.parameters.items()}
        logits, _ = self._forward(parameters, batch)
        residual, measured = self._residual(logits.detach(), batch)
        # dJ/dlogits is the residual, without the cancellation that autograd of log_softmax would have.
        gradients = torch.autograd.grad(logits, list(parameters.values()), residual)
        return dict(zip(parameters, gradients, strict=True)), *measured

    def measure(self, step: int) -> Measured:
        batch = self._batches.at(step)
        with torch.no_grad():
            return self._residual(self._forward(self.parameters, batch)[0], batch)[1]

    def _residual(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Measured]:
        weights = batch.sample_weights
        residual, loss, correct = residual_of(self._layout, logits, self._layout.next_column[batch.class_index])
        return residual * weights[..., None], ((loss * weights).sum(1), (correct * weights).sum(1))

    def _forward(self, parameters: dict[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits (R, B, C), and the attention of every layer at each sequence's tokens (R, B, L, W)."""
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
        return logits, torch.stack(seen, 2)

    def observe(self, needs: Collection[str]) -> Observation:
        """Attention of every layer (R, L, 1, K, S), from the exact P(l|n)."""
        with torch.no_grad():
            seen = self._forward(self.parameters, self._population)[1].transpose(1, 2)  # (R, L, K, W)
        support, size = self._layout.support, self._layout.probs.shape[1]
        attention = seen.new_zeros(*seen.shape[:3], size + 1).scatter_(3, support.expand_as(seen), seen)
        parts = Parts(attention=attention[:, :, None, :, :size].double().cpu().numpy())
        return observe(self._start, parts, (), lambda parts: ())


def _query_features(layout: CompactLayout) -> NDArray[np.int64]:
    """(K,) the coordinate of each class's query."""
    tokens = feature_tokens(layout)
    order = np.argsort(tokens)
    return order[np.searchsorted(tokens, layout.classes.query, sorter=order)]


def _layers_start(layout: CompactLayout, options: TrainOptions, runs: Runs) -> dict[str, NDArray[np.floating]]:
    """Y and Z of every layer, the last layer's Y (R, N, C) last: zeros, or each entry uniform in +-1/sqrt(M)."""
    layers = options.layers
    size, columns = len(feature_tokens(layout)), layout.num_columns
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
