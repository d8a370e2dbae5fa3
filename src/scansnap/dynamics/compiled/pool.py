"""Sequences that the CPU kernel does not draw itself: fixed sets, and those of sources that draw in their own way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.source import DataSource, Draw, check_draw
from scansnap.dynamics.compiled.plan import KernelPool
from scansnap.dynamics.engine import Work
from scansnap.systems.yz.compact import CompactLayout

DRAWN_AT_ONCE = 2**18
"""Numbers drawn ahead for all seeds: few enough to be in the cache when they are read."""


class Pools:
    """Gives the pool for a range of updates."""

    def __init__(
        self,
        work: Work,
        layout: CompactLayout,
        seeds: NDArray[np.uint64],
        bias: NDArray[np.float64] | None,
        dtype: np.dtype[np.floating],
        stream: int = 0,
    ) -> None:
        """`bias` (G,) weighs the buckets of positions, if there are any and it is not learned.

        A fixed set is the first sequences of batch number `stream`.
        """
        self._source, self._options, self._seeds, self._dtype = work.source, work.options, seeds, dtype
        self.bucket_scale = None if bias is None else np.exp(bias - bias.max()).astype(dtype)
        self.class_probs = self._weighed(bucket_probs(layout)[None])[0]  # (K, W), or (K, G W) where a bias is learned
        self._batch = work.batch
        options = work.options
        population = options.batch_size is None and options.length == 0
        self._fixed: KernelPool | None = None
        if options.num_sequences is not None:
            chosen = options.batch_size is not None
            self._fixed = self._pool([self._draw(stream, options.num_sequences)], start=0, stride=0, chosen=chosen)
        elif population or is_compiled(work.source):
            empty = np.empty((len(seeds), 0), np.int64)
            self._fixed = self._pool([Draw(empty, np.empty(0, np.int64))], start=0, stride=0, chosen=False)

    @property
    def are_empty(self) -> bool:
        """Whether the kernel draws all sequences itself."""
        return self._fixed is not None and self._fixed.class_index.shape[1] == 0

    @property
    def steps_at_once(self) -> int | None:
        """For how many updates to ask at once; None for any number."""
        if self._fixed is not None:
            return None
        return max(1, DRAWN_AT_ONCE // (len(self._seeds) * self._batch * self.class_probs.shape[1]))

    def of(self, begin: int, end: int) -> KernelPool:
        """The pool for updates begin .. end-1."""
        if self._fixed is not None:
            return self._fixed
        draws = [self._draw(t, self._options.batch_size) for t in range(begin, end)]
        return self._pool(draws, start=begin, stride=self._batch, chosen=False)

    def _draw(self, step: int, count: int | None) -> Draw:
        source, length = self._source, self._options.length
        draw = source.draw(seeds=self._seeds, step=step, num_sequences=count, length=length)
        if source.independent:
            return draw
        return check_draw(draw, source, runs=len(self._seeds), num_sequences=count, length=length)

    def _pool(self, draws: list[Draw], *, start: int, stride: int, chosen: bool) -> KernelPool:
        class_index = np.concatenate([draw.class_index for draw in draws], axis=1, dtype=np.int64)
        if self._options.length == 0 or class_index.size == 0:
            counts = self.class_probs[class_index]
        else:
            counts = np.concatenate([self._weighed(draw.counts) for draw in draws], axis=1)
        return KernelPool(class_index, counts, start, stride, chosen)

    def _weighed(self, counts: NDArray[np.number]) -> NDArray[np.floating]:
        """Counts (U, P, W) or (U, P, G, W) in the runs' precision, with buckets summed if those have fixed weights."""
        numbers = np.ascontiguousarray(counts, self._dtype)
        if self.bucket_scale is not None:
            numbers = self.bucket_scale @ numbers
        return numbers.reshape(*numbers.shape[:2], -1)


def is_compiled(source: DataSource) -> bool:
    """Whether the kernel draws the source's sequences itself."""
    return source.independent or type(source).draw is PositionedClasses.draw


def bucket_probs(layout: CompactLayout) -> NDArray[np.float64]:
    """P_g(l|n) times the share of bucket g (K, G, W) at each class's own tokens; P(l|n) if there are no positions."""
    classes = layout.classes
    if not classes.num_buckets:
        return layout.support_probs[:, None]
    inside = np.arange(layout.support.shape[1]) < layout.size[:, None]
    index = np.broadcast_to(layout.support[:, None], (len(inside), classes.num_buckets, inside.shape[1]))
    return np.take_along_axis(classes.bucket_probs, index, axis=2) * inside[:, None]
