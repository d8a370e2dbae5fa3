"""`scansnap figure`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scansnap.base.errors import InputError
from scansnap.cli import common
from scansnap.cli.text import TEXT_HELP
from scansnap.figures import catalogue
from scansnap.figures.picture import save_picture

if TYPE_CHECKING:
    import xarray as xr

    from scansnap.figures.trend import Trend

PUBLISHED = sorted((name for name in catalogue.NAMES if name.isdigit()), key=int)
MARKS = {"holds": "✓", "not settled": "?", "fails": "✗"}


def command(
    number: Annotated[
        str,
        typer.Argument(
            help=f"The figure's number in the paper: {', '.join(PUBLISHED)}; or beyond it: "
            f"{', '.join(catalogue.BEYOND)}, tokens."
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many seeds; as many as the figure has of its own unless given.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help=f"For 7, 10 and tokens: {TEXT_HELP}")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="For 7, 10 and tokens: updates of each run.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="For 7, 10 and tokens: cpu or cuda.")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="For 7, 10 and tokens: float32, bf16-decoder or bf16.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Where to draw it (.png, .pdf, .svg); .png and .pdf in results/ unless given."),
    ] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Where to write the numbers (zarr).")] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Make a figure of the paper, or one beyond it, from new runs, and test what is said of it.

    Figures 7, 10 and tokens train transformers on a text, which takes hours on a CPU for the last two; their runs are
    kept in results/text, so that an interrupted figure goes on.
    """
    chosen = catalogue.module(number)
    given = {"seeds": seeds, "text": text, "steps": steps, "device": device, "precision": precision}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if not catalogue.takes(number, name):
            kind = "is made of formulas" if name == "seeds" else "is not made from text"
            raise InputError(f"figure {number} {kind} and has no {name}: leave out --{name}.")
    common.check_picture(picture)
    if store is not None and store.exists():
        raise InputError(f"--store is '{store}', which exists already: give another name.")

    from scansnap.results.store import save

    dataset = chosen.prepare(**options)
    trends = chosen.trends(dataset)
    drawn = chosen.draw(dataset)
    pictures = (
        [save_picture(drawn, picture)] if picture else catalogue.save(drawn, Path("results") / f"figure_{number}")
    )
    stored = save(dataset, store) if store else None
    if json:
        print(json_module.dumps(_described(number, chosen, dataset, trends, pictures, stored), allow_nan=False))
        return
    print(f"{catalogue.heading(number)}: {chosen.TITLE}\n  {chosen.STATEMENT}")
    print(f"  {chosen.SETTING} ({dataset.attrs['seconds']:.1f} s)")
    for one in trends:
        print(_sentence(one))
    print(f"picture: {', '.join(str(path) for path in pictures)}")
    if stored:
        print(f"result: {stored}   (open it with scansnap.load('{stored}') or xarray.open_zarr('{stored}'))")


def _sentence(trend: Trend) -> str:
    error = f" ± {trend.standard_error:.2g}" if trend.standard_error is not None else ""
    chance = f", p = {trend.p_value:.2g}" if trend.p_value is not None else ""
    numbers = f"{trend.measured:.4g}{error}{chance} (expected: {trend.expected})"
    return f"{MARKS[trend.verdict]} {trend.statement} {trend.verdict}: {numbers}\n    {trend.note}"


def _described(
    number: str,
    chosen: catalogue.FigureModule,
    dataset: xr.Dataset,
    trends: list[Trend],
    pictures: list[Path],
    stored: Path | None,
) -> dict[str, Any]:
    return {
        "figure": number,
        "title": chosen.TITLE,
        "statement": chosen.STATEMENT,
        "setting": chosen.SETTING,
        "trends": [one.as_dict() for one in trends],
        "numbers": catalogue.numbers(dataset),
        "pictures": [str(path) for path in pictures],
        "result": str(stored) if stored else None,
        "seconds": dataset.attrs["seconds"],
    }
