"""A run on text over its updates: the loss, and each head's sparsity and how fast its pattern moves."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from scansnap.figures.style import honest_axis, label, legend, line, plain_ticks
from scansnap.results.measure import snaps
from scansnap.runtime.errors import InputError

PANELS = (
    ("loss", "loss (nats)"),
    ("normalized_entropy", "entropy of attention / largest"),
    ("rate", "attention moved per step"),
)


def prepare(run: xr.Dataset) -> xr.Dataset:
    """`loss` (step), and by layer and head `normalized_entropy`, `rate` and `snap_step` (NaN if not frozen yet)."""
    if run.attrs.get("kind") != "text":
        raise InputError("this is not a result of training on text: give one that train_text returned.")
    measures = run.isel(run=0)
    dataset = measures[["loss", "valid_loss", "normalized_entropy"]].reset_coords(drop=True)
    dataset["rate"] = measures["moved"].reset_coords(drop=True) / measures["step"].diff("step")
    dataset = dataset.merge(snaps(run).isel(run=0)[["snap_step"]].reset_coords(drop=True))
    return dataset.assign_attrs(title=f"{'The (Y, Z) model' if 'query' in run.sizes else 'A transformer'} on text")


def draw(dataset: xr.Dataset) -> Figure:
    """Three panels over steps, with a dotted line where the pattern of a head froze."""
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    steps = dataset["step"].values
    heads = [(i, j) for i in range(dataset.sizes["layer"]) for j in range(dataset.sizes["head"])]
    for k, (name, words) in enumerate(PANELS):
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
        honest_axis(axes)
    froze = "; dotted: where a pattern froze" if dataset["snap_step"].notnull().any() else "; no pattern has frozen"
    figure.suptitle(f"{dataset.attrs['title']}{froze}", fontsize=11)
    return figure
