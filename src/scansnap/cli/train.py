"""`scansnap train`, `scansnap flow` and `scansnap explore`: one setting, run or shown on a page."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, flag_name, read_flags, with_flags
from scansnap.cli.system import SET_OPTION, SYSTEM_OPTION, SystemRates, asked_system, presets, run_system
from scansnap.data.named_classes import NAMED_CLASSES, named_classes
from scansnap.data.source import DataSource
from scansnap.dynamics.options import FlowOptions, TimesType, TrainOptions
from scansnap.dynamics.published import FIRST, PUBLISHED, Experiment
from scansnap.explorer.page import OPTIONS, VISIBLE, address_of, page_of
from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.options import Options, from_names, options_of, required_of, values_of

if TYPE_CHECKING:
    import xarray as xr

PRESET_OPTION = typer.Option("--preset", help="A published setting; the names are at the end.")
CLASSES_HELP = f"{', '.join(NAMED_CLASSES)}, or a .toml or .json file"
CLASSES_OPTION = typer.Option("--classes", help=f"Sequence classes, by name or from a file: {CLASSES_HELP}.")
CONFIG_OPTION = typer.Option("--config", help="A .toml file with the same options; flags override it.")

TIMES = "log:1:1e12:97"
"""The times that a flow records by default."""


@with_flags(TrainOptions, SystemRates, defaults=True)
def train(
    preset: Annotated[str | None, PRESET_OPTION] = None,
    system: Annotated[str | None, SYSTEM_OPTION] = None,
    setting: Annotated[list[str] | None, SET_OPTION] = None,
    config: Annotated[Path | None, CONFIG_OPTION] = None,
    classes: Annotated[str | None, CLASSES_OPTION] = None,
    parts: Annotated[Path | None, common.FROM_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[Path | None, common.PICTURE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Train the 1-layer transformer on sequence classes and watch its attention scan and snap.

    Options that you do not give come from the preset (by default scan-and-snap), then from the defaults below. With
    --classes alone, you must give rates and steps. Several rates or seeds make several runs side by side: the first
    with the first, and so on; `scansnap sweep` takes every combination.

    The result is written during training. If the command is interrupted, run it again: it resumes and gives the same
    numbers.
    """
    common.run_parts(parts)
    if asked := asked_system(system, preset, setting, flags):
        run_system("train", asked, flags, store, picture, json)
        return
    if config is not None:
        if preset is not None:
            raise InputError("both --preset and --config are given: choose one source of options.")
        from scansnap.dynamics.config import read_experiment

        source, file_options = read_experiment(config)
        name, values = config.stem, values_of(file_options)
        source = find_classes(classes) if classes else source
    else:
        name, source, experiment = find_setting(preset or (None if classes else FIRST), classes)
        values = values_of(experiment.options) if experiment is not None else {}
    given = read_flags(flags, TrainOptions)
    kept = drop_foreign_momentum(values, given)
    if kept != values and "lr_y" not in given and "lr_z" not in given:
        echo(f"the rates of {name} suit sgd: give --lr-y and --lr-z, such as 0.5 each.", error=True)
    values = {**kept, **given}
    _check_required("train", classes, TrainOptions, values)
    options = from_names(TrainOptions, values)
    common.check_picture(picture, [q.name for q in options.recorded] if "record" in given else common.DRAWN)

    from scansnap.dynamics.train import train as run_training

    _run(run_training, f"train-{name}", source, options, store, picture, json)


@with_flags(FlowOptions, SystemRates, defaults=True)
def flow(
    preset: Annotated[str | None, PRESET_OPTION] = None,
    system: Annotated[str | None, SYSTEM_OPTION] = None,
    setting: Annotated[list[str] | None, SET_OPTION] = None,
    classes: Annotated[str | None, CLASSES_OPTION] = None,
    parts: Annotated[Path | None, common.FROM_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[Path | None, common.PICTURE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Integrate the population dynamics in continuous time, up to 10^12 steps and beyond, at any rates.

    One unit of time is one expected update with batch size 1 at T → ∞. By default times are log:1:1e12:97,
    and rates and classes come from the preset (by default syn-small). Several rates or seeds make several runs, side by
    side.
    """
    common.check_picture(picture)
    common.run_parts(parts)
    if asked := asked_system(system, preset, setting, flags):
        run_system("flow", asked, flags, store, picture, json)
        return
    name, source, experiment = find_setting(preset, classes)
    times = TimesType().read("--times", TIMES)
    values: dict[str, Any] = {"times": times}
    if experiment is not None:
        values = values_of(experiment.flow_options(tuple(times)))
        del values["record"]
    values.update(read_flags(flags, FlowOptions))
    _check_required("flow", classes, FlowOptions, values)
    options = from_names(FlowOptions, values)

    from scansnap.dynamics.flow import flow as integrate

    _run(integrate, f"flow-{name}", source, options, store, picture, json)


@with_flags(TrainOptions, leave_out=[name for name in options_of(TrainOptions) if name not in OPTIONS])
def explore(
    classes: Annotated[
        str | None,
        typer.Argument(
            help=f"Sequence classes, by name or from a file: {CLASSES_HELP}; by default two topics in words."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the page there, and do not open it.")] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Open a page on which attention trains while you watch, change rates and data, and compare with theory.

    The page is one file, which needs no server and no network. Options set the initial values of its controls; a
    published setting brings its own rates and momentum. The page shows one run.
    """
    import tempfile
    import webbrowser

    from scansnap.report.html import write_page

    given = read_flags(flags, TrainOptions)
    if classes is not None and classes in PUBLISHED:
        published = drop_foreign_momentum(values_of(PUBLISHED[classes].options), given)
        given = {name: value for name, value in {**published, **given}.items() if name in OPTIONS}
    page = page_of(address_of(classes, given))
    path = output or Path(tempfile.mkdtemp(prefix="scansnap-")) / "explorer.html"
    write_page(path, page)
    opened = output is None and webbrowser.open(path.resolve().as_uri())
    if json:
        common.echo_json({"page": str(path), "opened": opened})
    else:
        echo(f"page: {path}" + ("" if opened else "   (open it in a browser)"))


def find_preset(name: str) -> Experiment:
    """The published setting with this name."""
    if name not in PUBLISHED:
        raise unknown("preset", name, [*PUBLISHED, *presets()])
    return PUBLISHED[name]


def find_classes(name: str) -> DataSource:
    """The data with this name, of a published setting, or from a file."""
    return PUBLISHED[name].classes if name in PUBLISHED and name not in NAMED_CLASSES else named_classes(name)


def find_setting(preset: str | None, classes: str | None) -> tuple[str, DataSource, Experiment | None]:
    """The name, the classes and the published setting that a command asks for; by default syn-small."""
    experiment = find_preset(preset or "syn-small") if preset is not None or classes is None else None
    if classes is not None:
        return Path(classes).stem, find_classes(classes), experiment
    assert experiment is not None
    return preset or "syn-small", experiment.classes, experiment


def drop_foreign_momentum(stated: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a setting; without its momentum, which belongs to its optimizer, if another one is given."""
    is_foreign = not set(np.atleast_1d(given.get("optimizer", "sgd"))) <= {"sgd"}
    return {name: value for name, value in stated.items() if name != "momentum" or not is_foreign}


def _check_required(command: str, classes: str | None, cls: type[Options], values: Mapping[str, Any]) -> None:
    """Refuse a command without the flags that only presets make optional, and say what to type."""
    missing = [flag_name(name) for name in required_of(cls) if values.get(name) is None]
    if missing:
        source = "" if classes is None else f" --classes {shlex.quote(classes)}"
        visible = {name: VISIBLE[name] for name in required_of(cls) if name in VISIBLE}
        example = " ".join(f"{flag_name(name)} {value:g}" for name, value in visible.items())
        raise InputError(
            f"{', '.join(missing)} must be given, since only presets set rates and lengths: try scansnap "
            f"{command}{source} {example}, or the options of a preset, scansnap {command} --preset syn-small{source}."
        )


def _run(
    work: Callable[..., xr.Dataset],
    name: str,
    source: DataSource,
    options: Any,
    store: Path | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Train or integrate, draw the picture, and print what happened and where the result is."""
    from scansnap.results.story import momentum_note, summarize, summarize_snaps

    path = common.choose_store(
        store, name, {**options.to_dict(), "classes": source.fingerprint}, draws_beside=picture is None
    )
    began = time.perf_counter()
    dataset = work(source, **vars(options), store=path, progress=False if as_json else None)
    seconds = time.perf_counter() - began
    runs = summarize(dataset)
    drawn = _draw(dataset, path, picture)
    if as_json:
        common.echo_json({**common.result_facts(path, drawn, seconds), "runs": runs})
        return
    for run in runs[: common.SHOWN_RUNS]:
        echo(_run_in_words(run))
        for sentence in run.get("story", ()):
            echo(f"  {sentence}")
    if len(runs) > common.SHOWN_RUNS:
        echo(f"... and {len(runs) - common.SHOWN_RUNS} more runs")
    if len(told := [run for run in runs if "story" in run]) > 1:
        steps = [math.nan if run["snap_step"] is None else run["snap_step"] for run in told]
        stay = [run["snap_status"] != "slowed" for run in told]
        echo(summarize_snaps(steps, stay, "step" if "step" in dataset.dims else "time"))
    has_moved = any(run["snap_status"] not in ("hardly moved", "too short") for run in told)
    if has_moved and (note := momentum_note(dataset.attrs)):
        echo(note)
    failed = [run for run in runs if run["status"] != "ok"]
    if failed:
        echo(f"{len(failed)} of {len(runs)} runs did not finish: lower their learning rates.", error=True)
    common.echo_result(path, seconds, drawn)


def _draw(dataset: xr.Dataset, path: Path, picture: Path | None) -> Path | None:
    """Where the picture of a result is; None if there is nothing to draw and the user did not ask for a picture."""
    from scansnap.figures import attention_over_time

    records = dataset.sizes.get("step", dataset.sizes.get("time", 0))
    if picture is None and (
        records < 2 or not set(dataset.data_vars) >= common.DRAWN or not attention_over_time.has_attention(dataset)
    ):
        return None
    figure = attention_over_time.draw(attention_over_time.prepare(dataset))
    return common.save_picture(figure, picture or common.path_beside(path, ".png"), path)


def _run_in_words(run: dict[str, Any]) -> str:
    """The rates and the seed of a run, its status if it failed, and its first and last measures."""
    options = f"{run['options']}, " if run["options"] else ""
    name = f"run {run['run']} (lr_y {run['lr_y']:g}, lr_z {run['lr_z']:g}, {options}seed {run['seed']})"
    parts = [] if run["status"] == "ok" else [run["status"]]
    if "diverged_step" in run:
        parts[0] += f" at step {run['diverged_step']}"
    labels = {"loss": "loss", "fresh_loss": "loss on fresh data", "entropy": "entropy on distinct tokens"}
    if run.get("entropy_first") is None:  # no class has a distinct token
        labels["favored_entropy"] = "entropy on favored tokens"
    for key, label in labels.items():
        first, last = run.get(f"{key}_first"), run.get(f"{key}_last")
        if first is not None:
            parts.append(f"{label} {first:.3g} → {'not finite' if last is None else format(last, '.3g')}")
    return f"{name}: {'; '.join(parts)}"
