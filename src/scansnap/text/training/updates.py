"""One update: loss, gradients, clipping, optimizer.  On a GPU it is captured once as a graph and replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scansnap.runtime.cuda_graph import capture
from scansnap.text.model.blocked_cross_entropy import BlockedCrossEntropy
from scansnap.text.model.fused_cross_entropy import FusedCrossEntropy, fused_kernels_run
from scansnap.text.model.rows import rows
from scansnap.text.model.transformer import TextTransformer
from scansnap.text.training.batch_graph import BatchGraph
from scansnap.text.training.options import TextOptions
from scansnap.text.training.plain_sgd import PlainSGD
from scansnap.text.training.ranks import Ranks


class Updates:
    """A model in training."""

    def __init__(self, model: TextTransformer, options: TextOptions, ranks: Ranks) -> None:
        self.model, self._options, self._ranks = model, options, ranks
        self._device = ranks.device
        self._rounds = options.precision == "bf16"
        decoder_dtype = model.decoder.dtype if options.precision == "float32" else torch.bfloat16
        loss = FusedCrossEntropy if fused_kernels_run(model.decoder) else BlockedCrossEntropy
        self._loss = loss(model.decoder, model.decoder_bias, decoder_dtype)
        self._hidden: Callable[[Tensor], Tensor] = torch.compile(model.hidden) if options.compile else model.hidden
        self._parameters = list(model.parameters())
        self._optimizer = _optimizer(model, options)
        self.moments = int(options.momentum > 0) if options.optimizer == "sgd" else 2
        is_plain = options.optimizer == "sgd" and not options.momentum and not options.weight_decay
        is_one_cpu = self._device.type == "cpu" and ranks.count == 1
        self._plain_sgd = PlainSGD(model, options) if is_plain and is_one_cpu else None
        self._graph: BatchGraph | None = None
        self._result = torch.zeros((), dtype=model.decoder.dtype, device=self._device)
        self._rate_share = torch.ones_like(self._result)  # what the graph reads

    def update(self, step: int, inputs: Tensor, targets: Tensor, rate_share: float | None = None) -> Tensor:
        """Learn from a batch (B, T) and return its loss before the update, still on the device.

        What dropout drops depends only on the seed, the process and the step, so that a run can resume anywhere.
        """
        if self._replays and self._graph is None:
            share = None if rate_share is None else self._rate_share
            self._graph = BatchGraph(
                lambda ids, next_ids: self._capture(ids, next_ids, share),
                inputs.to(self._device),
                targets.to(self._device),
            )
        torch.manual_seed(_seed_of(self._options.seed, self._ranks.rank, step))
        if self._graph is None:
            self._update(inputs.to(self._device), targets.to(self._device), rate_share)
        else:
            self._rate_share.fill_(1.0 if rate_share is None else rate_share)
            self._graph.replay(inputs, targets)
        return self._result.clone()

    @torch.no_grad()
    def evaluate(self, windows: Tensor, rows_at_once: int) -> float:
        """The mean loss over windows (N, T + 1)."""
        self.model.eval()
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for part in windows.split(max(1, rows_at_once // windows.shape[1])):
            with self._autocast():
                hidden = self.model.hidden(self.model.embedding[part[:, :-1]]).to(self.model.decoder.dtype)
            total += self._loss.evaluate(hidden.flatten(0, 1), part[:, 1:].flatten())
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
    def _replays(self) -> bool:
        return self._device.type == "cuda" and self._ranks.count == 1

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors that updates change: the model's, and those that the optimizer keeps for each parameter."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for i, parameter in enumerate(self._parameters):
            for name, value in self._optimizer.state.get(parameter, {}).items():
                if torch.is_tensor(value):
                    tensors[f"optimizer.{i}.{name}"] = value
        return tensors

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast(self._device.type, torch.bfloat16) if self._rounds else contextlib.nullcontext()

    def _update(self, inputs: Tensor, targets: Tensor, rate_share: float | Tensor | None) -> None:
        with self._autocast():
            hidden = self._hidden(rows(self.model.embedding, inputs))
        loss = self._loss(hidden.to(self.model.decoder.dtype).flatten(0, 1), targets.flatten())
        loss.backward()
        self._result.copy_(loss.detach())
        self._ranks.average([*(p.grad for p in self._parameters if p.grad is not None), self._result])
        if self._plain_sgd is not None:
            self._plain_sgd.step(inputs, 1.0 if rate_share is None else float(rate_share))
        else:
            if self._options.clip is not None:
                nn.utils.clip_grad_norm_(self._parameters, self._options.clip)
            self._move(rate_share)
        self._clear()

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

    def _clear(self) -> None:
        """Clear the gradients, except the decoder's, which the next batch overwrites."""
        model = self.model
        for parameter in self._parameters:
            if parameter is model.embedding and self._device.type == "cpu":
                if self._plain_sgd is None and parameter.grad is not None:
                    parameter.grad.zero_()  # its array is reused
            elif parameter is not model.decoder and parameter is not model.decoder_bias:
                parameter.grad = None

    def _capture(self, inputs: Tensor, targets: Tensor, rate_share: Tensor | None) -> torch.cuda.CUDAGraph:
        """A graph of the update on these tensors; model and optimizer stay as they were."""
        tensors = self._tensors()
        graph = capture(lambda: self._update(inputs, targets, rate_share), tensors.values())
        for name, tensor in self._tensors().items():
            if name not in tensors:  # the optimizer created it while warming up: it starts at zero
                tensor.zero_()
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
    kind = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, weight_decay=options.weight_decay, capturable=options.device == "cuda")
