"""A summary of a text run in a few numbers, for people and programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from scansnap.results.measure import snaps


def summarize_text(dataset: xr.Dataset) -> dict[str, Any]:
    """The status, the last losses, and for each head its entropy at both ends and whether its pattern froze."""
    run = dataset.isel(run=0)
    recorded = np.flatnonzero(np.isfinite(run["entropy"].values).all((1, 2)))
    last = int(recorded[-1]) if len(recorded) else 0
    valid = _last(run["valid_loss"].values)
    head_snaps = snaps(dataset).isel(run=0)
    heads = [
        {
            "layer": layer,
            "head": head,
            **{
                f"{name}_{end}": _number(run[name].values[record, layer, head])
                for name in ("entropy", "normalized_entropy", "top_1")
                for end, record in (("first", 0), ("last", last))
            },
            "snap_step": _number(head_snaps["snap_step"].values[layer, head]),
            "snap": str(head_snaps["evidence"].values[layer, head]),
        }
        for layer in range(dataset.sizes["layer"])
        for head in range(dataset.sizes["head"])
    ]
    return {
        "status": str(run["status"].values),
        "diverged_step": int(run["diverged_step"].values),
        "step": int(run["step"].values[last]),
        "loss": _last(run["loss"].values),
        "valid_loss": valid,
        "valid_perplexity": None if valid is None else math.exp(min(valid, 700.0)),
        "heads": heads,
    }


def _last(values: Any) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
