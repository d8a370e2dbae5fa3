"""Max-margin token selection: paths in the plane, the overshoot to t = 1e60, which tokens win, and next tokens.

The first two panels have the authors' settings (Tarzanagh et al. 2023: six starts, normalized gradient descent at rate
0.1), the fourth their 100 random data sets.  The third is the flow, with the best key (-a, 1) leaning by a.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap.claims.systems import quiet_flow, quiet_train
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.figures.statistics import enough_seeds, exact, majority
from scansnap.figures.style import COLORS, label, legend, line
from scansnap.papers.selection.system import NextToken, TokenSelection
from scansnap.papers.selection.theory import component_direction, component_logits, key_differences, max_margin

STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
"""p_y at the start; p_x is 0."""

THIRD = {"global": 0.9, "local": 0.0}
"""The score of the third token in the two examples."""

LEANS = (0.3, 0.1, 0.03, 0.0)
PATH_STEPS = 200
TIMES = np.geomspace(1.0, 1e60, 241)


def prepare(*, num_seeds: int = 100) -> xr.Dataset:
    """`path` (example, start, step, coordinate), `direction` of the ATT-SVM (selected, coordinate), `angle` (lean,
    time), and of the data sets `best` (seed, update), whether all best tokens are selected, and `cosine`."""
    enough_seeds(num_seeds)
    optimizer: dict[str, Any] = {"lr": 0.1, "optimizer": "normalized_sgd", "dtype": "float64"}
    paths = [
        [
            quiet_train(_plane(third=third, start_y=y), steps=PATH_STEPS, record="p", **optimizer)["p"].values[0]
            for y in STARTS
        ]
        for third in THIRD.values()
    ]
    keys = _plane().data(np.zeros(1, np.uint64), None)["keys"][0]
    solutions = [max_margin(key_differences(keys, [selected])) for selected in (0, 1)]
    angles = []
    for lean in LEANS:
        p = quiet_flow(_plane(lean=lean, start_y=1.0), lr=1.0, times=TIMES, record="p")["p"].values[0]
        angles.append(np.degrees(np.arctan2(-p[:, 0], p[:, 1]) - np.arctan(lean)))
    sets = quiet_train(
        TokenSelection(init_scale=0.0),
        steps=8000,
        seeds=range(num_seeds),
        record_every=100,
        **optimizer,
    )
    return xr.Dataset(
        {
            "path": (("example", "start", "step", "coordinate"), np.array(paths), {"units": "1"}),
            "direction": (("selected", "coordinate"), np.array([s.direction for s in solutions if s]), {"units": "1"}),
            "angle": (("lean", "time"), np.array(angles), {"units": "degrees"}),
            "best": (("seed", "update"), sets["selects_best"].values.min(-1), {"units": "1"}),
            "cosine": (("seed", "update"), sets["cosine"].values, {"units": "1"}),
        },
        coords={
            "example": list(THIRD),
            "start": list(STARTS),
            "step": np.arange(PATH_STEPS + 1),
            "lean": list(LEANS),
            "time": ("time", TIMES, {"units": "1/rate"}),
            "update": sets["step"].values,
        },
    )


def _plane(**settings: float) -> TokenSelection:
    return TokenSelection(example="plane", trained="p", **settings)  # type: ignore[arg-type]


def draw(dataset: xr.Dataset) -> Figure:
    """The two examples above; the angle of the flow and the data sets below."""
    figure = Figure(figsize=(8.4, 6.4), layout="constrained")
    panels = figure.subplots(2, 2)
    keys = np.array([(-0.1, 1.0), (1.0, 0.0), (0.0, 0.0)])
    for axes, (example, third) in zip(panels[0], THIRD.items(), strict=True):
        for start in dataset["start"].values:
            path = dataset["path"].sel(example=example, start=start)
            axes.plot(path.sel(coordinate=0), path.sel(coordinate=1), color="0.5", linewidth=1.2)
            axes.plot(*path.isel(step=0), ".", color="0.3", markersize=6)
        for i, (score, marker) in enumerate(zip((1.0, 0.9, third), "*sD", strict=True)):
            axes.plot(*keys[i], marker, color=COLORS[i], markersize=9, label=f"token with score {score:g}", zorder=3)
        for i, way in enumerate(dataset["direction"].values):
            far = 20 * way / np.linalg.norm(way)
            axes.plot((0, far[0]), (0, far[1]), "--", color=COLORS[i], linewidth=1.4, zorder=2)
        axes.set(xlim=(-4, 10), ylim=(-2, 10))
        label(axes, x="$p_x$", y="$p_y$", title=f"paths of p from dots on, third score {third:g}; dashed: ATT-SVM")
        legend(axes, loc="upper right")
    angle, sets = panels[1]
    for i, lean in enumerate(dataset["lean"].values):
        angle.plot(dataset["time"], dataset["angle"].sel(lean=lean), **line(i), linewidth=1.6, label=f"a = {lean:g}")
    angle.axhline(0, color="black", linewidth=0.8)
    angle.set(xscale="log")
    label(angle, x="time", y="angle beyond the ATT-SVM (degrees)", title="flow from p = (0, 1), best key (-a, 1)")
    legend(angle)
    best, cosine = dataset["best"].mean("seed"), dataset["cosine"].median("seed")
    sets.plot(dataset["update"], cosine, **line(0), linewidth=1.6, label="cosine with the ATT-SVM, median")
    sets.plot(dataset["update"], best, **line(1), linewidth=1.6, label="share with all best tokens selected")
    sets.set(ylim=(0, 1.05))
    label(sets, x="updates", y="share or cosine", title=f"{dataset.sizes['seed']} random data sets, W trained")
    legend(sets, loc="lower right")
    return figure


def trends(dataset: xr.Dataset) -> list[Trend]:
    """Which tokens win in the plane, the overshoot, and which tokens win in random data sets."""
    ends = dataset["path"].isel(step=-1)
    wins = (ends.sel(coordinate=1) > 1.1 * ends.sel(coordinate=0)).values.sum(-1)  # k_1'p > k_2'p
    angle = dataset["angle"].sel(lean=0.1).values
    largest = dataset["angle"].max("time").values
    cosine = float(dataset["cosine"].isel(update=-1).median())
    return [
        exact(
            "With losing scores that are equal, every start selects the best token.",
            wins[0],
            f"starts, of {len(STARTS)}, that end with most attention on the best token",
            at_least=len(STARTS),
        ),
        exact(
            "With the third score at 0 the start decides which token is selected.",
            min(wins[1], len(STARTS) - wins[1]),
            f"starts, of {len(STARTS)}, that select the token selected less often",
            above=0,
        ),
        exact(
            "The direction crosses the ATT-SVM's.",
            angle.max() if angle[0] < 0 else np.nan,
            "largest angle in degrees, after a start below 0; a = 0.1",
            above=1,
        ),
        exact("Then it returns.", abs(angle[-1]) / angle.max(), "angle at 1e60 over the largest; a = 0.1", below=0.2),
        exact(
            "The less the best key leans, the larger is the overshoot.",
            np.diff(largest).min(),
            "least increase of the largest angle from one a to the next smaller one, in degrees",
            above=0,
        ),
        exact(
            "W converges in direction to the ATT-SVM of the tokens that it selects.",
            cosine,
            f"median cosine over {dataset.sizes['seed']} data sets after {int(dataset['update'][-1])} updates",
            above=0.999,
        ),
        majority(
            "Most data sets select the best token of every input.",
            dataset["best"].isel(update=-1).values > 0.5,
            "data sets",
        ),
    ]


FIGURE = FigureRecipe(
    name="selection",
    title="Max-margin token selection",
    statement="Attention trained alone selects one token of each input, and its direction is that of an ATT-SVM.",
    setting="normalized gradient descent at rate 0.1; 100 random data sets of 6 inputs with 8 tokens; flow to 1e60",
    prepare=prepare,
    draw=draw,
    trends=trends,
)


def prepare_next_token() -> xr.Dataset:
    """Logits `z` (token, time) of a chain of components, their `component`, their `slope` in ln t and their `limit`
    within the component, both predicted."""
    system = NextToken(example="chain")
    run = quiet_flow(system, lr_z=1.0, times=TIMES, seeds=[0], record="z")
    data = {name: values[0] for name, values in system.data(np.zeros(1, np.uint64), None).items()}
    return xr.Dataset(
        {
            "z": (("token", "time"), run["z"].values[0].T, {"units": "1"}),
            "component": ("token", data["component"]),
            "slope": ("token", component_direction(data["counts"], data["target"])),
            "limit": ("token", component_logits(data["counts"], data["target"], data["weight"])),
        },
        coords={"time": ("time", TIMES, {"units": "1/rate"}), "token": np.arange(system.tokens)},
    )


def draw_next_token(dataset: xr.Dataset) -> Figure:
    """All logits on the left; on the right, logits less the mean of their component, with their limits."""
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    both, inner = figure.subplots(1, 2)
    within = _within(dataset)
    for token, component in enumerate(dataset["component"].values):
        style = line(int(component))
        both.plot(dataset["time"], dataset["z"][token], **style, linewidth=1.4, label=f"component {component}")
        inner.plot(dataset["time"], within[token], **style, linewidth=1.4)
        inner.plot(dataset["time"][-1], dataset["limit"][token], "o", color=style["color"], markersize=5, clip_on=False)
    for axes in (both, inner):
        axes.set(xscale="log", xlim=TIMES[[0, -1]])
    handles, names = both.get_legend_handles_labels()
    by_name = dict(zip(names, handles, strict=True))
    legend(both, [by_name[name] for name in sorted(by_name)], sorted(by_name))
    label(both, x="time", y="logit z", title="between components gaps grow like ln t")
    label(inner, x="time", y="z less the component's mean", title="within components they settle (dots: predicted)")
    return figure


def _within(dataset: xr.Dataset) -> xr.DataArray:
    return dataset["z"].groupby(dataset["component"]) - dataset["z"].groupby(dataset["component"]).mean()


def next_token_trends(dataset: xr.Dataset) -> list[Trend]:
    """The limits within components and the growth between them."""
    within = np.abs(_within(dataset).isel(time=-1).values - dataset["limit"].values).max()
    late = dataset["z"].isel(time=[-81, -1])
    slope = late.diff("time").values[:, 0] / np.diff(np.log(late["time"].values))
    growth = np.abs(slope - dataset["slope"].values).max()
    return [
        exact(
            "Within a component logits converge to the log of their frequencies.",
            within,
            "largest distance of a logit at 1e60 from its limit, both less the component's mean",
            below=1e-6,
        ),
        exact(
            "Between components logits part like ln t.",
            growth,
            "largest difference of d z/d ln t from the max-margin direction, from 1e40 to 1e60",
            below=1e-6,
        ),
    ]


NEXT_TOKEN = FigureRecipe(
    name="next_token",
    title="Next-token prediction with attention alone",
    statement="Attention retrieves the first component of the token-priority graph and mixes the tokens within it.",
    setting="one query, 8 tokens in a chain of components, flow from zero to 1e60",
    prepare=prepare_next_token,
    draw=draw_next_token,
    trends=next_token_trends,
)
