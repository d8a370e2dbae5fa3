"""A user's own figure, as `scansnap figure --from` takes it: the loss of Syn-Small over training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

import scansnap as ss
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import rise

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def prepare(*, num_seeds: int = 4) -> xr.Dataset:
    runs = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=10, seeds=range(num_seeds), progress=False)
    loss = xr.DataArray(runs["loss"].values, dims=("seed", "step"), coords={"step": runs["step"].values})
    return xr.Dataset({"loss": loss, "mean": loss.mean("seed")})


def draw(dataset: xr.Dataset) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().plot(dataset["step"], dataset["mean"])
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    fall = dataset["loss"].isel(step=0) - dataset["loss"].isel(step=-1)
    return [rise("The loss falls.", fall, "loss before minus loss after training")]


FIGURE = FigureRecipe(
    name="own",
    title="Loss of Syn-Small",
    statement="The loss falls.",
    setting="Syn-Small, SGD, η_Y = η_Z = 1, 10 updates",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
