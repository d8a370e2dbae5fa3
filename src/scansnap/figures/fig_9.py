"""Figure 9: B_n(t) with both rates scaled together, nu = eta_Y/eta_Z = 1 (Theorem 4, Appendix F).

B_n depends on t only through h(t/K), and M h(t_0/K) solves Eq. 45 with M eta_Y t_0/K = 2 (1 + omega_1) M ln M, which
contains no rate.  B_n(t_0) is therefore the same for all rates, in both forms.  (The caption has nu upside down, which
does not matter at nu = 1.)
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap import theory
from scansnap.claims.check import Setting
from scansnap.data.synthetic import single_common
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import exact
from scansnap.figures.style import COLORS, label, legend, line
from scansnap.theory.overlap import Form
from scansnap.theory.phases import ConstantForm

FORMS: dict[Form, str] = {
    "published": "as published: $\\frac{1}{4}\\ln(C_0 + 4\\Gamma)$",
    "exact": "exact form: $\\frac{1}{4}\\ln(1 + 4\\Gamma/C_0)$",
}
RATES = np.array([1.0, 2.0, 4.0, 8.0])
ORDERS: tuple[ConstantForm, ...] = ("published", "leading")  # of C_0 in each form


def prepare() -> xr.Dataset:
    """`growth_bound` B_n (form, rate, time) and `at_snap` B_n(t_0) (form, rate), with `snap_start` t_0."""
    classes = single_common(num_distinct=20, vocab_size=10_000)
    setting = Setting(classes)
    orders = [theory.phase_constant(setting.overlap, num_classes=classes.num_classes, form=order) for order in ORDERS]
    start = theory.snap_start(**setting.sizes, lr_y=RATES)
    times = np.geomspace(0.1, 1e5, 241)

    def bounds(t: np.ndarray, rate: np.ndarray) -> np.ndarray:
        more = {**setting.sizes, "lr_y": rate, "lr_z": rate}
        forms = zip(FORMS, orders, strict=True)
        return np.array([theory.growth_bound(t, **more, constant=constant, form=form) for form, constant in forms])

    return xr.Dataset(
        {
            "growth_bound": (("form", "rate", "time"), bounds(times, RATES[:, None]), {"units": "1"}),
            "at_snap": (("form", "rate"), bounds(start, RATES), {"units": "1"}),
        },
        coords={
            "form": list(FORMS),
            "rate": RATES,
            "time": ("time", times, {"units": "steps of batch 1"}),
            "snap_start": ("rate", start),
        },
        attrs=setting.sizes,
    )


def draw(dataset: xr.Dataset) -> Figure:
    """A panel for each form; dots mark t_0."""
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    for axes, (form, words) in zip(figure.subplots(1, 2, sharey=True), FORMS.items(), strict=True):
        for i, rate in enumerate(dataset["rate"].values):
            curve = dataset.sel(form=form, rate=rate)
            color = COLORS[i % len(COLORS)]
            axes.plot(curve["time"], curve["growth_bound"], **line(i), linewidth=1.6, label=f"{rate:g}")
            axes.axvline(float(curve["snap_start"]), color=color, linestyle=":", linewidth=1)
            axes.plot(float(curve["snap_start"]), float(curve["at_snap"]), "o", color=color, markersize=6)
        axes.set_xscale("log")
        label(axes, x="time (steps of batch 1)", y="$B_n$", title=words)
        legend(axes, title="$\\eta_Y = \\eta_Z$")
    sizes = f"M = {dataset.attrs['vocab_size']:,}, K = {dataset.attrs['num_classes']}"
    figure.suptitle(f"Figure 9: $B_n$, $\\eta_Y/\\eta_Z$ = 1, {sizes}; dotted and dot: $t_0$", fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """As published: the spread of B_n(t_0), and the order of the curves after the last t_0."""
    published, last = dataset.sel(form="published"), float(dataset["snap_start"].max())
    at_snap = published["at_snap"].values
    late = published["growth_bound"].sel(time=slice(last, None)).values
    return [
        exact(
            "B_n(t₀) is the same for all rates.",
            np.ptp(at_snap) / at_snap.mean(),
            f"range over mean; B_n(t₀) = {at_snap.mean():.6g}",
            at_most=1e-9,
        ),
        exact(
            "After t₀ larger rates have the larger B_n.",
            min((high - low).min() for low, high in pairwise(late)),
            f"the smallest difference between successive rates at {late.shape[1]} times from {last:.0f} to "
            f"{float(dataset['time'][-1]):.0e}",
            above=0,
        ),
    ]


FIGURE = FigureRecipe(
    name="9",
    title="B_n over time with both rates scaled together",
    statement=(
        "With η_Y/η_Z fixed, B_n at the transition t₀ does not depend on the rates; after it larger rates have the "
        "larger B_n, and so the sparser attention."
    ),
    setting="M = 10,000, K = 10, η_Y = η_Z = 1, 2, 4, 8; C₀ of one common and 20 distinct tokens a class",
    prepare=prepare,
    draw=draw,
    trends=trends,
)
