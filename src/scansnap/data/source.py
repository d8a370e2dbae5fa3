"""Where sequences come from: sequence classes, and how sequences are drawn from them.

The dynamics need two things from their data: the classes, whose P(l|n) are the limit of long sequences, and the token
counts of the sequences of each update.  `SequenceClasses` draws contextual tokens independently of each other;
`PositionedClasses` draws each position from a distribution of its own; a user's source may draw sequences in any other
way.

`Batches` are the sequences of updates: fresh ones, those of a fixed set, or every class with its probability.  They
depend on the seed and the number of the update alone, and both engines take them from here, so they learn from the
same sequences.  Finite data (Section 9): a run's fixed set is the first N sequences of its seed.  A batch takes
sequences from it at random, with replacement; without a batch size every update uses the whole set.
"""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError
from scansnap.validation.user_code import code_digest, identified, is_own

if TYPE_CHECKING:
    from scansnap.data.sequence_classes import SequenceClasses


COMPARED_STEPS = 4
"""Updates whose sequences tell whether a source repeats itself."""


@dataclass(frozen=True)
class Draw:
    """The sequences of one update of R runs, B for each run.

    >>> draw = ss.syn_small().draw(seeds=np.array([0]), step=0, num_sequences=4, length=7)
    >>> draw.class_index.shape, draw.counts.shape
    ((1, 4), (1, 4, 20))
    """

    class_index: NDArray[np.int64]  # (R, B) the class of each sequence
    counts: NDArray[np.integer]  # (R, B, W), or (R, B, G, W) by bucket of positions: how often each token occurs, in
    # the order of `classes.support`, 0 from the class's last token on; W is the size of the largest class

    @classmethod
    def stacked(cls, draws: Sequence[Draw]) -> Draw:
        """Draws one after another along the first axis."""
        return cls(*(np.concatenate([getattr(draw, name) for draw in draws]) for name in ("class_index", "counts")))


def check_draw(draw: object, source: DataSource, *, runs: int, num_sequences: int | None, length: int) -> Draw:
    """The draw, if it is what was asked of the source."""
    name = f"{type(source).__name__}.draw"
    if not isinstance(draw, Draw):
        raise InputError(f"{name} gave {type(draw).__name__}: give a Draw(class_index, counts).")
    classes, index, counts = source.classes, np.asarray(draw.class_index), np.asarray(draw.counts)
    asked = (runs, num_sequences or classes.num_classes)
    widest = int(np.diff(classes.offsets).max())
    numbers = (*asked, classes.num_buckets, widest) if classes.num_buckets else (*asked, widest)
    if index.shape != asked or counts.shape != numbers:
        raise InputError(
            f"{name} gave class_index {index.shape} and counts {counts.shape}: give {asked} and {numbers}."
        )
    if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= classes.num_classes:
        raise InputError(
            f"{name} gave a class that does not exist: classes are whole numbers from 0 to {classes.num_classes - 1}."
        )
    if length and not ((counts >= 0).all() and (counts.reshape(*asked, -1).sum(-1) > 0).all()):
        raise InputError(
            f"{name} gave a sequence without tokens, or a count below 0: count at least one token in each."
        )
    return Draw(index, counts)


class DataSource(ABC):
    """A source of training sequences.  Subclass it for data that are not drawn token by token from P(l|n).

    A source must give the same sequences for the same seed and step in every call: then runs can be batched,
    interrupted and resumed without changing a number.

    >>> source: ss.DataSource = ss.syn_small()
    >>> source.draw(seeds=np.array([0]), step=0, num_sequences=2, length=7).counts.sum(-1)
    array([[7, 7]])
    """

    in_a_sentence: ClassVar[str] = "classes or other data"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "draw" in vars(cls) and "draw_steps" not in vars(cls):
            cls.draw_steps = DataSource.draw_steps  # type: ignore[method-assign]  # else the new `draw` is not called

    @property
    @abstractmethod
    def classes(self) -> SequenceClasses:
        """The sequence classes; their P(l|n) replace the counts if seq_len is infinite."""

    @abstractmethod
    def draw(self, *, seeds: NDArray[np.uint64], step: int, num_sequences: int | None, length: int) -> Draw:
        """The sequences of update `step`, for the run of each seed.

        Each run gets `num_sequences` sequences, or one of each class if that is None.  A sequence has `length`
        contextual tokens; if `length` is 0, counts are not read.  Updates are numbered from 0; sequences that no
        update sees have a negative step.
        """

    def draw_steps(self, seed: int, first_step: int, num_steps: int, num_sequences: int | None, length: int) -> Draw:
        """The sequences of several updates of one seed, along the first axis: one checked `draw` for each."""
        seeds = np.array([seed], np.uint64)
        draws = [
            check_draw(
                self.draw(seeds=seeds, step=step, num_sequences=num_sequences, length=length),
                self,
                runs=1,
                num_sequences=num_sequences,
                length=length,
            )
            for step in range(first_step, first_step + num_steps)
        ]
        return Draw.stacked(draws)

    def check_repeats(self, seeds: Iterable[int], num_sequences: int | None, length: int) -> None:
        """Refuse a user's own source that gives other sequences when asked again for the same seed and step.

        A source that gives two seeds the same sequences draws a warning: it may be a fixed set, or ignore its seed.
        """
        if not is_own(self):
            return
        first, *more = sorted(set(map(int, seeds)))[:2]
        draws = [self.draw_steps(seed, 0, COMPARED_STEPS, num_sequences, length) for seed in (first, first, *more)]
        is_same = [
            np.array_equal(draw.class_index, draws[0].class_index)
            and (length == 0 or np.array_equal(draw.counts, draws[0].counts))
            for draw in draws[1:]
        ]
        name = type(self).__name__
        if not is_same[0]:
            raise InputError(
                f"{name} gave two different draws for the same seed and step: draw random numbers from "
                "np.random.default_rng([seed, step])."
            )
        if length and any(is_same[1:]):  # without counts, seeds may have the same classes by chance
            warnings.warn(
                f"{name} gives the seeds {first} and {more[0]} the same sequences: unless that is intended, draw "
                "random numbers from np.random.default_rng([seed, step]).",
                stacklevel=2,
            )

    def check_length(self, seq_len: float) -> None:  # noqa: B027  (most sources take any)
        """Refuse a sequence length T that the source cannot give; by default any length is accepted."""

    def sample_sequences(self, *, num: int, length: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`num` sequences with the query last (num x length + 1), and the class of each (num)."""
        raise InputError(f"{type(self).__name__} gives token counts, not sequences: use sample_counts.")

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that are equal for equal sources."""
        settings = {
            name: identified(value)
            for name, value in vars(self).items()
            if not isinstance(getattr(type(self), name, None), cached_property)
        }
        code = code_digest(type(self)) if is_own(self) else ""
        described = f"{type(self).__qualname__} {sorted(settings.items())} {self.classes.fingerprint}{code}"
        return hashlib.sha256(described.encode()).hexdigest()[:16]


# --- batches ---------------------------------------------------------------------------------------------------------

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
            from scansnap.data.sampling import CHOICE_STREAM, choose

            chosen = np.empty((num_steps, self.batch_size), np.int64)
            choose(np.uint64(seed), CHOICE_STREAM + first_step, whole.class_index.shape[1], chosen)
        return Draw(whole.class_index[0, chosen], whole.counts[0, chosen])
