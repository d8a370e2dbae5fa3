"""Figure 2: the four stages of attention, from one run.

The paper sketches them; here they are measured.  A run of plain SGD is shown at four moments (without momentum, so that
the theory's times apply as they are: an update is one expected step of batch 1):

    (a) the start;
    (b) the update at which most attention moves, found in the run itself: common tokens are losing;
    (c) t_0, where snapping begins by Theorem 4 (`theory.snap_start`): winners have emerged;
    (d) 10 t_0: attention has all but stopped, says the paper.

Above is c~_l = P(l|n) exp(z_l) of the first class, as in the paper's sketch; below is how fast attention moves (half
the l1 distance between successive updates), with t'_0 and t_0.  All trends are tested over many seeds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scansnap import theory
from scansnap.data.synthetic import syn_small
from scansnap.dynamics.published import SYN_SMALL
from scansnap.dynamics.train import train
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import all_rise, enough_seeds, rise, standard_error
from scansnap.figures.style import KINDS, draw_band, label, legend
from scansnap.results.measure import rate_of_change

STAGES = {"start": "(a) start", "fastest": "(b) moves fastest", "snap": "(c) $t_0$", "end": "(d) 10 $t_0$"}
SUPPRESSED = "Common tokens are being suppressed while attention moves fastest."
AHEAD = "The distinct token that was ahead takes over from the others."
SLOWER = "Past t₀ attention moves ever more slowly."
FREEZE_STATEMENT = "Past t₀ the pattern is all but frozen."

WINDOW = 5
"""The number of updates over which the speed of a run is averaged before its maximum is located."""


def prepare(*, num_seeds: int = 100) -> xr.Dataset:
    """`score` c~ and `logits` z at the stages (seed, stage, token) of the first class, and `speed` (seed, step)."""
    num_seeds = enough_seeds(num_seeds)
    classes = syn_small()
    setting = {"vocab_size": classes.vocab_size, "num_classes": classes.num_classes, "lr_y": 1.0}
    scanned, snapped = float(theory.scan_end(**setting)), float(theory.snap_start(**setting))
    steps = math.ceil(10 * snapped)
    plain = replace(SYN_SMALL, momentum=None, steps=steps, record_every=1, record=("attention", "attention_logits"))
    runs = train(classes, **vars(replace(plain, seeds=range(num_seeds))), progress=False)
    runs = runs.squeeze(("layer", "head"), drop=True)
    runs = runs.swap_dims(run="seed")
    speed = rate_of_change(runs).mean("class").isel(step=slice(1, None))
    fastest = speed.rolling(step=WINDOW, center=True).mean().fillna(0.0).idxmax("step").astype(int)
    moment = xr.concat([update + 0 * fastest for update in (0, fastest, math.ceil(snapped), steps)], "stage")
    logits = runs["attention_logits"].isel(query=0).sel(token=classes.support(0), step=moment).astype(float)
    at_ends = runs["attention"].sel(step=[0, math.ceil(snapped), steps])
    moved = abs(at_ends.diff("step")).sum("token").mean("class") / 2
    return xr.Dataset(
        {
            "logits": (("seed", "stage", "token"), logits.values, {"units": "1"}),
            "score": (("seed", "stage", "token"), classes.support_probs(0) * np.exp(logits.values)),
            "speed": (("seed", "step"), speed.values, {"units": "attention moved per update"}),
            "moved": (("seed", "part"), moved.values, {"units": "1"}),
        },
        coords={
            "seed": runs["seed"].values,
            "stage": list(STAGES),
            "moment": (("seed", "stage"), moment.transpose("seed", "stage").values, {"units": "updates"}),
            "token": logits["token"].values,
            "token_kind": ("token", logits["token_kind"].values),
            "step": speed["step"].values,
            "part": ["up to t_0", "from t_0 to 10 t_0"],
        },
        attrs={**runs.attrs, "scan_end": scanned, "snap_start": snapped},
    )


def draw(dataset: xr.Dataset) -> Figure:
    """The stages of the first seed above, the speed of attention below."""
    figure = Figure(figsize=(9.0, 5.4), layout="constrained")
    grid = figure.add_gridspec(2, 4, height_ratios=(1.15, 1))
    first_seed = dataset.isel(seed=0)
    top = 1.05 * float(first_seed["score"].max())
    for i, (stage, title) in enumerate(STAGES.items()):
        axes = figure.add_subplot(grid[0, i])
        _bars(axes, first_seed, stage)
        axes.set_ylim(0, top)
        words = f"{title}\nupdate {int(first_seed['moment'].sel(stage=stage))}"
        label(axes, x="token", y="$\\tilde c_{l|n}$" if i == 0 else "", title=words)
    figure.axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    _speed(figure.add_subplot(grid[1, :]), dataset)
    figure.suptitle("Figure 2: the four stages of attention, measured (outlines: the start)", fontsize=11)
    return figure


def _bars(axes: Axes, run: xr.Dataset, stage: str) -> None:
    scores = run["score"].sel(stage=stage).values
    for kind, color in KINDS.items():
        of_kind = run["token_kind"].values == kind
        axes.bar(run["token"].values[of_kind], scores[of_kind], color=color, label=kind)
    axes.bar(run["token"].values, run["score"].sel(stage="start").values, fill=False, edgecolor="black", linewidth=0.6)


def _speed(axes: Axes, dataset: xr.Dataset) -> None:
    draw_band(axes, dataset["speed"], 0, f"median and 5% to 95% of {dataset.sizes['seed']} runs")
    for name, symbol in (("scan_end", "$t'_0$"), ("snap_start", "$t_0$")):
        axes.axvline(dataset.attrs[name], color="black", linestyle=":", linewidth=1.3)
        axes.annotate(
            symbol,
            (dataset.attrs[name], 1.0),
            (3, -11),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=9,
        )
    axes.set_xscale("log")
    label(axes, x="updates", y="attention moved per update", title="how fast attention moves")
    legend(axes, loc="upper left")


def trends(dataset: xr.Dataset) -> list[Trend]:
    """The fates of common and distinct tokens, when attention moves fastest, and how much moves after t_0."""
    logits = dataset["logits"]
    kinds = dataset["token_kind"].values
    common = logits.isel(token=kinds == "common")
    shares = dataset["score"].isel(token=kinds == "distinct")
    lead = (shares / shares.sum("token")).isel(token=-1)
    t0 = dataset.attrs["snap_start"]
    soon, late = (dataset["speed"].sel(step=slice(a * t0, b * t0)).mean("step") for a, b in ((1, 2), (5, 10)))
    return [
        rise(
            SUPPRESSED, -common.sel(stage="fastest").mean("token"), "minus the mean logit of common tokens at stage (b)"
        ),
        all_rise(
            "Every common token has lost in the end.",
            [f"common token {token}" for token in common["token"].values],
            -common.sel(stage="end").values.T,
        ),
        rise(
            AHEAD,
            lead.sel(stage="end") - lead.sel(stage="start"),
            "gain of the most probable distinct token's share among distinct tokens",
        ),
        _fastest(dataset),
        rise(
            SLOWER, 1 - late / soon, "one minus the ratio of the mean speed from 5 t₀ to 10 t₀ to that from t₀ to 2 t₀"
        ),
        rise(
            FREEZE_STATEMENT,
            dataset["moved"].isel(part=0) - dataset["moved"].isel(part=1),
            "attention moved up to t₀ minus attention moved from t₀ to 10 t₀",
        ),
    ]


def _fastest(dataset: xr.Dataset) -> Trend:
    """Whether attention moves fastest between the two times of Theorem 4: a one-sided test at each end."""
    values = dataset["moment"].sel(stage="fastest").values.astype(float)
    first, second = dataset.attrs["scan_end"], dataset.attrs["snap_start"]
    statement, ends = "Attention moves fastest between t'₀ and t₀.", ["after t'₀", "before t₀"]
    return replace(
        all_rise(statement, ends, np.stack([values - first, second - values])),
        expected=f"from {first:.1f} to {second:.1f} updates",
        measured=float(values.mean()),
        standard_error=float(standard_error(values)),
    )


FIGURE = FigureRecipe(
    name="2",
    title="The four stages of attention",
    statement=(
        "Attention starts out as the tokens' frequencies; common tokens are suppressed; distinct tokens that were "
        "ahead take over; past t₀ the pattern is all but frozen."
    ),
    setting=(
        f"Syn-Small, plain SGD, η_Y = η_Z = 1, batch {SYN_SMALL.batch_size}, T = {SYN_SMALL.seq_len:g}, zero start, 10 "
        "t₀ = 206 updates"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
