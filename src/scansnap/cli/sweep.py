"""`scansnap sweep`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from numpy.typing import NDArray

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, command, flag_name
from scansnap.cli.option_flags import option_flags
from scansnap.cli.request import ALL_PRESETS, CLASSES_HELP, CONFIG, PRESET, Request, read_request
from scansnap.cli.system import SET, SYSTEM, SystemRates
from scansnap.dynamics.options import RatesType, SweepExecution, TimeOptions, TrainOptions
from scansnap.runtime.errors import InputError
from scansnap.validation.options import options_of

if TYPE_CHECKING:
    import xarray as xr

CELLS_IN_TABLE = 20
"""The most cells in the printed table; all of them are with --json and in the result."""


@command(
    common.FROM,
    common.OVERWRITE_FLAG,
    *option_flags(TrainOptions, TimeOptions, SweepExecution, SystemRates, several=True),
    listed=ALL_PRESETS,
)
def sweep(
    preset: Annotated[str | None, PRESET] = None,
    config: Annotated[Path | None, CONFIG] = None,
    classes: Annotated[str | None, Flag(f"Class settings, as a,b: {CLASSES_HELP}.")] = None,
    system: Annotated[str | None, SYSTEM] = None,
    settings: Annotated[tuple[str, ...], SET] = (),
    lr_y_over_lr_z: Annotated[str | None, Flag("Ratios of lr_y to lr_z, instead of --lr-y.")] = None,
    store: Annotated[Path | None, common.STORE] = None,
    picture: Annotated[
        Path | None, Flag("Where to draw a map of all runs, if two options vary (.png, .pdf, .svg).")
    ] = None,
    json: Annotated[bool, common.JSON] = False,
    **flags: Any,
) -> None:
    """Train every combination of rates, seeds, classes and options, or with --times integrate their flows.

    The result is written shard by shard. If the command is interrupted, run it again: it computes only what is missing.
    Write lists as 1,2,5. The defaults are those of `scansnap train`, except that only loss, accuracy and entropy are
    recorded, at the start and at the end.
    """
    from scansnap.dynamics.grid import cells, make_grid
    from scansnap.dynamics.sweep import runs_in_store
    from scansnap.dynamics.sweep import sweep as run_sweep

    common.check_picture(picture)
    if lr_y_over_lr_z is not None:
        flags["lr_y_over_lr_z"] = RatesType().read("--lr-y-over-lr-z", lr_y_over_lr_z)
    request = read_request(
        "sweep", flags, preset=preset, classes=classes, system=system, settings=settings, config=config
    )
    if request.is_yz:
        _check_complete(request)
    systems, options = request.systems if request.is_yz else request.system, request.values
    grid = make_grid(systems, **{name: v for name, v in options.items() if name not in options_of(SweepExecution)})
    axes = None if picture is None else _map_axes(grid.axes)
    path = common.choose_store(store, "sweep", grid.described)
    runs_before = runs_in_store(path)
    began = time.perf_counter()
    result = run_sweep(systems, **options, store=path, progress=False if json else None)
    seconds = time.perf_counter() - began
    if picture is not None and axes is not None:
        _draw_map(result, axes, picture, path)
    table, runs = cells(result), result["status"].size
    if json:
        facts = common.result_facts(path, picture, seconds)
        common.echo_json({**facts, "runs": runs, "runs_before": runs_before, "cells": table})
        return
    for line in _table_lines(table):
        echo(line)
    if runs_before:
        echo(f"{runs_before:,} of {runs:,} runs were already there")
    common.echo_result(path, seconds, picture)


def _check_complete(request: Request) -> None:
    """Refuse a sweep of (Y, Z) without an option that it needs."""
    missing = [] if request.systems else ["classes"]
    options = request.values
    missing += [name for name in ("lr_z", "times" if "times" in options else "steps") if name not in options]
    if missing:
        flags = ", ".join(map(flag_name, missing))
        raise InputError(f"{flags} must be given, here, by a --preset or in a --config file.")


def _map_axes(axes: Mapping[str, NDArray[Any]]) -> tuple[str, str]:
    """The two axes of the map, across and upward."""
    varied = [name for name, values in axes.items() if len(values) > 1 and name != "seed"]
    if len(varied) != 2:
        raise InputError(
            f"--picture maps two options, but this sweep varies {', '.join(varied) or 'none'}: give lists for two, or "
            "map parts of the result with ss.phase_diagram."
        )
    return varied[1], varied[0]


def _draw_map(result: xr.Dataset, axes: tuple[str, str], picture: Path, path: Path) -> None:
    from scansnap.figures.phase_diagram import default_color, phase_diagram

    x, y = axes
    common.save_picture(phase_diagram(result, x=x, y=y, color=default_color(result, x, y)), picture, path)


def _table_lines(table: list[dict[str, Any]]) -> Iterator[str]:
    """The cells of a sweep as a table, and notes on it."""
    measured = [name for name in table[0] if f"{name}_error" in table[0]]
    keys = [name for name in table[0] if name not in ("runs", "ok") and name.removesuffix("_error") not in measured]
    yield "  ".join(f"{name:>13}" for name in (*keys, "runs", *measured))
    for cell in table[:CELLS_IN_TABLE]:
        runs = f"{cell['ok']:>13}" if cell["ok"] == cell["runs"] else f"{cell['ok']:>6} of {cell['runs']:>3}"
        yield "  ".join([*(_column(cell[key]) for key in keys), runs, *(_mean(cell, name) for name in measured)])
    if any(cell["ok"] and cell.get("entropy", 0.0) is None for cell in table):
        yield _entropy_note("favored_entropy" in measured)
    if len(table) > CELLS_IN_TABLE:
        more = len(table) - CELLS_IN_TABLE
        yield f"... and {more} more cells (mean over seeds ± standard error; all of them with --json)"


def _entropy_note(has_favored_entropy: bool) -> str:
    """Why entropy is missing, and what there is in place of it."""
    other = "favored_entropy is that of" if has_favored_entropy else "record attention for that of"
    return f"entropy -: these classes share every token, so none is distinct; {other} favored tokens"


def _mean(cell: Mapping[str, Any], name: str) -> str:
    """The mean of a measure over seeds, with its standard error if there is one."""
    error = "" if cell[f"{name}_error"] is None else f" ± {cell[f'{name}_error']:.2g}"
    return f"{'-' if cell[name] is None else format(cell[name], '.4g') + error:>13}"


def _column(label: bool | float | str | None) -> str:
    if isinstance(label, bool):
        return f"{'yes' if label else 'no':>13}"
    return f"{label:>13g}" if isinstance(label, int | float) else f"{'none' if label is None else label:>13}"
