"""The options that a figure's dataset was made with, among its attributes; `FigureRecipe.make` adds the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xarray as xr


def configuration(runs: xr.Dataset) -> dict[str, Any]:
    """The options that a result was asked for, or a figure's dataset."""
    options: dict[str, Any] = json.loads(runs.attrs["options"])
    return options


def described(dataset: xr.Dataset, options: Mapping[str, Any]) -> xr.Dataset:
    """`dataset` with the options it was made with."""
    return dataset.assign_attrs(options=json.dumps(dict(options)))
