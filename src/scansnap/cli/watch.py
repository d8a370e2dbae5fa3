"""`scansnap watch show`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from scansnap.base.errors import InputError
from scansnap.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

PAGE_OPTION = typer.Option("--page", help="Write verdicts, maps, lines and patterns to one page (.html).")
QUANTITY_OPTION = typer.Option("--quantity", help="The quantity on the map.")


@app.callback()
def _root() -> None:
    """Watch the attention of models while they train."""


@app.command("show")
def show(
    store: Annotated[Path, typer.Argument(help="What ss.watch(..., store=...) writes.")],
    quantity: Annotated[str, QUANTITY_OPTION] = "normalized_entropy",
    once: Annotated[bool, typer.Option("--once", help="Print the last look and end.")] = False,
    refresh: Annotated[float, typer.Option("--refresh", help="Seconds between glances at the store.")] = 2.0,
    page: Annotated[Path | None, PAGE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Show the looks of a watch: live in the terminal while training goes on, until interrupted, or as a page."""
    from rich.console import Console

    from scansnap.monitor.store import read_looks
    from scansnap.monitor.terminal import follow, view

    if not refresh > 0:
        raise InputError(f"--refresh is {refresh:g}: give a number of seconds above 0.")
    looks = read_looks(store)
    if page is not None:
        from scansnap.report.watch_page import write_watch_page

        write_watch_page(page, looks)
    if json:
        from scansnap.monitor.verdicts import judge_heads

        facts = {
            "steps": looks["step"].values.tolist(),
            "verdicts": [asdict(verdict) for verdict in judge_heads(looks)],
        }
        print(json_module.dumps({**facts, "page": str(page) if page else None}))
    elif page is not None:
        print(f"page: {page}   ({looks.sizes['step']} looks; open it in a browser)")
    elif once:
        Console().print(view(looks, store, quantity))
    else:
        follow(store, quantity, Console(), refresh=refresh)
