"""CUDA graphs: GPU work that is captured once and then replayed, which saves the time to launch its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

WARM_UP = 1
"""Runs before a capture, which let libraries set themselves up and compile what is not compiled yet."""

FREE_SHARE = 1 / 2
"""The share of the device's memory that must never have been asked for, or what was freed is given back before a
capture, which cannot do so itself; giving it back takes longer than the capture."""


def capture(work: Callable[[], object], state: Iterable[Tensor]) -> torch.cuda.CUDAGraph:
    """Capture `work` as a graph.

    `state` holds the tensors that `work` changes.  Each warm-up run starts from their present values, and they have
    these values again when the graph is returned.
    """
    saved = [(tensor.detach(), tensor.detach().clone()) for tensor in state]

    def restore() -> None:
        for tensor, value in saved:
            tensor.copy_(value)

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
            restore()
        _make_room()
        graph.capture_begin()
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    restore()
    return graph


def _make_room() -> None:
    memory = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if memory - torch.cuda.memory_reserved() < FREE_SHARE * memory:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
