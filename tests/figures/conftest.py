"""Figures are prepared once for all tests that look at them, with few seeds."""

from __future__ import annotations

from functools import cache

import pytest
import xarray as xr

from scansnap.figures import catalogue, syn_medium_runs
from scansnap.figures.trend import Trend

SEEDS = 6


@cache
def _runs() -> xr.Dataset:
    return syn_medium_runs.make(seeds=SEEDS)


@cache
def _prepare(number: str) -> xr.Dataset:
    options = {"seeds": SEEDS} if catalogue.takes(number, "seeds") else {}
    if catalogue.takes(number, "runs"):
        options = {"runs": _runs()}
    return catalogue.module(number).prepare(**options)


@pytest.fixture
def runs() -> xr.Dataset:
    return _runs().copy(deep=True)


@pytest.fixture
def prepare():
    """A figure's dataset by its number, a copy to change at will."""
    return lambda number: _prepare(number).copy(deep=True)


@pytest.fixture
def verdicts():
    """Verdicts of a figure's trends by the beginning of their statement."""

    def found(number: str, dataset: xr.Dataset) -> dict[str, Trend]:
        return {one.statement: one for one in catalogue.module(number).trends(dataset)}

    return found
