"""JoMA: the paper's Figures 2 to 4, and where softmax attention becomes sparse and then dense.

Figures 2 and 3 are runs of gradient descent on the authors' contexts.  Figure 4 is the law of homogeneous units, set
beside the joint flow that it stands for.  The phase diagram is made of flows, since finite rates exaggerate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.special import entr, softmax

from scansnap.claims.systems import quiet_flow, quiet_train
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import enough_seeds, exact, majority, rise
from scansnap.figures.style import COLOR_MAP, color_bar, label, legend, line
from scansnap.papers.joma import theory as laws
from scansnap.papers.joma.claims import (
    ENTROPY_TIMES,
    correlation,
    entropy_flow,
    is_dense_again,
    rebounds,
    squared_errors,
)
from scansnap.papers.joma.system import JoMA

RATIOS = (0.1, 1.0, 10.0, 100.0)
CONCENTRATIONS = (0.1, 0.3, 1.0, 3.0)
DRAWN_COMPONENTS = 4
"""Components of v in the panel of Figure 3, as in the paper."""

LAW_TIMES = np.geomspace(0.01, 1000, 250)


def prepare(*, num_seeds: int = 10) -> xr.Dataset:
    """`agreement`, `slope` and `v` over steps, entropies of the law and the flow, `entropy` of flows by ratio."""
    num_seeds = enough_seeds(num_seeds)
    seeds = range(num_seeds)
    preset = JoMA.presets["joma-figure-2"]
    shape: dict[str, Any] = {**preset.settings}
    settings: dict[str, Any] = {**preset.train, "record": ("z", "v", "estimate"), "record_every": 20}
    runs = quiet_train(JoMA(**shape), **settings, seeds=tuple(seeds), dtype="float64")
    ratio = settings["lr_z"] / settings["lr_v"]
    z, estimate = runs["z"].values[:, :, 0], ratio * runs["estimate"].values[:, :, 0]
    agreement, slope = correlation(z[:, 1:], (estimate - estimate[:, :1] + z[:, :1])[:, 1:])
    systems = [JoMA(concentration=concentration) for concentration in CONCENTRATIONS]
    entropies = [[entropy_flow(system, seeds, r, ENTROPY_TIMES) for r in RATIOS] for system in systems]
    targets, law, joint = _salience()
    return xr.Dataset(
        {
            "agreement": (("seed", "step"), agreement),
            "slope": (("seed", "step"), slope),
            "v": (("step", "token"), runs["v"].values[0, 1:, :DRAWN_COMPONENTS, 0]),
            "law": (("law_time", "component"), targets * -np.expm1(-law)),
            "law_entropy": ("law_time", _entropy((targets * np.expm1(-law)) ** 2 / 2), {"units": "nat"}),
            "joint_entropy": ("law_time", _entropy(joint), {"units": "nat"}),
            "entropy": (("concentration", "ratio", "seed", "time"), np.array(entropies), {"units": "nat"}),
        },
        coords={
            "seed": list(seeds),
            "step": runs["step"].values[1:],
            "token": range(DRAWN_COMPONENTS),
            "law_time": LAW_TIMES,
            "component": targets,
            "concentration": list(CONCENTRATIONS),
            "ratio": list(RATIOS),
            "time": np.append(0.0, ENTROPY_TIMES),
        },
    )


def _salience() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten targets, ln(1/δ) of the law, and z of the joint flow with squared errors, over `LAW_TIMES`."""
    system = squared_errors(10)
    targets = system.data(np.zeros(1, np.uint64), None)["target"][0, 0, :, 0]  # from 1 to 4, as the authors'
    times = system.tokens * LAW_TIMES  # the loss is a mean over contexts
    joint = quiet_flow(system, lr_v=1.0, lr_z=1.0, times=times, record=("z",))["z"].values[0, :, 0]
    order = np.argsort(targets)
    return targets[order], laws.homogeneous_law(targets[order], LAW_TIMES), joint


def _entropy(logits: np.ndarray) -> np.ndarray:
    return np.asarray(entr(softmax(logits, axis=-1)).sum(-1))


def draw(dataset: xr.Dataset) -> Figure:
    """The estimate, the components, the law, its entropy, entropies by ratio, and the phase diagram."""
    figure = Figure(figsize=(10.5, 6.0), layout="constrained")
    (estimate, components, law), (fall, curves, phases) = figure.subplots(2, 3)
    step = dataset["step"].values
    for i, (name, words) in enumerate((("agreement", "correlation"), ("slope", "slope of z on it"))):
        estimate.plot(step, dataset[name].mean("seed"), **line(i), label=words)
    label(estimate, "step", "", "estimate of z (Figure 2)")
    for i in range(dataset.sizes["token"]):
        components.plot(step, dataset["v"].isel(token=i), **line(i), label=f"token {i}")
    label(components, "step", "$v$ of the first unit", "growth of components (Figure 3)")
    for i in range(0, dataset.sizes["component"], 3):
        of_target = dataset["law"].isel(component=i)
        law.plot(dataset["law_time"], of_target, **line(i // 3), label=f"$\\mu$ = {float(of_target['component']):.2f}")
    label(law, "time", "$v$", "law of homogeneous units (Figure 4)")
    for i, (name, words) in enumerate((("law_entropy", "law"), ("joint_entropy", "joint flow,\nsquared errors"))):
        fall.plot(dataset["law_time"], dataset[name], **line(i), label=words)
    label(fall, "time", "entropy of $e^z$ (nat)", "sparse, then dense? (Figure 4)")
    shown = dataset["entropy"].isel(concentration=dataset.sizes["concentration"] // 2, time=slice(1, None))
    for i, ratio in enumerate(dataset["ratio"].values):
        curves.plot(shown["time"], shown.mean("seed").isel(ratio=i), **line(i), label=f"{ratio:g}")
    title = f"softmax, cross-entropy; concentration {float(shown['concentration']):g}"
    label(curves, "time", "entropy of attention (nat)", title)
    for axes in (law, fall, curves):
        axes.set_xscale("log")
    for axes in (estimate, components, law):
        legend(axes)
    legend(fall, loc="center right", bbox_to_anchor=(1, 0.72))  # between the lines
    legend(curves, title="$\\eta_Z/\\eta_V$")
    share = is_dense_again(dataset["entropy"].values).mean(-1)
    image = phases.imshow(share, origin="lower", aspect="auto", cmap=COLOR_MAP, vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(share):
        shade = "black" if value > 0.5 else "white"
        phases.text(j, i, f"{value:.0%}", ha="center", va="center", fontsize=8, color=shade)
    phases.set_xticks(range(share.shape[1]), [f"{ratio:g}" for ratio in dataset["ratio"].values])
    phases.set_yticks(range(share.shape[0]), [f"{c:g}" for c in dataset["concentration"].values])
    label(phases, "$\\eta_Z/\\eta_V$", "concentration of contexts", "runs that become dense again")
    phases.grid(visible=False)
    color_bar([phases], image, "share of runs")
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """The estimate's direction and size, the law, and the open question by the ratio of the rates."""
    last = dataset.isel(step=-1)
    dense = is_dense_again(dataset["entropy"].values)  # (concentration, ratio, seed)
    ratios = dataset["ratio"].values
    largest, equal = int(ratios.argmax()), int(np.abs(np.log(ratios)).argmin())
    back = {name: rebounds(dataset[f"{name}_entropy"].values)[1] for name in ("law", "joint")}
    cells = f"flows at {dataset.sizes['concentration']} concentrations"
    return [
        rise("The estimate has the direction of z.", last["agreement"], "correlation after training", above=0.9),
        rise("The estimate has the size of z.", last["slope"], "slope of z on it after training", above=0.8),
        exact("Under the law attention becomes dense again.", float(back["law"]), "nats that come back", above=0.1),
        exact(
            "So it does in the joint flow with squared errors.", float(back["joint"]), "nats that come back", above=0.1
        ),
        majority(
            f"With softmax, cross-entropy and η_Z = {ratios[largest]:g} η_V attention becomes dense again.",
            dense[:, largest].ravel(),
            cells,
        ),
        majority("It does so if both rates are equal.", dense[:, equal].ravel(), cells),
        rise(
            "The faster attention learns, the more runs become dense again.",
            (dense[:, largest].astype(float) - dense[:, int(ratios.argmin())]).mean(0),
            f"share of concentrations at η_Z/η_V = {ratios.max():g} less that at {ratios.min():g}",
        ),
    ]


FIGURE = FigureRecipe(
    name="joma",
    title="JoMA: salient tokens first, then the others?",
    statement=(
        "Hidden units and attention are trained together. Attention follows the hidden weights, salient components "
        "grow first, and attention becomes sparse and then dense (Tian et al., ICLR 2024, Figures 2 to 4)."
    ),
    setting=(
        "Figures 2 and 3: 20 tokens, 20 linear units, the authors' contexts, 2,000 steps of rates 0.1 and 0.4. Phase "
        "diagram: 12 tokens, 8 GELU units, 8 classes, random output layer, flows to t = 10^6"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
