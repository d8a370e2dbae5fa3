"""Several layers: which one turns to distinct tokens first, and how far each one goes.

Attention of the last layer is the query's.  Attention of a lower layer is that of the tokens which the layer above
attends to, in proportion, so that it says what reaches the output.  A layer's moment is the first update at which its
common tokens have lost half of the attention that they lose in the end.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import scansnap as ss
from common import SYN_SMALL
from scansnap.figures.statistics import all_rise, enough_seeds, majority
from scansnap.figures.style import draw_band, label, legend, mean_and_error, points

DEPTHS = (1, 2, 3)
SETTING = replace(SYN_SMALL, lr_z=10.0, momentum=None, batch_size=32, record_every=1, record=("attention",))


def prepare(*, num_seeds: int = 16) -> xr.Dataset:
    """`common` attention (depth, layer, seed, step), each layer's `moment` and `lost` (depth, layer, seed), and whether
    the most probable distinct token `leads` in the end (.., class); NaN for layers that a depth does not have."""
    num_seeds = enough_seeds(num_seeds)
    classes = ss.syn_medium(num_query=1)
    shape = (len(DEPTHS), len(DEPTHS), num_seeds)
    common = np.full((*shape, SETTING.steps + 1), np.nan)
    leads = np.full((*shape, classes.num_classes), np.nan)
    for i, depth in enumerate(DEPTHS):
        runs = ss.sweep(classes, **{**vars(SETTING), "layers": depth, "seeds": range(num_seeds)}, progress=False)
        attention = runs["attention"].squeeze(("lr_y", "lr_z", "head"), drop=True)
        kinds = runs["token_kind"].values
        on_common = attention.isel(token=kinds == "common").sum("token").mean("class")
        common[i, :depth] = on_common.transpose("layer", "seed", "step")
        last = attention.isel(step=-1, token=kinds == "distinct").argmax("token")
        at_start = attention.isel(step=0, seed=0, layer=0, token=kinds == "distinct").argmax("token")  # of P(l|n)
        leads[i, :depth] = (last == at_start).transpose("layer", "seed", "class")
    lost = common[..., :1] - common
    passed = lost >= lost[..., -1:] / 2
    moment = np.where(np.isfinite(lost[..., -1]), passed.argmax(-1), np.nan)
    dims = ("depth", "layer", "seed")
    return xr.Dataset(
        {
            "common": ((*dims, "step"), common, {"units": "1"}),
            "moment": (dims, moment, {"units": "updates"}),
            "lost": (dims, lost[..., -1], {"units": "1"}),
            "leads": ((*dims, "class"), leads, {"units": "1"}),
        },
        coords={
            "depth": list(DEPTHS),
            "layer": np.arange(1, len(DEPTHS) + 1),
            "seed": np.arange(num_seeds),
            "step": SETTING.record_steps,
        },
        attrs=runs.attrs,
    )


def draw(dataset: xr.Dataset) -> Figure:
    """Attention on common tokens over training for each depth, and each layer's moment."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    panels = figure.subplots(1, dataset.sizes["depth"] + 1)
    for i, (axes, depth) in enumerate(zip(panels, dataset["depth"].values, strict=False)):
        for layer in range(depth):
            draw_band(axes, dataset["common"].sel(depth=depth).isel(layer=layer), layer, f"layer {layer + 1}")
        axes.set_ylim(0, 0.7)
        words = "one layer" if depth == 1 else f"{depth} layers"
        label(axes, x="updates", y="attention on common tokens (share)" if i == 0 else "", title=words)
        legend(axes, loc="lower left")
    axes = panels[-1]
    for i, depth in enumerate(dataset["depth"].values):
        layers = dataset.sel(depth=depth).isel(layer=slice(int(depth)))
        words = "1 layer" if depth == 1 else f"{depth} layers"
        points(axes, layers["layer"], *mean_and_error(layers["moment"]), i, words)
    axes.set_xticks(dataset["layer"].values)
    axes.set_ylim(0, None)
    label(axes, x="layer (the last reads the query)", y="updates to half of what is lost", title="a layer's moment")
    legend(axes, loc="lower left")
    runs = f"median and 5% to 95% of {dataset.sizes['seed']} runs; right: mean, standard error"
    figure.suptitle(f"Beyond the basic setting: common tokens, layer by layer; {runs}", fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Which layer moves first, how far the layers of deeper networks move, and which token they favor."""
    moment, lost = dataset["moment"], dataset["lost"]
    steps = [(depth, layer) for depth in DEPTHS for layer in range(1, depth)]
    leads = dataset["leads"].values
    layers = [(d, n) for d in DEPTHS for n in range(1, d + 1)]
    most = lost.max("layer")
    return [
        all_rise(
            "Common tokens lose attention in every layer.",
            [f"layer {n} of {d}" for d, n in layers],
            np.array([lost.sel(depth=d, layer=n).values for d, n in layers]),
        ),
        all_rise(
            "A layer turns to distinct tokens after the layer above it: tokens are combined from the top down.",
            [f"layer {layer + 1} of {depth} before layer {layer}" for depth, layer in steps],
            np.array([(moment.sel(depth=d, layer=n) - moment.sel(depth=d, layer=n + 1)).values for d, n in steps]),
        ),
        all_rise(
            "The more layers, the less attention moves in the one where it moves most.",
            [f"{b} layers less than {a}" for a, b in pairwise(DEPTHS)],
            np.array([(most.sel(depth=a) - most.sel(depth=b)).values for a, b in pairwise(DEPTHS)]),
        ),
        majority(
            "Every layer favors the most probable distinct token.",
            leads[np.isfinite(leads)] == 1,
            "layers and classes of all runs",
        ),
    ]


FIGURE = ss.FigureRecipe(
    name="layers",
    title="Attention of one, two and three layers",
    statement=(
        "How input tokens are combined in several layers is a lasting puzzle; in one layer there is a priority among "
        "them by co-occurrence, and attention picks few to combine first (Section 7)."
    ),
    setting=(
        "Syn-Medium with one query, layers with tanh between them, SGD, η_Y = 1, η_Z = 10, batch 32, T = 128, zero "
        "start, 100 updates"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
