"""Experiments and sweeps as small TOML files, with the options of `train` and `sweep`:

classes = ["syn-medium-1", "syn-medium-3"]      # names, or .toml and .json files beside this one
lr_z = [0.5, 1, 2, 3]
lr_y_over_lr_z = [1, 2, 5, 10]
seeds = "0:10"                                  # or a list
steps = 100
momentum = 0.9
init = "uniform"
seq_len = [128, inf]
batch_size = "none"                             # the expected update

With times = "log:1:1e12:97", or a list of times, in place of steps, and the options of `flow`, the file describes a
sweep of flows.  A file whose options have one value each is an experiment, which `scansnap train` takes too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from scansnap.data.named_classes import named_classes
from scansnap.data.source import DataSource
from scansnap.dynamics.grid import NEEDED, RATIO, SWEPT, YZ_OPTIONS, method_of
from scansnap.dynamics.options import SweepExecution, TrainOptions
from scansnap.runtime.errors import InputError, brief, short_repr, unknown
from scansnap.storage.files import read_regular_text, write_new_text
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.checks import type_name
from scansnap.validation.options import defaults_of, from_names, from_plain, options_of, plain, required_of
from scansnap.validation.validate import validated

KEYS = ("classes", RATIO, *SWEPT, *(name for name in options_of(SweepExecution) if name != "cluster"))


@validated
def read_sweep(path: str | Path) -> tuple[dict[str, DataSource], dict[str, Any]]:
    r"""The classes and the other arguments of `sweep` written in a file.

    >>> from pathlib import Path
    >>> _ = Path("sweep.toml").write_text('classes = "syn-small"\nlr_y = [1, 10]\nlr_z = 1\nsteps = 5\n')
    >>> classes, options = ss.read_sweep("sweep.toml")
    >>> sorted(options)
    ['lr_y', 'lr_z', 'steps']
    >>> ss.sweep(classes, **options).sizes["lr_y"]
    2
    """
    options = _read(Path(path))
    try:
        method, _ = method_of({name: value for name, value in options.items() if name in SWEPT})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    for name in ("classes", *required_of(YZ_OPTIONS[method.axis])):
        if name not in options and name != "lr_y":
            raise InputError(f"{path} has no {name}: a sweep needs {NEEDED}.")
    return options.pop("classes"), options


@validated
def read_experiment(path: str | Path) -> tuple[DataSource, TrainOptions]:
    """The classes and the options of `train` written in a file: `train(classes, **vars(options))`.

    >>> options = ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=5)
    >>> path = ss.write_experiment("syn-small", options, "read_experiment.toml")
    >>> classes, again = ss.read_experiment(path)
    >>> again == options
    True
    """
    options = _read(Path(path))
    settings = options.pop("classes", {})
    if len(settings) != 1:
        raise InputError(f"{path} names no classes, or several: an experiment has one setting under 'classes'.")
    (classes,) = settings.values()
    try:
        return classes, from_names(TrainOptions, options)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


@dataclass(frozen=True)
class NameType(ArgumentType):
    """The name of classes, or of their file."""

    def check(self, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise InputError(f"{name} is {type_name(value)}: give their name, or a file made with write_classes.")
        return super().check(name, value)


@validated
def write_experiment(classes: Annotated[str, NameType()], options: TrainOptions, path: str | Path) -> Path:
    """Write a new .toml file that `read_experiment` reads: the name of the classes, and the non-default options.

    >>> options = ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=5)
    >>> print(ss.write_experiment("syn-small", options, "experiment.toml").read_text().splitlines()[0])
    classes = "syn-small"
    """
    import tomli_w

    path = Path(path)
    named_classes(classes, path.parent)  # refuses a name that could not be read back
    defaults = defaults_of(TrainOptions)
    content: dict[str, Any] = {"classes": classes}
    for name, option in options_of(TrainOptions).items():
        value = getattr(options, name)
        if name in defaults and value == option.type.check(name, defaults[name]):
            continue
        content[name] = value if isinstance(value, float) else plain(option.type.plain(value))
        if not _is_read_back(option.type, name, content[name], value):
            raise InputError(f"{name} is {short_repr(value)}, which a file cannot hold: give it to train.")
    write_new_text(path, tomli_w.dumps(content))
    return path


def _read(path: Path) -> dict[str, Any]:
    """A file's keys and values; names of classes, and seeds and times as text, are replaced by what they mean."""
    try:
        content: Mapping[str, Any] = tomllib.loads(read_regular_text(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a valid TOML file: {brief(error)}.") from None
    for name in content:
        if name not in KEYS:
            raise InputError(f"{path}: {unknown('key', name, KEYS)}")
    values = {name: from_plain(value) for name, value in content.items()}
    try:
        if "classes" in values:
            listed = values["classes"] if isinstance(values["classes"], list) else [values["classes"]]
            values["classes"] = settings_by_name([str(name) for name in listed], path.parent)
        for name in ("seeds", "times"):
            if isinstance(values.get(name), str):
                values[name] = SWEPT[name].type.read(name, values[name])
    except (InputError, TypeError) as error:
        raise InputError(f"{path}: {error}") from None
    return values


def _is_read_back(option_type: ArgumentType, name: str, written: Any, value: Any) -> bool:
    """Whether a file with the written form of a value gives the value."""
    try:
        return bool(option_type.check(name, from_plain(written)) == value)
    except InputError:
        return False


def settings_by_name(names: list[str], folder: Path | None = None) -> dict[str, DataSource]:
    """Class settings by name; files by their stem, or by their path if stems repeat."""
    stems = [Path(name).stem for name in names]
    keys = stems if len(set(stems)) == len(stems) else names
    if len(set(keys)) < len(keys):
        raise InputError(f"classes names {next(k for k in keys if keys.count(k) > 1)} twice: give each setting once.")
    return {key: named_classes(name, folder) for key, name in zip(keys, names, strict=True)}
