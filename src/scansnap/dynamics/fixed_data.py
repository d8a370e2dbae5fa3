"""Finite data (Section 9): a fixed set of N sequences to train on, and fresh ones to test on.

The set of a run is the first N sequences that `sample_sequences` and `sample_counts` give for its seed.  A batch takes
sequences from it at random, with replacement; without a batch size every update uses the whole set.  Fresh sequences
have a random stream of their own, and are the same at every record.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.source_stamp import source_stamp
from scansnap.data.random_stream import sequence_key, uniform
from scansnap.dynamics.batches import HostSampler, draws_of, make_sampler
from scansnap.dynamics.engine import Engine
from scansnap.dynamics.gradients import Batch, LayoutTensors, measures
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.start import Start
from scansnap.model.compact import CompactLayout

NUM_FRESH = 1024
"""Fresh sequences that a run is tested on."""

FRESH_STREAM = -3
CHOICE_STREAM = 2**62
"""Updates that never happen: their random streams are for fresh sequences, and for choosing from the set."""


class FixedSampler:
    """Batches from a fixed set."""

    def __init__(self, layout: CompactLayout, tensors: LayoutTensors, options: TrainOptions, runs: Runs) -> None:
        assert options.num_sequences is not None
        whole = HostSampler(layout, tensors, draws_of(options, runs, options.num_sequences)).draw(0, torch.tensor(0))
        self._set = whole
        self._size = options.batch_size
        self._seeds = runs.seed
        self.capturable = options.batch_size is None

    def draw(self, t: int, step: Tensor) -> Batch:
        if self._size is None:
            return self._set
        chosen = np.empty((len(self._seeds), self._size), np.int64)
        choose(self._seeds, CHOICE_STREAM + t, self._set.class_index.shape[1], chosen)
        index = torch.from_numpy(chosen).to(self._set.class_index.device)
        tokens = self._set.token_weights
        return Batch(
            self._set.class_index.gather(1, index),
            tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[2])),
            torch.full_like(index, 1.0 / self._size, dtype=tokens.dtype),
        )


class FreshData:
    """Sequences that no update sees."""

    def __init__(self, start: Start, options: TrainOptions, runs: Runs) -> None:
        self._tensors = LayoutTensors.of(start.layout, dtype=getattr(torch, options.dtype), positions=start.positions)
        many = replace(options, batch_size=NUM_FRESH, num_sequences=None, device="cpu")
        self._batch = make_sampler(start.layout, self._tensors, many, runs, start.positions).draw(
            FRESH_STREAM, torch.tensor(0)
        )

    def measure(self, engine: Engine) -> dict[str, NDArray[np.float64]]:
        """Loss and accuracy (R,) of the engine's runs as they are now."""
        y, z = torch.from_numpy(engine.decoder()), torch.from_numpy(engine.attention_logits())
        bias = engine.position_bias()
        b = None if bias is None else torch.from_numpy(bias)[:, None]
        loss, accuracy = measures(self._tensors, y, z, self._batch, b)
        return {"fresh_loss": loss.double().numpy(), "fresh_accuracy": accuracy.double().numpy()}


def _compile(stamp: int):  # type: ignore[no-untyped-def]
    """The function kept on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True)
    def choose(seeds, step, count, out):  # type: ignore[no-untyped-def]
        """out[r, b] uniform over 0 .. count - 1."""
        if stamp < 0:
            return
        for r in range(out.shape[0]):
            for b in range(out.shape[1]):
                out[r, b] = int(uniform(sequence_key(seeds[r], step, b), 0) * count)

    return choose


choose = _compile(source_stamp("data.random_stream"))
