"""One self-contained page of a watch: verdicts, maps of the heads over time, lines, and patterns with their tokens."""

from __future__ import annotations

import base64
import zlib
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.monitor.verdicts import HeadVerdict, judge_heads
from scansnap.report import html
from scansnap.report.claims_page import check_page

SHOWN_LOOKS = 400
"""Looks on the page; of more, so many evenly spread ones."""

PATTERN_CELLS = 8 * 2**20
"""Cells of all patterns on the page, a byte each before compression: 24 looks at 12 by 12 heads on 48 tokens."""

SEVERITIES = {"alarm": "fails", "notice": "half", "pattern": "soft"}
"""How verdicts are colored: classes of the style sheet."""


def write_watch_page(page: Path, dataset: xr.Dataset) -> None:
    """Write a page about the looks of a watch."""
    check_page(page)
    html.write_page(page, render_watch(dataset))


def render_watch(dataset: xr.Dataset) -> str:
    """The page as text."""
    if not dataset.sizes.get("step"):
        raise InputError("there are no looks yet: start the training, and make the page after its first step.")
    verdicts = judge_heads(dataset)
    return html.render(
        "watch_page.html.jinja",
        groups=[(name, list(group)) for name, group in groupby(verdicts, lambda verdict: verdict.name)],
        severities=SEVERITIES,
        missing=_missing(dataset),
        attributes=dataset.attrs,
        steps=dataset["step"].values.tolist(),
        data=page_data(dataset, verdicts),
    )


def page_data(dataset: xr.Dataset, verdicts: list[HeadVerdict]) -> dict[str, Any]:
    """What the page's script reads; arrays are compressed."""
    whole = np.flatnonzero(dataset["status"].values == "ok")
    looks = dataset.isel(step=_spread(whole, SHOWN_LOOKS))
    quantities = {
        str(name): values for name, values in looks.data_vars.items() if values.dims == ("step", "layer", "head")
    }
    arrays = [values.values.astype(np.float32) for values in quantities.values()]
    return {
        "steps": looks["step"].values.tolist(),
        "layers": looks["module"].values.tolist(),
        "kinds": looks["attention_kind"].values.tolist(),
        "heads": looks.sizes["head"],
        "quantities": [
            {"name": name, "label": values.attrs.get("long_name", name), "units": values.attrs.get("units", "1")}
            for name, values in quantities.items()
        ],
        "values": _packed(np.stack(arrays)),
        "alarms": [f"{verdict.layer},{verdict.head}" for verdict in verdicts if verdict.severity == "alarm"],
        "pattern": _pattern(looks),
    }  # fmt: skip


def _pattern(looks: xr.Dataset) -> dict[str, Any] | None:
    """Patterns at some of the looks, as bytes: 255 is a weight of 1."""
    if "pattern" not in looks or not looks.sizes["step"]:
        return None
    cells = int(np.prod(looks["pattern"].shape[1:]))
    chosen = _spread(np.arange(looks.sizes["step"]), max(2, PATTERN_CELLS // max(1, cells)))
    weights = np.nan_to_num(looks["pattern"].isel(step=chosen).values)
    return {
        "looks": chosen.tolist(),
        "rows": weights.shape[3],
        "keys": weights.shape[4],
        "tokens": looks["token"].values.tolist(),
        "weights": _packed(np.round(255 * weights.clip(0, 1)).astype(np.uint8)),
    }


def _missing(dataset: xr.Dataset) -> list[tuple[int, str]]:
    failed = dataset.isel(step=np.flatnonzero(dataset["status"].values != "ok"))
    return list(zip(failed["step"].values.tolist(), failed["reason"].values.tolist(), strict=True))


def _spread(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most `count` of these places, evenly spread, with the first and the last."""
    if len(places) <= count:
        return places
    return places[np.linspace(0, len(places) - 1, count).round().astype(np.int64)]


def _packed(array: NDArray[Any]) -> str:
    """The numbers as text that the page unpacks: little-endian, deflated, in base64."""
    return base64.b64encode(zlib.compress(array.astype(array.dtype.newbyteorder("<")).tobytes(), 9)).decode()
