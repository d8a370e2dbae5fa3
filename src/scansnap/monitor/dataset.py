"""The labeled form of looks.

Dimensions are step, layer and head; `pattern` also has row and key.  A layer is one attention of the model, in the
order in which a forward pass computes them, with the module's name as its coordinate `module`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.quantities import HeadQuantity
from scansnap.results.dataset import attributes

HEADS = ("step", "layer", "head")

FINITE = "finite"
"""What every look records, whatever it is asked for: 1 for a head whose logits are all finite, or 0; NaN for the heads
of other layers that are not finite either, once the first was not."""


@dataclass(frozen=True)
class Look:
    """What one look has measured; with a `reason` some of it is not there, or all of it: `values` is empty."""

    step: int
    values: Mapping[str, NDArray[np.float64]]  # (layer, head)
    pattern: NDArray[np.float32] | None = None  # (layer, head, row, key)
    reason: str = ""

    @property
    def status(self) -> str:
        return "ok" if not self.reason else "partial" if self.values else "missing"


@dataclass(frozen=True)
class Labels:
    """What the layers and tokens are called, and the attributes of the result."""

    modules: Sequence[str]
    kinds: Sequence[str]
    heads: int
    rows: int
    keys: int
    tokens: Sequence[str]  # of the rows of a pattern, which may have more than these
    attributes: Mapping[str, Any]


def make_dataset(
    labels: Labels, record: Sequence[HeadQuantity], looks: Sequence[Look], *, patterns: bool = True
) -> xr.Dataset:
    """The looks as a Dataset; NaN where a look failed, or a layer has fewer heads or tokens than others."""
    shape = len(labels.modules), labels.heads
    variables: dict[str, Any] = {
        quantity.name: (
            HEADS,
            _stack([look.values.get(quantity.name) for look in looks], shape, np.float64),
            {"long_name": quantity.long_name, "units": quantity.units},
        )
        for quantity in record
    }
    variables[FINITE] = (
        HEADS,
        _stack([look.values.get(FINITE) for look in looks], shape, np.float64),
        {"long_name": "whether all attention logits are finite", "units": "1"},
    )
    if patterns:
        variables["pattern"] = (
            (*HEADS, "row", "key"),
            _stack([look.pattern for look in looks], (*shape, labels.rows, labels.keys), np.float32),
            {"long_name": "attention among the first tokens of the first window of the probe", "units": "1"},
        )
    tokens = [*labels.tokens, *[""] * labels.rows][: labels.rows]
    return xr.Dataset(
        variables,
        coords={
            "step": ("step", np.array([look.step for look in looks], np.int64), {"units": "steps"}),
            "layer": np.arange(shape[0]),
            "module": ("layer", np.array(labels.modules, np.str_)),
            "attention_kind": ("layer", np.array(labels.kinds, "U6")),
            "head": np.arange(shape[1]),
            "row": np.arange(labels.rows),
            "key": np.arange(labels.keys),
            "token": ("row", np.array(tokens, np.str_)),
            "status": ("step", np.array([look.status for look in looks], "U7")),
            "reason": ("step", np.array([look.reason for look in looks], np.str_)),
        },
        attrs=dict(labels.attributes),
    )


def of_heads(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """What a Dataset has a number of for each look, layer and head, by name."""
    return {str(name): values for name, values in dataset.data_vars.items() if values.dims == HEADS}


def looks_of(dataset: xr.Dataset) -> list[Look]:
    """The looks that a Dataset holds, without their patterns."""
    arrays = {name: values.values for name, values in of_heads(dataset).items()}
    texts = [dataset[name].values.tolist() for name in ("step", "status", "reason")]
    return [
        Look(step, {} if status == "missing" else {name: a[i] for name, a in arrays.items()}, reason=reason)
        for i, (step, status, reason) in enumerate(zip(*texts, strict=True))
    ]


def quantities_of(dataset: xr.Dataset) -> list[str]:
    """The quantities that a Dataset has, in the order in which they were asked for."""
    names = [name for name in of_heads(dataset) if name != FINITE]
    asked = json.loads(dataset.attrs.get("options", "{}")).get("record", [])
    return sorted(names, key=lambda name: asked.index(name) if name in asked else len(asked))


def split_looks(dataset: xr.Dataset) -> tuple[xr.Dataset, list[tuple[int, str]]]:
    """The looks that are not missing, and the steps and reasons of those that are, whole or in part."""
    status = dataset["status"].values if "status" in dataset.coords else np.full(dataset.sizes["step"], "ok")
    failed = dataset.isel(step=np.flatnonzero(status != "ok"))
    reasons = failed["reason"].values.tolist() if len(failed["step"]) else []
    return dataset.isel(step=np.flatnonzero(status != "missing")), list(
        zip(failed["step"].values.tolist(), reasons, strict=True)
    )


def describe(model: str, probe: str, record: Sequence[HeadQuantity], **more: Any) -> dict[str, Any]:
    """The attributes of a result."""
    options = {"record": [*(quantity.name for quantity in record), "pattern"], **more}
    return attributes("watch", "attention of a model in training", options, model=model, probe=probe, **more)


def _stack(values: Sequence[NDArray[Any] | None], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """One array of all looks, NaN for those that have no value."""
    result = np.full((len(values), *shape), np.nan, dtype)
    for i, value in enumerate(values):
        if value is not None:
            result[i] = value
    return result
