"""Figure 8: h* step by step and h in continuous time, for several eta_Y (Lemmas 5 to 7, Remark 2).

Lemma 7 says that 0 <= h*(s) - h(s) <= 2 eta_Y/M for every s and that the gap goes to zero; by Remark 2 it falls like
ln M/(M s).  The gap is shown in units of eta_Y/M, in which the bound is 2 for every rate.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap import theory
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import exact
from scansnap.figures.style import COLORS, label, legend, line

LR_Y = np.array([0.25, 0.5, 1.0, 2.0])
VOCAB_SIZE = 1000
STEPS = 10_000

FINE = 20
"""The number of points of the smooth curve in each update."""

ROUNDING = 1e-9
"""h* adds up thousands of terms."""

DRAWN_STEPS = 40
"""The number of updates in the left panel."""


def prepare() -> xr.Dataset:
    """`stepwise` h* and `gap` h* - h, in units of eta_Y/M (lr_y, step); `smooth` h (lr_y, time) of the first ones."""
    updates = np.unique(np.concatenate([np.arange(101), np.geomspace(1, STEPS, 200).astype(int)]))
    fine = np.arange(DRAWN_STEPS * FINE + 1) / FINE
    stepwise = theory.decoder_growth_steps(STEPS, vocab_size=VOCAB_SIZE, lr_y=LR_Y).T[:, updates]
    at_steps = theory.decoder_growth(updates, vocab_size=VOCAB_SIZE, lr_y=LR_Y[:, None])
    return xr.Dataset(
        {
            "stepwise": (("lr_y", "step"), stepwise, {"units": "1"}),
            "gap": (("lr_y", "step"), (stepwise - at_steps) * VOCAB_SIZE / LR_Y[:, None], {"units": "eta_Y/M"}),
            "smooth": (("lr_y", "time"), theory.decoder_growth(fine, vocab_size=VOCAB_SIZE, lr_y=LR_Y[:, None])),
        },
        coords={"lr_y": LR_Y, "step": updates, "time": ("time", fine, {"units": "updates of one class"})},
    )


def draw(dataset: xr.Dataset) -> Figure:
    """Both curves on the left, the gap in units of eta_Y/M on the right."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    curves, gaps = figure.subplots(1, 2)
    first = dataset.sel(step=slice(0, DRAWN_STEPS))
    for i, rate in enumerate(dataset["lr_y"].values):
        color = COLORS[i % len(COLORS)]
        curves.step(first["step"], first["stepwise"].sel(lr_y=rate), where="post", color=color, linewidth=1.0)
        curves.plot(dataset["time"], dataset["smooth"].sel(lr_y=rate), color=color, linewidth=1.8, label=f"{rate:g}")
        gap = dataset["gap"].sel(lr_y=rate).isel(step=slice(1, None))
        gaps.plot(gap["step"], gap, **line(i), linewidth=1.6, label=f"{rate:g}")
    gaps.axhline(2.0, color="black", linewidth=1)
    gaps.text(1.2, 1.55, "bound of Lemma 7", fontsize=8, va="top")
    gaps.set(xscale="log", yscale="log")
    label(curves, x="updates of the class", y="$h$", title="steps: $h^*$; smooth: $h$")
    label(gaps, x="updates of the class", y="$h^* - h$ (units of $\\eta_Y/M$)", title="the gap between them")
    legend(curves, title="$\\eta_Y$")
    legend(gaps, title="$\\eta_Y$", loc="upper right", bbox_to_anchor=(1.0, 0.95))
    figure.suptitle(f"Figure 8: growth of the decoder, M = {VOCAB_SIZE}", fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """The two sides of the bound, the limit and how fast it is reached, for the worst of the rates."""
    gap = dataset["gap"].values
    steps = dataset["step"].values
    least, largest = gap.min(), gap.max()
    remaining = (gap[:, -1] / np.abs(gap).max(1)).max()
    late = steps >= steps[-1] // 10
    exponent = max(float(np.polyfit(np.log(steps[late]), np.log(np.maximum(row[late], 1e-300)), 1)[0]) for row in gap)
    return [
        exact(
            "h* is never below h.",
            least,
            f"the least gap in units of η_Y/M at {len(steps)} of {steps[-1]} updates and {len(gap)} rates; rounding is "
            "allowed",
            at_least=-ROUNDING,
        ),
        exact(
            "The gap is at most 2η_Y/M.",
            largest,
            f"the largest gap in units of η_Y/M, at update {int(steps[gap.max(0).argmax()])}",
            at_most=2,
        ),
        exact(
            "The gap goes to zero.",
            remaining,
            f"the gap after {steps[-1]} updates over its largest value, the worst of the rates",
            below=0.05,
        ),
        exact(
            "Late the gap falls like 1/s, up to logarithms.",
            exponent,
            f"slope of ln gap against ln s over the last tenfold of {steps[-1]} updates, the slowest of the rates",
            below=-0.8,
        ),
    ]


FIGURE = FigureRecipe(
    name="8",
    title="Growth of the decoder step by step and in continuous time",
    statement="The gap between h* and h is bounded, by 2η_Y/M, and goes to zero as time grows.",
    setting="M = 1000, η_Y = 0.25, 0.5, 1, 2; 10,000 updates of one class",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
