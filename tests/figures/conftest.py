"""Figures are prepared once for all tests that look at them, with few seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import make_text
import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from numpy.typing import NDArray

import scansnap as ss
from scansnap.figures import catalog, syn_medium
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.style import COLOR_MAP

NUM_SEEDS = 6
DATA = Path(__file__).parents[2] / "docs" / "data"


def check_picture(figure: Figure) -> None:
    """No type is smaller than 7 points, nothing is cut off at the edges, and every panel says what its axes are."""
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 7
    assert not [text.get_text() for text in texts if "no unit" in text.get_text()]
    box, page = figure.get_tightbbox(), figure.bbox_inches
    assert page.x0 - 0.02 <= box.x0 <= box.x1 <= page.x1 + 0.02
    assert page.y0 - 0.02 <= box.y0 <= box.y1 <= page.y1 + 0.02
    maps = figure.findobj(lambda artist: isinstance(artist, QuadMesh | AxesImage))
    assert {image.get_cmap().name for image in maps} <= {COLOR_MAP}


Change = Callable[[NDArray[Any]], Any]
"""What a test does to the numbers of a figure to contradict a statement about them."""


def flip(axis: int) -> Change:
    return lambda values: np.flip(values, axis)


def negate(values: NDArray[Any]) -> Any:
    return -values


def fill(value: float) -> Change:
    return lambda values: np.full_like(values, value)


def check_figure(recipe: FigureRecipe, dataset: xr.Dataset) -> Figure:
    """Its picture can be read in print, its statements have numbers, and neither changes what it is given."""
    before = dataset.copy(deep=True)
    figure, trends = recipe.draw(dataset), recipe.trends(dataset)
    assert dataset.identical(before)
    check_picture(figure)
    for trend in trends:
        assert np.isfinite(trend.measured)
        assert trend.note
        json.dumps(trend.as_dict(), allow_nan=False)
    return figure


def check_change(
    recipe: FigureRecipe, dataset: xr.Dataset, changes: dict[str, Change], statements: list[str], *, holds: bool = True
) -> None:
    """The statements hold, and do not with some of the variables changed; or, unless `holds`, the reverse."""
    for tested, expected in ((dataset, holds), (changed(dataset, changes), not holds)):
        verdicts = {trend.statement: trend.holds for trend in recipe.trends(tested)}
        assert {statement: verdicts[statement] for statement in statements} == dict.fromkeys(statements, expected)


def changed(dataset: xr.Dataset, changes: dict[str, Change]) -> xr.Dataset:
    """The dataset with some of its variables changed."""
    arrays = {name: np.array(change(dataset[name].values.copy())) for name, change in changes.items()}
    return dataset.assign({name: dataset[name].copy(data=a.astype(dataset[name].dtype)) for name, a in arrays.items()})


def committed(name: str) -> xr.Dataset:
    """The numbers of a figure of texts that the documents show."""
    return make_text.read_json(DATA / f"figure_{name}.json")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> ss.Corpus:
    """The example text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return ss.read_corpus("example")


@cache
def _runs() -> xr.Dataset:
    return syn_medium.make_runs(num_seeds=NUM_SEEDS)


@cache
def _prepare(name: str) -> xr.Dataset:
    recipe = catalog.recipe(name)
    if recipe.takes("runs"):
        return recipe.make(runs=_runs())
    return recipe.make(**({"num_seeds": NUM_SEEDS} if recipe.takes("num_seeds") else {}))


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
