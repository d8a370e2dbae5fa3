"""The cells of a sweep: runs that differ only in their seed, with mean and standard error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import xarray as xr

from scansnap.results.measure import favored_entropy

MEASURED = ("loss", "fresh_loss", "entropy", "favored_entropy")


def cells(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """One entry per cell: what it is, how many runs finished, and the last loss and entropy over them; None for none.

    Where a class has no distinct token, `favored_entropy` is there if attention was recorded.
    """
    if {"entropy", "attention"} <= set(dataset) and bool(dataset["entropy"].isnull().all()):
        dataset = dataset.assign(favored_entropy=favored_entropy(dataset))
    record = "time" if "time" in dataset.dims else "step"
    axes = [str(axis) for axis in dataset["status"].dims if axis != "seed"]
    last = {
        name: dataset[name]
        .isel({record: -1})
        .mean([d for d in dataset[name].dims if d not in (*axes, "seed", record)])
        .transpose(*axes, "seed")
        for name in MEASURED
        if name in dataset
    }
    ok = (dataset["status"] == "ok").transpose(*axes, "seed").values
    labels = {axis: dataset[axis].values.tolist() for axis in axes}
    table = []
    for place in itertools.product(*(range(dataset.sizes[axis]) for axis in axes)):
        cell = dict(zip(axes, place, strict=True))
        entry: dict[str, Any] = {axis: labels[axis][i] for axis, i in cell.items()}
        if "lr_y" not in entry:
            entry["lr_y"] = float(dataset["lr_y"].isel({a: i for a, i in cell.items() if a in dataset["lr_y"].dims}))
        ended = ok[place]
        entry |= {"runs": len(ended), "ok": int(ended.sum())}
        for name, values in last.items():
            numbers = values.values[place][ended]
            entry[name] = float(numbers.mean()) if len(numbers) and np.isfinite(numbers).all() else None
            spread = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else np.nan
            entry[f"{name}_error"] = float(spread) if np.isfinite(spread) else None
        table.append(entry)
    return table
