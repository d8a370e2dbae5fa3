"""Which heads of two watched runs differ, from which step on, and in which quantity.

Runs are compared at the same steps, or at the same sums of learning rate times steps, the time in which gradient
descent moves.  Snapshots of the second run are interpolated to those of the first.  Two heads differ from the first
snapshot at which, as at every later one, a share of attention differs by more than a tolerance, or the largest logit by
more than that share of `EXPLODED_LOGIT`, the size at which logits count as exploded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.dataset import LEARNING_RATE, head_variables, split_missing
from scansnap.monitor.verdict_rules import EXPLODED_LOGIT
from scansnap.monitor.verdicts import LayerVerdict, by_kind, judge_heads
from scansnap.runtime.errors import InputError

COMPARISON_UNITS = {
    "normalized_entropy": 1.0,
    "top_1": 1.0,
    "first_token": 1.0,
    "previous_token": 1.0,
    "prefix_matching": 1.0,
    "learned_sink": 1.0,
    "largest_logit": EXPLODED_LOGIT,
}
"""Quantities that are compared, and the unit of each, so that one tolerance fits all."""


@dataclass(frozen=True)
class Difference:
    """A head, or all heads together, of which a quantity differs from a step of the first run on."""

    step: int
    where: str
    quantity: str
    first: float
    second: float

    def __str__(self) -> str:
        return f"{self.quantity} {self.first:,.2f} and {self.second:,.2f}"


def compare_runs(
    first: xr.Dataset, second: xr.Dataset, *, by_rate: bool = False, tolerance: float = 0.1
) -> tuple[str, list[Difference]]:
    """What is compared, in words; and the heads that differ, each with the quantities that show it first.

    Those that differ first come first.  Models with other layers or heads are compared by the mean, the largest and the
    smallest number of all heads.
    """
    runs = [split_missing(run)[0] for run in (first, second)]
    names = [name for name in COMPARISON_UNITS if all(name in head_variables(run) for run in runs)]
    if not names:
        raise InputError(
            f"the runs share no quantity that can be compared: record some of {', '.join(COMPARISON_UNITS)} in both."
        )
    times = [_times(run, by_rate) for run in runs]
    shared = (times[0] >= times[1][0]) & (times[0] <= times[1][-1])  # snapshots of the first that lie within the second
    if not shared.any():
        raise InputError("the runs have no time in common: compare runs that overlap.")
    found: list[Difference] = []
    for name in names:
        values = [_by_head(run, name, same=runs[0][name].shape[1:] == runs[1][name].shape[1:]) for run in runs]
        for where, ours in values[0].items():
            theirs = np.interp(times[0], times[1], values[1][where])
            differs = (
                ~(np.abs(ours - theirs) <= tolerance * COMPARISON_UNITS[name]) & np.isfinite(ours) & np.isfinite(theirs)
            )
            later = np.flatnonzero(shared & ~differs)
            begin = int(later[-1]) + 1 if len(later) else int(np.flatnonzero(shared)[0])
            if begin < len(shared) and shared[begin]:
                step = int(runs[0]["step"].values[begin])
                found.append(Difference(step, where, name, float(ours[begin]), float(theirs[begin])))
    steps = {difference.where: difference.step for difference in sorted(found, key=lambda d: -d.step)}  # the first ones
    found = [difference for difference in found if difference.step == steps[difference.where]]
    spans = [f"{r.attrs.get('model', '')}, steps {r['step'].values[0]:,} to {r['step'].values[-1]:,}" for r in runs]
    words = f"{spans[0]}, and {spans[1]}: compared at {shared.sum()} snapshots of the first in {', '.join(names)}"
    places = list(values[0])
    return words, sorted(found, key=lambda difference: (difference.step, places.index(difference.where)))


def describe_differences(differences: Sequence[Difference]) -> Iterator[str]:
    """One line for each head, or for all heads together, with the quantities that differ from the same step on."""
    for (step, where), alike in groupby(differences, lambda difference: (difference.step, difference.where)):
        yield f"step {step:,}: {where}: {'; '.join(map(str, alike))}"


def verdicts_of_one(first: xr.Dataset, second: xr.Dataset) -> str:
    """Which verdicts hold of the first run alone, by layer; of models of other sizes, which hold of no head there."""
    same = first.sizes["layer"] == second.sizes["layer"] and first.sizes["head"] == second.sizes["head"]
    theirs = {(v.name, v.layer, v.head) if same else v.name for v in judge_heads(second)}
    kinds: dict[str, list[str]] = {}
    for name, layers in by_kind(first).items():
        for layer in layers:
            heads = tuple(v for v in layer.heads if ((v.name, v.layer, v.head) if same else name) not in theirs)
            if heads:
                kinds.setdefault(name, []).append(LayerVerdict(heads, layer.of).where)
    return "; ".join(f"{name} ({'; '.join(places)})" for name, places in kinds.items()) or "none"


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
