"""Numbers of the snapshots on a dashboard.

A sink is a callable that takes the step and numbers by name; those below are made the way a user makes their own:

    watch = ss.watch(model, probe=batch, sinks=[lambda step, numbers: print(step, numbers["entropy/layer_00"])])

It gets the mean, the maximum and the minimum over the heads of each layer of every quantity; of each verdict that can
be judged the number of heads of which it holds; and the number of snapshots that are missing, whole or in part, which
is all that it gets of a snapshot that failed.  Numbers of single heads are in the dataset.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from scansnap.monitor.dataset import recorded_quantities, split_missing
from scansnap.monitor.verdicts import count_verdicts
from scansnap.runtime.errors import InputError

Sink = Callable[[int, Mapping[str, float]], None]


def head_metrics(dataset: xr.Dataset) -> dict[str, float]:
    """The numbers that sinks receive for the last snapshot."""
    last = dataset.isel(step=-1)
    over_heads = {
        f"{name}/layer_{layer:02d}{suffix}": float(reduce(heads))
        for name in recorded_quantities(dataset)
        for layer, heads in zip(last["layer"].values.tolist(), last[name].values, strict=True)
        if np.isfinite(heads).any()
        for suffix, reduce in (("", np.nanmean), ("_max", np.nanmax), ("_min", np.nanmin))
    }
    _, failed = split_missing(dataset)
    missing = {"snapshots/missing": float(len(failed))}
    if last["status"].item() == "missing":
        return missing
    counts = {f"heads/{name}": float(count) for name, count in count_verdicts(dataset).items()}
    return over_heads | counts | missing


def tensorboard(folder: str | Path, *, prefix: str = "attention/") -> Sink:
    """Scalars for TensorBoard, as events in a folder."""
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def write(step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(prefix + name, value, step)
        writer.flush()

    weakref.finalize(write, writer.close)  # it has a thread and an open file
    return write


def wandb(run: Any = None, *, prefix: str = "attention/") -> Sink:
    """The history of a run of Weights & Biases: the one given, or the one that is current at a snapshot.

    A run's own step only grows, and the loop logs too.  So the step of a snapshot is an axis of its own, and its
    numbers go into the row that is open, which the loop's next step closes.  In a row of their own they would shift the
    steps that the run counts, and what the loop logs next with the same step would be dropped.  A row in which the last
    snapshot is still alone is closed first.
    """
    package = _package("wandb")
    axis = f"{prefix}step"
    open_row: tuple[Any, int] | None = None  # the run and its step at the last snapshot

    def write(step: int, numbers: Mapping[str, float]) -> None:
        nonlocal open_row
        current = package.run if run is None else run
        if current is None:
            raise InputError("Weights & Biases has no run: call wandb.init(...) first, or give the run.")
        if open_row is None or open_row[0] is not current:
            current.define_metric(f"{prefix}*", step_metric=axis)
        row = {axis: step, **_prefixed(prefix, numbers)}
        if current.settings.mode == "shared":  # several processes log, and rows have no number
            current.log(row)
            return
        if open_row == (current, current.step):
            current.log({}, commit=True)
        current.log(row, commit=False)
        open_row = current, current.step

    return write


def mlflow(run_id: str | None = None, *, prefix: str = "attention/") -> Sink:
    """Metrics of a run of MLflow: the one given, or the one that is active at a snapshot."""
    package = _package("mlflow")

    def write(step: int, numbers: Mapping[str, float]) -> None:
        if run_id is None and package.active_run() is None:  # MLflow would start one, and refuse to start the loop's
            raise InputError("MLflow has no active run: call mlflow.start_run() first, or give the id of a run.")
        package.log_metrics(_prefixed(prefix, numbers), step=step, run_id=run_id)

    return write


def trackio(run: Any = None, *, prefix: str = "attention/") -> Sink:
    """Metrics of a run of Trackio: the one given, or the one that is current at a snapshot."""
    target = _package("trackio") if run is None else run
    return lambda step, numbers: target.log(_prefixed(prefix, numbers), step=step)


def _prefixed(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in numbers.items()}


def _package(module: str, install: str | None = None) -> ModuleType:
    """A package that only this sink needs."""
    name = install or module
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"this sink needs {name}, which is not installed here: pip install {name}.") from None
