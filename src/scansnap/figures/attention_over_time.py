"""Attention of each class over training: one panel per class, with the loss and the entropy beside them.

A dashed line marks from when on common tokens had lost attention, and a dotted one where a class's attention froze, or
only slowed: its title says which, who won, and how far attention moved since.  Other runs of the result are gray lines
beside the one shown, and the title says when all of them snapped.  Where a class has no distinct token, favored tokens
take their place.  Updates are on a linear axis, the time of flows, which spans many decades, on a logarithmic one.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from scansnap.figures.style import (
    COLORS,
    LINES,
    attention_bar,
    attention_colors,
    label,
    legend,
    mathtext,
    plain,
    plain_ticks,
    widen_axis,
)
from scansnap.results.measure import favored, favored_entropy, record_dimension, snaps
from scansnap.results.story import options_in_words, stories, summarize_snaps
from scansnap.runtime.errors import InputError

TOKEN_NAME = 24
"""The largest number of characters in the name of a token."""

UPPER_KINDS = ("distinct", "favored")
"""The kinds of tokens that are drawn above the others."""

MOST_CLASSES = 4
"""The most panels; of more classes the first few are shown, and the title says so."""

MOST_RUNS = 100
"""The most other runs of which lines are drawn."""


def has_attention(dataset: xr.Dataset) -> bool:
    """Whether the first run has attention at any record: one that fails or diverges at once has none."""
    return bool((dataset["attention"].isel(run=0) > 0).any())


def prepare(dataset: xr.Dataset, *, run: int = 0) -> xr.Dataset:
    """One run of a result of `train` or `flow`: attention, loss and entropy of its first few classes.

    `snap` is where the attention of a class slowed, NaN if it has not, `stays` whether it stayed there, and
    `moved_since` how much of it moved since; `winner` is the token that it attends to most at the end, and
    `winner_share` how much.  `run_snap` is where all of each run had slowed, and `run_stays` whether all stayed.
    `scan` is from when on common tokens of this run had lost attention, NaN if they have not.
    `other_loss` and `other_entropy`, the mean over classes, are those of the other runs.
    """
    missing = [name for name in ("attention", "loss", "entropy") if name not in dataset]
    if missing:
        raise InputError(f"the picture needs {', '.join(missing)}, which this result did not record: record that too.")
    if "run" not in dataset.dims:
        raise InputError("this is one run of a result: give the whole result, and the run's number as run.")
    axis = record_dimension(dataset)
    if dataset.sizes[axis] < 2:
        raise InputError(
            f"the picture needs at least two records along '{axis}', but this result has one: record more often."
        )
    if not has_attention(dataset):
        raise InputError("this result holds no attention that could be drawn: lower the learning rates.")
    if not 0 <= run < dataset.sizes["run"]:
        raise InputError(f"there is no run {run}: give one from 0 to {dataset.sizes['run'] - 1}.")
    result, kind = _by_kind(dataset[["attention", "loss", "entropy"]])
    frozen = snaps(dataset)
    frozen = frozen[["moved_since"]].assign(snap=frozen["snap_step"], stays=frozen["snap_status"] != "slowed")
    measures = result.isel(run=run).assign(frozen.isel(run=run, drop=True).data_vars)
    for part in ("head", "layer"):
        several = measures.sizes[part] > 1
        measures = _as_classes(measures, part) if several else measures.squeeze(part, drop=True)
    patterns = [dim for dim in frozen.dims if dim != "run"]
    all_snapped = frozen["snap"].notnull().all(patterns)
    measures["run_snap"] = ("any_run", frozen["snap"].max(patterns).where(all_snapped).values)
    measures["run_stays"] = ("any_run", frozen["stays"].all(patterns).values)
    others = result[["loss", "entropy"]].drop_isel(run=run).isel(run=slice(MOST_RUNS)).rename(run="other_run")
    measures["other_loss"] = others["loss"].reset_coords(drop=True)
    measures["other_entropy"] = others["entropy"].mean(("class", "layer", "head")).reset_coords(drop=True)
    story = stories(dataset.isel(run=[run]))[0]
    measures["scan"] = np.nan if story.scan_step is None else story.scan_step
    last = measures["attention"].isel({axis: -1}, drop=True).fillna(0.0)  # nothing is left of a run that diverged
    measures["winner"] = last["token_name"].isel(token=last.argmax("token")).reset_coords(drop=True)
    measures["winner_share"] = last.max("token")
    return (
        measures.isel({"class": slice(MOST_CLASSES)})
        .assign_attrs(num_classes=measures.sizes["class"], num_runs=dataset.sizes["run"], kind=kind, story=story.scan)
        .load()
    )


def _by_kind(dataset: xr.Dataset) -> tuple[xr.Dataset, str]:
    """The result with the entropy on distinct tokens, or on favored ones if a class has none; and which of the two."""
    if "classes" not in dataset.attrs or bool(
        dataset["entropy"].isel(run=0).notnull().any(record_dimension(dataset)).all()
    ):
        return dataset, "distinct"
    of_class = favored(dataset)
    kinds = xr.where(of_class, "favored", "not favored").astype("U11")
    return dataset.assign(entropy=favored_entropy(dataset)).assign_coords(token_kind=kinds), "favored"


def _as_classes(measures: xr.Dataset, part: str) -> xr.Dataset:
    """Each head, or layer, of each class as a class of its own, named for both; the loss is that of the whole."""
    parts = []
    for number in measures[part].values:
        values = measures[["attention", "entropy", "snap", "stays", "moved_since"]].sel({part: number}, drop=True)
        names = [f"{name}, {part} {number}" for name in values["next_token_name"].values]
        parts.append(values.assign_coords(next_token_name=("class", names)))
    classes = xr.concat(parts, "class", coords="minimal", compat="override")
    return classes.sortby("class").assign(loss=measures["loss"])


def draw(dataset: xr.Dataset) -> Figure:
    """The picture of what `prepare` gives."""
    axis = record_dimension(dataset)
    panels = dataset.sizes["class"]
    rows = max(panels, 2)
    figure = Figure(figsize=(10.0, 1.5 + 2.3 * rows), layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2, width_ratios=(2.3, 1), height_ratios=[1.0] * rows + [0.06])
    maps = [figure.add_subplot(grid[i, 0]) for i in range(panels)]
    for i, axes in enumerate(maps):
        of_class = dataset.isel({"class": i})
        image = heatmap(axes, of_class["attention"], axis, float(dataset["attention"].max()))
        for mark, style in (("scan", "--"), ("snap", ":")):
            if np.isfinite(of_class[mark]):
                axes.axvline(float(of_class[mark]), color="white", linestyle=style, linewidth=1.5)
        # With y given, matplotlib does not measure all labels again and again to find a place for the title.
        axes.set_title(_panel_title(of_class, axis), fontsize=9, loc="left", y=1.0)
        axes.set_xlabel(_time_label(axis) if i == panels - 1 else "", fontsize=9)
    attention_bar(maps, image, cax=figure.add_subplot(grid[rows, 0]), orientation="horizontal")
    has_entropy = bool(dataset["entropy"].notnull().any())
    half = rows // 2 if has_entropy else rows
    loss = figure.add_subplot(grid[:half, 1])
    _lines(loss, dataset, axis, "loss", "loss")
    if dataset.sizes["other_run"]:
        legend(loss)
    if has_entropy:
        entropy = figure.add_subplot(grid[half:rows, 1])
        _lines(entropy, dataset, axis, "entropy", f"entropy on {dataset.attrs['kind']} tokens")
        below = figure.add_subplot(grid[rows, 1], frameon=False, xticks=[], yticks=[])
        names = entropy.get_legend_handles_labels()
        legend(below, *names, loc="upper center", ncols=2, columnspacing=1.0, borderaxespad=0)
    figure.suptitle("\n".join(_title(dataset, axis)), fontsize=11)
    return figure


def _title(dataset: xr.Dataset, axis: str) -> list[str]:
    """The setting, what became of common tokens, and what became of all runs, if there are several."""
    rates = mathtext(f"η_Y = {float(dataset['lr_y']):g}, η_Z = {float(dataset['lr_z']):g}")
    setting = f"{rates}{plain(options_in_words(dataset.attrs), 120)}"
    panels = dataset.sizes["class"]
    shown = "" if dataset.attrs["num_classes"] == panels else f"; {panels} of {dataset.attrs['num_classes']} classes"
    if str(dataset["status"].values) != "ok":
        shown += f"; {dataset['status'].values}"
    if dataset.attrs["num_runs"] > 1:
        shown += f"; run {int(dataset['run'])}"
    what = "training" if axis == "step" else "time"
    story = dataset.attrs["story"]
    if np.isfinite(dataset["scan"]):
        story = story.replace(" on: ", " on (dashed): ")
    lines = [f"Attention over {what}: {setting}, seed {int(dataset['seed'])}{shown}", story]
    if not dataset["entropy"].notnull().any():
        lines[1] = "no token tells the next tokens apart, so there is no entropy to show"
    return [*lines, _runs(dataset, axis)] if dataset.attrs["num_runs"] > 1 else lines


def _panel_title(of_class: xr.Dataset, axis: str) -> str:
    """A class, its winner and its snap, in words."""
    next_token, query = (plain(of_class[f"{role}_token_name"].values, 12) for role in ("next", "query"))
    share = float(of_class["winner_share"])
    winner = f"attends most to {plain(of_class['winner'].values, 12)} ({share:.0%}); " if share else ""
    return f"next token {next_token}, query {query}\n{winner}{_snap(of_class, axis)}"


def _snap(of_class: xr.Dataset, axis: str) -> str:
    """When the attention of one class snapped, in words."""
    if not np.isfinite(of_class["snap"]):
        return "no snap"
    verb = "snapped" if of_class["stays"] else "slowed"
    moved = f"{float(of_class['moved_since']):.0%} moved since"
    when = format(float(of_class["snap"]), ",.0f" if axis == "step" else ".3g")
    return f"{verb} at {axis} {when} (dotted), {moved}"


def _runs(dataset: xr.Dataset, axis: str) -> str:
    """What became of all runs, in words."""
    count = dataset.attrs["num_runs"]
    drawn = dataset.sizes["other_run"]
    others = "the other run" if count == 2 else f"the other {count - 1} runs"
    gray = f"gray: {others}" if drawn == count - 1 else f"gray: {drawn} of {others}"
    return f"{gray}; {summarize_snaps(dataset['run_snap'].values, dataset['run_stays'].values, axis)}"


def _lines(axes: Axes, dataset: xr.Dataset, axis: str, name: str, title: str) -> None:
    times = dataset[axis].values.astype(float)
    of_classes = "class" in dataset[name].dims
    others = dataset[f"other_{name}"].transpose(axis, "other_run").values
    words = f"other runs{' (mean)' * of_classes}"
    for k in range(others.shape[1]):
        axes.plot(times, others[:, k], color="0.75", linewidth=0.7, zorder=1, label=None if k else words)
    lines = dataset[name].transpose(axis, "class").values if of_classes else dataset[name].values[:, None]
    for i in range(lines.shape[1]):
        text = f"next token {plain(dataset['next_token_name'].values[i], 14)}" if of_classes else "this run"
        axes.plot(times, lines[:, i], color=COLORS[i % len(COLORS)], linestyle=LINES[i % len(LINES)], label=text)
    axes.set_xscale(SCALES[axis])
    axes.set_yscale("log" if name == "loss" else "linear")
    label(axes, _time_label(axis), f"{name} (nats)", title)
    widen_axis(axes)
    plain_ticks(axes.yaxis)


SCALES = {"step": "linear", "time": "log"}


def _time_label(axis: str) -> str:
    return "updates" if axis == "step" else "time (batch-1 updates, log scale)"


def heatmap(axes: Axes, attention: xr.DataArray, axis: str, top: float, *, name_kinds: bool = True) -> QuadMesh:
    """Draw the tokens of one class against time, common tokens below, distinct or favored ones above.

    `attention` has the dimensions `token` and `axis` and the coordinates `token_kind` and `token_name`; tokens without
    attention are left out.  The brightest color is that of `top`, the largest share in the picture.  The time of flows
    is logarithmic and leaves out its zero.
    """
    present = (attention > 0).any(axis).values
    order = np.lexsort((np.arange(attention.sizes["token"]), np.isin(attention["token_kind"].values, UPPER_KINDS)))
    order = order[present[order]]
    attention = attention.isel(token=order)
    if axis == "time":
        attention = attention.sel(time=attention["time"] > 0)
    values, places = attention.transpose("token", axis).values, np.arange(len(order))
    axes.set_xscale(SCALES[axis])
    image = axes.pcolormesh(
        attention[axis].values.astype(float),
        places,
        values,
        **attention_colors(top),
        shading="nearest",
        rasterized=True,
    )
    kinds = attention["token_kind"].values
    for kind in dict.fromkeys(kinds) if name_kinds else ():
        rows = np.flatnonzero(kinds == kind)
        axes.text(1.01, rows.mean(), kind, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
        if rows[0]:
            axes.axhline(rows[0] - 0.5, color="white", linewidth=1)
    named = places[:: -max(1, len(order) // 10)]  # from above, where the winners are
    axes.set_yticks(named, [plain(name, TOKEN_NAME) for name in attention["token_name"].values[named]], fontsize=7)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylabel("token", fontsize=9)
    return image
