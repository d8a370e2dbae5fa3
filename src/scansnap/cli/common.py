"""Options that several commands have, where their files go, and `scansnap check`, which reads such files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from scansnap.cli.console import echo
from scansnap.cli.flags import FORMS, Argument, Flag, command, eager_flag, word_of
from scansnap.runtime.errors import InputError, StoreError
from scansnap.storage.files import OVERWRITE, check_output, check_replaceable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _run_file(file: Path) -> None:
    """Run the user's file, so that what it registers can be used by name."""
    from scansnap.validation.user_code import run_user_file

    run_user_file(file)


def _set_overwrite(_ctx: click.Context, _flag: click.Parameter, overwrite: bool) -> None:
    OVERWRITE.set(overwrite)


FROM = eager_flag(
    "--from",
    "A Python file to run first, which may register your own optimizers, quantities, layers, systems, data or verdicts "
    "on heads.",
    _run_file,
    type=word_of(Path),
    metavar=FORMS[Path],
)
"""The flag of a user's file; what it registers can then be named by other flags."""

OVERWRITE_FLAG = click.Option(
    ["--overwrite"],
    is_flag=True,
    expose_value=False,
    callback=_set_overwrite,
    help="Replace files that scansnap did not write.",
)
STORE = Flag("Where to write the result (zarr); by default in results/, with a name made from the options.")
PICTURE = Flag(
    "Where to draw attention of the first run and losses of all (.png, .pdf, .svg); by default beside the result."
)
PICTURE_BESIDE = Flag("Where to draw it (.png, .pdf, .svg); by default beside the result.")
JSON = Flag("Print JSON for programs instead of text.")

PICTURE_QUANTITIES = {"attention", "loss", "entropy"}
"""The quantities that the picture of a run shows."""


def check_picture(picture: Path | None, recorded: Set[str] | None = None) -> None:
    """Refuse a picture that cannot be drawn, before the work starts; `recorded` is what the user wants recorded."""
    if picture is None:
        return
    check_output("--picture", picture, ".png, .pdf or .svg")
    if recorded is not None and (missing := PICTURE_QUANTITIES - recorded):
        raise InputError(f"--picture needs {', '.join(sorted(missing))}: add it to --record, or leave out --picture.")


def choose_store(store: Path | None, name: str, options: Mapping[str, Any], *, draws_beside: bool = False) -> Path:
    """Where a result goes: by default under a name that is the same for the same command, so that it can continue.

    If a picture is drawn beside it, this refuses one that would replace a file that scansnap did not write.
    """
    from scansnap.storage.provenance import store_name

    path = store or Path("results") / store_name(name, options)
    if draws_beside and path.name:  # a store without a name is refused later
        check_replaceable(path_beside(path, ".png"))
    return path


def save_picture(figure: Figure, target: Path, result: Path | None = None) -> Path:
    """Write a picture; if that fails, the error says where the `result` is."""
    from scansnap.figures.catalog import save_picture

    return save_picture(figure, target, "" if result is None else f"; the result is at {result}")


def echo_json(facts: object) -> None:
    """Print plain data for programs, in one line."""
    echo(json.dumps(facts))


def result_facts(path: Path, picture: Path | None, seconds: float) -> dict[str, Any]:
    """What the JSON of every command has about its result."""
    return {"result": str(path), "picture": str(picture) if picture else None, "seconds": round(seconds, 3)}


def echo_result(path: Path, seconds: float | None = None, picture: Path | None = None) -> None:
    """Print where a picture and a result are, and how to open the result."""
    if picture is not None:
        echo(f"picture: {picture}")
    took = "" if seconds is None else f"{seconds:.1f} s; "
    echo(f"result: {path}   ({took}open it with scansnap.load or xarray.open_zarr)")


def path_beside(store: Path, ending: str) -> Path:
    """The path of a file that goes with a result."""
    return store.with_name(store.name.removesuffix(".zarr") + ending)


@command()
def check(
    store: Annotated[Path, Argument("A result, the snapshots of a watch, or the folder of a trained text model.")],
    json: Annotated[bool, JSON] = False,
) -> None:
    """Read every file of a result and list which parts are intact; the status is 2 if any is damaged."""
    from scansnap.results.store import check_store
    from scansnap.runtime.progress import progress_bar

    with progress_bar(f"reading {store}", None, False if json else None):
        condition = check_store(store)
    if json:
        echo_json({"store": str(store), "intact": condition.is_intact, **asdict(condition)})
    else:
        for name, files in condition.damaged.items():
            echo(f"{'✗' if files else '✓'} {name}{f': {len(files)} damaged, {files[0]} first' if files else ''}")
        intact = [name for name, files in condition.damaged.items() if not files]
        parts = f"{len(intact)} of {len(condition.damaged)} parts are intact"
        echo(f"{store}{'' if condition.complete else ' is unfinished'}: {parts}")
    if not condition.is_intact:
        raise StoreError(f"{store} is damaged.")
