"""`scansnap reproduce`."""

from __future__ import annotations

import json as json_module
import time
from pathlib import Path
from typing import Annotated

import typer

from scansnap.cli import common
from scansnap.cli.say import say
from scansnap.figures.catalog import SYNTHETIC, TEXT


def command(
    output: Annotated[Path, typer.Option("--output", help="The folder for the page and the pictures.")] = Path(
        "reproduction"
    ),
    figures: Annotated[
        str | None, typer.Option("--figures", help=f"Some figures, as 3,6,heads; by default {', '.join(SYNTHETIC)}.")
    ] = None,
    claims: Annotated[
        str | None, typer.Option("--claims", help="Some claims, as lemma_1,theorem_3; by default all.")
    ] = None,
    num_seeds: Annotated[
        int | None, typer.Option("--num-seeds", help="Seeds in each cell of Figures 6, 11 and 12; by default 40.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help=f"Also train on this text and make {', '.join(TEXT)}; hours on a CPU."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Where to train on the text: cpu or cuda.")] = "cpu",
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Make every synthetic figure of the paper from new runs, check every claim, and put it all on one page.

    The page is one file: open it in a browser, without a network.
    """
    from scansnap.claims.verify import select
    from scansnap.report.page import NUM_SEEDS, reproduce
    from scansnap.runtime.machine import has_torch
    from scansnap.runtime.progress import progress_bar

    names = [part.strip() for part in figures.split(",")] if figures else None
    claim_ids = [part.strip() for part in claims.split(",")] if claims else []
    select(*claim_ids)  # an unknown one is refused before the work
    if names is None and not has_torch():
        say("without PyTorch the figure of several layers is left out: pip install 'scansnap[torch]'", error=True)
    common.say_compiling("training")
    common.say_compiling("flow")
    began = time.perf_counter()
    with progress_bar("reproducing the paper", 1.0) as show:
        page = reproduce(
            output,
            figures=names,
            claims=claim_ids,
            num_seeds=NUM_SEEDS if num_seeds is None else num_seeds,
            text=text,
            device=device,
            on_step=lambda what, share: show(share, f"({what})"),
        )
    seconds = time.perf_counter() - began
    if json:
        say(json_module.dumps({"page": str(page), "seconds": round(seconds, 1)}))
        return
    say(f"page: {page}   ({seconds:.0f} s; open it in a browser; the figures are beside it as PNG and PDF)")
