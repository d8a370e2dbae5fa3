"""Attention sinks: the reduction against its late-time law, and the whole layer with softmax and ReLU attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap.claims.systems import quiet_flow
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import all_rise, enough_seeds, exact, rise
from scansnap.figures.style import label, legend, line
from scansnap.papers.sinks.claims import ADAM, STEPS, attention_on_start
from scansnap.papers.sinks.system import Sink

TIMES = np.logspace(0, 10, 21)
KINDS: dict[str, dict[str, Any]] = {
    "softmax, Adam": ADAM,
    "ReLU, Adam": {"attention_map": "relu", **ADAM},
    "softmax, SGD": {"lr": 1.0},
}


def prepare(*, num_seeds: int = 3) -> xr.Dataset:
    """`logit`, `norm` and `excess` (seed, time); `on_start` (kind, token, seed, step)."""
    seeds = range(enough_seeds(num_seeds))
    record = ("loss", "alpha", "sink_value")
    options: dict[str, Any] = {"seeds": seeds, "record": record, "atol": 1e-13}
    run = quiet_flow(Sink(), lr_alpha=1.0, lr_beta=1.0, times=TIMES, **options)
    layers = [attention_on_start(seeds, **kind)[1] for kind in KINDS.values()]
    return xr.Dataset(
        {
            "logit": (("seed", "time"), run["alpha"].values),
            "norm": (("seed", "time"), run["sink_value"].values),
            "excess": (("seed", "time"), run["loss"].values),
            "on_start": (("kind", "query", "seed", "step"), layers),
        },
        coords={
            "seed": list(seeds),
            "time": TIMES,
            "kind": list(KINDS),
            "query": ["other tokens", "triggers"],
            "step": np.linspace(0, STEPS, 11),
        },
    )


def draw(dataset: xr.Dataset) -> Figure:
    """Three panels: the sink's logit, what falls, and the whole layer."""
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for i, seed in enumerate(dataset["seed"].values):
        own = dataset.sel(seed=seed)
        left.semilogx(dataset["time"], own["logit"], **line(i), linewidth=1.4, label=f"seed {seed}")
        names = ("excess loss", "norm of the value (thin)") if i == 0 else (None, None)
        middle.loglog(dataset["time"], own["excess"], **line(i), linewidth=1.8, label=names[0])
        middle.loglog(dataset["time"], own["norm"], **line(i), linewidth=0.8, label=names[1])
    middle.loglog(dataset["time"], 1 / (4 * dataset["time"]), "k:", label="1 / (4t)")
    left.semilogx(dataset["time"], np.log(dataset["time"]) / 2, "k:", label="½ ln t")
    label(left, "time", "logit of the start token", "reduction: the sink grows")
    label(middle, "time", "excess loss, norm", "reduction: its value drains")
    for i, kind in enumerate(dataset["kind"].values):
        mean = dataset["on_start"].sel(kind=kind, query="other tokens").mean("seed")
        right.plot(dataset["step"], mean, **line(i), linewidth=1.6, label=kind)
    triggers = dataset["on_start"].sel(kind="softmax, Adam", query="triggers").mean("seed")
    right.plot(dataset["step"], triggers, **line(3), linewidth=1.6, label="triggers; softmax, Adam")
    label(right, "update", "attention on the start token", "one layer on Bigram-Backcopy")
    for axes in (left, middle, right):
        legend(axes)
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """The laws of the reduction, and where the layer attends."""
    late = dataset.isel(time=-1)
    decades = np.log(dataset["time"].values[-1] / dataset["time"].values[-5])
    slope = ((late["logit"] - dataset["logit"].isel(time=-5)) / decades).values
    drain = (np.log(late["norm"] / dataset["norm"].isel(time=-5)) / decades).values
    loss = (4 * late["excess"] * dataset["time"].values[-1]).values
    end = dataset["on_start"].isel(step=-1)
    dormant = end.sel(query="other tokens")
    labels = ["softmax against ReLU", "other tokens against triggers"]
    ahead = np.stack(
        [
            dormant.sel(kind="softmax, Adam") - dormant.sel(kind="ReLU, Adam"),
            dormant.sel(kind="softmax, Adam") - end.sel(kind="softmax, Adam", query="triggers"),
        ]
    )
    sgd = dataset["on_start"].sel(kind="softmax, SGD", query="other tokens")
    return [
        exact(
            "The sink's logit grows like ½ ln t.",
            np.abs(slope - 0.5).max(),
            "largest distance of its slope in ln t from ½ over the last two decades",
            at_most=0.01,
        ),
        exact(
            "The norm of the sink's value falls like 1/√t.",
            np.abs(drain + 0.5).max(),
            "largest distance of the log-log slope from -½ over the last two decades",
            at_most=0.01,
        ),
        exact(
            "The excess loss is 1/(4t) whatever the data.",
            np.abs(loss - 1).max(),
            "largest distance of 4t times the loss from 1 at the last time",
            at_most=0.01,
        ),
        all_rise("Tokens that copy nothing attend to the start token under softmax attention.", labels, ahead),
        rise("The sink grows under SGD too.", sgd.isel(step=-1) - sgd.isel(step=0), "attention gained"),
    ]


FIGURE = FigureRecipe(
    name="sinks",
    title="Attention sinks: growth of the sink and drain of its value",
    statement=(
        "Heads that have nothing to add attend to the start token, whose value drains; both reinforce each other, and "
        "ReLU attention has no sink (Guo et al. 2024)."
    ),
    setting=(
        f"reduction: 8 tokens, 5 contexts of 20, flow; layer: 8 tokens, 2 triggers, 16 sequences of 24, {STEPS} "
        "updates by Adam at rate 0.03 or SGD at rate 1"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
