"""The grid of a sweep: every combination of systems or classes, options, rates and seeds, validated before it starts.

The grid has one axis for each option with several values.  Rates and seeds are always axes; `lr_y_over_lr_z` may
replace lr_y.  Runs that differ only in rates and seed can advance together: they are a *group*, at one place of the
other axes.  A group is cut into *shards*: rectangular blocks of its runs, each small enough for the memory allowed and
computed by one call of `train` or `flow`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.source import DataSource
from scansnap.dynamics.flow import flow
from scansnap.dynamics.options import FlowOptions, RatesType, SeedsType, TimeOptions, TrainOptions
from scansnap.dynamics.task import Task, as_system, flow_options, flow_task, train_options, train_task
from scansnap.dynamics.train import train
from scansnap.results.measure import favored_entropy
from scansnap.runtime.errors import InputError, short_repr, unknown
from scansnap.runtime.machine import gibibytes
from scansnap.systems.quantity import Quantity
from scansnap.systems.system import System
from scansnap.validation import checks
from scansnap.validation.options import Option, Options, defaults_of, options_of, required_of

RATIO = "lr_y_over_lr_z"
"""An axis that may replace lr_y."""

MOST_RUNS = 10**7

MOST_PER_SHARD = 1024
"""The most runs in a shard: more gain no speed, and lose more work when interrupted."""

LEAST_PER_SHARD = 16

SHARDS = 20
"""A sweep is cut into about this many shards if it is large enough, so that you see progress."""

NEEDED = f"classes, lr_z, lr_y or {RATIO}, and steps of training or times of the flow"

Arrays = dict[str, NDArray[Any]]
Place = tuple[slice, ...]


@dataclass(frozen=True)
class Method:
    """What a sweep repeats: training or the flow."""

    run: Callable[..., xr.Dataset]
    options_of: Callable[[object], type[Options]]  # of a system
    task: Callable[[Any, Any], Task]  # validates a system and its options
    axis: str  # the dimension of the records
    records: Callable[[Any], NDArray[Any]]  # their coordinate
    defaults: Mapping[str, Any]  # what a sweep records by default: less than a single run does
    outcome: Mapping[str, Any]  # coordinates that say how a run ended, with their values before it starts


SWEEP_QUANTITIES = ("loss", "accuracy", "entropy")
"""What a sweep of (Y, Z) records by default."""

MISSING = np.array("missing", "U8")

TRAINING = Method(
    train,
    train_options,
    train_task,
    "step",
    lambda options: options.record_steps,
    {"record_every": None},
    {"status": MISSING, "diverged_step": np.array(-1)},
)
FLOW = Method(flow, flow_options, flow_task, "time", lambda options: np.array(options.times), {}, {"status": MISSING})

SWEPT: dict[str, Option] = {**options_of(TrainOptions), **options_of(TimeOptions)}
"""The options of either method for (Y, Z)."""

YZ_OPTIONS: dict[str, type[Options]] = {"step": TrainOptions, "time": FlowOptions}


def method_of(options: Mapping[str, object], system: object = None) -> tuple[Method, dict[str, Option]]:
    """Return the flow if `times` is given, otherwise training, and its options; refuse others.

    The options are those of the system, by default those of (Y, Z).
    """
    if "times" in options and "steps" in options:
        raise InputError("steps and times are both given: steps are of training, times of the flow; give one.")
    by_method = {
        method.axis: options_of(method.options_of(system) if isinstance(system, System) else YZ_OPTIONS[method.axis])
        for method in (TRAINING, FLOW)
    }
    method, other = (FLOW, TRAINING) if "times" in options else (TRAINING, FLOW)
    known = by_method[method.axis]
    ratio = [RATIO] if {"lr_y", "lr_z"} <= set(known) else []
    for name in options:
        if name in known or name in ratio:
            continue
        if name not in by_method[other.axis]:
            raise unknown("option", name, [*known, *by_method[other.axis], *ratio])
        title, wanted = ("the flow", "steps") if method is FLOW else ("training", "times")
        raise InputError(f"{name} is given, which {title} does not have: leave it out, or give {wanted} instead.")
    return method, known


@dataclass(frozen=True)
class Group:
    """Runs that can advance together."""

    name: str  # of the classes
    method: Method
    system: System | DataSource
    options: Any
    task: Task
    place: Place  # in the axes of the grid before those of rates and seed
    axes: Mapping[str, NDArray[Any]]  # of its runs

    @property
    def bytes_per_run(self) -> float:
        """Memory of a run while it is computed: what its engine needs, and twice its records."""
        per_record = sum(math.prod(quantity.shape(self.task.sizes)) for quantity in self.task.recorded)
        return self.task.bytes_per_run + 16 * per_record * len(self.method.records(self.options))


@dataclass(frozen=True)
class Shard:
    """A block of runs of a group, computed together."""

    index: int
    group: Group
    runs: Place  # in the axes of its group

    @property
    def place(self) -> Place:
        """Its block of the whole grid."""
        return (*self.group.place, *self.runs)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many runs it has along each axis of the grid."""
        return tuple(part.stop - part.start for part in self.place)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"shard {self.index} ({len(self)} runs)"

    def options(self) -> Any:
        """The options of its runs: one entry of each rate and of the seeds for each run."""
        parts = [values[part] for values, part in zip(self.group.axes.values(), self.runs, strict=True)]
        columns = dict(zip(self.group.axes, (c.ravel() for c in np.meshgrid(*parts, indexing="ij")), strict=True))
        if RATIO in columns:
            columns["lr_y"] = columns.pop(RATIO) * columns["lr_z"]
        columns["seeds"] = columns.pop("seed")
        return replace(self.group.options, **{name: column.tolist() for name, column in columns.items()})


def run_shard(shard: Shard) -> Arrays:
    """Compute the shard's runs; return every variable (runs, records, ...) and the coordinates of their outcome."""
    method = shard.group.method
    result = method.run(shard.group.system, **vars(shard.options()), progress=False)
    return {str(name): result[name].values for name in (*result.data_vars, *method.outcome)}


@dataclass(frozen=True)
class Grid:
    """All groups of a sweep, and the description of the sweep in its result."""

    axes: Mapping[str, NDArray[Any]]  # the dimensions of the result, with their values
    groups: tuple[Group, ...]
    described: Mapping[str, Any]  # every option as plain data

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.axes.values())

    @property
    def method(self) -> Method:
        return self.groups[0].method

    @property
    def several_systems(self) -> bool:
        """Whether the groups have different systems or classes."""
        return len({group.task.fingerprint for group in self.groups}) > 1

    @property
    def options(self) -> Any:
        """The options of the first group; those that are no axes are the same in every group."""
        return self.groups[0].options

    @property
    def record(self) -> tuple[Quantity, ...]:
        return self.groups[0].task.recorded

    def coordinates(self) -> dict[str, Any]:
        """The axes; for (Y, Z) both the decoder's rate and its ratio to lr_z."""
        # Xarray would turn None into NaN in an array, but not in an index.
        axes = {
            name: pd.Index(labels, dtype=object) if labels.dtype == object else labels
            for name, labels in self.axes.items()
        }
        if "lr_z" not in axes or not {"lr_y", RATIO} & set(axes):
            return axes
        lr_z = self.axes["lr_z"][:, None]
        if RATIO in self.axes:
            axis, other, values = RATIO, "lr_y", self.axes[RATIO] * lr_z
        else:
            axis, other, lr_y = "lr_y", RATIO, self.axes["lr_y"]
            ratios = np.divide(lr_y, lr_z, out=np.full((len(lr_z), len(lr_y)), np.inf), where=lr_z > 0)
            values = np.array([[float(f"{ratio:.12g}") for ratio in row] for row in ratios])  # equal ones compare equal
        return {**axes, other: (("lr_z", axis), values)}

    def shards(self, memory: float, shard_size: int | None = None) -> list[Shard]:
        """The runs in shards, each within `memory` bytes; at most `shard_size` runs in each, if given."""
        size = shard_size or int(np.clip(math.ceil(len(self) / SHARDS), LEAST_PER_SHARD, MOST_PER_SHARD))
        blocks = ((group, block) for group in self.groups for block in _blocks(group, size, memory))
        return [Shard(index, group, block) for index, (group, block) in enumerate(blocks)]


def _blocks(group: Group, size: int, memory: float) -> Iterator[Place]:
    """A group's runs in blocks of at most `size` runs that span its last axes."""
    needed = group.bytes_per_run
    if needed > memory:
        raise InputError(
            f"one run of {group.name} needs {gibibytes(needed)} and {gibibytes(memory)} are allowed: allow more "
            "with memory, record less, or start from zeros, which merges output columns."
        )
    left = min(size, int(memory // needed))
    cuts: list[list[slice]] = []
    for values in reversed([*group.axes.values()]):
        length = max(1, min(len(values), left))
        cuts.insert(0, [slice(i, min(i + length, len(values))) for i in range(0, len(values), length)])
        left //= len(values)
    return itertools.product(*cuts)


def merge_options(options: Mapping[str, object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Keyword arguments, and options for those not given; both lr_y and lr_y_over_lr_z set the decoder's rate."""
    rates = {"lr_y", RATIO}
    others = {name: value for name, value in options.items() if name not in rates or not rates & kwargs.keys()}
    return {**others, **kwargs}


def make_grid(systems: object, **options: object) -> Grid:
    """Return the grid, or raise an `InputError` that names the first problem."""
    named, axis_name = _named(systems)
    first = next(iter(named.values()))
    method, known = method_of(options, first)
    values = _with_defaults(method, first, options)
    run_axes = _run_axes(known, values)
    axes = _option_axes(known, values)
    every_axis: dict[str, Any] = {**axes, **run_axes}
    labels = {name: [label(known, name, value) for value in listed] for name, listed in every_axis.items()}
    for name, listed in labels.items():
        if len({str(value) for value in listed}) < len(listed):
            raise InputError(f"{name} holds a value twice: give each value once, so that no run is counted twice.")
    count = len(named) * math.prod(map(len, every_axis.values()))
    if count > MOST_RUNS:
        raise InputError(f"the grid has {count:,} runs: a sweep may have up to {MOST_RUNS:,}.")
    dimensions = {axis_name: np.array(list(named))} if axis_name else {}
    dimensions |= {name: _coordinate(labels[name]) for name in axes}
    rates = {name: 0.0 for name, option in known.items() if isinstance(option.type, RatesType)}  # set by each shard
    shared = {**{name: value for name, value in values.items() if name not in axes}, **rates}
    groups: list[Group] = []
    places = np.ndindex(*(len(values) for values in dimensions.values()))
    for place, ((name, system), *cell) in zip(places, itertools.product(named.items(), *axes.values()), strict=True):
        own = method.options_of(system)(**{**shared, **dict(zip(axes, cell, strict=True))})
        if not isinstance(getattr(own, "init", ""), str):
            raise InputError("init holds arrays: a sweep starts from 'zeros' or 'uniform'; give arrays to train.")
        task = method.task(system, own)
        groups.append(Group(name, method, system, own, task, tuple(slice(i, i + 1) for i in place), run_axes))
    plain = {name: [known[name].type.plain(value) for value in listed] for name, listed in axes.items()}
    return Grid({**dimensions, **run_axes}, tuple(groups), _described(groups, plain))


def _with_defaults(method: Method, system: System | DataSource, options: Mapping[str, object]) -> dict[str, Any]:
    """The options with the defaults of a sweep; refuses a sweep that lacks one."""
    is_yz, options_class = not isinstance(system, System), method.options_of(system)
    values = {
        **defaults_of(options_class),
        **method.defaults,
        "record": SWEEP_QUANTITIES if is_yz else ("loss",),
        **options,
    }
    if missing := [name for name in required_of(options_class) if name not in values and name != "lr_y"]:
        needed = NEEDED if is_yz else f"a system, {', '.join(required_of(options_class))}"
        raise InputError(f"{', '.join(missing)} must be given: a sweep needs {needed}.")
    return values


def _option_axes(known: Mapping[str, Option], values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The options with several values, each of which is checked."""
    swept = [name for name, option in known.items() if option.axis and name in values]
    axes = {name: listed for name in swept if (listed := _axis(name, values[name], known)) is not None}
    for name, listed in axes.items():
        for value in listed:
            known[name].type.check(name, value)
    return axes


def _described(groups: Sequence[Group], axes: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a sweep as plain data."""
    first = groups[0]
    code = {part: digest for group in groups for part, digest in group.options.to_dict().get("code", {}).items()}
    return {
        **first.options.to_dict(),
        **({"code": code} if code else {}),
        **axes,
        **{name: listed.tolist() for name, listed in first.axes.items()},
        "system" if isinstance(first.system, System) else "classes": {
            group.name: group.system.fingerprint for group in groups
        },
        "record": [quantity.name for quantity in first.task.recorded],
    }


def _run_axes(known: Mapping[str, Option], values: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Take the axes of runs that advance together: the rates, the one stated last first, and the seed."""
    ratio = values.pop(RATIO, None)
    if "lr_y" in known and values.get("lr_y") is None and ratio is None:
        raise InputError(f"the decoder's rate is missing: give lr_y, or {RATIO}.")
    if values.get("lr_y") is not None and ratio is not None:
        raise InputError(f"lr_y and {RATIO} are both given: both set the same rate, so give one.")
    axes: dict[str, NDArray[Any]] = {}
    for name in reversed([name for name, option in known.items() if isinstance(option.type, RatesType)]):
        value = values.pop(name, None)
        name, value = (RATIO, ratio) if value is None else (name, value)
        axes[name] = np.atleast_1d(np.asarray(RatesType().check(name, value), np.float64))
    seeds = values.pop("seeds")
    if checks.is_iterable(seeds) and isinstance(seeds, Sized) and len(seeds) > MOST_RUNS:  # before each is checked
        raise InputError(f"seeds has {len(seeds):,} entries: a sweep may have up to {MOST_RUNS:,} runs.")
    return {**axes, "seed": np.atleast_1d(np.array(SeedsType().check("seeds", seeds), np.int64))}


def _named(systems: object) -> tuple[dict[str, System | DataSource], str]:
    """Systems or class settings by name, and the name of their axis, if they are one.

    They are one of them, a mapping, or a list, whose entries are numbered.
    """
    if isinstance(systems, Mapping) and not isinstance(systems, System):
        listed = [(str(name), setting) for name, setting in systems.items()]
    elif isinstance(systems, Sequence) and not isinstance(systems, str):
        listed = [(setting if isinstance(setting, str) else str(i), setting) for i, setting in enumerate(systems)]
    else:
        return {systems if isinstance(systems, str) else "classes": as_system(systems)}, ""
    if not listed:
        raise InputError("classes is empty: give sequence classes, or a mapping from names to them.")
    names = [name for name, _ in listed]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"classes names '{twice}' twice: give each setting once, under a name of its own.")
    named = {name: as_system(setting) for name, setting in listed}
    rates = {system.rates if isinstance(system, System) else ("lr_y", "lr_z") for system in named.values()}
    if len({isinstance(system, System) for system in named.values()}) > 1 or len(rates) > 1:
        raise InputError(f"{', '.join(named)} have different learning rates: sweep over one kind of system at a time.")
    return named, "system" if isinstance(next(iter(named.values())), System) else "classes"


def _axis(name: str, values: object, known: Mapping[str, Option]) -> list[Any] | None:
    """The values of an option with several; None if it has a single one."""
    if not checks.is_list(values):
        return None
    if not checks.is_iterable(values):
        raise InputError(f"{name} is {short_repr(values)}: a sweep may have up to {MOST_RUNS:,} runs.")
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]  # type: ignore[attr-defined]
    if not listed:
        raise InputError(f"{name} is empty: give at least one value, so that the grid has runs.")
    has_whole_values = any(value is None or isinstance(value, str | Mapping) for value in listed)
    return listed if has_whole_values or not known[name].listed else None


def label(known: Mapping[str, Option], name: str, value: Any) -> Any:
    """The label of a value in a coordinate: the value itself, or text for an object that a coordinate cannot hold."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value
    plain = known[name].type.plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _coordinate(labels: list[Any]) -> NDArray[Any]:
    """Labels as an array of booleans, numbers or text; of objects if None is among them."""
    types = {str if isinstance(value, str) else type(value) for value in labels}
    if types == {int, float}:
        return np.array(labels, float)
    if len(types) == 1 and type(None) not in types:
        return np.array(labels)
    array = np.empty(len(labels), object)
    array[:] = labels
    return array


CELL_MEANS = ("loss", "fresh_loss", "entropy", "favored_entropy")
"""Quantities whose last record is averaged over the runs of a cell."""


def cells(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """A table of a sweep with one entry per cell, the runs that differ only in their seed.

    An entry has the cell's labels, the number of runs and of those that finished, and the mean and standard error of
    the last loss and entropy over these; None for none.  Where classes have no distinct token, `favored_entropy` is
    there if attention was recorded.
    """
    if {"entropy", "attention"} <= set(dataset) and bool(dataset["entropy"].isnull().all()):
        dataset = dataset.assign(favored_entropy=favored_entropy(dataset))
    record = "time" if "time" in dataset.dims else "step"
    means = CELL_MEANS if "classes" in dataset.attrs else tuple(map(str, dataset.data_vars))
    axes = [str(axis) for axis in dataset["status"].dims if axis != "seed"]
    last = {
        name: dataset[name]
        .isel({record: -1})
        .mean([d for d in dataset[name].dims if d not in (*axes, "seed", record)])
        .transpose(*axes, "seed")
        .values
        for name in means
        if name in dataset
    }
    ok = (dataset["status"] == "ok").transpose(*axes, "seed").values
    labels = {axis: dataset[axis].values.tolist() for axis in axes}
    table = []
    for place in np.ndindex(*(dataset.sizes[axis] for axis in axes)):
        cell = dict(zip(axes, place, strict=True))
        entry: dict[str, Any] = {axis: labels[axis][i] for axis, i in cell.items()}
        if RATIO in entry:
            entry["lr_y"] = float(dataset["lr_y"].isel({a: i for a, i in cell.items() if a in dataset["lr_y"].dims}))
        finished = ok[place]
        entry |= {"runs": len(finished), "ok": int(finished.sum())}
        for name, values in last.items():
            numbers = values[place][finished]
            entry[name] = float(numbers.mean()) if len(numbers) and np.isfinite(numbers).all() else None
            error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else np.nan
            entry[f"{name}_error"] = float(error) if np.isfinite(error) else None
        table.append(entry)
    return table
