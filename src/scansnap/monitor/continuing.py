"""Is the model that a store is continued with the one that it had?

The stored patterns tell.  Let d(a, b) be the mean of ½ Σ|p - p'| over the rows of the patterns at a and b, the share of
attention that differs.  Training goes on from the last look at about the pace that it had, so the model is another one
if d(last, now) is more than `PACE` times what moved between two of the `RECENT` looks before, for as many steps as have
passed; or if it is nearer to the first look than to the last, as models that begin anew are, with any seed.  After a
single look no pace is known: then the model is compared only at the same step.  A model with finite attention is not
the one whose attention was not finite.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.dataset import Look, split_looks

PACE = 3.0
"""Where induction heads form in the demonstration, the fastest change that was seen there, attention moves 2.6 times as
far from a look to the next as before.  A warning is all that depends on it."""

RECENT = 4

SAME = 0.01
"""Attention that differs by this share or less is the same up to rounding and what a machine does otherwise."""


def is_another(stored: xr.Dataset, now: Look) -> bool:
    """Whether the model that was looked at now is clearly not the one of the stored looks."""
    looks, _ = split_looks(stored)
    if now.pattern is None or "pattern" not in looks or not looks.sizes["step"]:
        return False
    if looks["status"].values[-1] == "partial" and not now.reason:
        return True
    steps = looks["step"].values[-RECENT:].tolist()
    patterns = looks["pattern"].isel(step=slice(-RECENT, None)).values
    distance = _moved(patterns[-1], now.pattern)
    if np.isnan(distance) or distance <= SAME:
        return False
    if len(steps) == 1:
        return now.step == steps[-1]
    pace = np.nanmax([0.0, *(_moved(a, b) for a, b in pairwise(patterns))])
    passed = max(1.0, (now.step - steps[-1]) / (steps[-1] - steps[-2]))
    from_first = _moved(looks["pattern"].isel(step=0).values, now.pattern)
    return bool(distance > SAME + PACE * pace * passed or from_first < distance)


def _moved(before: NDArray[np.float32], now: NDArray[np.float32]) -> float:
    """The share of attention that differs, over rows that both have (layer, head, row, key)."""
    difference = np.abs(now - before)
    in_both = np.isfinite(difference).any(-1)
    return float(0.5 * np.nansum(difference[in_both], -1).mean()) if in_both.any() else float("nan")
