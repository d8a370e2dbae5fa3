"""The grid of a sweep: every combination of classes, options, rates and seeds, checked before anything starts.

The grid has one axis for each option with several values, and always one for lr_z, for lr_y (or its ratio
to lr_z) and for the seed.  Runs that differ only in rates and seed advance together: a *group*.  Runs are numbered
along the grid, the last axis fastest, so a group's runs are consecutive.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scansnap.data.named_classes import as_source
from scansnap.data.source import DataSource
from scansnap.dynamics.options import RatesType, Runs, SeedsType
from scansnap.dynamics.sweeps.subject import STATED, AnyOptions, AnyWork, Subject, subject_of
from scansnap.results.quantities import Quantity
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation import checks
from scansnap.validation.options import defaults_of, options_of, required_of

MOST_RUNS = 10**7

NEEDED = "classes, lr_z, lr_y or lr_y_over_lr_z, and steps of training or times of the flow"

RATE_AXES = ("lr_y", "lr_z", "seeds")


@dataclass(frozen=True)
class Group:
    """Runs that advance together."""

    name: str  # of the classes
    subject: Subject
    work: AnyWork
    runs: Runs
    first: int  # number of the group's first run

    def __len__(self) -> int:
        return len(self.runs)


@dataclass(frozen=True)
class Grid:
    """All groups of a sweep, and their description in its result."""

    axes: Mapping[str, NDArray[Any]]  # the dimensions of the result, with their values
    groups: tuple[Group, ...]
    described: Mapping[str, Any]  # what was asked, as plain data

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.axes.values())

    @property
    def subject(self) -> Subject:
        return self.groups[0].subject

    @property
    def options(self) -> AnyOptions:
        """The options that all groups share."""
        return self.groups[0].work.options

    @property
    def record(self) -> tuple[Quantity, ...]:
        return self.options.recorded

    def coordinates(self) -> dict[str, Any]:
        """The axes, and both the decoder's rate and its ratio to lr_z."""
        lr_z = self.axes["lr_z"]
        if "lr_y" in self.axes:
            axis, other = "lr_y", "lr_y_over_lr_z"
            values = np.divide(
                self.axes[axis], lr_z[:, None], out=np.full(self.shape[-3:-1], np.inf), where=lr_z[:, None] > 0
            )
            values = np.array(
                [[float(f"{ratio:.12g}") for ratio in row] for row in values]
            )  # equal ratios compare equal
        else:
            axis, other = "lr_y_over_lr_z", "lr_y"
            values = self.axes[axis] * lr_z[:, None]
        # Xarray would turn None into NaN in an array, but not in an index.
        axes = {
            name: pd.Index(labels, dtype=object) if labels.dtype == object else labels
            for name, labels in self.axes.items()
        }
        return {**axes, other: (("lr_z", axis), values)}


def with_options(options: Mapping[str, object], words: Mapping[str, object]) -> dict[str, object]:
    """Words, and options for what they leave out; both lr_y and lr_y_over_lr_z are the decoder's rate."""
    rates = {"lr_y", "lr_y_over_lr_z"}
    left = {name: value for name, value in options.items() if name not in rates or not rates & words.keys()}
    return {**left, **words}


def make_grid(classes: object, *, lr_y_over_lr_z: object = None, **words: object) -> Grid:
    """The grid, or an `InputError` that names the first problem."""
    named, several_classes = _named(classes)
    subject = subject_of(words)
    required, stated = required_of(subject.options), options_of(subject.options)
    decoder_axis, decoder_rates = _decoder_rates(words.pop("lr_y", None), lr_y_over_lr_z)
    values = {**defaults_of(subject.options), **subject.defaults, **words}
    missing = [name for name in required if name not in values and name != "lr_y"]
    if missing:
        raise InputError(f"{', '.join(missing)} must be given: a sweep needs {NEEDED}.")
    seeds = values.pop("seeds")
    if checks.is_iterable(seeds) and isinstance(seeds, Sized) and len(seeds) > MOST_RUNS:  # before each is checked
        raise InputError(f"seeds has {len(seeds):,} entries: a sweep may have up to {MOST_RUNS:,} runs.")
    rates: dict[str, NDArray[Any]] = {
        "lr_z": np.atleast_1d(RatesType().check("lr_z", values.pop("lr_z"))),
        decoder_axis: decoder_rates,
        "seed": np.atleast_1d(np.array(SeedsType().check("seeds", seeds), np.int64)),
    }
    swept = [name for name, option in stated.items() if option.axis and name not in RATE_AXES]
    axes = {name: listed for name in swept if (listed := _axis(name, values[name])) is not None}
    for name, listed in axes.items():
        for value in listed:
            stated[name].type.check(name, value)
    every_axis: dict[str, Sequence[Any] | NDArray[Any]] = {**axes, **rates}
    for name, values_of_axis in every_axis.items():
        labels = [str(label(name, value)) for value in values_of_axis]
        if len(set(labels)) < len(labels):
            raise InputError(f"{name} holds a value twice: give each value once, so that no run is counted twice.")
    lengths = [len(named), *(len(values_of_axis) for values_of_axis in every_axis.values())]
    if math.prod(lengths) > MOST_RUNS:
        raise InputError(f"the grid has {math.prod(lengths):,} runs: a sweep may have up to {MOST_RUNS:,}.")
    runs = _runs(rates)
    shared = {name: value for name, value in values.items() if name not in axes}
    groups: list[Group] = []
    for (class_name, source), *cell in itertools.product(named.items(), *axes.values()):
        options = subject.options(**shared, **dict(zip(axes, cell, strict=True)), lr_y=0.0, lr_z=0.0)
        if not isinstance(options.init, str):
            raise InputError("init holds arrays: a sweep starts from 'zeros' or 'uniform'; give arrays to train.")
        groups.append(Group(class_name, subject, subject.work(source, options), runs, first=len(groups) * len(runs)))
    dimensions = {"classes": np.array(list(named))} if several_classes else {}
    dimensions |= {name: _coordinate([label(name, value) for value in listed]) for name, listed in axes.items()}
    code = {part: digest for group in groups for part, digest in group.work.options.to_dict().get("code", {}).items()}
    described = {
        **groups[0].work.options.to_dict(),
        **({"code": code} if code else {}),
        **{name: [stated[name].type.plain(value) for value in listed] for name, listed in axes.items()},
        **{name: listed.tolist() for name, listed in rates.items()},
        "classes": {name: source.fingerprint for name, source in named.items()},
        "record": [quantity.name for quantity in groups[0].work.options.recorded],
    }
    return Grid({**dimensions, **rates}, tuple(groups), described)


def _runs(rates: Mapping[str, NDArray[Any]]) -> Runs:
    """The runs of a group: lr_z varies slowest and the seed fastest."""
    lr_z, decoder, seed = rates.values()
    z = np.repeat(lr_z, len(decoder) * len(seed))
    y = np.tile(np.repeat(decoder, len(seed)), len(lr_z))
    return Runs(
        lr_y=y * z if "lr_y_over_lr_z" in rates else y,
        lr_z=z,
        seed=np.tile(seed, len(lr_z) * len(decoder)).astype(np.uint64),
    )


def _decoder_rates(lr_y: object, ratio: object) -> tuple[str, NDArray[np.float64]]:
    """The axis of the decoder's rate: its name and its values."""
    if lr_y is None and ratio is None:
        raise InputError("the decoder's rate is missing: give lr_y, or lr_y_over_lr_z.")
    if lr_y is not None and ratio is not None:
        raise InputError("lr_y and lr_y_over_lr_z are both given: both set the same rate, so give one.")
    name, values = ("lr_y", lr_y) if lr_y is not None else ("lr_y_over_lr_z", ratio)
    return name, np.atleast_1d(np.asarray(RatesType().check(name, values), np.float64))


def _named(classes: object) -> tuple[dict[str, DataSource], bool]:
    """Class settings by name, and whether they are an axis: one, a mapping, or a list, whose entries are numbered."""
    if isinstance(classes, Mapping):
        listed = [(str(name), setting) for name, setting in classes.items()]
    elif isinstance(classes, Sequence) and not isinstance(classes, str):
        listed = [(setting if isinstance(setting, str) else str(i), setting) for i, setting in enumerate(classes)]
    else:
        return {classes if isinstance(classes, str) else "classes": as_source(classes)}, False
    if not listed:
        raise InputError("classes is empty: give sequence classes, or a mapping from names to them.")
    names = [name for name, _ in listed]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"classes names '{twice}' twice: give each setting once, under a name of its own.")
    return {name: as_source(setting) for name, setting in listed}, True


def _axis(name: str, values: object) -> list[Any] | None:
    """The values of an option that is given several; None if it is given a single one."""
    if not checks.is_list(values):
        return None
    if not checks.is_iterable(values):
        raise InputError(f"{name} is {short_repr(values)}: a sweep may have up to {MOST_RUNS:,} runs.")
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]  # type: ignore[attr-defined]
    if not listed:
        raise InputError(f"{name} is empty: give at least one value, so that the grid has runs.")
    has_whole_values = any(value is None or isinstance(value, str | Mapping) for value in listed)
    return listed if has_whole_values or not STATED[name].listed else None


def label(name: str, value: Any) -> Any:
    """The label of a value in a coordinate: the value itself, or words for an object that a coordinate cannot hold."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value
    plain = STATED[name].type.plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _coordinate(labels: list[Any]) -> NDArray[Any]:
    """Labels as an array of booleans, numbers or words; of objects if None is among them."""
    kinds = {str if isinstance(value, str) else type(value) for value in labels}
    if kinds == {int, float}:
        return np.array(labels, float)
    if len(kinds) == 1 and type(None) not in kinds:
        return np.array(labels)
    array = np.empty(len(labels), object)
    array[:] = labels
    return array
