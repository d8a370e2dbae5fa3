"""The labeled form of snapshots.

Dimensions are step, layer and head; `pattern` also has row and key.  A layer is one attention of the model, in the
order in which a forward pass computes them, with the module's name as its coordinate `module`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.quantities import HeadQuantity, QuantityError
from scansnap.runtime.errors import ScanSnapError

HEAD_DIMS = ("step", "layer", "head")

FINITE = "finite"
"""What every snapshot records: 1 for a head whose logits are all finite, or 0; NaN for the heads of other layers that
are not finite either, once the first was not."""

LOSS, LEARNING_RATE = "loss", "learning_rate"
"""What is recorded of the training at each snapshot; NaN if it is not known."""

MAX_NUMERICAL_DIFFERENCE = 0.01
"""Attention that differs by this share or less is the same up to rounding and differences between machines."""


class SnapshotError(ScanSnapError):
    """A snapshot without a result, which smaller pieces would not change; the message is the reason."""


@dataclass(frozen=True)
class SnapshotRecord:
    """What one snapshot measured; with a `reason` some of it is not there, or all of it: `values` is empty."""

    values: Mapping[str, NDArray[np.float64]]  # (layer, head), with `FINITE`; NaN where a logit is not finite
    pattern: NDArray[np.float32] | None = None  # (layer, head, row, key)
    reason: str = ""
    failures: Mapping[str, QuantityError] = field(default_factory=dict)  # by the name of the quantity
    step: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)  # the loss and the learning rate

    @property
    def status(self) -> str:
        return "ok" if not self.reason else "partial" if self.values else "missing"

    def check(self) -> SnapshotRecord:
        """This snapshot; an error if anything went wrong."""
        if self.reason:
            raise SnapshotError(self.reason)
        for failure in self.failures.values():
            raise failure
        return self


def make_dataset(
    template: xr.Dataset, record: Sequence[HeadQuantity], snapshots: Sequence[SnapshotRecord], *, patterns: bool = True
) -> xr.Dataset:
    """The snapshots as a Dataset with the coordinates and attributes of `template`, which has no steps.

    It is NaN where a snapshot failed, or a layer has fewer heads or tokens than others.
    """
    shape = template.sizes["layer"], template.sizes["head"]
    described = {quantity.name: (quantity.long_name, quantity.units) for quantity in record}
    described[FINITE] = "whether all attention logits are finite", "1"
    variables: dict[str, Any] = {
        name: (
            HEAD_DIMS,
            _stack([snapshot.values.get(name) for snapshot in snapshots], shape, np.float64),
            {"long_name": long_name, "units": units},
        )
        for name, (long_name, units) in described.items()
    }
    for name, long_name in ((LOSS, "loss at the step"), (LEARNING_RATE, "largest learning rate of the optimizer")):
        numbers = np.array([snapshot.scalars.get(name, np.nan) for snapshot in snapshots], np.float64)
        variables[name] = ("step", numbers, {"long_name": long_name, "units": "1"})
    if patterns:
        shown = template.sizes["row"], template.sizes["key"]
        variables["pattern"] = (
            (*HEAD_DIMS, "row", "key"),
            _stack([snapshot.pattern for snapshot in snapshots], (*shape, *shown), np.float32),
            {"long_name": "attention among the first tokens of the first window of the probe", "units": "1"},
        )
    of_snapshots = {
        "step": ("step", np.array([snapshot.step for snapshot in snapshots], np.int64), {"units": "steps"}),
        "status": ("step", np.array([snapshot.status for snapshot in snapshots], "U7")),
        "reason": ("step", np.array([snapshot.reason for snapshot in snapshots], np.str_)),
    }
    return xr.Dataset(variables, coords={**of_snapshots, **template.coords}, attrs=template.attrs)


def head_variables(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """The variables of a Dataset with a number for each step, layer and head, by name."""
    return {str(name): values for name, values in dataset.data_vars.items() if values.dims == HEAD_DIMS}


def list_snapshots(dataset: xr.Dataset) -> list[SnapshotRecord]:
    """The snapshots that a Dataset holds, without their patterns."""
    arrays = {name: values.values for name, values in head_variables(dataset).items()}
    texts = [dataset[name].values.tolist() for name in ("step", "status", "reason", LOSS, LEARNING_RATE)]
    return [
        SnapshotRecord(
            {} if status == "missing" else {name: a[i] for name, a in arrays.items()},
            reason=reason,
            step=step,
            scalars={LOSS: loss, LEARNING_RATE: rate},
        )
        for i, (step, status, reason, loss, rate) in enumerate(zip(*texts, strict=True))
    ]


def recorded_quantities(dataset: xr.Dataset) -> list[str]:
    """The names of the quantities in a Dataset, in the order of `record`."""
    names = [name for name in head_variables(dataset) if name != FINITE]
    asked = json.loads(dataset.attrs.get("options", "{}")).get("record", [])
    return sorted(names, key=lambda name: asked.index(name) if name in asked else len(asked))


def split_missing(dataset: xr.Dataset) -> tuple[xr.Dataset, list[tuple[int, str]]]:
    """The snapshots that are not missing, and the steps and reasons of those that are, whole or in part."""
    status = dataset["status"].values if "status" in dataset.coords else np.full(dataset.sizes["step"], "ok")
    failed = dataset.isel(step=np.flatnonzero(status != "ok"))
    reasons = failed["reason"].values.tolist() if len(failed["step"]) else []
    return dataset.isel(step=np.flatnonzero(status != "missing")), list(
        zip(failed["step"].values.tolist(), reasons, strict=True)
    )


def _stack(values: Sequence[NDArray[Any] | None], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """One array of all snapshots, NaN for those that have no value."""
    result = np.full((len(values), *shape), np.nan, dtype)
    for i, value in enumerate(values):
        if value is not None:
            result[i] = value
    return result


def is_other_model(stored: xr.Dataset, now: SnapshotRecord) -> bool:
    """Whether the model of this snapshot is clearly not the one of the stored snapshots.

    Let d(a, b) be the mean of ½ Σ|p - p'| over the rows of the patterns at a and b, the share of attention that
    differs.  The model is another one if it differs from the last snapshot at the same step; or if it is nearer to the
    first snapshot than to the last, as models that begin anew are, with any seed.  A model with finite attention is not
    the one whose attention was not finite.
    """
    snapshots, _ = split_missing(stored)
    if now.pattern is None or "pattern" not in snapshots or not snapshots.sizes["step"]:
        return False
    if (snapshots[FINITE].values[-1] == 0).any() and not now.reason:
        return True
    first, last = (snapshots["pattern"].isel(step=step).values for step in (0, -1))
    distance = _moved(last, now.pattern)
    if np.isnan(distance) or distance <= MAX_NUMERICAL_DIFFERENCE:
        return False
    return now.step == snapshots["step"].values[-1] or _moved(first, now.pattern) < distance


def _moved(before: NDArray[np.float32], now: NDArray[np.float32]) -> float:
    """The share of attention that differs, over rows that both have (layer, head, row, key)."""
    difference = np.abs(now - before)
    in_both = np.isfinite(difference).any(-1)
    return float(0.5 * np.nansum(difference[in_both], -1).mean()) if in_both.any() else float("nan")
