"""Many runs at once: any grid, in shards, on this machine or on a cluster, to one result."""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.base.errors import InputError, ScanSnapError, StoreError
from scansnap.base.progress import progress_bar
from scansnap.data.classes_file import classes_to_mapping
from scansnap.dynamics.options import RECORDABLE, whole
from scansnap.dynamics.start import physical_memory
from scansnap.model.compact import CompactLayout
from scansnap.results.dataset import (
    ATTRIBUTES,
    DIMENSIONS,
    FORMAT,
    MEASURES,
    coordinates,
    dimensions_of,
    shape_of,
)
from scansnap.results.provenance import provenance
from scansnap.results.store import RunStore, Variable, load
from scansnap.sweeps.grid import Grid, Group, make_grid
from scansnap.sweeps.shards import Arrays, Shard, cut
from scansnap.sweeps.workers import in_process, on_ray, ray_cluster

RECORDED = ("loss", "accuracy", "entropy")


def sweep(
    classes: Any,
    *,
    lr_z: Any,
    lr_y: Any = None,
    lr_y_over_lr_z: Any = None,
    seeds: Any = 0,
    steps: int,
    batch_size: Any = 128,
    seq_len: Any = 128,
    optimizer: Any = "sgd",
    momentum: Any = None,
    init: Any = "zeros",
    decoder_gradient: Any = "true",
    normalization: Any = "l2",
    residual: Any = False,
    heads: Any = 1,
    layers: Any = 1,
    nonlinearity: Any = "tanh",
    init_scale_z: Any = 1.0,
    attention_prior: Any = None,
    num_sequences: Any = None,
    position_bias: Any = None,
    learn_position_bias: Any = False,
    record: Iterable[str] = RECORDED,
    record_every: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    store: str | Path | None = None,
    memory: float | None = None,
    shard_size: int | None = None,
    cluster: str | None = None,
    retries: int = 2,
    progress: bool | None = None,
) -> xr.Dataset:
    """Train every combination of what is given, and return one result with all runs.

    Parameters
    ----------
    classes : SequenceClasses, or a mapping from names to them, or a list
        Class settings.  Several of different size can be recorded in loss, accuracy and entropy only.
    lr_z, lr_y or lr_y_over_lr_z, seeds : number or sequence
        Each value of each.
    batch_size, seq_len, optimizer, momentum, init, decoder_gradient, normalization, residual, heads, layers,
    nonlinearity, init_scale_z, attention_prior, num_sequences, position_bias, learn_position_bias :
        As in `train`; a list makes every combination with the rest.  Different numbers of heads or layers can be
        recorded in loss and accuracy only.
    steps, record, record_every, dtype, device :
        As in `train`, the same for all runs; unless told, the start and the end are recorded.
    store : path, optional
        Write runs there shard by shard.  The same sweep started again runs only what is missing; finished, it is read.
    memory : float, optional
        GiB that training may take at a time; a quarter of the machine's unless told.
    shard_size : int, optional
        Runs trained together; a size that shows progress unless told.  It cannot change a number.
    cluster : str, optional
        "ray" for a cluster on this machine, or the address of one (`pip install 'scansnap[cluster]'`).
    retries : int
        How often a shard that fails is tried again.

    Returns
    -------
    xarray.Dataset
        Dimension `run`, with coordinates lr_y, lr_z, seed, classes and every option that varies.  Runs of a shard that
        failed have the status "failed" and NaN; with a store they are left for the next start, and an error says so.
    """
    grid = make_grid(
        classes, lr_z=lr_z, lr_y=lr_y, lr_y_over_lr_z=lr_y_over_lr_z, seeds=seeds, record=record,
        record_every=record_every, steps=steps, batch_size=batch_size, seq_len=seq_len, optimizer=optimizer,
        momentum=momentum, init=init, decoder_gradient=decoder_gradient, dtype=dtype, device=device,
        normalization=normalization, residual=residual, heads=heads, init_scale_z=init_scale_z,
        attention_prior=attention_prior, num_sequences=num_sequences, position_bias=position_bias,
        learn_position_bias=learn_position_bias, layers=layers, nonlinearity=nonlinearity,
    )  # fmt: skip
    whole("retries", retries, least=0)
    if shard_size is not None:
        whole("shard_size", shard_size, least=1)
    shards = cut(grid, _budget(memory), shard_size)
    # A cluster that cannot be reached is said before anything is made.
    with ray_cluster(cluster) if cluster is not None else contextlib.nullcontext() as ray:
        target = _Disk(grid, shards, Path(store)) if store is not None else _Memory(grid)
        if isinstance(target, _Disk) and target.finished:
            return load(target.path)
        missing = [shard for shard in shards if not target.has(shard)]
        if ray is None:
            outcomes = in_process(missing, retries)
        else:
            outcomes = on_ray(ray, missing, retries, uses_gpu=device == "cuda")
        done, failed = len(grid) - sum(map(len, missing)), []
        with target, progress_bar(f"sweeping {len(grid):,} runs", len(grid), progress) as show:
            show(done)
            for shard, found in outcomes:
                if isinstance(found, Exception):
                    failed.append((shard, found))
                else:
                    target.put(shard, found)
                done += len(shard)
                show(done)
        return target.finish(failed)


def runs_in_store(path: str | Path) -> int:
    """How many runs of a sweep are in its store: what a new start will not run again."""
    if not Path(path).exists():
        return 0
    try:
        return load(path, lazy=True).sizes["run"]
    except StoreError:
        checkpoint = RunStore(Path(path)).read_checkpoint()
        return checkpoint[0] if checkpoint else 0


def _budget(memory: float | None) -> float:
    if memory is None:
        return physical_memory() / 4
    if isinstance(memory, bool) or not isinstance(memory, int | float) or not memory > 0:
        raise InputError(f"memory is {memory!r}: give the GiB that training may take, such as 4.")
    return memory * 2**30


def _template(grid: Grid) -> xr.Dataset:
    """Coordinates and attributes of the whole result."""
    runs = grid.coordinates()
    runs["status"] = np.full(len(grid), "missing", "U8")
    runs["diverged_step"] = np.full(len(grid), -1)
    if not grid.same_heads and (sized := [name for name in grid.record if name not in MEASURES]):
        raise InputError(
            f"{', '.join(sized)} cannot be recorded over different numbers of heads or layers: record among "
            f"{', '.join(MEASURES)}, or sweep one number at a time."
        )
    if grid.same_classes:
        found = coordinates(_layout(grid.groups[0]), "step", grid.record_steps, runs, grid.record)
    else:
        sized = [name for name in grid.record if {"token", "query", "output", "bucket"} & set(DIMENSIONS[name])]
        if sized:
            allowed = [
                name for name in RECORDABLE if not {"token", "query", "output", "bucket"} & set(DIMENSIONS[name])
            ]
            raise InputError(
                f"{', '.join(sized)} cannot be recorded over class settings of different tokens: record among "
                f"{', '.join(allowed)}, or sweep one setting at a time."
            )
        most = max(group.classes.num_classes for group in grid.groups)
        found = xr.Dataset(coords={
            "run": np.arange(len(grid)), "step": grid.record_steps, "class": np.arange(most),
            **{name: ("run", values) for name, values in runs.items()},
        })  # fmt: skip
    named = {group.name: group.classes for group in grid.groups}
    return found.assign_attrs(
        title="sweep of training dynamics of a 1-layer (Y, Z) transformer",
        kind="sweep",
        format=FORMAT,
        options=json.dumps(dict(grid.described), sort_keys=True),
        classes=json.dumps({name: classes_to_mapping(one) for name, one in named.items()}),
        **provenance(),
    )


def _shapes(grid: Grid) -> dict[str, tuple[int, ...]]:
    """The size of every variable for all runs; classes fewer than the most are filled up with NaN."""
    layouts = [_layout(group) for group in {group.name: group for group in grid.groups}.values()]
    return {
        name: tuple(
            np.max([shape_of(name, layout, len(grid), len(grid.record_steps)) for layout in layouts], axis=0).tolist()
        )
        for name in grid.record
    }


def _layout(group: Group) -> CompactLayout:
    """The layout of what is recorded, whatever the start."""
    return CompactLayout.of(group.classes, architecture=group.train_options.architecture)


def _dtype(grid: Grid, name: str) -> np.dtype[Any]:
    return np.dtype("float64" if name in MEASURES else grid.dtype)


class _Memory:
    """A result held in memory."""

    def __init__(self, grid: Grid) -> None:
        shapes = _shapes(grid)
        needed = sum(float(np.prod(shape)) * _dtype(grid, name).itemsize for name, shape in shapes.items())
        if needed > physical_memory() / 2:
            raise InputError(
                f"the result of {len(grid):,} runs takes {needed / 2**30:.1f} GiB, more than half of this machine's "
                "memory: give store, so that it is written to disk, or record less."
            )
        self._template = _template(grid)
        self._layout = _layout(grid.groups[0])
        self._values: Arrays = {name: np.full(shape, np.nan, _dtype(grid, name)) for name, shape in shapes.items()}
        self._values |= {name: self._template[name].values.copy() for name in ("status", "diverged_step")}

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def has(self, shard: Shard) -> bool:
        return False

    def put(self, shard: Shard, found: Arrays) -> None:
        for name, values in found.items():
            place = (slice(shard.first, shard.first + len(shard)), *(slice(size) for size in values.shape[1:]))
            self._values[name][place] = values

    def finish(self, failed: list[tuple[Shard, Exception]]) -> xr.Dataset:
        for shard, error in failed:
            self._values["status"][shard.first : shard.first + len(shard)] = "failed"
            warnings.warn(f"{shard} failed: {error}", RuntimeWarning, stacklevel=3)
        dataset = self._template.assign_coords(
            {name: ("run", self._values.pop(name)) for name in ("status", "diverged_step")}
        )
        for name, values in self._values.items():
            dataset[name] = (dimensions_of(name, "step", self._layout), values, ATTRIBUTES[name])
        return dataset.assign_attrs(complete=1)


class _Disk:
    """A result written shard by shard; the checkpoint beside it says which shards are there."""

    def __init__(self, grid: Grid, shards: list[Shard], path: Path) -> None:
        self.path = path
        shapes = _shapes(grid)
        size, layout = max(len(shard) for shard in shards), _layout(grid.groups[0])
        variables = {
            name: Variable(
                dimensions_of(name, "step", layout),
                shape,
                _dtype(grid, name),
                (min(size, shape[0]), *shape[1:]),
                ATTRIBUTES[name],
            )
            for name, shape in shapes.items()
        }
        if not path.exists():
            _check_room(path, sum(float(np.prod(v.shape)) * v.dtype.itemsize for v in variables.values()))
        self._store = RunStore.begin(path, _template(grid), variables)
        self.finished = self._store.finished
        self._done = np.zeros(len(grid), bool)  # by run, so that another shard size can go on where one stopped
        if not self.finished and (checkpoint := self._store.read_checkpoint()) is not None:
            self._done = checkpoint[1]["done"]

    def __enter__(self) -> _Disk:
        return self

    def __exit__(self, *error: object) -> None:
        self._store.unlock()

    def has(self, shard: Shard) -> bool:
        return bool(self._done[shard.first : shard.first + len(shard)].all())

    def put(self, shard: Shard, found: Arrays) -> None:
        """Write the shard, then say that it is there: killed in between, it is run and written again."""
        self._store.write(found, run=shard.first)
        self._done[shard.first : shard.first + len(shard)] = True
        self._store.write_checkpoint(int(self._done.sum()), {"done": self._done})

    def finish(self, failed: list[tuple[Shard, Exception]]) -> xr.Dataset:
        if failed:
            shard, error = failed[0]
            more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise ScanSnapError(
                f"{shard}{more} failed: {error}; the others are kept in {self.path}: start the same sweep again to try "
                "what is missing."
            )
        self._store.finish({})
        return load(self.path)


def _check_room(path: Path, needed: float) -> None:
    """Refuse a result that the disk has no room for, before anything is run."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"the result takes up to {needed / 2**30:.1f} GiB and {folder} has {free / 2**30:.1f} GiB free: record "
            "less, less often, or elsewhere."
        )
