"""Figures are prepared once for all tests that look at them, with few seeds."""

from __future__ import annotations

from functools import cache

import pytest
import xarray as xr

from scansnap.figures import catalog, syn_medium_runs
from scansnap.figures.recipe import Trend

NUM_SEEDS = 6


@cache
def _runs() -> xr.Dataset:
    return syn_medium_runs.make(num_seeds=NUM_SEEDS)


@cache
def _prepare(name: str) -> xr.Dataset:
    recipe = catalog.recipe(name)
    few = {"num_seeds": NUM_SEEDS, "points": 9}
    options = {name: number for name, number in few.items() if recipe.takes(name)}
    if recipe.takes("runs"):
        options = {"runs": _runs()}
    return recipe.make(**options)


@pytest.fixture
def runs() -> xr.Dataset:
    return _runs().copy(deep=True)


@pytest.fixture
def prepare():
    """The dataset of a figure by name, a copy that a test may change."""
    return lambda name: _prepare(name).copy(deep=True)


@pytest.fixture
def trends_of():
    """The trends of a figure by their statement."""

    def by_statement(name: str, dataset: xr.Dataset) -> dict[str, Trend]:
        return {trend.statement: trend for trend in catalog.recipe(name).trends(dataset)}

    return by_statement
