"""`scansnap sweep`."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from scansnap.cli import common
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.cli.say import say
from scansnap.dynamics.options import RatesType, TimeOptions, TrainOptions
from scansnap.dynamics.sweeps.execution import Execution
from scansnap.figures.picture import save_picture
from scansnap.runtime.errors import InputError
from scansnap.validation.options import options_of, values_of

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 20
"""Cells in the table; all of them with --json and in the result."""


@with_flags(TrainOptions, TimeOptions, Execution, several=True)
def command(
    preset: Annotated[str | None, common.PRESET_OPTION] = None,
    config: Annotated[Path | None, common.CONFIG_OPTION] = None,
    classes: Annotated[
        str | None, typer.Option("--classes", help=f"Class settings, as a,b: {common.CLASSES_HELP}.")
    ] = None,
    lr_y_over_lr_z: Annotated[
        str | None, typer.Option("--lr-y-over-lr-z", help="Ratios of lr_y to lr_z, instead of --lr-y.")
    ] = None,
    parts: Annotated[Path | None, common.FROM_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Where to draw a map of all runs, if two options vary (.png, .pdf, .svg)."),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Train every combination of rates, seeds, classes and options, or with --times integrate their flows.

    The result is written shard by shard: after an interruption, start the same command again to run only what is
    missing. Lists are written as 1,2,5. Options that are not given are those of `scansnap train`, but only loss,
    accuracy and entropy are recorded, and only at the start and at the end.
    """
    from scansnap.dynamics.sweeps.config import read_sweep, settings_by_name
    from scansnap.dynamics.sweeps.grid import make_grid, with_options
    from scansnap.dynamics.sweeps.sweep import runs_in_store, sweep

    common.check_picture(picture)
    common.run_parts(parts)
    settings, stated = read_sweep(config) if config else ({}, {})
    own = read_flags(flags, TrainOptions, TimeOptions, Execution, several=True)
    if preset is not None:
        experiment = common.published(preset)
        times = own.get("times", stated.get("times"))
        options = experiment.options if times is None else experiment.flow_options(tuple(times))
        recorded = ("record", "record_every", "seeds")
        values = {name: value for name, value in values_of(options).items() if name not in recorded}
        settings, stated = settings or {preset: experiment.classes}, with_options(values, stated)
    if lr_y_over_lr_z is not None:
        own["lr_y_over_lr_z"] = RatesType().read("--lr-y-over-lr-z", lr_y_over_lr_z)
    if classes is not None:
        settings = settings_by_name([name.strip() for name in classes.split(",")])
    if "times" in own:
        stated.pop("steps", None)
    if set(np.atleast_1d(own.get("optimizer", "sgd"))) != {"sgd"} and "momentum" not in own:
        stated.pop("momentum", None)  # the setting's momentum belongs to the setting's optimizer
    words = with_options(stated, own)
    missing = [] if settings else ["classes"]
    missing += [name for name in ("lr_z", "times" if "times" in words else "steps") if name not in words]
    if missing:
        flags_missing = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise InputError(f"{flags_missing} must be given, here, by a --preset or in a --config file.")
    asked = {name: value for name, value in words.items() if name not in options_of(Execution)}
    grid = make_grid(settings, **asked)
    mapped = None if picture is None else _mapped(grid.axes)
    path = store or common.default_store("sweep", grid.described)
    before = runs_in_store(path)
    began = time.perf_counter()
    result = sweep(settings, words, store=path, progress=False if json else None)
    seconds = time.perf_counter() - began
    if picture is not None and mapped is not None:
        from scansnap.figures.phase_diagram import phase_diagram, telling_color

        x, y = mapped
        figure = phase_diagram(result, x=x, y=y, color=telling_color(result, x, y))
        save_picture(figure, picture, f"; the result is at {path}")
    _show(result, path, picture, before, seconds, json)


def _mapped(axes: Mapping[str, NDArray[Any]]) -> tuple[str, str]:
    """The two axes of the map, across and upward."""
    varied = [name for name, values in axes.items() if len(values) > 1 and name != "seed"]
    if len(varied) != 2:
        raise InputError(
            f"--picture maps two options, but this sweep varies {', '.join(varied) or 'none'}: give lists for two, or "
            "map parts of the result with ss.phase_diagram."
        )
    return varied[1], varied[0]


def _show(result: xr.Dataset, path: Path, picture: Path | None, before: int, seconds: float, as_json: bool) -> None:
    from scansnap.dynamics.sweeps.cells import MEASURED, cells

    table, runs = cells(result), result["status"].size
    if as_json:
        facts = {
            "result": str(path),
            "picture": str(picture) if picture else None,
            "runs": runs,
            "runs_before": before,
            "seconds": round(seconds, 3),
        }
        say(json_module.dumps({**facts, "cells": table}))
        return
    measured = [name for name in MEASURED if name in table[0]]
    keys = [name for name in table[0] if name not in ("runs", "ok") and name.removesuffix("_error") not in measured]
    say("  ".join(f"{name:>13}" for name in (*keys, "runs", *measured)))
    for cell in table[:SHOWN]:
        words = [_word(cell[key]) for key in keys]
        words.append(f"{cell['ok']:>13}" if cell["ok"] == cell["runs"] else f"{cell['ok']:>6} of {cell['runs']:>3}")
        for name in measured:
            error = f" ± {cell[f'{name}_error']:.2g}" if cell[f"{name}_error"] is not None else ""
            words.append(f"{'-' if cell[name] is None else format(cell[name], '.4g') + error:>13}")
        say("  ".join(words))
    if any(cell["ok"] and cell.get("entropy", 0.0) is None for cell in table):
        other = "favored_entropy is that of" if "favored_entropy" in measured else "record attention for that of"
        say(f"entropy -: these classes share every token, so none is distinct; {other} favored tokens")
    if len(table) > SHOWN:
        say(f"... and {len(table) - SHOWN} more cells (mean over seeds ± standard error; all of them with --json)")
    if before:
        say(f"{before:,} of {runs:,} runs were already there")
    if picture is not None:
        say(f"picture: {picture}")
    say(f"result: {path}   ({seconds:.1f} s; open it with scansnap.load('{path}') or xarray.open_zarr('{path}'))")


def _word(label: bool | float | str | None) -> str:
    if isinstance(label, bool):
        return f"{'yes' if label else 'no':>13}"
    return f"{label:>13g}" if isinstance(label, int | float) else f"{'none' if label is None else label:>13}"
