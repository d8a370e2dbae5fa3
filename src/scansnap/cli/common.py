"""Options that several commands have, and where their files go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scansnap.cli.console import echo
from scansnap.runtime.errors import InputError
from scansnap.storage.files import check_replaceable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FROM_OPTION = typer.Option(
    "--from",
    help="A Python file to run first, which may register optimizers, quantities, layers or data of your own by name.",
    show_default=False,
)
STORE_OPTION = typer.Option(
    "--store", help="Where to write the result (zarr); by default in results/, with a name made from the options."
)
PICTURE_OPTION = typer.Option(
    "--picture",
    help="Where to draw attention of the first run and losses of all (.png, .pdf, .svg); by default beside the result.",
)
JSON_OPTION = typer.Option("--json", help="Print JSON for programs instead of text.")

SHOWN_RUNS = 12
"""The number of runs that are described in text; all of them are with --json and in the result."""

DRAWN = {"attention", "loss", "entropy"}
"""The quantities that the picture of a run shows."""


def run_parts(file: Path | None) -> None:
    """Run the user's file, so that what it registers can be used by name."""
    if file is not None:
        from scansnap.validation.user_code import run_user_file

        run_user_file(file)


def check_picture(picture: Path | None, record: Iterable[str] = DRAWN) -> None:
    """Refuse a picture that cannot be drawn, before the work starts."""
    if picture is None:
        return
    from scansnap.validation import checks

    checks.path("--picture", picture)
    if picture.suffix.lower() not in (".png", ".pdf", ".svg") or picture.is_dir():
        raise InputError(f"--picture is '{picture}': give a file whose name ends in .png, .pdf or .svg.")
    check_replaceable(picture)
    if missing := DRAWN - set(record):
        raise InputError(f"--picture needs {', '.join(sorted(missing))}: add it to --record, or leave out --picture.")


def check_beside(store: Path, picture: Path | None) -> None:
    """Refuse, before the work starts, a result whose picture would replace a file that scansnap did not write."""
    if picture is None and store.name:  # a store without a name is refused later
        check_replaceable(path_beside(store, ".png"))


def save_picture(figure: Figure, target: Path, result: Path | None = None) -> Path:
    """Write a picture; if that fails, the error says where the `result` is."""
    from scansnap.figures.catalog import save_picture

    return save_picture(figure, target, "" if result is None else f"; the result is at {result}")


def echo_json(facts: object) -> None:
    """Print plain data for programs, in one line."""
    echo(json.dumps(facts))


def echo_result(path: Path, seconds: float | None = None, picture: Path | None = None) -> None:
    """Print where a picture and a result are, and how to open the result."""
    if picture is not None:
        echo(f"picture: {picture}")
    took = "" if seconds is None else f"{seconds:.1f} s; "
    echo(f"result: {path}   ({took}open it with scansnap.load('{path}') or xarray.open_zarr('{path}'))")


def path_beside(store: Path, ending: str) -> Path:
    """The path of a file that goes with a result."""
    return store.with_name(store.name.removesuffix(".zarr") + ending)


def default_store(name: str, options: Mapping[str, Any]) -> Path:
    """A name that is the same for the same command, so that an interrupted one continues."""
    from scansnap.results.provenance import store_name

    return Path("results") / store_name(name, options)
