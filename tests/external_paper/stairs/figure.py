"""The loss falls in stairs with separate keys and queries, and once with merged ones."""

import numpy as np
from matplotlib.figure import Figure

import scansnap as ss
from scansnap.figures.statistics import rise
from stairs.system import LinearAttention
from stairs.theory import plateaus


def prepare(*, num_seeds: int = 4):
    systems = {keys: LinearAttention(keys=keys) for keys in ("separate", "merged")}
    options = {"lr": 1.0, "times": np.geomspace(1, 1e5, 200), "seeds": range(num_seeds), "progress": False}
    levels = plateaus(LinearAttention().data([0], None)["covariance"][0], LinearAttention().pairs)
    return ss.sweep(systems, **options)[["loss"]].squeeze("lr").assign(plateau=("modes", levels))


def draw(dataset) -> Figure:
    figure = Figure()
    axes = figure.add_subplot(xscale="log", xlabel="time", ylabel="loss")
    for keys, color in (("separate", "C0"), ("merged", "C1")):
        axes.plot(dataset["time"], dataset["loss"].sel(system=keys).transpose("time", ...), color=color)
    axes.hlines(dataset["plateau"], 1, 1e5, "gray", "dotted")
    return figure


def trends(dataset) -> list[ss.Trend]:
    flat = (abs(dataset["loss"] - dataset["plateau"][1:-1]) < 0.002).any("modes").mean("time")
    return [rise("Separate heads wait on plateaus.", flat.sel(system="separate") - flat.sel(system="merged"), "time")]


FIGURE = ss.FigureRecipe(name="stairs", title="Stairs, or one fall", statement="Separate keys and queries make stairs.",
                         setting="4 modes, 8 heads", prepare=prepare, draw=draw, trends=trends)  # fmt: skip
