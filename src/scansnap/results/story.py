"""What attention did in a run: when common tokens began to lose, who won, and when the pattern froze.

Common tokens *begin to lose* at the first record from which on their share of attention, averaged over classes, stays
`LOST` below its start.  The *winner* of a class is the token it attends to most at the end.  A run has *snapped* when
the last of its moving patterns has frozen (`snap.py`).  Patterns are those of each class, layer and head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from scansnap.results.measure import record_dimension, snaps

LOST = 0.01
NAMED = 3
"""The most winners that are named in a sentence."""


@dataclass(frozen=True)
class Winner:
    """The token that a class attends to most."""

    next_token: str
    token: str
    kind: str  # "distinct", "common" or what else the token is in the class
    share: float


@dataclass(frozen=True)
class Story:
    """What attention did in one run."""

    scan_step: float | None  # when common tokens began to lose; None if they did not
    common_first: float | None  # their share of attention; None if no token is common
    common_last: float | None
    winners: tuple[Winner, ...]  # of each class, in the first head of the last layer
    snap_step: float | None  # when the last pattern froze; None if one still moves or none has moved
    frozen: int
    patterns: int
    evidence: str  # of the last pattern that froze, or of one that has not
    unit: str  # "step" or "time"

    def __str__(self) -> str:
        return "; ".join([self._scan(), self._win(), self._snap()])

    def _scan(self) -> str:
        if self.common_first is None or self.common_last is None:
            return "no token is common to several next tokens"
        shares = f"{self.common_first:.0%} → {self.common_last:.0%} of attention"
        if self.scan_step is None:
            return f"common tokens did not lose ({shares})"
        return f"common tokens began to lose at {self.unit} {self.scan_step:,.6g} ({shares})"

    def _win(self) -> str:
        names = [
            f"token {winner.token} for next token {winner.next_token} ({winner.kind}, {winner.share:.0%})"
            for winner in self.winners[:NAMED]
        ]
        more = f" and {len(self.winners) - NAMED} more" if len(self.winners) > NAMED else ""
        return f"most attended: {', '.join(names)}{more}"

    def _snap(self) -> str:
        if self.snap_step is not None:
            return f"snapped at {self.unit} {self.snap_step:,.6g}"
        if self.frozen:
            return f"{self.frozen} of {self.patterns} patterns have snapped"
        return f"no snap ({self.evidence})"


def stories(dataset: xr.Dataset) -> list[Story]:
    """The story of each run of a result that recorded attention at least twice."""
    axis = record_dimension(dataset)
    patterns = snaps(dataset)
    return [_story(dataset.isel(run=r), patterns.isel(run=r), axis) for r in range(dataset.sizes["run"])]


def _story(run: xr.Dataset, patterns: xr.Dataset, axis: str) -> Story:
    is_common = run["token_kind"] == "common"
    common = run["attention"].where(is_common, 0.0).sum("token", skipna=False)
    share = common.mean([d for d in common.dims if d != axis]).values
    scan_step = None
    has_lost = share <= share[0] - LOST
    if has_lost[-1]:
        begin = len(share) - int(np.argmin(has_lost[::-1]))  # the record after the last that had not lost
        scan_step = float(run[axis].values[begin])
    status, step = patterns["snap_status"].values.ravel(), patterns["snap_step"].values.ravel()
    is_frozen = status == "frozen"
    has_snapped = bool(is_frozen.any()) and not bool((status == "not yet").any())
    evidence = patterns["evidence"].values.ravel()
    telling = int(np.argmax(np.where(is_frozen, step, -np.inf))) if has_snapped else int(np.argmin(is_frozen))
    return Story(
        scan_step,
        float(share[0]) if bool(is_common.any()) else None,
        float(share[-1]) if bool(is_common.any()) else None,
        _winners(run.isel({axis: -1, "layer": -1, "head": 0})),
        float(np.nanmax(step)) if has_snapped else None,
        int(is_frozen.sum()),
        len(status),
        str(evidence[telling]),
        axis,
    )


def _winners(last: xr.Dataset) -> tuple[Winner, ...]:
    attention = last["attention"].fillna(0.0).transpose("class", "token").values
    tokens = attention.argmax(1)
    kinds, names = last["token_kind"].values, last["token_name"].values
    return tuple(
        Winner(str(next_token), str(names[token]), str(kinds[token]), float(attention[n, token]))
        for n, (next_token, token) in enumerate(zip(last["next_token_name"].values, tokens, strict=True))
    )
