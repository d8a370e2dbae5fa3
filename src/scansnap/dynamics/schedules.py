"""Learning-rate schedules.

A schedule says which share of both rates an update uses.  It depends only on the fraction of the run that is done, so a
run can resume anywhere: the update after k of n updates moves parameters by share(k/n) of the optimizer's step at the
full rates.  Every optimizer's step is proportional to its rate (weight decay included), so this is the step at
share(k/n) times the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from scansnap.runtime.errors import InputError
from scansnap.validation.registry import Registry


class Schedule(Protocol):
    """The share of the learning rates over a run.

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


def rate_shares(schedule: str | Schedule, steps: int) -> Callable[[int], float | None]:
    """The share that an update uses, as a function of how many of `steps` updates precede it; None where always 1."""
    member = SCHEDULES.member(schedule)
    if isinstance(member, Constant):
        return lambda step: None

    def share_after(step: int) -> float:
        share = member.share(step / steps)
        if not 0.0 <= share < math.inf:
            raise InputError(
                f"the schedule {SCHEDULES.label(schedule)} gives the share {share} after {step:,} of {steps:,} "
                "updates: it must return a finite number from 0."
            )
        return float(share)

    return share_after
