"""What happened in a run, in a few numbers that a person or a program can read."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.results.measure import favored, favored_entropy, record_dimension, top_k_mass
from scansnap.results.story import Story, stories


def summarize(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """One entry per run: first and last loss, accuracy, entropy, where attention went, and when it scanned and snapped.

    `story` says the last in words; it is there if attention was recorded at least twice.
    """
    axis = record_dimension(dataset)
    ends = dataset.isel({axis: [0, -1]})
    if "attention" in dataset and "classes" in dataset.attrs:
        on_favored = ends["attention"].where(favored(ends), 0.0).sum("token", skipna=False)
        ends = ends.assign(favored=on_favored, favored_entropy=favored_entropy(ends))
    runs = [_run(ends.isel(run=r), axis) for r in range(dataset.sizes["run"])]
    if "attention" in dataset and dataset.sizes[axis] > 1:
        for facts, story in zip(runs, stories(dataset), strict=True):
            facts |= _told(story) if facts["status"] == "ok" else {}
    return runs


def _told(story: Story) -> dict[str, Any]:
    return {
        "scan_step": story.scan_step,
        "snap_step": story.snap_step,
        "snap_status": story.status,
        "moved_since": story.moved_since,
        "winners": [vars(winner) for winner in story.winners],
        "story": str(story),
    }


def _run(run: xr.Dataset, axis: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "run": int(run["run"]),
        "lr_y": float(run["lr_y"]),
        "lr_z": float(run["lr_z"]),
        "seed": int(run["seed"]),
        "status": str(run["status"].values),
    }
    if int(run.get("diverged_step", -1)) >= 0:
        facts["diverged_step"] = int(run["diverged_step"])
    for name in ("loss", "accuracy", "fresh_loss", "fresh_accuracy", "entropy", "favored_entropy", "favored"):
        if name in run:
            values = run[name].mean([d for d in run[name].dims if d != axis])
            facts[f"{name}_first"], facts[f"{name}_last"] = _ends(values)
    if "attention" in run:
        common = run["attention"].where(run["token_kind"] == "common", 0.0).sum("token", skipna=False)
        for name, values in (("common", common), ("top", top_k_mass(run, 1))):
            means = values.mean([d for d in values.dims if d != axis], skipna=False)
            facts[f"{name}_first"], facts[f"{name}_last"] = _ends(means)
    return facts


def _ends(values: xr.DataArray) -> tuple[float | None, float | None]:
    """The first and the last record; None for values that are not finite."""
    return tuple(float(v) if np.isfinite(v) else None for v in (values.values[0], values.values[-1]))  # type: ignore[return-value]
