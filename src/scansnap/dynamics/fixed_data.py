"""Finite data (Section 9), as tensors: a fixed set of N sequences to train on, and fresh ones to test on.

A run's set is the first N sequences that `sample_sequences` and `sample_counts` give for its seed.  A batch takes
sequences from it at random, with replacement; without a batch size every update uses the whole set.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.data.source import DataSource
from scansnap.dynamics.batches import HostSampler, Request
from scansnap.dynamics.engine import Work
from scansnap.dynamics.fresh_data import FRESH_STREAM, NUM_FRESH
from scansnap.dynamics.gradients import Batch, LayoutTensors, measures
from scansnap.dynamics.options import Runs, StepOptions
from scansnap.dynamics.random_entries import CHOICE_STREAM, choose
from scansnap.results.snapshot import Parts
from scansnap.runtime.machine import has_triton
from scansnap.systems.yz.compact import CompactLayout


class FixedSampler:
    """Batches from a fixed set."""

    in_class_order = False

    def __init__(self, source: DataSource, tensors: LayoutTensors, options: StepOptions, runs: Runs) -> None:
        whole = Request(runs.seed, options.num_sequences, options.length)
        self._set = HostSampler(source, tensors, whole).draw(0, torch.tensor(0))
        self._size = options.batch_size
        self._seeds = runs.seed
        index = self._set.class_index
        self._on_device = index.device.type == "cuda" and has_triton()
        self._device_seeds = torch.as_tensor(runs.seed.astype("int64"), device=index.device)
        self.capturable = options.batch_size is None or self._on_device

    def draw(self, t: int, step: Tensor) -> Batch:
        if self._size is None:
            return self._set
        index = self._choice(t, step, self._size)
        tokens, buckets = self._set.token_weights, self._set.buckets
        first = torch.arange(len(index), device=index.device)[:, None]
        return Batch(
            self._set.class_index.gather(1, index),
            tokens[first, index],
            torch.full_like(index, 1.0 / self._size, dtype=tokens.dtype),
            None if buckets is None else buckets[first, index],
        )

    def _choice(self, t: int, step: Tensor, size: int) -> Tensor:
        """Places in the set (R, B)."""
        count, device = self._set.class_index.shape[1], self._set.class_index.device
        if self._on_device:
            from scansnap.dynamics.device_sampling import choose_on_device

            index = torch.empty((len(self._seeds), size), dtype=torch.int64, device=device)
            choose_on_device(self._device_seeds, step, count, index)
            return index
        choice = np.empty((len(self._seeds), size), np.int64)
        choose(self._seeds, CHOICE_STREAM + t, count, choice)
        return torch.from_numpy(choice).to(device)


class FreshTensors:
    """Sequences that no update sees (`fresh_data.py`)."""

    def __init__(self, work: Work, layout: CompactLayout, runs: Runs) -> None:
        self._tensors = LayoutTensors.of(layout, dtype=getattr(torch, work.dtype))
        request = Request(runs.seed, NUM_FRESH, work.options.length)
        self._batch = HostSampler(work.source, self._tensors, request).draw(FRESH_STREAM, torch.tensor(0))

    def measure(self, parts: Parts) -> dict[str, NDArray[np.float64]]:
        assert parts.decoder is not None
        assert parts.attention_logits is not None
        bias = None if parts.position_bias is None else torch.from_numpy(parts.position_bias)[:, None]
        loss, accuracy = measures(
            self._tensors, torch.from_numpy(parts.decoder), torch.from_numpy(parts.attention_logits), self._batch, bias
        )
        return {"fresh_loss": loss.double().numpy(), "fresh_accuracy": accuracy.double().numpy()}
