"""Several layers behind the engine's contract: the tensor path's batches and update rules, gradients by autograd.

There is no closed form here: `model/layered.py` is differentiated.  With one layer it does what the other engines do.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.devices import find_device
from scansnap.dynamics.batches import make_sampler
from scansnap.dynamics.gradients import Batch, LayoutTensors, population_batch, softmax_residual
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.start import Start, uniform_entries
from scansnap.dynamics.tensor_state import TensorState
from scansnap.dynamics.update_rules import make_rule
from scansnap.model.compact import CompactLayout
from scansnap.model.layered import layered_logits

LAYER_STREAM = 2**61
"""Updates that never happen: the random streams of the layers' starts, one for each matrix."""


class LayeredEngine(TensorState):
    """All runs on one tensor axis."""

    def __init__(self, start: Start, options: TrainOptions, runs: Runs) -> None:
        self._options = options
        dtype, device = getattr(torch, options.dtype), find_device(options.device)
        self._layout = LayoutTensors.of(start.layout, dtype=dtype, device=device)
        self._sampler = make_sampler(start.layout, self._layout, options, runs)
        self._query = torch.as_tensor(_feature(start.layout), device=device)
        self._log_probs = torch.log(self._layout.probs)
        made = _start(start, options, runs)
        tensors = {name: torch.as_tensor(value, dtype=dtype, device=device) for name, value in made.items()}
        super().__init__(tensors, len(runs), device)
        self._rules = {name: make_rule(options, tensor) for name, tensor in self._tensors.items()}
        self._names = list(self._tensors)
        for name, rule in self._rules.items():
            self._tensors |= {f"{name}_{kept}": tensor for kept, tensor in rule.memory.items()}
        rates = {"decoder": runs.lr_y, "attention": runs.lr_z}
        self._rates = {name: torch.as_tensor(rates[name.split("_")[0]], dtype=dtype, device=device).reshape(-1, 1, 1)
                       for name in self._names}  # fmt: skip

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found = []
        for t in range(self.step, stop):
            found.append(self._update(t))
            self._step += 1
        return np.stack([one[0] for one in found], 1), np.stack([one[1] for one in found], 1)

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with torch.no_grad():
            loss, accuracy, _ = self._forward(self._sampler.draw(self.step, self._step))
        return self._checked(loss, accuracy)

    def _update(self, t: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy of the batch, and a step along the gradient of J."""
        parameters = [self._tensors[name] for name in self._names]
        for one in parameters:
            one.requires_grad_()
        loss, accuracy, _ = self._forward(self._sampler.draw(t, self._step))
        slopes = torch.autograd.grad(-loss.sum(), parameters)
        with torch.no_grad():
            for name, one, slope in zip(self._names, parameters, slopes, strict=True):
                one.requires_grad_(False)
                # Of output columns that are one, autograd gives the gradient of the group.
                share = self._layout.entry_rate if name == self._names[-1] else None
                self._rules[name].move(one, slope, share, self._rates[name], self._step)
        return self._checked(loss.detach(), accuracy)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor, list[Tensor]]:
        layers = self._options.architecture.layers
        logits, seen = layered_logits(
            [self._tensors[f"decoder_{j}"] for j in range(layers)],
            [self._tensors[f"attention_{j}"] for j in range(layers)],
            torch.log(batch.token_weights),
            self._query[batch.class_index],
            self._options.architecture.nonlinearity,
        )
        next_column = self._layout.next_column[batch.class_index]
        with torch.no_grad():
            _, _, correct = softmax_residual(self._layout, logits, next_column)
        log_p = torch.log_softmax(logits + self._layout.log_multiplicity, dim=2)
        loss = -log_p.gather(2, next_column[..., None]).squeeze(2)
        weights = batch.sample_weights
        return (loss * weights).sum(1), (correct * weights).sum(1), seen

    def _checked(self, loss: Tensor, accuracy: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """On the host, NaN from the step on at which a run's loss was first not finite."""
        values = loss.double().cpu().numpy()
        self._diverged = np.where((self._diverged < 0) & ~np.isfinite(values), self.step, self._diverged)
        failed = self._diverged >= 0
        return np.where(failed, np.nan, values), np.where(failed, np.nan, accuracy.double().cpu().numpy())

    def layer_attention(self) -> NDArray[np.float64]:
        """Attention of every layer (R, K, L, S), from the exact P(l|n)."""
        with torch.no_grad():
            _, _, seen = self._forward(population_batch(self._layout, len(self._diverged)))
        return torch.stack(seen, 2).double().cpu().numpy()

    def attention_logits(self) -> NDArray[np.floating]:
        raise NotImplementedError("`TrainOptions` refuses to record logits of several layers")

    def decoder(self) -> NDArray[np.floating]:
        raise NotImplementedError("`TrainOptions` refuses to record decoders of several layers")

    def position_bias(self) -> None:
        return None


def _feature(layout: CompactLayout) -> NDArray[np.int64]:
    """(K,) the coordinate of each class's query among contextual tokens, then the other queries."""
    tokens = _tokens(layout)
    order = np.argsort(tokens)
    return order[np.searchsorted(tokens, layout.classes.query, sorter=order)]


def _tokens(layout: CompactLayout) -> NDArray[np.int64]:
    return np.concatenate([layout.rows, np.setdiff1d(layout.classes.queries, layout.rows)])


def _start(start: Start, options: TrainOptions, runs: Runs) -> dict[str, NDArray[np.floating]]:
    """Y and Z of every layer, the last layer's Y (R, N, C) last: zeros, or each entry uniform in +-1/sqrt(M)."""
    layout, layers = start.layout, options.architecture.layers
    size, columns = len(_tokens(layout)), len(layout.multiplicity)
    names = [f"attention_{j}" for j in range(layers)] + [f"decoder_{j}" for j in range(layers)]
    made = {}
    for i, name in enumerate(names):
        last = name == names[-1]
        values = np.zeros((len(runs), size, columns if last else size), options.dtype)
        if start.name == "uniform":
            scale = start.scale_z if name.startswith("attention") else 1.0
            places = layout.column_of_token if last else np.arange(size)
            uniform_entries(
                runs.seed, np.uint64(LAYER_STREAM + i), 0, scale * layout.classes.vocab_size**-0.5, places, values
            )
        made[name] = values
    return made
