"""The sequences of updates: fresh ones, those of a fixed set, or every class with its probability.

Sequences depend on the seed and the number of the update alone.  Both engines take them from here, so they learn from
the same sequences.

Finite data (Section 9): a run's fixed set is the first N sequences of its seed.  A batch takes sequences from it at
random, with replacement; without a batch size every update uses the whole set.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sampling import CHOICE_STREAM, choose
from scansnap.data.source import DataSource, Draw
from scansnap.systems.yz.compact import CompactLayout

FRESH_STREAM = -3
"""A step number that no update has: the random stream of sequences to test on."""

NUM_FRESH = 1024
"""Sequences that a run is tested on."""


@dataclass(frozen=True)
class Batches:
    """What is drawn at each update."""

    source: DataSource
    batch_size: int | None  # None: one sequence of each class, or the whole fixed set
    length: int  # contextual tokens; 0: P(l|n) replaces the counts
    num_sequences: int | None = None  # the size of a fixed set
    stream: int = 0  # the update whose sequences a fixed set has
    _fixed: dict[int, Draw] = field(default_factory=dict)

    @property
    def is_population(self) -> bool:
        """Whether every update uses the exact expectation."""
        return self.batch_size is None and self.length == 0 and self.num_sequences is None

    @property
    def size(self) -> int:
        """Sequences in an update."""
        return self.batch_size or self.num_sequences or self.source.classes.num_classes

    @property
    def class_weights(self) -> NDArray[np.float64]:
        """The weight (K,) of a sequence of each class in the loss."""
        classes = self.source.classes
        if self.batch_size is None and self.num_sequences is None:
            return np.array(classes.weights)
        return np.full(classes.num_classes, 1.0 / self.size)

    def draw(self, seed: int, first_step: int, num_steps: int) -> Draw:
        """The sequences of several updates of a seed: classes (n, B), and counts (n, B, W) or (n, B, G, W).

        Where counts are not used (`length` is 0) they are not filled.
        """
        source = self.source
        if self.num_sequences is not None:
            return self._from_fixed_set(seed, first_step, num_steps)
        if self.is_population:
            index = np.broadcast_to(np.arange(self.size), (num_steps, self.size))
            return Draw(index, np.empty((num_steps, self.size, 0), np.int32))
        return source.draw_steps(seed, first_step, num_steps, self.batch_size, self.length)

    def _from_fixed_set(self, seed: int, first_step: int, num_steps: int) -> Draw:
        if seed not in self._fixed:
            self._fixed[seed] = self.source.draw_steps(seed, self.stream, 1, self.num_sequences, self.length)
        whole = self._fixed[seed]
        if self.batch_size is None:
            chosen = np.broadcast_to(np.arange(self.size), (num_steps, self.size))
        else:
            chosen = np.empty((num_steps, self.batch_size), np.int64)
            choose(np.uint64(seed), CHOICE_STREAM + first_step, whole.class_index.shape[1], chosen)
        return Draw(whole.class_index[0, chosen], whole.counts[0, chosen])


def probs_by_bucket(layout: CompactLayout) -> NDArray[np.float64]:
    """P_g(l|n) times the share of bucket g (K, G, W) at each class's own tokens; P(l|n) if there are no positions."""
    classes = layout.classes
    if not classes.num_buckets:
        return layout.support_probs[:, None]
    inside = np.arange(layout.support.shape[1]) < layout.size[:, None]
    index = np.broadcast_to(layout.support[:, None], (len(inside), classes.num_buckets, inside.shape[1]))
    return np.take_along_axis(classes.bucket_probs, index, axis=2) * inside[:, None]
