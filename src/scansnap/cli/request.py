"""What `train`, `flow` and `sweep` compute: a system or classes, and options from presets, files and flags."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, flag_name
from scansnap.cli.system import SystemChoice, SystemRates, choose_system, presets
from scansnap.data.named_classes import NAMED_CLASSES, named_classes
from scansnap.data.source import DataSource
from scansnap.dynamics.options import TimesType
from scansnap.dynamics.published import FIRST, PUBLISHED, Experiment
from scansnap.explorer.page import VISIBLE_OPTIONS
from scansnap.runtime.errors import InputError, unknown
from scansnap.systems.system import System
from scansnap.validation.options import Options, from_names, options_of, required_of, values_of

if TYPE_CHECKING:
    import xarray as xr

PRESET = Flag("A published setting; the names are at the end.")
CLASSES_HELP = f"{', '.join(NAMED_CLASSES)}, or a .toml or .json file"
CLASSES = Flag(f"Sequence classes, by name or from a file: {CLASSES_HELP}.")
CONFIG = Flag("A .toml file with the same options; flags override it.")
PUBLISHED_PRESETS = {"Presets": {name: experiment.about for name, experiment in PUBLISHED.items()}}
ALL_PRESETS = {"Presets": {**PUBLISHED_PRESETS["Presets"], "others": "Presets of other systems: scansnap systems."}}
"""What help lists of presets."""

FLOW_TIMES = "log:1:1e12:97"
"""The times that a flow of (Y, Z) records by default."""

DEFAULT_PRESETS = {"train": FIRST, "flow": "syn-small"}
"""What commands take if neither classes nor a preset is given."""


@dataclass(frozen=True)
class Request:
    """What a command computes."""

    command: str
    systems: Mapping[str, System | DataSource]  # several in a sweep of (Y, Z) only
    stated: Mapping[str, Any]  # options of a preset or a file
    given: Mapping[str, Any]  # options of flags, which replace them
    about: str = ""  # what the preset of a system shows
    classes: str | None = None  # --classes, for messages

    @property
    def name(self) -> str:
        """The name of the only system or classes."""
        return next(iter(self.systems))

    @property
    def system(self) -> System | DataSource:
        """The only system or classes."""
        return self.systems[self.name]

    @property
    def is_yz(self) -> bool:
        """Whether this is about (Y, Z)."""
        return not any(isinstance(system, System) for system in self.systems.values())

    @property
    def values(self) -> dict[str, Any]:
        """The options by name."""
        from scansnap.dynamics.grid import merge_options

        return merge_options(self.stated, self.given)

    def options(self) -> Any:
        """The options of `train` or `flow`; an `InputError` if one is missing, or the system does not have it."""
        from scansnap.dynamics.task import flow_options, train_options

        cls = (flow_options if self.command == "flow" else train_options)(self.system)
        label = self.system.label if isinstance(self.system, System) else "(Y, Z)"
        for name in self.given:
            if name not in options_of(cls):
                raise InputError(f"{flag_name(name)} is given, which {label} does not have: leave it out.")
        if missing := [flag_name(name) for name in required_of(cls) if self.values.get(name) is None]:
            raise InputError(f"{', '.join(missing)} must be given, {self._source_of_missing(cls)}.")
        return from_names(cls, self.values)

    def _source_of_missing(self, cls: type[Options]) -> str:
        """Where options could come from, and what to type."""
        if isinstance(self.system, System):
            return f"here or by a preset of the system ({', '.join(self.system.presets) or 'none'})"
        source = "" if self.classes is None else f" --classes {shlex.quote(self.classes)}"
        visible = {name: VISIBLE_OPTIONS[name] for name in required_of(cls) if name in VISIBLE_OPTIONS}
        example = " ".join(f"{flag_name(name)} {value:g}" for name, value in visible.items())
        return (
            f"since only presets set rates and lengths: try scansnap {self.command}{source} {example}, or the options "
            f"of a preset, scansnap {self.command} --preset syn-small{source}"
        )


def read_request(
    command: str,
    given: Mapping[str, Any],
    *,
    preset: str | None,
    classes: str | None,
    system: str | None,
    settings: tuple[str, ...],
    config: Path | None = None,
) -> Request:
    """What the flags of a command ask for; `given` are options by flag.

    Options of a preset are replaced by those of a file, and these by flags.
    """
    if (choice := choose_system(system, preset, settings)) is not None:
        for flag, value in (("--classes", classes), ("--config", config)):
            if value is not None:
                raise InputError(f"{flag} is given, which {choice.system.label} does not have: leave it out.")
        return _system_request(command, given, choice)
    for rate in options_of(SystemRates):
        if rate in given:
            raise InputError(f"{flag_name(rate)} is given, which (Y, Z) does not have: use --lr-y and --lr-z.")
    if preset is None and config is None and classes is None:
        preset = DEFAULT_PRESETS.get(command)
    if command == "flow":
        given = {"times": TimesType().read("--times", FLOW_TIMES), **given}
    systems, stated = _read_config(command, config, preset)
    if preset is not None:
        experiment = find_preset(preset)
        systems = systems or {preset: experiment.classes}
        stated = _add_published_options(command, experiment, given.get("times", stated.get("times")), stated)
    if classes is not None:
        systems = _find_all_classes(command, classes)
    if "times" in given:
        stated = {name: value for name, value in stated.items() if name != "steps"}
    kept = drop_foreign_momentum(stated, given)
    if command == "train" and kept != stated and not {"lr_y", "lr_z"} & set(given):
        echo(f"the rates of {next(iter(systems))} suit sgd: give --lr-y and --lr-z, such as 0.5 each.", error=True)
    return Request(command, systems, kept, given, classes=classes)


def _system_request(command: str, given: Mapping[str, Any], choice: SystemChoice) -> Request:
    stated = choice.preset.flow if command == "flow" or "times" in given else choice.preset.train
    stated = _without_records(stated) if command == "sweep" else stated
    return Request(command, {choice.name: choice.system}, stated, {**given, **choice.rates}, choice.preset.about)


def _read_config(
    command: str, config: Path | None, preset: str | None
) -> tuple[Mapping[str, DataSource], Mapping[str, Any]]:
    """The classes and the options of a file."""
    from scansnap.dynamics.config import read_experiment, read_sweep

    if config is None:
        return {}, {}
    if command == "sweep":
        return read_sweep(config)
    if preset is not None:
        raise InputError("both --preset and --config are given: choose one source of options.")
    classes, options = read_experiment(config)
    return {config.stem: classes}, values_of(options)


def _add_published_options(
    command: str, experiment: Experiment, times: Any, stated: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a published setting, as a flow if `times` are given; `stated` ones replace them."""
    from scansnap.dynamics.grid import merge_options

    published = values_of(experiment.options if times is None else experiment.flow_options(tuple(times)))
    return merge_options(published if command == "train" else _without_records(published), stated)


def _without_records(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a preset but for what a flow or a sweep records by default."""
    return {name: value for name, value in stated.items() if name not in ("record", "record_every")}


def _find_all_classes(command: str, names: str) -> Mapping[str, DataSource]:
    """Classes by name; several in a sweep."""
    from scansnap.dynamics.config import settings_by_name

    if command == "sweep":
        return settings_by_name([name.strip() for name in names.split(",")])
    return {Path(names).stem: find_classes(names)}


def find_preset(name: str) -> Experiment:
    """The published setting with this name."""
    if name not in PUBLISHED:
        raise unknown("preset", name, [*PUBLISHED, *presets()])
    return PUBLISHED[name]


def find_classes(name: str) -> DataSource:
    """The data with this name, of a published setting, or from a file."""
    return PUBLISHED[name].classes if name in PUBLISHED and name not in NAMED_CLASSES else named_classes(name)


def drop_foreign_momentum(stated: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a setting; without its momentum, which belongs to its optimizer, if another one is given."""
    is_foreign = not set(np.atleast_1d(given.get("optimizer", "sgd"))) <= {"sgd"}
    return {name: value for name, value in stated.items() if name != "momentum" or not is_foreign}


# --- training and flows -----------------------------------------------------------------------------------------------


def run_request(request: Request, store: Path | None, picture: Path | None, as_json: bool) -> None:
    """Train or integrate, draw the picture, and print what happened and where the result is."""
    options = request.options()
    is_yz = request.is_yz
    recorded = {quantity.name for quantity in options.recorded} if is_yz and "record" in request.given else None
    common.check_picture(picture, recorded)
    configuration = {**options.to_dict(), "classes" if is_yz else "system": request.system.fingerprint}
    path = common.choose_store(store, f"{request.command}-{request.name}", configuration, draws_beside=picture is None)
    began = time.perf_counter()
    dataset = _function_of(request.command)(
        request.system, **request.values, store=path, progress=False if as_json else None
    )
    seconds = time.perf_counter() - began
    drawn = (_draw_attention if is_yz else _draw_quantities)(dataset, path, picture)
    runs = _summarize(dataset, is_yz=is_yz)
    if as_json:
        common.echo_json({**common.result_facts(path, drawn, seconds), "runs": runs})
        return
    _print_runs(request, runs, dataset)
    common.echo_result(path, seconds, drawn)


def _function_of(command: str) -> Callable[..., xr.Dataset]:
    from scansnap.dynamics.flow import flow
    from scansnap.dynamics.train import train

    return flow if command == "flow" else train


def _draw_attention(dataset: xr.Dataset, path: Path, picture: Path | None) -> Path | None:
    """Where the picture of attention is; None if there is nothing to draw and the user did not ask for a picture."""
    from scansnap.figures import attention_over_time

    records = dataset.sizes.get("step", dataset.sizes.get("time", 0))
    has_attention = set(dataset) >= common.PICTURE_QUANTITIES and attention_over_time.has_attention(dataset)
    if picture is None and (records < 2 or not has_attention):
        return None
    figure = attention_over_time.draw(attention_over_time.prepare(dataset))
    return common.save_picture(figure, picture or common.path_beside(path, ".png"), path)


def _draw_quantities(dataset: xr.Dataset, path: Path, picture: Path | None) -> Path:
    """Where the picture of everything that was recorded is."""
    from scansnap.figures import over_time

    return common.save_picture(over_time.draw(dataset), picture or common.path_beside(path, ".png"), path)


def _summarize(dataset: xr.Dataset, *, is_yz: bool) -> list[dict[str, Any]]:
    """What happened in each run, as plain data."""
    from scansnap.figures.over_time import changes
    from scansnap.results.story import summarize

    return summarize(dataset) if is_yz else changes(dataset)


def _print_runs(request: Request, runs: list[dict[str, Any]], dataset: xr.Dataset) -> None:
    """Print what happened in each run, and on the error stream how many runs did not finish."""
    from scansnap.results.story import describe_changes, describe_runs

    if request.about:
        echo(f"{request.name}: {request.about}")
    for line in (describe_runs if request.is_yz else describe_changes)(runs, dataset):
        echo(line)
    if failed := [run for run in runs if run["status"] != "ok"]:
        echo(f"{len(failed)} of {len(runs)} runs did not finish: lower their learning rates.", error=True)
