"""The program `scansnap`: one command per verb of the library."""

from __future__ import annotations

import sys

import typer

from scansnap.cli import flow, train
from scansnap.errors import ScanSnapError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
app.command("train")(train.command)
app.command("flow")(flow.command)


@app.callback()
def _root() -> None:
    """The training dynamics of attention, exact and executable."""


def main() -> None:
    """Run the program; what scansnap refuses is said in one sentence on the error stream, with exit status 2."""
    try:
        app()
    except ScanSnapError as error:
        print(f"scansnap: {error}", file=sys.stderr)
        sys.exit(2)
