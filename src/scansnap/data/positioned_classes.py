"""Sequence classes whose tokens depend on their position in the sequence.

Positions are counted backward from the query: distance 1 is next to it.  They fall into buckets, nearest first, as in
T5's relative positions; bucket g holds `sizes[g]` positions, and a token there is drawn from P_g(l|n).  Buckets of one
position each let the distribution depend on every distance.

Where positions do not matter, such classes are the mixture P(l|n) = sum_g sizes[g] P_g(l|n) / (T-1), their
probabilities as `SequenceClasses`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import FloatArray, IntArray, SequenceClasses
from scansnap.data.source import Draw
from scansnap.data.synthetic import synthetic
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation import checks
from scansnap.validation.argument_types import Ids
from scansnap.validation.validate import validated

MOST_POSITIONS = 10_000
"""The longest sequence of which every position has a distribution of its own."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class PositionedClasses(SequenceClasses):
    """Sequence classes with a distribution for each bucket of positions; made by `from_parts`.

    >>> classes = ss.near_distinct(num_positions=4)
    >>> classes.position_counts
    array([1, 1, 1, 1])
    """

    position_counts: IntArray  # (G,) positions in each bucket, nearest the query first
    part_probs: FloatArray  # (entries of `tokens`, G) P_g(l|n)

    @classmethod
    @validated
    def from_parts(cls, *, sizes: Ids, parts: Sequence[SequenceClasses]) -> PositionedClasses:
        """Classes that are `parts[g]` at the positions of bucket g; the parts differ only in their probabilities."""
        counts = checks.ids("sizes", sizes)
        if counts.ndim != 1 or (counts < 1).any() or not counts.size:
            raise InputError(
                f"sizes is {short_repr(sizes)}: give the number of positions in each bucket, at least 1 each."
            )
        if len(parts) != len(counts):
            raise InputError(f"there are {len(counts)} sizes but {len(parts)} parts: give one for each bucket.")
        first = parts[0]
        for i, part in enumerate(parts):
            for name in ("query", "next_token", "weights", "vocab_size"):
                if not np.array_equal(getattr(part, name), getattr(first, name)):
                    raise InputError(f"part {i} differs from part 0 in {name}: only probabilities may differ.")
        share = counts / counts.sum()
        dense = [np.stack([part.probs[n] for part in parts], 1) for n in range(first.num_classes)]  # (M, G) each
        tokens = [np.flatnonzero(probs.sum(1)) for probs in dense]
        classes = cls.__new__(cls)
        classes._fill(
            tokens,
            [probs[ids] @ share for probs, ids in zip(dense, tokens, strict=True)],
            first.query,
            first.next_token,
            first.vocab_size,
            first.weights,
            first.token_names,
        )
        part_probs = np.concatenate([probs[ids] for probs, ids in zip(dense, tokens, strict=True)])
        for name, array in (("position_counts", counts.astype(np.int64)), ("part_probs", part_probs)):
            array.flags.writeable = False
            object.__setattr__(classes, name, array)
        return classes

    @property
    def num_buckets(self) -> int:
        return len(self.position_counts)

    @property
    def sizes(self) -> IntArray:
        return self.position_counts

    @property
    def bucket_probs(self) -> FloatArray:
        tokens = self.contextual_tokens
        probs = np.zeros((self.num_classes, self.num_buckets, len(tokens)))
        share = self.sizes / self.sizes.sum()
        for n in range(self.num_classes):
            columns = np.searchsorted(tokens, self.support(n))
            probs[n][:, columns] = share[:, None] * self._parts_of(n).T
        return probs

    def listed_probs(self, index: int) -> list[float] | list[list[float]]:
        return self._parts_of(index).T.tolist()

    def _parts_of(self, index: int) -> FloatArray:
        """P_g(l|n) of the tokens of a class (W, G)."""
        return self.part_probs[self.offsets[index] : self.offsets[index + 1]]

    def _counted(self, seed: int, first_step: int, num_steps: int, num_sequences: int | None, length: int) -> Draw:
        """Token counts by bucket of positions."""
        from scansnap.data.sampling import draw_positioned

        if num_sequences is None:
            raise InputError(
                "batch_size is None and tokens depend on their position: give a batch size, or seq_len=math.inf."
            )
        return draw_positioned(self, seed, first_step, num_steps, num_sequences)

    def check_length(self, seq_len: float) -> None:
        own = int(self.sizes.sum()) + 1
        if seq_len not in (own, math.inf):
            raise InputError(
                f"seq_len is {seq_len} but these classes have {own - 1} positions: give {own}, or math.inf."
            )

    def sample_sequences(self, *, num: int, length: int, seed: int) -> tuple[IntArray, IntArray]:
        from scansnap.data.sampling import positioned_sequences

        self.check_length(length + 1)
        return positioned_sequences(self, num, seed)

    def _identity(self) -> Iterable[NDArray[Any]]:
        return (*super()._identity(), self.sizes, self.part_probs)


@validated
def near_distinct(
    *,
    num_positions: int = 16,
    num_query: int = 1,
    next_per_query: int = 2,
    num_common: int = 10,
    num_distinct: int = 5,
    near: float = 0.5,
    decay: float = 0.7,
) -> PositionedClasses:
    """Distinct tokens close to the query: their share is `near` next to it and falls by `decay` per position.

    Common and distinct tokens are those of `synthetic`, each kind's probabilities in proportion.  Every position is a
    bucket.

    >>> ss.near_distinct(num_positions=4).num_buckets
    4
    """
    checks.integer("num_positions", num_positions, least=1, most=MOST_POSITIONS)
    if not (0 < near < 1 and 0 < decay <= 1):
        raise InputError(f"near is {near} and decay {decay}: give a share between 0 and 1, and a factor of at most 1.")
    same = synthetic(
        num_query=num_query, next_per_query=next_per_query, num_common=num_common, num_distinct=num_distinct
    )
    common = np.arange(num_common)
    parts = []
    for distance in range(num_positions):
        share = near * decay**distance
        rows = []
        for i in range(same.num_classes):
            p = same.support_probs(i)
            shared = np.isin(same.support(i), common)
            rows.append(np.where(shared, (1 - share) * p / p[shared].sum(), share * p / p[~shared].sum()))
        parts.append(
            SequenceClasses.from_supports(
                tokens=[same.support(i) for i in range(same.num_classes)],
                probs=rows,
                query=same.query,
                next_token=same.next_token,
                vocab_size=same.vocab_size,
            )
        )
    return PositionedClasses.from_parts(sizes=np.ones(num_positions, np.int64), parts=parts)
