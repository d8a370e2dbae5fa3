"""The attributes of a figure's dataset: its settings, its duration, and its origin."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import xarray as xr

from scansnap.results.dataset import attributes


def described(dataset: xr.Dataset, title: str, options: Mapping[str, Any], began: float) -> xr.Dataset:
    """`dataset` with the attributes that every result has; `began` is `time.perf_counter()` at the start."""
    words = {**options, "record": [str(name) for name in dataset.data_vars]}
    return dataset.assign_attrs(attributes("figure", title, words, seconds=round(time.perf_counter() - began, 3)))
