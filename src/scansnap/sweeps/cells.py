"""The cells of a sweep: runs that differ in their seed alone, with mean and standard error."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.sweeps.grid import OPTION_AXES

KEYS = ("classes", *OPTION_AXES, "lr_z", "lr_y")


def cells(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """One entry per cell: what it is, how many runs finished, and the last loss and entropy over them."""
    keys = [name for name in KEYS if name in dataset.coords and dataset[name].dims == ("run",)]
    labels = list(zip(*(dataset[name].values.tolist() for name in keys), strict=True))
    status = dataset["status"].values
    last = {
        name: dataset[name].isel(step=-1).mean([d for d in dataset[name].dims if d not in ("run", "step")]).values
        for name in ("loss", "fresh_loss", "entropy")
        if name in dataset
    }
    members: dict[tuple[Any, ...], list[int]] = {}
    for i, label in enumerate(labels):
        members.setdefault(label, []).append(i)
    found = []
    for label, runs in members.items():
        ended = [i for i in runs if status[i] == "ok"]
        entry: dict[str, Any] = {**dict(zip(keys, label, strict=True)), "runs": len(runs), "ok": len(ended)}
        for name, values in last.items():
            entry[name] = float(values[ended].mean()) if len(ended) else None
            spread = values[ended].std(ddof=1) / np.sqrt(len(ended)) if len(ended) > 1 else np.nan
            entry[f"{name}_error"] = float(spread) if np.isfinite(spread) else None
        found.append(entry)
    return found
