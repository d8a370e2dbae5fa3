"""`scansnap explore`."""

from __future__ import annotations

import json as json_module
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from scansnap.cli import common
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.cli.say import say
from scansnap.dynamics.options import TrainOptions
from scansnap.explorer.page import OPTIONS, address_of, page_of
from scansnap.report.html import is_ours, write_page
from scansnap.runtime.errors import StoreError
from scansnap.validation.options import options_of


@with_flags(TrainOptions, leave_out=[name for name in options_of(TrainOptions) if name not in OPTIONS])
def command(
    classes: Annotated[
        str, typer.Argument(help=f"Sequence classes, by name or from a file: {common.CLASSES_HELP}.")
    ] = "syn-small",
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the page there, and do not open it.", show_default=False)
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Open a page on which attention trains while you watch, change rates and data, and compare with theory.

    The page is one file, which needs no server and no network. Flags say where its controls begin; it shows one
    run, of one rate each and one seed.
    """
    page = page_of(address_of(classes, read_flags(flags, TrainOptions)))
    path = output or Path(tempfile.mkdtemp(prefix="scansnap-")) / "explorer.html"
    if path.exists() and not is_ours(path):
        raise StoreError(f"{path} exists and is no page of scansnap: give another name.")
    write_page(path, page)
    opened = output is None and webbrowser.open(path.resolve().as_uri())
    if json:
        say(json_module.dumps({"page": str(path), "opened": opened}))
    else:
        say(f"page: {path}" + ("" if opened else "   (open it in a browser)"))
