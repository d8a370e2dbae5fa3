"""The tensor path behind the engine's contract: all runs on one tensor axis, on any device.

Every step is the closed form of `gradients.py` in batched matrix products.  On a GPU the step is captured once as a
CUDA graph and replayed, since its kernels are short beside the time it takes to launch them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.batches import make_sampler
from scansnap.dynamics.engine import Array
from scansnap.dynamics.gradients import Gradients, LayoutTensors, gradients
from scansnap.dynamics.options import ADAM_BETAS, ADAM_EPSILON, Runs, TrainOptions
from scansnap.dynamics.start import Start
from scansnap.errors import InputError

GRAPH_WARMUP = 3
"""Steps taken eagerly before a graph is captured, as CUDA's documentation asks; their effects are undone."""


class TensorEngine:
    """Batched tensors; the whole state lives on the device."""

    def __init__(self, start: Start, options: TrainOptions, runs: Runs) -> None:
        if options.device == "cuda" and not torch.cuda.is_available():
            raise InputError("device is cuda but PyTorch finds no CUDA device here: use device='cpu'.")
        self._options = options
        device = torch.device(options.device)
        dtype = getattr(torch, options.dtype)
        self._layout = LayoutTensors.of(start.layout, dtype=dtype, device=device)
        self._sampler = make_sampler(start.layout, self._layout, options, runs)

        def put(array: NDArray[np.generic]) -> Tensor:
            return torch.as_tensor(array, dtype=dtype, device=device).clone()

        count = len(runs)
        self._rates = {"decoder": put(runs.lr_y).reshape(-1, 1, 1) * self._layout.column_rate,
                       "attention": put(runs.lr_z).reshape(-1, 1, 1)}  # fmt: skip
        self._tensors = {"decoder": put(start.decoder), "attention": put(start.attention)}
        for name in ("decoder", "attention"):
            shape = self._tensors[name].shape
            self._tensors[f"{name}_velocity"] = torch.zeros(shape, dtype=dtype, device=device)
            if options.optimizer == "adam":
                self._tensors[f"{name}_square"] = torch.zeros(shape, dtype=dtype, device=device)
        self._tensors["diverged"] = torch.full((count,), -1, dtype=torch.int64, device=device)
        # The step as a tensor, so that a captured graph sees it change.
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._losses = torch.zeros((count, options.steps + 1), dtype=torch.float64, device=device)
        self._accuracies = torch.zeros_like(self._losses)
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def step(self) -> int:
        return int(self._step)

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        begin = self.step
        if self._sampler.capturable and self._options.device == "cuda" and stop > begin:
            self._capture()
        for t in range(begin, stop):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._update(t)
        return self._losses[:, begin:stop].cpu().numpy(), self._accuracies[:, begin:stop].cpu().numpy()

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found = self._gradients(self.step)
        self._mark_diverged(found.loss)
        failed = self._tensors["diverged"] >= 0
        loss = found.loss.double().masked_fill(failed, torch.nan)
        return loss.cpu().numpy(), found.accuracy.double().masked_fill(failed, torch.nan).cpu().numpy()

    def _gradients(self, t: int) -> Gradients:
        tensors = self._tensors
        batch = self._sampler.draw(t, self._step)
        modified = self._options.decoder_gradient == "modified"
        return gradients(self._layout, tensors["decoder"], tensors["attention"], batch, modified=modified)

    def _mark_diverged(self, loss: Tensor) -> None:
        diverged = self._tensors["diverged"]
        diverged.copy_(torch.where((diverged < 0) & ~torch.isfinite(loss), self._step, diverged))

    def _update(self, t: int) -> None:
        """One update; `t` is the step where the sampler runs on the host, and is not read inside a graph."""
        found = self._gradients(t)
        self._mark_diverged(found.loss)
        failed = self._tensors["diverged"] >= 0
        for store, values in ((self._losses, found.loss), (self._accuracies, found.accuracy)):
            store.index_copy_(1, self._step.reshape(1), values.double().masked_fill(failed, torch.nan)[:, None])
        for name, gradient in (("decoder", found.decoder), ("attention", found.attention)):
            if self._options.optimizer == "adam":
                self._adam(name, gradient)
            else:
                self._momentum(name, gradient)
        self._step += 1

    def _momentum(self, name: str, gradient: Tensor) -> None:
        """u <- u + g, Y <- Y + eta u, u <- mu u: SGD with momentum, as in `kernel.py`."""
        velocity = self._tensors[f"{name}_velocity"]
        velocity += gradient
        self._tensors[name].addcmul_(velocity, self._rates[name])
        velocity *= self._options.momentum

    def _adam(self, name: str, gradient: Tensor) -> None:
        beta_1, beta_2 = ADAM_BETAS
        g = gradient * self._layout.column_rate if name == "decoder" else gradient
        mean, square = self._tensors[f"{name}_velocity"], self._tensors[f"{name}_square"]
        mean.mul_(beta_1).add_(g, alpha=1 - beta_1)
        square.mul_(beta_2).addcmul_(g, g, value=1 - beta_2)
        count = (self._step + 1).double()
        first = (1 / (1 - beta_1**count)).to(g.dtype)
        second = (1 / torch.sqrt(1 - beta_2**count)).to(g.dtype)
        rate = self._rates[name]
        if name == "decoder":  # the column rate is in the gradient already
            rate = rate.amax(2, keepdim=True)
        self._tensors[name] += rate * first * mean / (square.sqrt() * second + ADAM_EPSILON)

    def _capture(self) -> None:
        if self._graph is not None:
            return
        kept = {name: tensor.clone() for name, tensor in self._everything().items()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(GRAPH_WARMUP):
                self._update(0)
                self._step.copy_(kept["step"])
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._update(0)
        for name, tensor in self._everything().items():
            tensor.copy_(kept[name])

    def _everything(self) -> dict[str, Tensor]:
        return {**self._tensors, "step": self._step, "losses": self._losses, "accuracies": self._accuracies}

    def attention_logits(self) -> NDArray[np.floating]:
        return self._tensors["attention"].cpu().numpy().copy()

    def decoder(self) -> NDArray[np.floating]:
        return self._tensors["decoder"].cpu().numpy().copy()

    def diverged(self) -> NDArray[np.int64]:
        return self._tensors["diverged"].cpu().numpy()

    def state(self) -> dict[str, Array]:
        return {name: tensor.cpu().numpy() for name, tensor in self._tensors.items()}

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        self._step.fill_(step)
        for name, tensor in self._tensors.items():
            tensor.copy_(torch.as_tensor(np.asarray(state[name])))
