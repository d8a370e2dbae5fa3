"""The reversal curse: (Y, Z) with and without a residual connection, the bilinear model, and the identity bridge."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap.claims.systems import quiet_flow
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import all_rise, enough_seeds, exact
from scansnap.figures.style import label, legend, line
from scansnap.papers.reversal.system import (
    FactoredReversal,
    Facts,
    Reversal,
    answer_probability,
    residual_answer_probability,
)
from scansnap.papers.reversal.theory import asked_probability

FACTS = Facts(pairs=6, both=3)
LONG_TIMES = np.logspace(0, 30, 16)
WIDTHS = tuple(2**power for power in range(6, 17, 2))
TIME = 1e3
"""When the bilinear models are compared, in updates of a sentence."""
BRIDGES = ("all", "A", "B", "none")
EARLY_TIMES = np.geomspace(10, 1e3, 9)


def prepare(*, num_seeds: int = 6) -> xr.Dataset:
    """`asked` and `predicted` (time), `ratio` and `spread` (width, seed), `accuracy` (model, seed, early)."""
    seeds = range(enough_seeds(num_seeds))
    asked = {"none": answer_probability, "residual": residual_answer_probability}
    probability = []
    for name, quantity in asked.items():
        options: dict[str, Any] = {"residual": name == "residual", "record": (quantity,)}
        run = quiet_flow(FACTS.classes, lr_y=1.0, lr_z=1.0, times=LONG_TIMES, **options)
        probability.append(run[quantity.name].values[0, :, len(FACTS.trained)])
    sizes = {"vocab_size": len(FACTS.names), "num_classes": len(FACTS.trained)}
    bilinear = [_bilinear(width, seeds) for width in WIDTHS]
    return xr.Dataset(
        {
            "asked": (("connection", "time"), probability),
            "predicted": ("time", asked_probability(LONG_TIMES, trained=FACTS.both, **sizes)[1]),
            "ratio": (("width", "seed"), [ratio for ratio, _ in bilinear]),
            "spread": (("width", "seed"), [spread for _, spread in bilinear]),
            "accuracy": (("identities", "seed", "early"), [_bridge(identity, seeds) for identity in BRIDGES]),
        },
        coords={
            "connection": list(asked),
            "time": LONG_TIMES,
            "width": list(WIDTHS),
            "seed": list(seeds),
            "identities": list(BRIDGES),
            "early": EARLY_TIMES,
        },
    )


def _bilinear(width: int, seeds: range) -> tuple[np.ndarray, np.ndarray]:
    """The reversed loss over its start, and the spread of reversed weights, of every seed."""
    system = Reversal(pairs=12, both=6, width=width)
    record = ("asked_loss", "asked_weight")
    rate = float(len(system.trained))
    run = quiet_flow(system, lr_theta=rate, times=[TIME], seeds=seeds, record=record).isel(time=0)
    return run["asked_loss"].values / math.log(len(system.entities)), run["asked_weight"].values.std(-1)


def _bridge(identity: str, seeds: range) -> np.ndarray:
    """The share of asked pairs answered right (seed, time)."""
    system = FactoredReversal(pairs=6, both=0, width=None, identity=identity, rank=12)  # type: ignore[arg-type]
    run = quiet_flow(system, lr_theta=1.0, times=EARLY_TIMES, seeds=seeds, record=("asked_accuracy",))
    return np.asarray(run["asked_accuracy"].values)


def draw(dataset: xr.Dataset) -> Figure:
    """Three panels: the asked probability over time, wide embeddings, and the identity bridge."""
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    names = {"none": "no residual connection", "residual": "residual connection"}
    for i, connection in enumerate(names):
        values = dataset["asked"].sel(connection=connection)
        left.loglog(dataset["time"], values, **line(i), linewidth=1.6, label=names[connection])
    left.loglog(dataset["time"], dataset["predicted"], "k.", markersize=4, label="predicted")
    label(left, "time (expected steps)", "probability of B ← A", "(Y, Z)")
    legend(left)
    for i, (name, words) in enumerate(
        {"ratio": "reversed loss / its start - 1", "spread": "spread of weights"}.items()
    ):
        values = abs(dataset[name] - (name == "ratio")).mean("seed")
        middle.loglog(dataset["width"], values, **line(i), marker="o", markersize=3, label=words)
    label(middle, "width d of the embeddings", "mean over seeds", f"bilinear model, {TIME:g} updates of a sentence")
    legend(middle)
    for i, identity in enumerate(dataset["identities"].values):
        mean = dataset["accuracy"].sel(identities=identity).mean("seed")
        right.semilogx(dataset["early"], mean, **line(i), linewidth=1.6, label=f"identities: {identity}")
    label(right, "time (expected steps)", "asked pairs answered right (share)", "factored bilinear model")
    legend(right)
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """The asked probability, the limit of wide embeddings, and who breaks the curse."""
    time, asked = dataset["time"].values, dataset["asked"]
    chance = float(np.abs(asked.sel(connection="none") * len(FACTS.names) - 1).max())
    late = asked.sel(connection="residual").values
    slope = float(np.log(late[-1] / late[-6]) / np.log(time[-1] / time[-6]))
    wanted = -1 / (FACTS.both + 1)
    distance = np.abs(dataset["ratio"] - 1)
    widths = dataset["width"].values
    steps = [f"from d = {a} to {b}" for a, b in pairwise(widths)]
    end = dataset["accuracy"].isel(early=-1)
    gain = np.stack([end.sel(identities="all") - end.sel(identities=other) for other in BRIDGES[1:]])
    return [
        exact(
            "Without a residual connection the reversed probability stays at chance.",
            chance,
            f"largest distance of M p from 1 for times up to {time[-1]:g}",
            at_most=1e-12,
        ),
        exact(
            f"With one it falls like t^(-1/{FACTS.both + 1}).",
            abs(slope - wanted),
            f"slope of ln p in ln t from {time[-6]:g} to {time[-1]:g} is {slope:.4f}: its distance from {wanted:g}",
            at_most=0.01,
        ),
        all_rise(
            "The spread of reversed weights falls as embeddings widen.",
            steps,
            -np.diff(np.log(dataset["spread"].values), axis=0),
        ),
        all_rise(
            "The reversed loss over its start tends to 1 as embeddings widen.",
            [f"d = {widths[0]} against {widths[-1]}"],
            (distance[0] - distance[-1]).values[None],
        ),
        all_rise(
            "A factored model learns the reversed pairs if the identities of both A and B are trained, and only then.",
            [f"all against {other}" for other in BRIDGES[1:]],
            gain,
        ),
    ]


FIGURE = FigureRecipe(
    name="reversal",
    title="The reversal curse and the identity bridge",
    statement=(
        "A model that learns A → B does not learn B ← A (Zhu et al. 2024). Sentences A = A and B = B break the curse "
        "in a model with a product of matrices (identity bridge, arXiv 2602.02470)."
    ),
    setting=(
        f"(Y, Z): {FACTS.pairs} pairs, {FACTS.both} trained both ways, flow from zero; bilinear: 12 pairs, 6 both "
        "ways; factored: 6 pairs, none both ways, orthonormal embeddings, start of size 0.001"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
