"""Many runs at once: any grid, in shards, on this machine or on a cluster, with one result."""

from __future__ import annotations

import contextlib
import inspect
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from scansnap.data.classes_file import classes_to_mapping
from scansnap.data.source import DataSource
from scansnap.dynamics.options import Rates, TimeOptions, TrainOptions
from scansnap.dynamics.sweeps.execution import Execution
from scansnap.dynamics.sweeps.grid import Grid, make_grid, with_options
from scansnap.dynamics.sweeps.shards import Arrays, Shard, block_shape, cut, places
from scansnap.dynamics.sweeps.subject import TRAINING, AnyOptions
from scansnap.dynamics.sweeps.workers import in_process, on_ray, ray_cluster
from scansnap.dynamics.verb import STORE
from scansnap.results.dataset import UNITS, attributes, check_apart, coordinates, shape_of, sizes
from scansnap.results.recorder import Recorder
from scansnap.results.store import Variable, runs_done
from scansnap.runtime.errors import InputError, ScanSnapError, StoreError
from scansnap.runtime.machine import physical_memory
from scansnap.runtime.progress import progress_bar
from scansnap.validation.options import documented, from_names, options_of, signature, values_of
from scansnap.validation.user_code import describe_error
from scansnap.validation.validate import validated

LENGTHS = ("steps", "times")
"""Of these options one must be given."""

COMMIT_SECONDS = 1.0
"""Time between the commits of finished shards to the store."""

SweepClasses = DataSource | str | Mapping[str, DataSource | str] | Sequence[DataSource | str]


@validated
def sweep(
    classes: SweepClasses,
    options: AnyOptions | Mapping[str, object] | None = None,
    *,
    lr_y_over_lr_z: Rates | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
    **words: object,
) -> xr.Dataset:
    """Train every combination of the values given, and return one result with all runs on a named grid.

    With `times` in place of `steps` the flow is integrated instead, with the options of `flow`.

    An option that is given as a list is an axis of the grid, and a dimension of the result; rates and seeds always are.
    `result.sel(lr_z=1, residual=True)` selects runs.  Values that are not given come from `options`, if given: those of
    `train`, or what `read_sweep` reads from a file.

    Parameters
    ----------
    classes : SequenceClasses, a name, or a mapping from names to them, or a list
        Class settings.  Different settings can be recorded together only in quantities without tokens.
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
    words = {name: value for name, value in words.items() if name not in LENGTHS or value is not None}
    if lr_y_over_lr_z is not None:
        words["lr_y_over_lr_z"] = lr_y_over_lr_z
    if options is not None:
        words = with_options(options if isinstance(options, Mapping) else values_of(options), words)
    how = from_names(Execution, {name: words.pop(name) for name in options_of(Execution) if name in words})
    grid = make_grid(classes, **words)
    shards = cut(grid, physical_memory() / 4 if how.memory is None else how.memory * 2**30, how.shard_size)
    # Connect first: a cluster that cannot be reached should leave nothing behind.
    with ray_cluster(how.cluster) if how.cluster is not None else contextlib.nullcontext() as ray:
        progress_of = _Progress(grid, shards, store)
        if (finished := progress_of.recorder.finished()) is not None:
            if (finished["status"] == "missing").any():
                raise StoreError(f"{store} is called complete and lacks runs: remove it and start the sweep again.")
            return finished
        missing = [shard for shard in shards if not progress_of.has(shard)]
        if ray is None:
            outcomes = in_process(missing, how.retries)
        else:
            outcomes = on_ray(ray, missing, how.retries, uses_gpu=grid.subject.uses_gpu(grid.options))
        done = len(grid) - sum(map(len, missing))
        failed: list[tuple[Shard, str]] = []  # in words: the errors would keep the arrays of their shards
        with progress_of.recorder, progress_bar(f"sweeping {len(grid):,} runs", len(grid), progress) as show:
            show(done)
            try:
                for shard, outcome in outcomes:
                    if isinstance(outcome, Exception):
                        failed.append((shard, describe_error(outcome)))
                    else:
                        progress_of.put(shard, outcome)
                    done += len(shard)
                    show(done)
            except KeyboardInterrupt:
                progress_of.commit()
                raise
            return progress_of.finish(failed)


def _describe_sweep() -> None:
    """Give `sweep` the signature and the documentation of its options."""
    own = inspect.signature(sweep)
    parameters = [
        p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD and p.name != "options"
    ]
    full = signature(signature(signature(own.replace(parameters=parameters), Execution), TimeOptions), TrainOptions)
    defaults = {**TRAINING.defaults, **dict.fromkeys(LENGTHS)}
    sweep.__signature__ = full.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(default=defaults.get(p.name, p.default)) for p in full.parameters.values()]
    )
    more = documented("{options}", TimeOptions, documented("{options}", Execution, STORE))
    sweep.__doc__ = documented(sweep.__doc__ or "", TrainOptions, more)


_describe_sweep()


@validated
def runs_in_store(path: str | Path) -> int:
    """How many runs of a sweep are in its store, which a new start will not run again."""
    return runs_done(Path(path)) if Path(path).exists() else 0


def _template(grid: Grid) -> xr.Dataset:
    """Coordinates and attributes of the whole result."""
    works = [group.work for group in grid.groups]
    _check_sizes(grid)
    coords = grid.coordinates()
    subject = grid.subject
    for name, missing in subject.outcome.items():
        coords[name] = (tuple(grid.axes), np.full(grid.shape, missing))
    coords[subject.axis] = (subject.axis, subject.records(grid.options), UNITS)
    labels = coordinates(works[0].layout, grid.record, layers=subject.layers(grid.options))
    if len({work.source.classes.fingerprint for work in works}) > 1:
        most = max(work.source.classes.num_classes for work in works)
        shared = {"layer", "head"}.union(*(quantity.coords for quantity in grid.record))
        labels = {"class": np.arange(most), **{name: labels[name] for name in labels if name in shared}}
    check_apart(labels, coords)
    named = {group.name: group.work.source.classes for group in grid.groups}
    classes = json.dumps({name: classes_to_mapping(setting) for name, setting in named.items()})
    return xr.Dataset(
        coords={**coords, **labels}, attrs=attributes("sweep", subject.title, grid.described, classes=classes)
    )


def _check_sizes(grid: Grid) -> None:
    """Refuse quantities whose dimensions differ between runs."""
    works = [group.work for group in grid.groups]
    varying = {}
    if len({(work.options.heads, grid.subject.layers(work.options)) for work in works}) > 1:
        varying["different numbers of heads or layers"] = {"head", "layer"}
    if len({work.source.classes.fingerprint for work in works}) > 1:
        varying["class settings of different tokens"] = {"token", "query", "output", "bucket"}
    for what, dims in varying.items():
        if sized := [quantity.name for quantity in grid.record if dims & set(quantity.dims)]:
            raise InputError(
                f"{', '.join(sized)} cannot be recorded over {what}: record quantities without "
                f"{', '.join(sorted(dims))}, or sweep one setting at a time."
            )


def _variables(grid: Grid, shards: list[Shard]) -> dict[str, Variable]:
    """Every quantity as an array over the grid; settings with fewer classes are padded with NaN."""
    by_group = [sizes(group.work.layout, grid.subject.layers(group.work.options)) for group in grid.groups]
    most = {name: max(group_sizes[name] for group_sizes in by_group) for name in by_group[0]}
    chunk = block_shape(max(len(shard) for shard in shards), grid.shape)
    variables = {}
    for quantity in grid.record:
        inner = (len(grid.subject.records(grid.options)), *shape_of(quantity, most))
        variables[quantity.name] = Variable(
            (*grid.axes, grid.subject.axis, *quantity.dims),
            (*grid.shape, *inner),
            np.dtype("float64" if quantity.full_precision else grid.subject.dtype(grid.options)),
            (*chunk, *(max(size, 1) for size in inner)),
            quantity.attributes,
        )
    return variables


class _Progress:
    """A sweep in progress: the finished runs, written shard by shard."""

    def __init__(self, grid: Grid, shards: list[Shard], store: str | Path | None) -> None:
        self._shape = grid.shape
        variables = _variables(grid, shards)
        defaults = grid.subject.options.default_dict()
        self.recorder = Recorder(_template(grid), variables, store, defaults=defaults)
        self._done = np.zeros(len(grid), bool)  # by run, so that a sweep can continue with another shard size
        self._committed = time.monotonic()
        if self.recorder.store is not None and not self.recorder.store.finished:
            checkpoint = self.recorder.checkpoint()
            if checkpoint is not None:
                self._done = np.asarray(checkpoint[1]["done"], bool)

    def has(self, shard: Shard) -> bool:
        return bool(self._done[shard.numbers].all())

    def put(self, shard: Shard, arrays: Arrays) -> None:
        """Write the shard; it counts as done from the next commit on."""
        self._write(shard, arrays)
        self._done[shard.numbers] = True
        if time.monotonic() - self._committed > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Mark what was written as done: what was not when the process ends is run again."""
        if self.recorder.store is not None:
            self.recorder.store.write_checkpoint(int(self._done.sum()), {"done": self._done})
        self._committed = time.monotonic()

    def _write(self, shard: Shard, arrays: Arrays) -> None:
        for part, place in places(shard.numbers, self._shape):
            block = tuple(axis.stop - axis.start for axis in place)
            self.recorder.write(
                {name: values[part].reshape(*block, *values.shape[1:]) for name, values in arrays.items()}, place
            )

    def finish(self, failed: list[tuple[Shard, str]]) -> xr.Dataset:
        """The result, with the shards that failed and why; with a store, they are refused instead."""
        if failed and self.recorder.store is not None:
            self.commit()
            shard, reason = failed[0]
            more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise ScanSnapError(
                f"{shard}{more} failed: {reason}; the others are kept in {self.recorder.store.path}: start the same "
                "sweep again to retry the missing runs."
            )
        if self.recorder.store is not None and not self._done.all():
            raise AssertionError("a sweep is complete only when every run is done")
        for shard, reason in failed:
            self._write(shard, {"status": np.full(len(shard), "failed", "U8")})
            warnings.warn(f"{shard} failed: {reason}", RuntimeWarning, stacklevel=3)
        return self.recorder.finish({})
