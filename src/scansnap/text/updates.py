"""One update of a text model: loss, gradients, clipping, optimizer.

`TransformerUpdates` trains a transformer by autograd and PyTorch's optimizers.  On one GPU an update is captured once
as a CUDA graph and replayed, which takes less than half the time: launching its kernels takes longer than running them.
`YZUpdates` trains Y and Z by plain SGD along gradients in closed form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from scansnap.runtime.errors import InputError
from scansnap.text.options import TextOptions, YZTextOptions
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer
from scansnap.text.yz import YZText

Batch = NDArray[np.int64]


class TransformerUpdates:
    """A transformer in training."""

    moments: int
    """Numbers that the optimizer stores for each parameter."""

    def __init__(self, model: TextTransformer, options: TextOptions, processes: Processes) -> None:
        self.model, self._options, self._processes = model, options, processes
        self._device = processes.device
        self._hidden: Callable[[Tensor], Tensor] = torch.compile(model.hidden) if options.compile else model.hidden
        self._parameters = list(model.parameters())
        self._optimizer = _optimizer(model, options)
        self.moments = int(options.momentum > 0) if options.optimizer == "sgd" else 2
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: tuple[Tensor, Tensor] | None = None  # what the graph reads
        self._rate_share = torch.ones((), dtype=model.decoder.dtype, device=self._device)  # what the graph reads
        self._result = torch.zeros_like(self._rate_share)

    def update(self, step: int, inputs: Batch, targets: Batch, rate_share: float | None = None) -> Tensor:
        """Learn from a batch (B, T) and return its loss before the update, still on the device.

        With `rate_share`, which is then given for every update, the rates are that share of those of the options.
        What dropout drops depends only on the seed, the process and the step, so that a run can resume anywhere.
        """
        batch = torch.from_numpy(inputs), torch.from_numpy(targets)
        if self._captures and self._graph is None:
            self._capture(batch, rate_share is not None)
        if step and self._options.restart_every and step % self._options.restart_every == 0:
            for memory in self._optimizer.state.values():
                for value in filter(torch.is_tensor, memory.values()):
                    value.zero_()  # in place, since a graph reads it
        torch.manual_seed(_seed_of(self._options.seed, self._processes.rank, step))
        if self._graph is None or self._batch is None:
            self._update(batch[0].to(self._device), batch[1].to(self._device), rate_share)
        else:
            for static, values in zip(self._batch, batch, strict=True):
                assert static.shape == values.shape  # a graph is for one size
                static.copy_(values.pin_memory(), non_blocking=True)
            self._rate_share.fill_(1.0 if rate_share is None else rate_share)
            self._graph.replay()
        return self._result.clone()

    @torch.no_grad()
    def evaluate(self, windows: Tensor, rows_at_once: int) -> float:
        """The mean loss over windows (N, T + 1), with at most `rows_at_once` rows of logits in memory."""
        self.model.eval()
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for part in windows.split(max(1, rows_at_once // windows.shape[1])):
            total += self._loss(self.model.hidden, part[:, :-1], part[:, 1:], "sum")
        self.model.train()
        return float(total) / (windows.shape[0] * (windows.shape[1] - 1))

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue to identical numbers."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self._tensors().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
        prefix = "model."
        self.model.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
        for i, parameter in enumerate(self._parameters):
            prefix = f"optimizer.{i}."
            memory = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if memory:
                self._optimizer.state[parameter].update({k: v.to(self._device) for k, v in memory.items()})

    @property
    def _captures(self) -> bool:
        return self._device.type == "cuda" and self._processes.count == 1

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors that updates change: the model's, and those that the optimizer stores for each parameter."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for i, parameter in enumerate(self._parameters):
            for name, value in self._optimizer.state.get(parameter, {}).items():
                if torch.is_tensor(value):
                    tensors[f"optimizer.{i}.{name}"] = value
        return tensors

    def _loss(self, hidden: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
        """The cross-entropy of next tokens (B, T), their mean or sum."""
        with self._rounded(self._options.precision == "bf16"):
            states = hidden(functional.embedding(inputs, self.model.embedding))
        with self._rounded(self._options.precision != "float32"):
            logits = functional.linear(states.flatten(0, 1), self.model.decoder, self.model.decoder_bias)
        return functional.cross_entropy(logits.to(self.model.decoder.dtype), targets.flatten(), reduction=reduction)

    def _rounded(self, rounds: bool) -> contextlib.AbstractContextManager[object]:
        """Products in bf16, if asked for."""
        return torch.autocast(self._device.type, torch.bfloat16) if rounds else contextlib.nullcontext()

    def _update(self, inputs: Tensor, targets: Tensor, rate_share: float | Tensor | None) -> None:
        loss = self._loss(self._hidden, inputs, targets, "mean")
        loss.backward()
        self._result.copy_(loss.detach())
        self._processes.average([*(p.grad for p in self._parameters if p.grad is not None), self._result])
        if self._options.clip is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._options.clip)
        self._move(rate_share)
        self._optimizer.zero_grad()

    def _move(self, rate_share: float | Tensor | None) -> None:
        """Step the optimizer, and keep `rate_share` of what it changed."""
        if rate_share is None:
            self._optimizer.step()
            return
        parameters = [parameter.detach() for parameter in self._parameters]
        before = [parameter.clone() for parameter in parameters]
        self._optimizer.step()
        for parameter, start in zip(parameters, before, strict=True):
            torch.lerp(start, parameter, rate_share, out=parameter)

    def _capture(self, batch: tuple[Tensor, Tensor], has_schedule: bool) -> None:
        """Make the graph of an update on batches of this size; model and optimizer stay as they were."""
        inputs, targets = self._batch = batch[0].to(self._device), batch[1].to(self._device)
        share = self._rate_share if has_schedule else None
        tensors = self._tensors()
        self._graph = capture_graph(lambda: self._update(inputs, targets, share), tensors.values())
        for name, tensor in self._tensors().items():
            if name not in tensors:  # the optimizer created it while warming up: it starts at zero
                tensor.zero_()


class YZUpdates:
    """Y and Z in training."""

    moments = 0

    def __init__(self, model: YZText, options: YZTextOptions, processes: Processes) -> None:
        if processes.count > 1:
            raise InputError(f"the model yz is trained by one process, but there are {processes.count}: start one.")
        self.model, self._options, self._device = model, options, processes.device

    def update(self, step: int, inputs: Batch, targets: Batch, rate_share: float | None = None) -> Tensor:
        """Learn from a batch (B, T) and return its loss before the update, still on the device."""
        share = 1.0 if rate_share is None else rate_share
        ids, next_tokens = (torch.from_numpy(part).to(self._device) for part in (inputs, targets))
        return self.model.step(ids, next_tokens, lr_y=share * self._options.lr_y, lr_z=share * self._options.rate_z)

    def evaluate(self, windows: Tensor, rows_at_once: int) -> float:
        """The mean loss over windows (N, T + 1)."""
        return float(self.model.loss(windows[:, :-1], windows[:, 1:]))

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to continue to identical numbers."""
        return {name: tensor.cpu().numpy() for name, tensor in self.model.state_dict().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; a CPU uses its memory, since Y and Z may fill half of the machine's."""
        tensors = {name: torch.from_numpy(values) for name, values in state.items()}
        self.model.load_state_dict(tensors, assign=self._device.type == "cpu")


Learner = TransformerUpdates | YZUpdates
"""A model and how it learns."""


def capture_graph(work: Callable[[], object], state: Iterable[Tensor]) -> torch.cuda.CUDAGraph:
    """Capture `work` as a CUDA graph; `state` holds the tensors that it changes, which keep their values.

    It runs once before, so that libraries set themselves up and compile what is not compiled yet.
    """
    saved = [(tensor.detach(), tensor.detach().clone()) for tensor in state]
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
        for tensor, value in saved:
            tensor.copy_(value)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph


def _seed_of(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _optimizer(model: TextTransformer, options: TextOptions) -> torch.optim.Optimizer:
    attention = model.attention_parameters()
    attention_ids = {id(parameter) for parameter in attention}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in attention_ids], "lr": options.lr_y},
        {"params": attention, "lr": options.rate_z},
    ]
    if options.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=options.momentum, weight_decay=options.weight_decay)
    optimizer = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
    return optimizer(groups, weight_decay=options.weight_decay, capturable=options.device == "cuda")
