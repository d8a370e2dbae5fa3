"""What a sweep asks for: every combination of rates, seeds, classes and options, checked before anything starts.

Runs that differ only in rates and seed advance together on one axis of one `train`: a *group*.  Groups differ in their
classes or in an option.  Runs are numbered group after group; within a group lr_z varies slowest and the seed fastest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.options import (
    Runs,
    TrainOptions,
    check_bias_recorded,
    check_classes,
    rates,
    recorded,
    whole,
)
from scansnap.dynamics.position_bias import check_positions
from scansnap.dynamics.start import check_layers, check_start

BEYOND: dict[str, Any] = {
    "normalization": "l2", "residual": False, "heads": 1, "init_scale_z": 1.0, "attention_prior": None,
    "num_sequences": None, "position_bias": None, "learn_position_bias": False,
    "layers": 1, "nonlinearity": "tanh",
}  # fmt: skip
"""Options that lead beyond the basic setting, and what they are in it."""

OPTION_AXES = ("optimizer", "momentum", "batch_size", "seq_len", "init", "decoder_gradient", *BEYOND)
"""Options that may take several values; the others are the same for all runs."""

START_OPTIONS = ("init", "init_scale_z", "attention_prior", "position_bias", "learn_position_bias")
"""Those that say where training starts and not what it does."""

MOST_RUNS = 10**7


@dataclass(frozen=True)
class Group:
    """Runs that one `train` can take together."""

    name: str  # of the classes
    classes: SequenceClasses
    options: Mapping[str, Any]  # of `train`, without rates, seeds, record and store
    lr_y: NDArray[np.float64]
    lr_z: NDArray[np.float64]
    seeds: NDArray[np.uint64]
    first: int  # number of the group's first run

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def train_options(self) -> TrainOptions:
        """What its runs share, but for the start."""
        return TrainOptions.checked(**{key: value for key, value in self.options.items() if key not in START_OPTIONS})


@dataclass(frozen=True)
class Grid:
    """All groups of a sweep, and what its result says of them."""

    groups: tuple[Group, ...]
    described: Mapping[str, Any]  # what was asked, as plain data
    record: tuple[str, ...]
    record_steps: NDArray[np.int64]
    dtype: str

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def same_classes(self) -> bool:
        return all(group.classes == self.groups[0].classes for group in self.groups)

    @property
    def same_heads(self) -> bool:
        """Whether all runs have as many heads and as many layers."""
        return len({(group.options["heads"], group.options["layers"]) for group in self.groups}) == 1

    def coordinates(self) -> dict[str, NDArray[Any]]:
        """What tells runs apart, one entry per run."""

        def of_runs(values: Iterable[Any], dtype: Any = None) -> NDArray[Any]:
            return np.repeat(np.array(list(values), dtype), [len(group) for group in self.groups])

        found = {
            "lr_y": np.concatenate([group.lr_y for group in self.groups]),
            "lr_z": np.concatenate([group.lr_z for group in self.groups]),
            "lr_y_over_lr_z": np.concatenate([_ratio(group) for group in self.groups]),
            "seed": np.concatenate([group.seeds for group in self.groups]).astype(np.int64),
            "classes": of_runs(group.name for group in self.groups),
        }
        for name in OPTION_AXES:
            values = [group.options[name] for group in self.groups]
            if len({str(value) for value in values}) > 1:
                numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
                found[name] = of_runs(values, float) if numeric else of_runs(map(str, values))
        return found


def make_grid(
    classes: Any,
    *,
    lr_z: Any,
    lr_y: Any,
    lr_y_over_lr_z: Any,
    seeds: Any,
    record: Iterable[str],
    record_every: int | None,
    **options: Any,
) -> Grid:
    """The grid, or an `InputError` that names the first thing that cannot be."""
    named = _named(classes)
    rate_z = rates("lr_z", lr_z)
    if lr_y is None and lr_y_over_lr_z is None:
        raise InputError("the decoder's rate is missing: give lr_y, or lr_y_over_lr_z.")
    if lr_y is not None and lr_y_over_lr_z is not None:
        raise InputError("lr_y and lr_y_over_lr_z are both given: they are two ways to say one rate, so give one.")
    name_y, values_y = ("lr_y", lr_y) if lr_y is not None else ("lr_y_over_lr_z", lr_y_over_lr_z)
    rate_y = rates(name_y, values_y)
    if hasattr(seeds, "__len__") and len(seeds) > MOST_RUNS:  # before they are looked at one by one
        raise InputError(f"seeds has {len(seeds):,} entries: a sweep may have up to {MOST_RUNS:,} runs.")
    seed = Runs.checked(lr_y=1.0, lr_z=1.0, seeds=seeds).seed
    given = {**BEYOND, **options}
    axes = {name: _values(name, given.pop(name)) for name in OPTION_AXES}
    for name, values in (("lr_z", rate_z), (name_y, rate_y), ("seeds", seed)):
        if len(np.unique(values)) < len(values):
            raise InputError(f"{name} holds a value twice: give each value once, so that no run is counted twice.")
    whole("steps", given["steps"], least=0)
    every = max(int(given["steps"]), 1) if record_every is None else record_every
    shared = {**given, "record_every": every, "record": recorded(record)}
    # lr_z varies slowest and the seed fastest.
    z = np.repeat(rate_z, len(rate_y) * len(seed))
    y = np.tile(np.repeat(rate_y, len(seed)), len(rate_z))
    s = np.tile(seed, len(rate_z) * len(rate_y))
    if name_y == "lr_y_over_lr_z":
        y = y * z
    count = len(named) * math.prod(len(values) for values in axes.values()) * len(s)
    if count > MOST_RUNS:
        raise InputError(f"the grid has {count:,} runs: a sweep may have up to {MOST_RUNS:,}.")
    groups: list[Group] = []
    checked = None
    for (name, one), *chosen in itertools.product(named.items(), *axes.values()):
        mine = {**shared, **dict(zip(axes, chosen, strict=True))}
        # Both refuse contradictions before anything runs.
        groups.append(Group(name, one, mine, y, z, s, first=len(groups) * len(s)))
        checked = groups[-1].train_options
        _, positions = check_start(one, **{key: mine[key] for key in START_OPTIONS})
        check_layers(checked.architecture, mine["init"], mine["attention_prior"], positions)
        check_positions(positions, checked.seq_len, checked.batch_size, checked.num_sequences)
        check_bias_recorded(checked.record, one)
    assert checked is not None
    described = {
        "lr_z": rate_z.tolist(),
        name_y: rate_y.tolist(),
        "seeds": seed.tolist(),
        **{name: [str(value) for value in values] for name, values in axes.items()},
        **{name: list(value) if isinstance(value, tuple) else value for name, value in shared.items()},
        "classes": {name: one.fingerprint for name, one in named.items()},
    }
    return Grid(tuple(groups), described, checked.record, checked.record_steps, checked.dtype)


def _ratio(group: Group) -> NDArray[np.float64]:
    """lr_y/lr_z to twelve digits, so that equal ratios are equal; infinite where lr_z is zero."""
    ratio = np.divide(group.lr_y, group.lr_z, out=np.full(len(group), np.inf), where=group.lr_z > 0)
    return np.array([float(f"{value:.12g}") for value in ratio])


def _named(classes: Any) -> dict[str, SequenceClasses]:
    """Class settings by name: one, a mapping, or a list, whose entries are numbered."""
    if isinstance(classes, SequenceClasses):
        return {"classes": classes}
    if isinstance(classes, Mapping):
        found = {str(name): one for name, one in classes.items()}
    elif isinstance(classes, Sequence) and not isinstance(classes, str):
        found = {str(i): one for i, one in enumerate(classes)}
    else:
        check_classes(classes)  # says what is allowed
        raise AssertionError
    if not found:
        raise InputError("classes is empty: give sequence classes, or a mapping from names to them.")
    for one in found.values():
        check_classes(one)
    return found


def _values(name: str, values: Any) -> list[Any]:
    """The values of an option: a list, or a single one."""
    single = name == "position_bias" and all(isinstance(value, int | float) for value in values or [None])
    listed = list(values) if isinstance(values, list | range | np.ndarray) and not single else [values]
    if not listed:
        raise InputError(f"{name} is empty: give at least one value, so that the grid has runs.")
    if name == "init" and any(not isinstance(value, str) for value in listed):
        raise InputError("init holds arrays: a sweep starts from 'zeros' or 'uniform'; give arrays to train.")
    if name == "attention_prior" and any(value is not None and not isinstance(value, Mapping) for value in listed):
        raise InputError(
            f"attention_prior is {values!r:.60}: a sweep takes names with numbers, one or a list of them, as "
            "{common = -2} in a file or {'common': -2} in Python."
        )
    plain = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if len({str(value) for value in plain}) < len(plain):
        raise InputError(f"{name} holds a value twice: give each value once.")
    return plain
