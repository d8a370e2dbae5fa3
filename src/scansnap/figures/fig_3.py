"""Figure 3: the growth factor chi_l(t) of a class's most probable distinct token, for several eta_Y.

Theorem 3 bounds it from below by exp(2 f^2(0) B_n), which Section 6 takes for the factor itself; Theorem 4 gives B_n.
As published, B_n = 1/4 ln(C_0 + 4 Gamma).  Exactly, B_n = 1/4 ln(1 + 4 Gamma/C_0), and in steps of batch 1 the class is
drawn with probability 1/K, so that the exponent is 2 f^2(0) B_n / K.

Both are compared with the dynamics, the reduced equations of `theory.symmetric_flow`: with the modified decoder
gradient, for which the theory is proved, and with SGD's own.  These equations are exact for the classes drawn here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap import theory
from scansnap.claims.check import GRADIENT_ROLES, Setting
from scansnap.claims.population import dominant_growth, symmetric_flow
from scansnap.data.synthetic import single_common
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import exact
from scansnap.figures.style import COLORS, label, legend, line
from scansnap.theory.overlap import Form
from scansnap.theory.phases import ConstantForm

SOURCES = {
    "published": "theory as published: $e^{2f^2(0)B_n}$",
    "exact": "theory, exact form: $e^{2f^2(0)B_n/K}$",
    "modified": "dynamics, modified gradient (Eq. 26)",
    "true": "dynamics, true SGD (Eq. 7)",
}
TIMES = np.geomspace(1.0, 1e6, 121)
LR_Y = np.array([0.5, 1.0, 2.0, 5.0])
LR_Z = 0.5


def prepare() -> xr.Dataset:
    """`growth_factor` (source, lr_y, time), with `scan_end` and `snap_start` of each rate."""
    classes = single_common()
    setting: dict[str, Any] = {"vocab_size": classes.vocab_size, "num_classes": classes.num_classes}
    probs = classes.support_probs(0)
    share = float((probs**2 / (probs**2).sum())[-1])  # f^2(0) of the last and most probable distinct token
    forms: tuple[tuple[Form, ConstantForm, float], ...] = (
        ("published", "published", 1.0),
        ("exact", "leading", 1 / classes.num_classes),
    )
    factors = []
    for form, order, weight in forms:
        constant = theory.phase_constant(Setting(classes).overlap, num_classes=classes.num_classes, form=order)
        more = {**setting, "lr_y": LR_Y[:, None], "lr_z": LR_Z, "constant": constant}
        factors.append(np.exp(2 * share * weight * theory.growth_bound(TIMES, **more, form=form)))
    for gradient, _ in GRADIENT_ROLES:
        flows = (symmetric_flow(Setting(classes, lr_y=float(rate), lr_z=LR_Z), TIMES, gradient) for rate in LR_Y)
        factors.append(np.exp([dominant_growth(each) for each in flows]))
    return xr.Dataset(
        {"growth_factor": (("source", "lr_y", "time"), np.array(factors), {"units": "1"})},
        coords={
            "source": list(SOURCES),
            "lr_y": LR_Y,
            "time": ("time", TIMES, {"units": "steps of batch 1"}),
            "scan_end": ("lr_y", theory.scan_end(**setting, lr_y=LR_Y)),
            "snap_start": ("lr_y", theory.snap_start(**setting, lr_y=LR_Y)),
        },
    )


def draw(dataset: xr.Dataset) -> Figure:
    """A panel for each source; a dotted line marks t_0 of the rate of its color."""
    figure = Figure(figsize=(8.0, 5.8), layout="constrained")
    for axes, (source, words) in zip(figure.subplots(2, 2).flat, SOURCES.items(), strict=True):
        for i, rate in enumerate(dataset["lr_y"].values):
            curve = dataset.sel(source=source, lr_y=rate)
            axes.plot(curve["time"], curve["growth_factor"], **line(i), linewidth=1.8, label=f"{rate:g}")
            axes.axvline(float(curve["snap_start"]), color=COLORS[i % len(COLORS)], linestyle=":", linewidth=1.3)
        axes.set_xscale("log")
        label(axes, x="time (steps of batch 1)", y="growth factor $\\chi_l$", title=words)
        legend(axes, title="$\\eta_Y$ (dotted: its $t_0$)")
    figure.suptitle("Figure 3: growth factor, $\\eta_Z$ = 0.5, K = 10, M = 1000 (note the four scales)", fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """As published: the order of t_0, of chi after the last t_0, and chi's growth before and after t_0.

    The claim section_6_c checks the order for the exact form and for the dynamics.
    """
    starts, published = dataset["snap_start"].values, dataset.sel(source="published")
    last = float(starts.max())
    late = published["growth_factor"].sel(time=slice(last, None))
    values = np.log(late.values)
    larger = float(np.mean([(low > high).all() for low, high in pairwise(values)]))
    slowest = max(_slowing(published.sel(lr_y=rate)) for rate in dataset["lr_y"].values)
    return [
        exact(
            "A smaller η_Y brings a later transition.",
            np.diff(starts).max(),
            f"largest change of t₀ between successive rates; t₀ = {', '.join(f'{t:.0f}' for t in starts)}",
            below=0,
        ),
        exact(
            "After t₀ a smaller η_Y gives a larger growth factor.",
            larger,
            f"share of successive rates with the larger χ at the smaller η_Y, at all of {len(late['time'])} times from "
            f"{last:.0f} to 10⁶",
            at_least=1,
        ),
        exact(
            "After t₀ the growth factor grows more slowly.",
            slowest,
            "dχ/dt from 10 t₀ to 100 t₀ over dχ/dt from t'₀/10 to t'₀, the largest of all rates",
            below=1,
        ),
    ]


def _slowing(curve: xr.Dataset) -> float:
    """The ratio of chi's slope from 10 t_0 to 100 t_0 to its slope from t'_0/10 to t'_0."""
    ends = np.array([0.1, 1.0]) * float(curve["scan_end"]), np.array([10.0, 100.0]) * float(curve["snap_start"])
    first, second = (np.diff(np.interp(t, curve["time"], curve["growth_factor"]))[0] / np.diff(t)[0] for t in ends)
    return float(second / first)


FIGURE = FigureRecipe(
    name="3",
    title="Growth factor of the dominant distinct token, for several decoder rates",
    statement=(
        "With a fixed η_Z a smaller η_Y brings a later transition t₀ and, after it, a larger growth factor: sparser "
        "attention. After t₀ growth is logarithmic."
    ),
    setting=(
        "K = 10 classes of one query, one common and 5 distinct tokens each, M = 1000, η_Z = 0.5, η_Y = 0.5, 1, 2, 5"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
