"""The labeled form of a text training run.

Dimensions are among run, step, layer, head, window, query_position and key_position.  `window` runs over a few fixed
windows of the validation split, whose words are the coordinate `word`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.results.dataset import attributes
from scansnap.results.store import Variable

HEADS = ("run", "step", "layer", "head")
DIMENSIONS = {
    "loss": HEADS[:2],
    "valid_loss": HEADS[:2],
    **dict.fromkeys(("entropy", "normalized_entropy", "top_1", "top_5", "moved"), HEADS),
    "pattern": (*HEADS, "window", "query_position", "key_position"),
}
"""The dimensions of every variable."""

ATTRIBUTES = {
    "loss": {"long_name": "cross-entropy, mean over the updates since the last record", "units": "nats"},
    "valid_loss": {"long_name": "cross-entropy over the validation split, where it was measured", "units": "nats"},
    "entropy": {
        "long_name": "entropy of attention, mean over the measured windows of the validation split",
        "units": "nats",
    },
    "normalized_entropy": {
        "long_name": "entropy of attention relative to the largest that its row allows",
        "units": "1",
    },
    "top_1": {"long_name": "largest attention weight, mean over rows of more than one key", "units": "1"},
    "top_5": {
        "long_name": "sum of the five largest attention weights, mean over rows of more than five keys",
        "units": "1",
    },
    "moved": {"long_name": "share of attention that moved since the last record", "units": "1"},
    "pattern": {"long_name": "attention on fixed windows of the validation split", "units": "1"},
}


def sizes(records: int, layers: int, heads: int, patterns: int, window: int) -> dict[str, int]:
    """The size of each dimension."""
    return {
        "run": 1, "step": records, "layer": layers, "head": heads, "window": patterns,
        "query_position": window, "key_position": window,
    }  # fmt: skip


def variables(size: Mapping[str, int]) -> dict[str, Variable]:
    """Every variable as a store creates it."""
    return {
        name: Variable(
            dims,
            shape := tuple(size[d] for d in dims),
            np.dtype("float32" if name == "pattern" else "float64"),
            (1, max(1, min(shape[1], 64)), *(max(1, s) for s in shape[2:])),
            ATTRIBUTES[name],
        )
        for name, dims in DIMENSIONS.items()
        if name != "pattern" or size["window"]
    }


def template(
    steps: NDArray[np.int64],
    size: Mapping[str, int],
    words: NDArray[np.str_],
    run: Mapping[str, float | int | str],
    options: Mapping[str, Any],
) -> xr.Dataset:
    """Coordinates and attributes; `words` is (window, position), `run` is what distinguishes this run from others."""
    recorded = [name for name in DIMENSIONS if name != "pattern" or size["window"]]
    coords: dict[str, Any] = {
        "run": [0],
        **{name: ("run", [value]) for name, value in run.items()},
        "status": ("run", np.array(["running"], "U8")),
        "diverged_step": ("run", np.array([-1])),
        "step": ("step", steps, {"units": "steps", "long_name": "updates, each with one batch of windows"}),
        "layer": np.arange(size["layer"]),
        "head": np.arange(size["head"]),
    }
    if size["window"]:
        coords |= {
            "query_position": np.arange(size["query_position"]),
            "key_position": np.arange(size["key_position"]),
            "word": (("window", "key_position"), words),
        }
    described = {**options, "record": recorded}
    return xr.Dataset(coords=coords, attrs=attributes("text", "attention of a transformer trained on text", described))
