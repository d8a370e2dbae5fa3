"""CUDA graphs: GPU work that is captured once and then replayed, which saves the time to launch its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

WARM_UP = 3
"""Warm-up runs before a capture, which let libraries set themselves up, as CUDA's documentation requires."""


def capture(work: Callable[[], object], state: Iterable[Tensor]) -> torch.cuda.CUDAGraph:
    """Capture `work` as a graph.

    `state` holds the tensors that `work` changes.  Each warm-up run starts from their present values, and they have
    these values again when the graph is returned.
    """
    saved = [(tensor.detach(), tensor.detach().clone()) for tensor in state]

    def restore() -> None:
        for tensor, value in saved:
            tensor.copy_(value)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
            restore()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    restore()
    return graph
