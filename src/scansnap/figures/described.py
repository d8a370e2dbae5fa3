"""The attributes of a figure's dataset: its settings, the time it took, and where it comes from."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import xarray as xr

from scansnap.results.dataset import FORMAT
from scansnap.results.provenance import provenance


def described(dataset: xr.Dataset, title: str, options: Mapping[str, Any], began: float) -> xr.Dataset:
    """`dataset` with the attributes that every result has; `began` is `time.perf_counter()` at the start."""
    attributes = {
        "title": title,
        "kind": "figure",
        "format": FORMAT,
        "options": json.dumps({**options, "record": [str(name) for name in dataset.data_vars]}, sort_keys=True),
        "seconds": round(time.perf_counter() - began, 3),
        **provenance(),
    }
    return dataset.assign_attrs(attributes)
