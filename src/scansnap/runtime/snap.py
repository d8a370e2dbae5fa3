"""When a pattern of attention snaps.

Attention is c_n (Eq. 5): non-negative, summing to one over the tokens of a class.  The laboratory and the watch detect
its snaps with these functions of arrays; `results/measure.py` applies them to labeled results.

Between records i - 1 and i a share m_i of the attention moves; r_i = m_i/(steps between) is its rate.  A pattern has
*slowed* at record i if it moved at a peak rate before and every rate after i is at most `QUIET_RATE` of that peak, for
at least `MIN_QUIET_RECORDS` records that cover at least `MIN_QUIET_SHARE` of the steps: one quiet record is not
evidence.  A pattern that moved less than `MIN_MOVEMENT` in all has hardly moved, so it has not slowed.

Small rates add up in long runs: a pattern that moves slowly on, or back to where it came from, has not frozen.  So
where the patterns c_j themselves are known, two distances are compared.  `until` is the largest distance from the start
up to the snap, and `since` the largest distance from the snap afterwards:

    until = max over j <= i of |c_j - c_0|/2,   since = max over j >= i of |c_j - c_i|/2   (|.| the l1 norm).

It is *frozen*, or has snapped, if since <= `MAX_LATER_MOVEMENT` until.  The limit lies between what stops and what does
not.  A rate that declines exponentially from its peak leaves 0.1/0.9 = 0.11 of the movement for after it is at a tenth.
One that declines like 1/t never stops: with the peak at t = 1 the movement is 1 + ln 10 = 3.3 up to the snap at t = 10
and ln(T/10) from there to T, so it is beyond the limit before the run is twice as long as it took to slow.  Where only
the m_i are known (text, and watched models), back-and-forth movement cannot be distinguished from steady movement: the
distances are NaN, and a pattern that has slowed is called frozen.

`late_share` puts a number to the rate: the largest one over the last fifth of the steps as a share of the peak, which
is at most `QUIET_RATE` exactly for the patterns that have slowed, if they moved at all.

Attention that hops moves as far in a few steps as in many, so its rate over a short interval seems high.  The last
record is left out of the rates if it came early: if its interval is less than half of the interval before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError

Floats = NDArray[np.float64]

QUIET_RATE = 0.1
MIN_QUIET_RECORDS = 3
MIN_QUIET_SHARE = 0.2
MIN_MOVEMENT = 0.05
MAX_LATER_MOVEMENT = 0.2


@dataclass(frozen=True)
class Snap:
    """When a pattern slowed, with the evidence; `step` is None if it has not."""

    step: float | None
    status: str  # "frozen", "slowed" (it did not stay), "not yet", "hardly moved" or "too short"
    peak_rate: float  # share of attention moved per step
    peak_step: float
    later_rate: float  # the largest rate after `step`, or the last one
    later_records: int  # quiet records: after `step`, or at the end
    later_share: float = 0.0  # of the steps, that they cover
    until: float = float("nan")  # share of attention that moved from the start to the snap
    since: float = float("nan")  # and from the snap on

    def __str__(self) -> str:
        peak = f"attention moved fastest around step {self.peak_step:,.6g}, at {self.peak_rate:.2g} per step"
        share = self.later_rate / self.peak_rate if self.peak_rate else 0.0
        if self.step is not None:
            moved = (
                "" if np.isnan(self.since) else f"; {self.since:.1%} of it moved after that, {self.until:.1%} before"
            )
            later = f"over the next {self.later_records} records it moved at most {share:.0%} as fast"
            return f"{self.status} at step {self.step:,.6g}: {peak}; {later}{moved}"
        if self.status == "not yet":
            return f"not yet: {peak}; {self._missing(share)}"
        return {
            "hardly moved": f"hardly moved: less than {MIN_MOVEMENT:.0%} of attention in all; {peak}",
            "too short": (
                f"too short to tell: {self.later_records} changes were recorded; a snap needs {MIN_QUIET_RECORDS + 1}"
            ),
        }[self.status]

    def _missing(self, share: float) -> str:
        """The condition of a snap that is not met."""
        if not self.later_records:
            return f"at the end it still moves {share:.0%} as fast; a snap needs at most {QUIET_RATE:.0%}"
        if self.later_records < MIN_QUIET_RECORDS:
            last = "record" if self.later_records == 1 else f"{self.later_records} records"
            return (
                f"it moved at most {QUIET_RATE:.0%} as fast for the last {last} only; a snap needs {MIN_QUIET_RECORDS}"
            )
        covered = f"the last {self.later_share:.0%} of the steps only; a snap needs {MIN_QUIET_SHARE:.0%}"
        return f"it moved at most {QUIET_RATE:.0%} as fast over {covered}"


def _intervals(steps: ArrayLike, moved: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """What moved in each interval that counts, its length and its end."""
    s, m = np.asarray(steps, np.float64), np.asarray(moved, np.float64)
    if s.ndim != 1 or s.shape != m.shape or not (np.diff(s) > 0).all():
        raise InputError(f"steps has shape {s.shape} and moved {m.shape}: give one increasing step for each number.")
    m, gaps = m[1:], np.diff(s)
    known = np.isfinite(m)  # a diverged run has no more records
    m, gaps, ends = m[known], gaps[known], s[1:][known]
    if len(m) > 1 and gaps[-1] < gaps[-2] / 2:
        m, gaps, ends = m[:-1], gaps[:-1], ends[:-1]
    return m, gaps, ends


def late_share(steps: ArrayLike, moved: ArrayLike) -> float:
    """The largest rate over the last fifth of the steps, as a share of the peak; NaN for too few records."""
    m, gaps, ends = _intervals(steps, moved)
    if len(m) <= MIN_QUIET_RECORDS:
        return float("nan")
    rates = m / gaps
    start = float(np.asarray(steps, np.float64)[0])
    late = ends > ends[-1] - MIN_QUIET_SHARE * (ends[-1] - start)
    late[-MIN_QUIET_RECORDS:] = True
    return float(rates[late].max() / rates.max()) if rates.max() else 0.0


def find_snap(steps: ArrayLike, moved: ArrayLike, patterns: ArrayLike | None = None) -> Snap:
    """The snap of a pattern whose share moved[i] moved between steps[i - 1] and steps[i]; moved[0] is not read.

    `patterns` are the patterns at the steps (records x tokens), if they are known.
    """
    s = np.asarray(steps, np.float64)
    m, gaps, ends = _intervals(steps, moved)
    if len(m) <= MIN_QUIET_RECORDS:
        return Snap(None, "too short", float("nan"), 0, float("nan"), len(m))
    rates = m / gaps
    peak = int(rates.argmax())
    top, last = float(rates[peak]), float(rates[-1])
    if m.sum() < MIN_MOVEMENT:
        return Snap(None, "hardly moved", top, float(ends[peak]), last, 0)
    fast = int(np.flatnonzero(rates > QUIET_RATE * top)[-1])  # the last record that is not quiet
    after = len(rates) - 1 - fast
    covered = float((ends[-1] - ends[fast]) / (ends[-1] - s[0]))
    if after < MIN_QUIET_RECORDS or covered < MIN_QUIET_SHARE:
        return Snap(None, "not yet", top, float(ends[peak]), last, after, covered)
    until = since = float("nan")
    if patterns is not None:
        until, since = _distances(np.asarray(patterns, np.float64), int(np.searchsorted(s, ends[fast])))
    status = "slowed" if since > MAX_LATER_MOVEMENT * until else "frozen"
    later = float(rates[fast + 1 :].max())
    return Snap(float(ends[fast]), status, top, float(ends[peak]), later, after, covered, until, since)


def _distances(patterns: Floats, snap: int) -> tuple[float, float]:
    """How far a pattern got from its start up to the snap, and from the snap afterwards."""
    until = np.abs(patterns[: snap + 1] - patterns[0]).sum(-1)
    since = np.abs(patterns[snap:] - patterns[snap]).sum(-1)
    return float(until.max()) / 2, float(np.nanmax(since)) / 2  # a diverged run has no more patterns
