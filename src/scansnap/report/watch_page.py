"""One self-contained page of a watch: verdicts, maps of the heads over time, lines, and patterns with their tokens."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.dataset import LOSS, recorded_quantities, split_missing
from scansnap.monitor.verdict_rules import HEAD_VERDICTS
from scansnap.monitor.verdicts import LayerVerdict, by_kind, headline, unjudged_verdicts
from scansnap.report import html
from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import InstanceType
from scansnap.validation.validate import validated

MAX_SNAPSHOTS = 400
"""At most this many snapshots are shown, evenly spaced."""

PATTERN_CELLS = 8 * 2**20
"""Cells of all patterns on the page, a byte each before compression: 24 snapshots of 12 by 12 heads on 48 tokens."""

SEVERITIES = {"alarm": "fails", "notice": "half", "pattern": "soft"}
"""How verdicts are colored: classes of the style sheet."""


@validated
def write_watch_page(
    page: str | Path, dataset: Annotated[xr.Dataset, InstanceType(xr.Dataset, "a Dataset, such as watch.dataset")]
) -> None:
    """Write a page about the snapshots of a watch, with all verdicts that are registered, your own too.

    >>> import torch
    >>> model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    >>> ss.write_watch_page("snapshots.html", ss.watch(model, probe=torch.randn(2, 12, 16)).dataset)
    """
    page = Path(page)
    html.check_page(page)
    html.write_page(page, render_watch(dataset))


def render_watch(dataset: xr.Dataset) -> str:
    """The page as text."""
    if not dataset.sizes.get("step"):
        raise InputError("there are no snapshots yet: start the training, and make the page after its first step.")
    kinds = by_kind(dataset)
    return html.render(
        "watch_page.html.jinja",
        kinds=kinds,
        headline=headline(dataset, kinds),
        meanings={name: HEAD_VERDICTS.member(name).meaning for name in kinds},
        unjudged=unjudged_verdicts(dataset),
        severities=SEVERITIES,
        missing=_missing(dataset),
        attributes=dataset.attrs,
        steps=dataset["step"].values.tolist(),
        data=page_data(dataset, [layer for layers in kinds.values() for layer in layers]),
    )


def page_data(dataset: xr.Dataset, verdicts: Sequence[LayerVerdict]) -> dict[str, Any]:
    """What the page's script reads; arrays are compressed."""
    snapshots = dataset.isel(step=_evenly_spaced(np.arange(dataset.sizes["step"]), MAX_SNAPSHOTS))
    quantities = {name: snapshots[name] for name in recorded_quantities(snapshots)}
    arrays = [values.values.astype(np.float32) for values in quantities.values()]
    measured = np.flatnonzero(np.isfinite(arrays).any((0, 2, 3)))
    return {
        "steps": snapshots["step"].values.tolist(),
        "reasons": snapshots["reason"].values.tolist(),
        "last": int(measured[-1]) if len(measured) else snapshots.sizes["step"] - 1,
        "layers": snapshots["module"].values.tolist(),
        "kinds": snapshots["attention_kind"].values.tolist(),
        "heads": snapshots.sizes["head"],
        "quantities": [
            {"name": name, "label": values.attrs.get("long_name", name), "units": values.attrs.get("units", "1")}
            for name, values in quantities.items()
        ],
        "values": _packed(np.stack(arrays)),
        "loss": _loss(snapshots),
        "marks": [
            {
                "step": began,
                "severity": verdict.severity,
                "head": f"{verdict.layer},{verdict.head}",
                "name": verdict.name,
            }
            for layer in verdicts
            for verdict in layer.heads
            for began, _ in verdict.episodes
        ],
        "alarms": [
            f"{verdict.layer},{verdict.head}"
            for layer in verdicts
            for verdict in layer.heads
            if verdict.severity == "alarm"
        ],
        "pattern": _pattern(snapshots, measured),
    }


def _loss(snapshots: xr.Dataset) -> list[float | None] | None:
    """The loss at each snapshot, None where it is not known; None if it never was."""
    values = snapshots[LOSS].values if LOSS in snapshots else np.zeros(0)
    return [float(x) if np.isfinite(x) else None for x in values] if np.isfinite(values).any() else None


def _pattern(snapshots: xr.Dataset, measured: NDArray[np.int64]) -> dict[str, Any] | None:
    """Patterns at some of the snapshots that are not missing, as bytes: 255 is a weight of 1."""
    if "pattern" not in snapshots or not len(measured):
        return None
    cells = int(np.prod(snapshots["pattern"].shape[1:]))
    chosen = _evenly_spaced(measured, max(2, PATTERN_CELLS // max(1, cells)))
    weights = np.nan_to_num(snapshots["pattern"].isel(step=chosen).values)
    return {
        "snapshots": chosen.tolist(),
        "rows": weights.shape[3],
        "keys": weights.shape[4],
        "tokens": snapshots["token"].values.tolist(),
        "weights": _packed(np.round(255 * weights.clip(0, 1)).astype(np.uint8)),
    }


def _evenly_spaced(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most `count` of these, evenly spaced from the first to the last."""
    return places[np.linspace(0, len(places) - 1, min(count, len(places))).round().astype(np.int64)]


def _missing(dataset: xr.Dataset) -> list[tuple[str, list[int]]]:
    """The reasons of snapshots that are missing, whole or in part, with the steps of those that follow each other."""
    runs = groupby(split_missing(dataset)[1], lambda failed: failed[1])
    return [(reason, [step for step, _ in run]) for reason, run in runs]


def _packed(array: NDArray[Any]) -> str:
    """The numbers as text that the page unpacks: little-endian, deflated, in base64."""
    return base64.b64encode(zlib.compress(array.astype(array.dtype.newbyteorder("<")).tobytes(), 9)).decode()
