"""Several processes, started by `torchrun` or `accelerate launch`, that share each batch.

Both launchers set RANK, WORLD_SIZE and LOCAL_RANK; without these there is one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed

from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import find_device


def process_rank() -> int:
    """The number of this process, from 0."""
    return _environment_number("RANK", 0)


def process_count() -> int:
    """The number of processes."""
    return _environment_number("WORLD_SIZE", 1)


def _environment_number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise InputError(
            f"the environment's {name} is '{value}': it is a whole number under torchrun and otherwise must not be set."
        )
    return int(value)


class Processes:
    """This process among all, and how they share the work."""

    def __init__(self, device: str) -> None:
        self.count = process_count()
        self.rank = process_rank()
        self.device = find_device(device)
        if device == "cuda":
            self.device = torch.device("cuda", _environment_number("LOCAL_RANK", 0))
            torch.cuda.set_device(self.device)
        self._owns_group = self.count > 1 and not distributed.is_initialized()
        if self._owns_group:
            distributed.init_process_group("nccl" if device == "cuda" else "gloo")

    @property
    def is_first(self) -> bool:
        """Whether this is the process that records and writes."""
        return self.rank == 0

    def share(self, batch_size: int) -> slice:
        """The columns of a batch that this process takes."""
        if batch_size % self.count:
            raise InputError(f"batch_size is {batch_size} for {self.count} processes: give a multiple of {self.count}.")
        size = batch_size // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over processes."""
        if self.count == 1:
            return
        for tensor in tensors:
            distributed.all_reduce(tensor)
            tensor /= self.count

    def broadcast(self, value: Any) -> Any:
        """The first process's value, on every process."""
        if self.count == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values)
        return values[0]

    def close(self) -> None:
        if self._owns_group:
            distributed.destroy_process_group()
