"""Where two watched runs part: which heads differ first, and in what.

Runs are set beside each other at the same steps, or at the same sums of learning rate times steps, the time in which
gradient descent moves.  Snapshots of the second run are interpolated to those of the first.  Two heads differ from the
first snapshot on after which a share of attention differs by more than a tolerance at every later one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.dataset import LEARNING_RATE, head_variables, split_missing
from scansnap.runtime.errors import InputError

SHARES = ("normalized_entropy", "top_1", "first_token", "previous_token", "prefix_matching", "learned_sink")
"""Quantities between 0 and 1, so that one tolerance fits all."""


@dataclass(frozen=True)
class Difference:
    """A head, or all heads together, of which a quantity differs from a step of the first run on."""

    step: int
    where: str
    quantity: str
    first: float
    second: float

    def __str__(self) -> str:
        return f"step {self.step:,}: {self.where}: {self.quantity} {self.first:.2f} and {self.second:.2f}"


def compare_runs(
    first: xr.Dataset, second: xr.Dataset, *, by_rate: bool = False, tolerance: float = 0.1
) -> tuple[str, list[Difference]]:
    """What is compared, in words; and the heads that differ, each with the quantity that shows it first.

    Those that differ first come first.  Models with other layers or heads are compared by the mean, the largest and the
    smallest number of all heads.
    """
    runs = [split_missing(run)[0] for run in (first, second)]
    names = [name for name in SHARES if all(name in head_variables(run) for run in runs)]
    if not names:
        raise InputError(
            f"the runs share no quantity that can be compared: record some of {', '.join(SHARES)} in both."
        )
    times = [_times(run, by_rate) for run in runs]
    shared = (times[0] >= times[1][0]) & (times[0] <= times[1][-1])  # snapshots of the first that lie within the second
    if not shared.any():
        raise InputError("the runs have no time in common: compare runs that overlap.")
    found: dict[str, Difference] = {}
    for name in names:
        values = [_by_head(run, name, same=runs[0][name].shape[1:] == runs[1][name].shape[1:]) for run in runs]
        for where, ours in values[0].items():
            theirs = np.interp(times[0], times[1], values[1][where])
            differs = ~(np.abs(ours - theirs) <= tolerance) & np.isfinite(ours) & np.isfinite(theirs)
            later = np.flatnonzero(shared & ~differs)
            begin = int(later[-1]) + 1 if len(later) else int(np.flatnonzero(shared)[0])
            if begin < len(shared) and shared[begin]:
                step = int(runs[0]["step"].values[begin])
                difference = Difference(step, where, name, float(ours[begin]), float(theirs[begin]))
                found[where] = min(found.get(where, difference), difference, key=lambda d: d.step)
    spans = [f"{r.attrs.get('model', '')}, steps {r['step'].values[0]:,} to {r['step'].values[-1]:,}" for r in runs]
    words = f"{spans[0]}, and {spans[1]}: compared at {shared.sum()} snapshots of the first in {', '.join(names)}"
    return words, sorted(found.values(), key=lambda difference: difference.step)


def _times(run: xr.Dataset, by_rate: bool) -> NDArray[np.float64]:
    """Steps, or sums of learning rate times steps, of the snapshots."""
    steps = run["step"].values.astype(np.float64)
    if not len(steps):
        raise InputError("a run has no snapshots: give one that has.")
    if not by_rate:
        return steps
    rates = run[LEARNING_RATE].values if LEARNING_RATE in run else np.full(len(steps), np.nan)
    if not np.isfinite(rates).all():
        raise InputError("a run has no learning rates: watch it with optimizer=..., or compare by step.")
    return np.concatenate([[0.0], np.cumsum(np.diff(steps) * rates[1:])])


def _by_head(run: xr.Dataset, name: str, *, same: bool) -> dict[str, NDArray[np.float64]]:
    """The history of each head, or of the mean, the largest and the smallest of all, by what it is called."""
    values = run[name].values
    if same:
        return {f"layer {layer}, head {head}": values[:, layer, head] for layer, head in np.ndindex(*values.shape[1:])}
    flat = values.reshape(len(values), -1)
    measured = np.where(np.isfinite(flat).any(1, keepdims=True), flat, 0.0)
    return {
        f"{word} of all heads": reduce(measured, 1)
        for word, reduce in (("mean", np.nanmean), ("largest", np.nanmax), ("smallest", np.nanmin))
    }
