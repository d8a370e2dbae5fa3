"""Several processes, as `torchrun` or `accelerate launch` start them: each takes its share of the batch.

Both set RANK, WORLD_SIZE and LOCAL_RANK; without them there is one process and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed

from scansnap.base.devices import find_device
from scansnap.base.errors import InputError


def this_rank() -> int:
    """The number of this process, from 0."""
    return _number("RANK", 0)


def processes() -> int:
    """How many processes there are."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, otherwise: int) -> int:
    value = os.environ.get(name, str(otherwise))
    if not value.isdecimal():
        raise InputError(f"the environment's {name} is '{value}': it is a whole number under torchrun, else not set.")
    return int(value)


class Ranks:
    """Which part of the work is this process's."""

    def __init__(self, device: str) -> None:
        self.count = processes()
        self.rank = this_rank()
        self.device = find_device(device)
        if device == "cuda":
            self.device = torch.device("cuda", _number("LOCAL_RANK", 0))
            torch.cuda.set_device(self.device)
        self._ours = self.count > 1 and not distributed.is_initialized()
        if self._ours:
            distributed.init_process_group("nccl" if device == "cuda" else "gloo")

    @property
    def first(self) -> bool:
        """Whether this process records and writes."""
        return self.rank == 0

    def share(self, batch_size: int) -> slice:
        """This process's columns."""
        if batch_size % self.count:
            raise InputError(f"batch_size is {batch_size} for {self.count} processes: give a multiple.")
        size = batch_size // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over processes."""
        if self.count == 1:
            return
        for tensor in tensors:
            distributed.all_reduce(tensor)
            tensor /= self.count

    def told(self, value: Any) -> Any:
        """What the first process says."""
        if self.count == 1:
            return value
        said = [value]
        distributed.broadcast_object_list(said)
        return said[0]

    def close(self) -> None:
        if self._ours:
            distributed.destroy_process_group()
