"""The program `scansnap`: one command per verb of the library."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from scansnap.base.errors import ScanSnapError
from scansnap.base.user_file import user_mistake
from scansnap.cli import corpus, figure, flow, reproduce, sweep, text, train, verify

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
app.command("train")(train.command)
app.command("flow")(flow.command)
app.command("sweep")(sweep.command)
app.command("verify")(verify.command)
app.command("figure")(figure.command)
app.command("reproduce")(reproduce.command)
app.add_typer(text.app, name="text")
app.add_typer(corpus.app, name="corpus")


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
    """Run the program; a refusal, or a mistake in the user's file, is one sentence on the error stream and status 2."""
    try:
        app()
    except Exception as error:
        sentence = str(error) if isinstance(error, ScanSnapError) else user_mistake(error)
        if sentence is None:
            raise
        print(f"scansnap: {sentence}", file=sys.stderr)
        sys.exit(2)
