"""`scansnap sweep`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from numpy.typing import NDArray

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, flag_name, read_flags, with_flags
from scansnap.cli.system import SET_OPTION, SYSTEM_OPTION, SystemRates, asked_system
from scansnap.cli.train import CLASSES_HELP, CONFIG_OPTION, PRESET_OPTION, drop_foreign_momentum, find_preset
from scansnap.dynamics.options import RatesType, SweepExecution, TimeOptions, TrainOptions
from scansnap.runtime.errors import InputError
from scansnap.validation.options import options_of, values_of

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 20
"""Cells in the table; all of them with --json and in the result."""


@with_flags(TrainOptions, TimeOptions, SweepExecution, SystemRates, several=True)
def sweep(
    preset: Annotated[str | None, PRESET_OPTION] = None,
    system: Annotated[str | None, SYSTEM_OPTION] = None,
    setting: Annotated[list[str] | None, SET_OPTION] = None,
    config: Annotated[Path | None, CONFIG_OPTION] = None,
    classes: Annotated[str | None, typer.Option(help=f"Class settings, as a,b: {CLASSES_HELP}.")] = None,
    lr_y_over_lr_z: Annotated[str | None, typer.Option(help="Ratios of lr_y to lr_z, instead of --lr-y.")] = None,
    parts: Annotated[Path | None, common.FROM_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Where to draw a map of all runs, if two options vary (.png, .pdf, .svg)."),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Train every combination of rates, seeds, classes and options, or with --times integrate their flows.

    The result is written shard by shard. If the command is interrupted, run it again: it computes only what is missing.
    Write lists as 1,2,5. The defaults are those of `scansnap train`, except that only loss, accuracy and entropy are
    recorded, at the start and at the end.
    """
    from scansnap.dynamics.grid import make_grid
    from scansnap.dynamics.sweep import runs_in_store
    from scansnap.dynamics.sweep import sweep as run_sweep

    common.check_picture(picture)
    common.run_parts(parts)
    if asked := asked_system(system, preset, setting, flags):
        settings: Any = asked.system
        options = asked.sweep_options(flags, TrainOptions, TimeOptions, SweepExecution, SystemRates)
    else:
        settings, options = _asked_classes(preset, config, classes, lr_y_over_lr_z, flags)
    configuration = {name: value for name, value in options.items() if name not in options_of(SweepExecution)}
    grid = make_grid(settings, **configuration)
    axes = None if picture is None else _map_axes(grid.axes)
    path = common.choose_store(store, "sweep", grid.described)
    before = runs_in_store(path)
    began = time.perf_counter()
    result = run_sweep(settings, **options, store=path, progress=False if json else None)
    seconds = time.perf_counter() - began
    if picture is not None and axes is not None:
        from scansnap.figures.phase_diagram import default_color, phase_diagram

        x, y = axes
        figure = phase_diagram(result, x=x, y=y, color=default_color(result, x, y))
        common.save_picture(figure, picture, path)
    _show(result, path, picture, before, seconds, json)


def _asked_classes(
    preset: str | None, config: Path | None, classes: str | None, ratio: str | None, flags: Mapping[str, Flag]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The class settings and the options of a sweep of (Y, Z), from a file, a preset and flags."""
    from scansnap.dynamics.config import read_sweep, settings_by_name
    from scansnap.dynamics.grid import merge_options

    settings: dict[str, Any]
    settings, stated = read_sweep(config) if config else ({}, {})
    given = read_flags(flags, TrainOptions, TimeOptions, SweepExecution, several=True)
    if preset is not None:
        experiment = find_preset(preset)
        times = given.get("times", stated.get("times"))
        published = experiment.options if times is None else experiment.flow_options(tuple(times))
        recorded = ("record", "record_every", "seeds")
        values = {name: value for name, value in values_of(published).items() if name not in recorded}
        settings, stated = settings or {preset: experiment.classes}, merge_options(values, stated)
    if ratio is not None:
        given["lr_y_over_lr_z"] = RatesType().read("--lr-y-over-lr-z", ratio)
    if classes is not None:
        settings = settings_by_name([name.strip() for name in classes.split(",")])
    if "times" in given:
        stated.pop("steps", None)
    options = merge_options(drop_foreign_momentum(stated, given), given)
    missing = [] if settings else ["classes"]
    missing += [name for name in ("lr_z", "times" if "times" in options else "steps") if name not in options]
    if missing:
        flags_missing = ", ".join(map(flag_name, missing))
        raise InputError(f"{flags_missing} must be given, here, by a --preset or in a --config file.")
    return settings, options


def _map_axes(axes: Mapping[str, NDArray[Any]]) -> tuple[str, str]:
    """The two axes of the map, across and upward."""
    varied = [name for name, values in axes.items() if len(values) > 1 and name != "seed"]
    if len(varied) != 2:
        raise InputError(
            f"--picture maps two options, but this sweep varies {', '.join(varied) or 'none'}: give lists for two, or "
            "map parts of the result with ss.phase_diagram."
        )
    return varied[1], varied[0]


def _show(result: xr.Dataset, path: Path, picture: Path | None, before: int, seconds: float, as_json: bool) -> None:
    from scansnap.dynamics.grid import cells

    table, runs = cells(result), result["status"].size
    if as_json:
        facts = common.result_facts(path, picture, seconds)
        common.echo_json({**facts, "runs": runs, "runs_before": before, "cells": table})
        return
    measured = [name for name in table[0] if f"{name}_error" in table[0]]
    keys = [name for name in table[0] if name not in ("runs", "ok") and name.removesuffix("_error") not in measured]
    echo("  ".join(f"{name:>13}" for name in (*keys, "runs", *measured)))
    for cell in table[:SHOWN]:
        row = [_column(cell[key]) for key in keys]
        row.append(f"{cell['ok']:>13}" if cell["ok"] == cell["runs"] else f"{cell['ok']:>6} of {cell['runs']:>3}")
        for name in measured:
            error = f" ± {cell[f'{name}_error']:.2g}" if cell[f"{name}_error"] is not None else ""
            row.append(f"{'-' if cell[name] is None else format(cell[name], '.4g') + error:>13}")
        echo("  ".join(row))
    if any(cell["ok"] and cell.get("entropy", 0.0) is None for cell in table):
        other = "favored_entropy is that of" if "favored_entropy" in measured else "record attention for that of"
        echo(f"entropy -: these classes share every token, so none is distinct; {other} favored tokens")
    if len(table) > SHOWN:
        echo(f"... and {len(table) - SHOWN} more cells (mean over seeds ± standard error; all of them with --json)")
    if before:
        echo(f"{before:,} of {runs:,} runs were already there")
    common.echo_result(path, seconds, picture)


def _column(label: bool | float | str | None) -> str:
    if isinstance(label, bool):
        return f"{'yes' if label else 'no':>13}"
    return f"{label:>13g}" if isinstance(label, int | float) else f"{'none' if label is None else label:>13}"
