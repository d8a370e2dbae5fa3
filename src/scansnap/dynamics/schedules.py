"""Learning-rate schedules.

A schedule returns the factor that multiplies the learning rates, given the fraction of training completed (0 to 1).  It
depends on nothing else, so a run can resume anywhere: the update after k of n updates uses share(k/n) times the rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError
from scansnap.validation.registry import Registry


class Schedule(Protocol):
    """A learning-rate schedule: the factor on the rates, given the fraction of training completed (0 to 1).

    >>> class Halved:
    ...     def share(self, done: float) -> float:
    ...         return 1.0 if done < 0.5 else 0.5
    >>> ss.TextOptions(schedule=Halved()).schedule.share(0.7)
    0.5
    """

    def share(self, done: float) -> float:
        """The share of the rates to use when the fraction `done` of the run, from 0 to 1, is done."""
        ...


SCHEDULES: Registry[Schedule] = Registry("schedule", "share")
"""Every schedule by name.

>>> ss.SCHEDULES.member("linear").share(0.5)
0.5
"""


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant:
    """The full rates to the end."""

    def share(self, done: float) -> float:
        return 1.0


@SCHEDULES.register("linear")
@dataclass(frozen=True)
class Linear:
    """Rates that fall in a straight line from the full ones to the share `end`."""

    end: float = 0.0

    def share(self, done: float) -> float:
        return 1.0 - (1.0 - self.end) * done


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine:
    """Rates that fall to zero along half a wave of the cosine."""

    def share(self, done: float) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * done))


def rate_shares(schedule: str | Schedule, steps: int, done: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of the rates that an update uses, given how many of `steps` updates precede it."""
    member = SCHEDULES.member(schedule)
    if isinstance(member, Constant):
        return np.ones(len(done))
    shares = np.array([member.share(min(step / max(steps, 1), 1.0)) for step in done.tolist()], np.float64)
    if not (np.isfinite(shares) & (shares >= 0)).all():
        raise InputError(
            f"the schedule {SCHEDULES.label(schedule)} gives the share {shares.min()}: it must return a finite number "
            "from 0."
        )
    return shares
