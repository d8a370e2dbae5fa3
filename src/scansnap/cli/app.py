"""The program `scansnap`: one command per verb of the library."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from scansnap.base.errors import ScanSnapError
from scansnap.cli import figure, flow, reproduce, sweep, text, train, verify

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
app.command("train")(train.command)
app.command("flow")(flow.command)
app.command("sweep")(sweep.command)
app.command("verify")(verify.command)
app.command("figure")(figure.command)
app.command("reproduce")(reproduce.command)
app.add_typer(text.app, name="text")


def _show_version(asked: bool) -> None:
    if asked:
        print(version("scansnap"))
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The training dynamics of attention, exact and executable."""


def main() -> None:
    """Run the program; a refusal prints one sentence to the error stream and exits with status 2."""
    try:
        app()
    except ScanSnapError as error:
        print(f"scansnap: {error}", file=sys.stderr)
        sys.exit(2)
