"""The tensor engine: all runs on one tensor axis, on any device.

Every step is the closed form of `gradients.py` in batched matrix products.  On a GPU its kernels take less time
than launching them and passing their results through memory.  So `torch.compile` fuses them (a few seconds for each new
shape), and the step is captured once as a CUDA graph and replayed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics import support_products
from scansnap.dynamics.batches import make_sampler
from scansnap.dynamics.engine import Work, matrix_entries, needs_decoder
from scansnap.dynamics.gradients import Batch, LayoutTensors, check_independent, gradients, measures
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.dynamics.tensor_state import TensorState
from scansnap.dynamics.update_rules import memory_of
from scansnap.results.snapshot import Parts
from scansnap.runtime.cuda_graph import capture
from scansnap.runtime.machine import find_device, has_triton

SETTINGS = 256
"""How many shapes and settings a process compiles the step for; beyond that, PyTorch runs it uncompiled."""


def take_step(
    layout: LayoutTensors, state: TensorState, batch: Batch, measures: Tensor, bias: Tensor | None, modified: bool
) -> None:
    """One update, and the loss and accuracy of its batch in `measures` (2, R, steps + 1)."""
    parameters = state.parameters
    gradient = gradients(
        layout, parameters["decoder"], parameters["attention_logits"], batch, modified=modified, bias=bias
    )
    measures.index_copy_(2, state.step_tensor.reshape(1), torch.stack([gradient.loss, gradient.accuracy])[..., None])
    for name in parameters:
        state.move(name, getattr(gradient, name))
    state.step_tensor.add_(1)


@cache
def _compiled_step() -> Callable[..., None]:
    """`take_step`, fused; unchanged if there is no Triton to compile it."""
    if not has_triton():
        return take_step
    compiled = torch.compile(take_step, dynamic=False)

    def quietly(*arguments: object) -> None:
        with warnings.catch_warnings(), torch._dynamo.config.patch(recompile_limit=SETTINGS):
            # Inductor advises TF32, whose ten bits of mantissa fall short of float32.
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            compiled(*arguments)  # type: ignore[arg-type]

    return quietly


class TensorEngine(TensorState):
    """Batched tensors; the whole state lives on the device."""

    @staticmethod
    def serves(work: Work) -> bool:
        """Any setting of one layer."""
        return work.options.layers == 1

    @staticmethod
    def numbers_per_run(work: Work) -> float:
        """The matrices, the rule's memory of them, their gradients, the intermediates of a batch, and a fixed set."""
        layout, options = work.start_layout, work.options
        rows, columns = layout.layer.heads * layout.num_decoder_rows, len(layout.multiplicity)
        batch = work.batch * ((4 + 3 * layout.classes.num_buckets) * rows + 3 * columns)
        fixed = (options.num_sequences or 0) * layout.num_rows
        return (3 + max(len(memory_of(options.rule)), 1)) * matrix_entries(layout) + batch + fixed

    @staticmethod
    def numbers_kept(work: Work) -> float:
        """Y and Z, and the rule's memory of them."""
        return (1 + len(memory_of(work.options.rule))) * matrix_entries(work.start_layout)

    def __init__(self, work: Work, start: Start, runs: Runs) -> None:
        self._options = options = work.options
        device = find_device(options.device)
        dtype = getattr(torch, options.dtype)
        self._layout = LayoutTensors.of(start.layout, dtype=dtype, device=device)
        closed_form = self._layout.readout.has_closed_form
        if options.device == "cuda" and closed_form and support_products.suits(start.layout, options):
            products = support_products.SupportProducts.of(start.layout, device)
            self._layout = replace(self._layout, products=products)
        self._sampler = make_sampler(work.source, start.layout, self._layout, options, runs)
        # Autograd's graph cannot be fused with the rest.
        capturable = self._sampler.capturable and getattr(options.rule, "capturable", False)
        self._fused = options.device == "cuda" and capturable and closed_form
        self._modified = options.decoder_gradient == "modified"

        def put(array: NDArray[np.generic]) -> Tensor:
            return torch.as_tensor(array, dtype=dtype, device=device).clone()

        count = len(runs)
        parameters = {"decoder": put(start.decoder), "attention_logits": put(start.attention_logits)}
        rates = {"decoder": put(runs.lr_y).reshape(-1, 1, 1), "attention_logits": put(runs.lr_z).reshape(-1, 1, 1)}
        self._bias: Tensor | None = None
        if start.position_bias is not None:
            self._bias = put(start.position_bias).expand(count, 1, -1).clone()
            if options.learn_position_bias:
                parameters["position_bias"], rates["position_bias"] = self._bias, rates["attention_logits"]
        super().__init__(parameters, rates, {"decoder": self._layout.entry_rate}, options.rule, count, device)
        # Loss and accuracy of each step; a power of two of them, because each shape is compiled for.
        room = 1 << max(10, options.steps.bit_length())
        self._measures = torch.zeros((2, count, room), dtype=dtype, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        if self._modified:
            check_independent(self._layout, self.parameters["attention_logits"], self._bias)

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        begin = self.step
        if self._fused and stop > begin and self._graph is None:
            state = [*self.tensors.values(), self.step_tensor, self._measures]
            self._graph = capture(lambda: self._update(0), state)
        for t in range(begin, stop):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._update(t)
        return self._checked(self._measures[..., begin:stop], begin)

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        batch, parameters = self._draw(self.step), self.parameters
        values = measures(
            self._layout, parameters["decoder"], parameters["attention_logits"], batch.of_runs(), self._bias
        )
        loss, accuracy = self._checked(torch.stack(values)[..., None], self.step)
        return loss[:, 0], accuracy[:, 0]

    def _checked(self, measures: Tensor, begin: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy on the host; NaN from the step at which a run's loss was first not finite."""
        loss, accuracy = measures.double().cpu().numpy()
        bad = ~np.isfinite(loss)
        first = np.where(bad.any(1), begin + bad.argmax(1), -1)
        self._diverged = np.where(self._diverged < 0, first, self._diverged)
        steps = begin + np.arange(loss.shape[1])
        failed = (self._diverged >= 0)[:, None] & (steps >= self._diverged[:, None])
        return np.where(failed, np.nan, loss), np.where(failed, np.nan, accuracy)

    def _draw(self, t: int) -> Batch:
        batch = self._sampler.draw(t, self.step_tensor)
        ordered = self._sampler.in_class_order or not self._layout.products.in_class_order
        return batch if ordered else batch.in_class_order()

    def _update(self, t: int) -> None:
        """One update; `t` is the step where the sampler runs on the host, and is not read inside a graph."""
        step = _compiled_step() if self._fused else take_step
        step(self._layout, self, self._draw(t), self._measures, self._bias, self._modified)

    def show(self, needs: Collection[str]) -> Parts:
        def copied(name: str) -> NDArray[np.floating]:
            return self.parameters[name].cpu().numpy().copy()

        return Parts(
            attention_logits=copied("attention_logits"),
            decoder=copied("decoder") if needs_decoder(needs) else None,
            position_bias=None if self._bias is None else self._bias[:, 0].cpu().numpy().copy(),
        )
