"""The sequences of an update, as tensors.

On a GPU with Triton, sequences of built-in classes are drawn there (`device_sampling.py`); otherwise the data source
draws them on the CPU and they are copied.  Both give the same sequences for the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.data.source import DataSource, check_draw
from scansnap.dynamics.gradients import Batch, LayoutTensors, population_batch
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.systems.yz.compact import CompactLayout


class Sampler(Protocol):
    """Gives the batch of an update."""

    capturable: bool
    """Whether `draw` reads the step only from a tensor, never from the host, so that a CUDA graph can capture it."""

    in_class_order: bool
    """Whether the sequences of a batch are in the order of their classes."""

    def draw(self, t: int, step: Tensor) -> Batch:
        """The batch of update t; `step` holds t on the device."""


@dataclass(frozen=True)
class Request:
    """What is drawn at each update, for every seed: how many sequences (or one of each class), and how long."""

    seeds: NDArray[np.uint64]
    num_sequences: int | None  # None: one of each class
    length: int  # 0: P(l|n) replaces the counts


def make_sampler(
    source: DataSource, layout: CompactLayout, tensors: LayoutTensors, options: TrainOptions, runs: Runs
) -> Sampler:
    """The sampler for these options."""
    if options.num_sequences is not None:
        from scansnap.dynamics.fixed_data import FixedSampler

        return FixedSampler(source, tensors, options, runs)
    if options.batch_size is None and options.length == 0:
        return PopulationSampler(tensors, len(runs))
    if options.device == "cuda":
        from scansnap.dynamics import device_sampling

        if device_sampling.suits(source, layout, options):
            return device_sampling.DeviceSampler(layout, tensors, options, runs)
    return HostSampler(source, tensors, Request(runs.seed, options.batch_size, options.length))


class PopulationSampler:
    """Every class with its probability, and P(l|n) as its counts: the same batch at every update."""

    capturable, in_class_order = True, True

    def __init__(self, tensors: LayoutTensors, runs: int) -> None:
        self._batch = population_batch(tensors, runs)

    def draw(self, t: int, step: Tensor) -> Batch:
        return self._batch


class HostSampler:
    """Batches drawn by the data source on the CPU and copied to the device."""

    capturable, in_class_order = False, False

    def __init__(self, source: DataSource, tensors: LayoutTensors, request: Request) -> None:
        self._source = source
        self._tensors = tensors
        self._request = request
        count = request.num_sequences
        weights = np.full(count, 1.0 / count) if count else source.classes.weights
        self._weights = torch.tensor(weights, dtype=tensors.probs.dtype, device=tensors.probs.device).expand(
            len(request.seeds), -1
        )

    def draw(self, t: int, step: Tensor) -> Batch:
        request, tensors, probs = self._request, self._tensors, self._tensors.probs
        draw = self._source.draw(
            seeds=request.seeds, step=t, num_sequences=request.num_sequences, length=request.length
        )
        if not self._source.independent:
            draw = check_draw(
                draw, self._source, runs=len(request.seeds), num_sequences=request.num_sequences, length=request.length
            )
        class_index = torch.tensor(draw.class_index, device=probs.device)
        if request.length == 0:
            buckets = tensors.bucket_probs
            parts = None if buckets is None else buckets[class_index]
            return Batch(class_index, probs[class_index], self._weights, parts)
        counts = torch.from_numpy(draw.counts).to(probs.device, probs.dtype)
        rows = tensors.support[class_index]  # (R, B, W); padding points one past the last row
        if counts.ndim == 3:
            dense = probs.new_zeros(*class_index.shape, probs.shape[1] + 1).scatter_(2, rows, counts)
            return Batch(class_index, dense[..., :-1], self._weights)
        rows = rows.clamp(max=probs.shape[1] - 1)[:, :, None].expand_as(counts)  # padding adds nothing to any row
        by_bucket = probs.new_zeros(*counts.shape[:3], probs.shape[1]).scatter_add_(3, rows, counts)
        return Batch(class_index, by_bucket.sum(2), self._weights, by_bucket)
