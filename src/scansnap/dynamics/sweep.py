"""Many runs at once: any grid, in shards, in this process or on a Ray cluster, with one result.

Each finished shard is written to the store, and counts as done from the next commit on.  A sweep that is started again
runs only what is missing.  Where a shard runs cannot change its numbers: a run depends only on its options and seed.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.source import DataSource
from scansnap.dynamics.grid import (
    RATIO,
    SWEEP_QUANTITIES,
    TRAINING,
    Arrays,
    Grid,
    Shard,
    make_grid,
    run_shard,
)
from scansnap.dynamics.options import Rates, SweepExecution, TimeOptions, TrainOptions
from scansnap.results.dataset import UNITS, Recorder, check_dimension_names
from scansnap.results.store import Variable, runs_done
from scansnap.runtime.errors import InputError, ScanSnapError
from scansnap.runtime.machine import physical_memory
from scansnap.runtime.progress import progress_bar
from scansnap.runtime.ray import ray_cluster, run_on_ray
from scansnap.storage.folder import is_new
from scansnap.storage.provenance import attributes
from scansnap.systems.quantity import Quantity
from scansnap.systems.system import System
from scansnap.validation.options import RunArguments, describe_options, from_names, options_of, refuse_options_object
from scansnap.validation.user_code import describe_error
from scansnap.validation.validate import validated

LENGTHS = ("steps", "times")
"""Of these options one must be given."""

COMMIT_SECONDS = 1.0
"""Time between the commits of finished shards to the store."""

SweepClasses = DataSource | System | str | Mapping[str, DataSource | System | str] | Sequence[DataSource | System | str]


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SweepExecution, TimeOptions, TrainOptions):
    """The options of `sweep`, with its own defaults; `sweep` takes several values of most."""

    steps: int | None = None  # type: ignore[assignment]  # of training
    times: Sequence[float] | NDArray[np.floating] | None = None  # type: ignore[assignment]  # of the flow
    record: str | Quantity | Sequence[str | Quantity] = SWEEP_QUANTITIES
    record_every: int | None = TRAINING.defaults["record_every"]


@refuse_options_object
@validated
def sweep(
    classes: SweepClasses,
    *,
    lr_y_over_lr_z: Rates | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
    **kwargs: object,
) -> xr.Dataset:
    """Train every combination of the values given, and return one result with all runs on a named grid.

    With `times` in place of `steps` the flow is integrated instead, with the options of `flow`.

    An option that is given as a list is an axis of the grid, and a dimension of the result; rates and seeds always are.
    `result.sel(lr_z=1, residual=True)` selects runs.

    Parameters
    ----------
    classes : SequenceClasses, a System, a name, or a mapping from names to them, or a list
        What to train.  Settings of different sizes can be recorded together only in quantities without those axes.
    lr_y_over_lr_z : Rates | None
        Ratios of lr_y to lr_z, instead of lr_y.
    {options}

    Returns
    -------
    xarray.Dataset
        `status` says of every run how it ended.  Runs of a shard that failed have the status "failed" and NaN; with a
        store they are left for the next start, and an error is raised.

    Examples
    --------
    >>> grid = ss.sweep("syn-small", lr_y=[1, 10], lr_z=1, momentum=[0, 0.9], seeds=range(2), steps=5)
    >>> print(dict(grid["loss"].sizes))
    {'momentum': 2, 'lr_z': 1, 'lr_y': 2, 'seed': 2, 'step': 2}
    """
    kwargs[RATIO] = lr_y_over_lr_z
    kwargs = {name: value for name, value in kwargs.items() if value is not None or name not in (RATIO, *LENGTHS)}
    how = from_names(SweepExecution, {name: kwargs.pop(name) for name in options_of(SweepExecution) if name in kwargs})
    grid = make_grid(classes, **kwargs)
    shards = grid.shards(physical_memory() / 4 if how.memory is None else how.memory * 2**30, how.shard_size)
    # Connect first: a cluster that cannot be reached should leave nothing behind.
    with ray_cluster(how.cluster) if how.cluster is not None else contextlib.nullcontext() as ray:
        return _run(grid, shards, how.retries, ray, store, progress)


describe_options(sweep, SweepOptions, RunArguments)


def _run(
    grid: Grid, shards: list[Shard], retries: int, ray: Any, store: str | Path | None, progress: bool | None
) -> xr.Dataset:
    """Run the shards that are not in the store, in this process or, if connected, on Ray; return the result."""
    result = _Result(grid, shards, store)
    if (finished := result.recorder.finished()) is not None:
        return finished
    missing = [shard for shard in shards if not result.has(shard)]
    outcomes: Iterator[tuple[Shard, Any]]
    if ray is None:
        outcomes = ((shard, _attempt(shard, run_shard, retries)) for shard in missing)
    else:
        gpus = int(getattr(grid.options, "device", "cpu") == "cuda")
        outcomes = run_on_ray(ray, _attempt, missing, run_shard, retries, retries=retries, gpus=gpus)
    done = len(grid) - sum(map(len, missing))
    failed: list[tuple[Shard, str]] = []
    with result.recorder, progress_bar(f"sweeping {len(grid):,} runs", len(grid), progress) as show:
        show(done)
        try:
            for shard, outcome in outcomes:
                if isinstance(outcome, InputError):
                    raise outcome
                if isinstance(outcome, dict):
                    result.put(shard, outcome)
                else:
                    failed.append((shard, outcome if isinstance(outcome, str) else describe_error(outcome)))
                done += len(shard)
                show(done)
        except KeyboardInterrupt:
            result.commit()
            raise
        return result.finish(failed)


def _attempt(shard: Shard, run: Callable[[Shard], Arrays], retries: int) -> Arrays | str:
    """The shard's arrays, or the error after all retries as text: the error itself would keep arrays in memory."""
    for attempt in range(retries + 1):
        try:
            return run(shard)
        except InputError:
            raise  # another attempt would not help
        except Exception as error:
            if attempt == retries:
                return describe_error(error)
    raise AssertionError("there is at least one attempt")


@validated
def runs_in_store(path: str | Path) -> int:
    """How many runs of a sweep are in its store; started again, the sweep runs only the others."""
    return 0 if is_new(Path(path)) else runs_done(Path(path))


def _template(grid: Grid) -> xr.Dataset:
    """Coordinates and attributes of the whole result."""
    method, first = grid.method, grid.groups[0].task
    coords = grid.coordinates()
    for name, missing in method.outcome.items():
        coords[name] = (tuple(grid.axes), np.full(grid.shape, missing))
    coords[method.axis] = (method.axis, method.records(grid.options), UNITS)
    labels = first.coordinates()
    is_yz = "classes" in grid.described
    if grid.several_systems:
        shared = {"layer", "head"}.union(*(quantity.coords for quantity in grid.record))
        labels = {name: labels[name] for name in labels if name in shared or not is_yz}
        if is_yz:
            labels["class"] = np.arange(max(group.task.sizes["class"] for group in grid.groups))
    check_dimension_names(labels, coords)
    text = json.dumps({group.name: group.task.description for group in grid.groups})
    attrs = attributes("sweep", f"sweep of {first.title}", grid.described, **{"classes" if is_yz else "system": text})
    return xr.Dataset(coords={**coords, **labels}, attrs=attrs)


def _variables(grid: Grid, shards: list[Shard]) -> dict[str, Variable]:
    """Every quantity as an array over the grid, one chunk per shard; NaN where a setting has fewer classes."""
    by_group = [group.task.sizes for group in grid.groups]
    largest = {name: max(group_sizes[name] for group_sizes in by_group) for name in by_group[0]}
    varying = {name for name in largest if len({group_sizes[name] for group_sizes in by_group}) > 1} - {"class"}
    if grid.several_systems and "classes" in grid.described:
        varying |= {"token", "query", "output", "bucket"}
    chunk = tuple(map(max, *(shard.shape for shard in shards))) if len(shards) > 1 else shards[0].shape
    variables = {}
    for quantity in grid.record:
        if clash := varying & set(quantity.dims):
            what = (
                "class settings of different tokens" if "token" in varying else "different numbers of heads or layers"
            )
            raise InputError(
                f"{quantity.name} cannot be recorded over {what}: record quantities without "
                f"{', '.join(sorted(clash))}, or sweep one setting at a time."
            )
        shape = (len(grid.method.records(grid.options)), *quantity.shape(largest))
        variables[quantity.name] = Variable(
            (*grid.axes, grid.method.axis, *quantity.dims),
            (*grid.shape, *shape),
            np.dtype("float64" if quantity.full_precision else grid.groups[0].task.dtype),
            (*chunk, *(max(size, 1) for size in shape)),
            quantity.attributes,
        )
    return variables


class _Result:
    """The result of a sweep in progress, written shard by shard."""

    def __init__(self, grid: Grid, shards: list[Shard], store: str | Path | None) -> None:
        variables = _variables(grid, shards)
        self.recorder = Recorder(_template(grid), variables, store)
        self._done = np.zeros(grid.shape, bool)  # by run, so that a sweep can continue with another shard size
        self._committed = time.monotonic()
        if self.recorder.store is not None and not self.recorder.store.finished:
            checkpoint = self.recorder.checkpoint()
            if checkpoint is not None:
                self._done = np.asarray(checkpoint[1]["done"], bool).reshape(grid.shape)

    def has(self, shard: Shard) -> bool:
        """Whether the shard's runs are done."""
        return bool(self._done[shard.place].all())

    def put(self, shard: Shard, arrays: Arrays) -> None:
        """Write the shard; it counts as done from the next commit on."""
        self._write(shard, arrays)
        self._done[shard.place] = True
        if time.monotonic() - self._committed > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Mark what was written as done; the rest is run again after an interruption."""
        if self.recorder.store is not None:
            self.recorder.store.write_checkpoint(int(self._done.sum()), {"done": self._done.ravel()})
        self._committed = time.monotonic()

    def _write(self, shard: Shard, arrays: Arrays) -> None:
        block = {name: values.reshape(*shard.shape, *values.shape[1:]) for name, values in arrays.items()}
        self.recorder.write(block, shard.place)

    def finish(self, failed: list[tuple[Shard, str]]) -> xr.Dataset:
        """The result, with a warning for each shard that failed; with a store, raise an error instead."""
        if failed and self.recorder.store is not None:
            self.commit()
            shard, reason = failed[0]
            more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise ScanSnapError(
                f"{shard}{more} failed: {reason}; the others are kept in {self.recorder.store.path}: start the same "
                "sweep again to retry the missing runs."
            )
        for shard, reason in failed:
            self._write(shard, {"status": np.full(len(shard), "failed", "U8")})
            warnings.warn(f"{shard} failed: {reason}", RuntimeWarning, stacklevel=4)
        return self.recorder.finish({})
