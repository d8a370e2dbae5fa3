"""Sequence classes whose tokens depend on where in the sequence they are.

Positions before the query are counted from it: distance 1 is next to it.  They fall into buckets, nearest first, as in
T5's relative positions; bucket g holds `sizes[g]` positions, and a token there is drawn from P_g(l|n).  Buckets of one
position each let the distribution depend on every distance.

To whom it does not matter where a token is, such classes are the mixture P(l|n) = sum_g sizes[g] P_g(l|n) / (T-1),
which is what they are as `SequenceClasses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.base.errors import InputError
from scansnap.data.sequence_classes import FloatArray, IntArray, SequenceClasses
from scansnap.data.synthetic import synthetic


@dataclass(frozen=True, init=False, eq=False, repr=False)
class PositionedClasses(SequenceClasses):
    """Sequence classes with a distribution for each bucket of positions; made by `from_parts`."""

    sizes: IntArray  # (G,) positions in each bucket, nearest the query first
    part_probs: FloatArray  # (entries of `tokens`, G) P_g(l|n)

    @classmethod
    def from_parts(cls, *, sizes: ArrayLike, parts: Sequence[SequenceClasses]) -> PositionedClasses:
        """Classes that are `parts[g]` at the positions of bucket g; the parts differ in their probabilities alone."""
        counts = np.asarray(sizes)
        if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer) or (counts < 1).any() or not counts.size:
            raise InputError(f"sizes is {sizes!r}: give the number of positions in each bucket, at least 1 each.")
        if len(parts) != len(counts):
            raise InputError(f"there are {len(counts)} sizes but {len(parts)} parts: give one for each bucket.")
        first = parts[0]
        for i, part in enumerate(parts):
            for name in ("query", "next_token", "weights", "vocab_size"):
                if not np.array_equal(getattr(part, name), getattr(first, name)):
                    raise InputError(f"part {i} differs from part 0 in {name}: only probabilities may differ.")
        share = counts / counts.sum()
        dense = [np.stack([part.probs[n] for part in parts], 1) for n in range(first.num_classes)]  # (M, G) each
        tokens = [np.flatnonzero(one.sum(1)) for one in dense]
        classes = cls.__new__(cls)
        classes._fill(
            tokens, [one[ids] @ share for one, ids in zip(dense, tokens, strict=True)], first.query, first.next_token,
            first.vocab_size, first.weights, first.token_names,
        )  # fmt: skip
        own = {"sizes": counts.astype(np.int64),
               "part_probs": np.concatenate([one[ids] for one, ids in zip(dense, tokens, strict=True)])}  # fmt: skip
        for name, array in own.items():
            array.flags.writeable = False
            object.__setattr__(classes, name, array)
        return classes

    @property
    def num_buckets(self) -> int:
        """G."""
        return len(self.sizes)

    def _identity(self) -> Iterable[NDArray[Any]]:
        return (*super()._identity(), self.sizes, self.part_probs)


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
    """
    if isinstance(num_positions, bool) or not isinstance(num_positions, int | np.integer) or num_positions < 1:
        raise InputError(f"num_positions is {num_positions!r}: give a whole number of at least 1.")
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
            mine = np.isin(same.support(i), common)
            rows.append(np.where(mine, (1 - share) * p / p[mine].sum(), share * p / p[~mine].sum()))
        parts.append(
            SequenceClasses.from_supports(
                tokens=[same.support(i) for i in range(same.num_classes)], probs=rows, query=same.query,
                next_token=same.next_token, vocab_size=same.vocab_size,
            )
        )  # fmt: skip
    return PositionedClasses.from_parts(sizes=np.ones(num_positions, np.int64), parts=parts)
