"""Pictures of one run on text: curves over its updates, and attention with the words on both axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from scansnap.figures.style import (
    attention_bar,
    attention_colors,
    label,
    legend,
    line,
    plain,
    plain_ticks,
    widen_axis,
)
from scansnap.results.measure import snaps
from scansnap.results.store import load
from scansnap.runtime.errors import InputError

PANELS = 4
"""How many steps are shown unless they are given."""


def prepare_words(
    run: xr.Dataset, *, steps: Sequence[int] | None = None, layer: int = 0, head: int = 0, window: int = 0
) -> xr.Dataset:
    """`attention` (step, query_position, key_position) of one head on one window, with its words.

    `run` is a result of `train_text`.  Shown are the records nearest to `steps`; by default four, evenly spaced.
    """
    if "pattern" not in run:
        raise InputError("this result has no patterns: train with patterns of at least 1.")
    for name, value in (("layer", layer), ("head", head), ("window", window)):
        if not 0 <= value < run.sizes[name]:
            raise InputError(f"{name} is {value}: this result has {name}s 0 to {run.sizes[name] - 1}.")
    patterns = run["pattern"].isel(run=0, layer=layer, head=head, window=window).dropna("step", how="all")
    recorded = patterns["step"].values
    if not len(recorded):
        raise InputError("this run has no records yet: start it again, and draw it when it has run for a minute.")
    if steps is not None and not len(steps):
        raise InputError("steps is empty: give the steps to show, at least one.")
    wanted = np.linspace(recorded[0], recorded[-1], PANELS) if steps is None else np.asarray(steps)
    nearest = np.unique(np.abs(recorded[:, None] - wanted).argmin(0))
    dataset = patterns.isel(step=nearest).to_dataset(name="attention").reset_coords(drop=True)
    dataset["word"] = ("key_position", run["word"].isel(window=window).values)
    return dataset.assign_attrs(title=f"attention of layer {layer}, head {head}")


def prepare_own_text(result: str | Path, text: str, *, layer: int = 0, head: int = 0) -> xr.Dataset:
    """The same for the trained model that is stored beside a result, on a text of the user's, at the last step."""
    import torch

    from scansnap.text.model_file import load_model, model_folder

    status = str(load(result, partial=True)["status"].values[0])
    if status != "ok":
        raise InputError(
            f"{result} is {status} and has left no trained model: give the result of a run that has finished."
        )
    model, tokenizer = load_model(model_folder(result))
    ids = tokenizer.encode(text)
    if not 2 <= len(ids) <= model.shape.window:
        raise InputError(
            f"the text has {len(ids)} tokens: give from 2 to {model.shape.window}, the length of the model's windows."
        )
    weights = model.attention(torch.from_numpy(ids.astype(np.int64))[None])
    for name, value, count in (("layer", layer, len(weights)), ("head", head, model.shape.heads)):
        if not 0 <= value < count:
            raise InputError(f"{name} is {value}: this model has {name}s 0 to {count - 1}.")
    return xr.Dataset(
        {
            "attention": (("step", "query_position", "key_position"), weights[layer][:, head].numpy()),
            "word": ("key_position", np.array(tokenizer.words(ids))),
        },
        coords={"step": [int(load(result)["step"].values[-1])]},
        attrs={"title": f"attention of layer {layer}, head {head}"},
    )


def draw_words(dataset: xr.Dataset) -> Figure:
    """A panel for each step, at most two side by side."""
    count = dataset.sizes["step"]
    columns = min(2, count)
    rows = -(-count // columns)
    side = min(5.2, max(2.6, 0.17 * dataset.sizes["key_position"]))  # inches of a panel
    figure = Figure(figsize=((side + 1.2) * columns + 0.6, (side + 1.0) * rows + 0.5), layout="constrained")
    for i, step in enumerate(dataset["step"].values):
        axes = figure.add_subplot(rows, columns, i + 1)
        attention = dataset["attention"].sel(step=step).values
        image = draw_pattern(axes, attention, dataset["word"].values, f"step {step:,}", inches=side)
    attention_bar(figure.axes, image, fraction=0.03, aspect=40, pad=0.01)
    figure.suptitle(f"{dataset.attrs['title']}: rows attend to columns", fontsize=11)
    return figure


def draw_pattern(axes: Axes, attention: np.ndarray, words: np.ndarray, title: str, *, inches: float) -> AxesImage:
    """Draw one pattern (T, T) in a panel of `inches`; keys after the query, which it cannot see, stay white."""
    hidden = np.triu(np.ones_like(attention, dtype=bool), 1)
    image = axes.imshow(np.ma.masked_where(hidden, attention), **attention_colors(), aspect="equal")
    places = np.arange(len(words))
    size = min(9.0, 0.75 * 72 * inches / len(words))  # a point is 1/72 of an inch
    shown = [plain(word, 14) for word in words]
    axes.set_xticks(places, shown, rotation=90, fontsize=size)
    axes.set_yticks(places, shown, fontsize=size)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=9, loc="left")
    return image


CURVES = (
    ("loss", "loss (nats)"),
    ("normalized_entropy", "entropy of attention / largest"),
    ("rate", "attention moved per step"),
)


def prepare_curves(run: xr.Dataset) -> xr.Dataset:
    """`loss` (step), and by layer and head `normalized_entropy`, `rate` and `snap_step` (NaN if not frozen yet)."""
    if run.attrs.get("kind") != "text":
        raise InputError("this is not a result of training on text: give one that train_text returned.")
    measures = run.isel(run=0)
    dataset = measures[["loss", "valid_loss", "normalized_entropy"]].reset_coords(drop=True)
    dataset["rate"] = measures["moved"].reset_coords(drop=True) / measures["step"].diff("step")
    dataset = dataset.merge(snaps(run).isel(run=0)[["snap_step"]].reset_coords(drop=True))
    return dataset.assign_attrs(title=f"{'The (Y, Z) model' if 'query' in run.sizes else 'A transformer'} on text")


def draw_curves(dataset: xr.Dataset) -> Figure:
    """Three panels over steps, with a dotted line where the pattern of a head froze."""
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    steps = dataset["step"].values
    heads = [(i, j) for i in range(dataset.sizes["layer"]) for j in range(dataset.sizes["head"])]
    for k, (name, words) in enumerate(CURVES):
        axes = figure.add_subplot(1, 3, k + 1)
        if name == "loss":
            axes.plot(steps, dataset["loss"], **line(0), linewidth=1.6, label="training, mean since the last record")
            axes.plot(steps, dataset["valid_loss"], "o", color="black", markersize=4, label="validation")
            legend(axes)
        for n, (i, j) in enumerate(heads if name != "loss" else []):
            of_head = dataset.isel(layer=i, head=j)
            axes.plot(steps, of_head[name], **line(n), linewidth=1.6, label=f"layer {i}, head {j}")
            if of_head["snap_step"].notnull():
                axes.axvline(float(of_head["snap_step"]), color=line(n)["color"], linestyle=":", linewidth=1)
        if name == "rate":
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
        if name == "normalized_entropy" and len(heads) <= 12:
            legend(axes)
        label(axes, x="updates", y=words)
        widen_axis(axes)
    froze = "; dotted: where a pattern froze" if dataset["snap_step"].notnull().any() else "; no pattern has frozen"
    figure.suptitle(f"{dataset.attrs['title']}{froze}", fontsize=11)
    return figure
