"""The sequences of an update, as tensors.

On a GPU with Triton they are drawn there (`device_sampling.py`); otherwise the CPU sampler draws them and they are
copied.  Both give the same sequences for the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.data.sampling import SamplingTables, draw_batches
from scansnap.dynamics.gradients import Batch, LayoutTensors, population_batch
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.position_bias import PositionDraws, Positions
from scansnap.model.compact import CompactLayout


class Sampler(Protocol):
    """Gives the batch of an update."""

    capturable: bool
    """Whether `draw` reads the step from a tensor and never from the host, so that a CUDA graph can hold it."""

    def draw(self, t: int, step: Tensor) -> Batch:
        """The batch of update t; `step` holds t on the device."""


def make_sampler(
    layout: CompactLayout, tensors: LayoutTensors, options: TrainOptions, runs: Runs, positions: Positions | None = None
) -> Sampler:
    """The sampler for these options."""
    if positions is not None and options.length:
        assert options.batch_size is not None  # `check_positions` refuses others
        return PositionSampler(positions, tensors, runs.seed, options.batch_size)
    if options.num_sequences is not None:
        from scansnap.dynamics.fixed_data import FixedSampler

        return FixedSampler(layout, tensors, options, runs)
    if options.batch_size is None and options.length == 0:
        return PopulationSampler(tensors, len(runs))
    if options.device == "cuda":
        from scansnap.dynamics import device_sampling

        if device_sampling.suits(layout, options):
            return device_sampling.DeviceSampler(layout, tensors, options, runs)
    return HostSampler(layout, tensors, draws_of(options, runs, options.batch_size))


class PopulationSampler:
    """Every class with its probability and P(l|n) for its counts: the same batch at every update."""

    capturable = True

    def __init__(self, tensors: LayoutTensors, runs: int) -> None:
        self._batch = population_batch(tensors, runs)

    def draw(self, t: int, step: Tensor) -> Batch:
        return self._batch


class PositionSampler:
    """Sequences whose tokens depend on their position, counted by bucket."""

    capturable = False

    def __init__(
        self, positions: Positions, tensors: LayoutTensors, seeds: NDArray[np.uint64], batch_size: int
    ) -> None:
        self._draws = PositionDraws(positions.classes, seeds, batch_size)
        self._tensors = tensors
        self._weights = tensors.probs.new_full((len(seeds), batch_size), 1.0 / batch_size)

    def draw(self, t: int, step: Tensor) -> Batch:
        class_index, buckets = self._draws.draw(t, self._tensors.support, self._tensors.probs)
        return Batch(class_index, buckets.sum(2), self._weights, buckets)


@dataclass(frozen=True)
class Draws:
    """What is drawn at each update: for every seed so many sequences, or one of each class, of so many tokens."""

    seeds: NDArray[np.uint64]
    num_sequences: int | None  # None: one of each class
    length: int  # 0: P(l|n) for the counts


def draws_of(options: TrainOptions, runs: Runs, num_sequences: int | None) -> Draws:
    """Sequences of the options' length for each run."""
    return Draws(runs.seed, num_sequences, options.length)


class HostSampler:
    """Batches drawn by the CPU sampler and copied to the device."""

    capturable = False

    def __init__(self, layout: CompactLayout, tensors: LayoutTensors, draws: Draws) -> None:
        self._tables = SamplingTables.of(layout.classes)
        self._tensors = tensors
        self._draws = draws
        num_classes, width = layout.support.shape
        batch, runs = draws.num_sequences or num_classes, len(draws.seeds)
        self._class_index = np.empty((runs, batch), np.int64)
        self._counts = np.empty((runs, batch, width), np.int32)
        weights = np.full(batch, 1.0 / batch) if draws.num_sequences else layout.classes.weights
        self._weights = torch.tensor(weights, dtype=tensors.probs.dtype, device=tensors.probs.device).expand(runs, -1)

    def draw(self, t: int, step: Tensor) -> Batch:
        tables, draws = self._tables, self._draws
        draw_batches(
            draws.seeds, t, draws.length, draws.num_sequences is None, tables.size, tables.thresholds,
            tables.conditional, tables.class_thresholds, self._class_index, self._counts,
        )  # fmt: skip
        probs = self._tensors.probs
        class_index = torch.tensor(self._class_index, device=probs.device)
        if draws.length == 0:
            buckets = self._tensors.bucket_probs
            parts = None if buckets is None else buckets[class_index]
            return Batch(class_index, probs[class_index], self._weights, parts)
        counts = torch.from_numpy(self._counts).to(probs.device, probs.dtype)
        dense = probs.new_zeros(*class_index.shape, probs.shape[1] + 1)  # the last column takes the padding
        dense.scatter_(2, self._tensors.support[class_index], counts)
        return Batch(class_index, dense[..., :-1], self._weights)
