"""Numbers of the looks on a dashboard.

A sink is a callable that takes the step and numbers by name; those below are made the way a user makes their own:

    watch = ss.watch(model, probe=batch, sinks=[lambda step, numbers: print(step, numbers["entropy/layer_00"])])

It gets the mean over the heads of each layer of every quantity; of each verdict that can be judged the number of heads
of which it holds: a mean hides one head, a count does not; and the number of looks that are missing, whole or in part.
Numbers of single heads are in the dataset.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import xarray as xr

from scansnap.base.errors import InputError
from scansnap.monitor.dataset import quantities_of, split_looks
from scansnap.monitor.verdicts import count_verdicts

Sink = Callable[[int, Mapping[str, float]], None]


def numbers(dataset: xr.Dataset) -> dict[str, float]:
    """What sinks are told of the last look."""
    last = dataset.isel(step=-1)
    means = {
        f"{name}/layer_{layer:02d}": float(np.nanmean(last[name].values[i]))
        for name in quantities_of(dataset)
        for i, layer in enumerate(last["layer"].values.tolist())
        if np.isfinite(last[name].values[i]).any()
    }
    _, failed = split_looks(dataset)
    missing = {"looks/missing": float(len(failed))}
    if last["status"].item() == "missing":
        return missing
    counts = {f"heads/{name}": float(count) for name, count in count_verdicts(dataset).items()}
    return means | counts | missing


def tensorboard(folder: str | Path, *, prefix: str = "attention/") -> Sink:
    """Scalars for TensorBoard, as events in a folder."""
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def write(step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(prefix + name, value, step)
        writer.flush()

    return write


def wandb(run: Any = None, *, prefix: str = "attention/") -> Sink:
    """The history of a run of Weights & Biases: the one given, or the current one.

    Its own step only grows, and the loop may log in between, so the step of a look is an axis of its own.
    """
    package = _package("wandb")
    run = package.run if run is None else run
    if run is None:
        raise InputError("Weights & Biases has no run: call wandb.init(...) first, or give the run.")
    axis = f"{prefix}step"
    run.define_metric(f"{prefix}*", step_metric=axis)
    return lambda step, numbers: run.log({axis: step, **_prefixed(prefix, numbers)})


def mlflow(run_id: str | None = None, *, prefix: str = "attention/") -> Sink:
    """Metrics of a run of MLflow: the one given, or the current one."""
    package = _package("mlflow")
    return lambda step, numbers: package.log_metrics(_prefixed(prefix, numbers), step=step, run_id=run_id)


def trackio(*, prefix: str = "attention/") -> Sink:
    """Metrics of the current run of Trackio."""
    package = _package("trackio")
    return lambda step, numbers: package.log(_prefixed(prefix, numbers), step=step)


def _prefixed(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in numbers.items()}


def _package(module: str, install: str | None = None) -> ModuleType:
    """A package that only this sink needs."""
    name = install or module
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"this sink needs {name}, which is not installed here: pip install {name}.") from None
