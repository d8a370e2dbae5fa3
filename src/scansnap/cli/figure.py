"""`scansnap figure` and `scansnap reproduce`: one figure, or all figures and claims on a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.text import TEXT_HELP
from scansnap.figures import catalog
from scansnap.runtime.errors import InputError
from scansnap.runtime.progress import progress_bar

FOR_TEXT = f"For {', '.join(catalog.TEXT)}"


def figure(
    name: Annotated[
        str,
        typer.Argument(
            help=f"The figure's number in the paper: {', '.join(catalog.NUMBERED)}; or the name of another "
            "paper's figure (an unknown name lists all); or, with --from, the name of a figure in that file."
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Your own Python file that holds the figure, as a scansnap.figures.recipe.FigureRecipe."
        ),
    ] = None,
    num_seeds: Annotated[int | None, typer.Option(help="How many seeds; each figure has its own default.")] = None,
    text: Annotated[str | None, typer.Option(help=f"{FOR_TEXT}: {TEXT_HELP}")] = None,
    steps: Annotated[int | None, typer.Option(help=f"{FOR_TEXT}: updates of each run.")] = None,
    device: Annotated[str | None, typer.Option(help=f"{FOR_TEXT}: cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help=f"{FOR_TEXT}: float32, bf16-decoder or bf16.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Where to draw it (.png, .pdf, .svg); by default .png and .pdf in results/."),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Where to write the numbers (zarr).")] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Print the setting, and the numbers and the test behind each statement.")
    ] = False,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Make a figure of the paper, of another paper or your own from new runs, and test what it should show.

    Figures that are made from a text train transformers on it, which can take hours on a CPU. Their runs are stored in
    results/text, so that an interrupted figure can continue.
    """
    recipe = catalog.recipe(name) if file is None else catalog.recipe_from(file, name)
    values = {"num_seeds": num_seeds, "text": text, "steps": steps, "device": device, "precision": precision}
    options = {option: value for option, value in values.items() if value is not None}
    recipe.check_options(*options)
    targets = [picture] if picture else [Path("results") / f"figure_{name}{ending}" for ending in catalog.ENDINGS]
    for target in targets:
        common.check_picture(target)
    if store is not None and store.exists():
        raise InputError(f"--store is '{store}', which exists already: give another name.")

    from scansnap.results.store import save

    is_silent = json or recipe.takes("progress")  # figures from texts show the progress of each run
    with progress_bar(f"making figure {name}", None, False if is_silent else None):
        result = catalog.figure(recipe, **options)
    dataset, trends, drawn = result.dataset, result.trends, result.picture
    pictures = [common.save_picture(drawn, target) for target in targets]
    stored = save(dataset, store) if store else None
    if json:
        common.echo_json(_as_dict(result, pictures, stored))
        return
    echo(f"Figure {name}: {recipe.title}\n  {recipe.statement}")
    if details:
        echo(f"  {recipe.setting} ({dataset.attrs['seconds']:.1f} s)")
    for trend in trends:
        echo(f"{trend.mark} {trend.statement}" + " (not settled)" * (trend.verdict == "not settled"))
        if details:
            p_value = f", p {trend.p_text}" if trend.p_text else ""
            echo(f"    {trend.verdict}: {trend.measured_text}{p_value} (expected: {trend.expected})\n    {trend.note}")
    if trends and not details:
        echo("for the numbers and tests behind each line: --details")
    echo(f"picture: {', '.join(str(path) for path in pictures)}")
    if stored:
        common.echo_result(stored)


def reproduce(
    output: Annotated[Path, typer.Option(help="The folder for the page and the pictures.")] = Path("reproduction"),
    figures: Annotated[
        str | None,
        typer.Option(help=f"Some figures, as 3,6,8; by default {', '.join(catalog.SYNTHETIC)}."),
    ] = None,
    claims: Annotated[str | None, typer.Option(help="Some claims, as lemma_1,theorem_3; by default all.")] = None,
    num_seeds: Annotated[
        int | None, typer.Option(help="Seeds in each cell of Figures 6, 11 and 12; by default 40.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help=f"Also train on this text and make {', '.join(catalog.TEXT)}; hours on a CPU."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train on the text: cpu or cuda.")] = "cpu",
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Make every synthetic figure of the paper from new runs, check every claim, and put it all on one page.

    The page is one file: open it in a browser, without a network.
    """
    from scansnap.claims.verify import select
    from scansnap.report.reproduce import NUM_SEEDS
    from scansnap.report.reproduce import reproduce as make_page

    names = [part.strip() for part in figures.split(",")] if figures else None
    claim_ids = [part.strip() for part in claims.split(",")] if claims else []
    select(*claim_ids)  # an unknown one is refused before the work
    began = time.perf_counter()
    page = make_page(
        output,
        figures=names,
        claims=claim_ids,
        num_seeds=NUM_SEEDS if num_seeds is None else num_seeds,
        text=text,
        device=device,
    )
    seconds = time.perf_counter() - began
    if json:
        common.echo_json({"page": str(page), "seconds": round(seconds, 1)})
        return
    echo(f"page: {page}   ({seconds:.0f} s; open it in a browser; the figures are beside it as PNG and PDF)")


def _as_dict(result: catalog.FigureResult, pictures: list[Path], stored: Path | None) -> dict[str, Any]:
    """The figure as plain data, for JSON."""
    recipe = result.recipe
    return {
        "figure": recipe.name,
        "title": recipe.title,
        "statement": recipe.statement,
        "setting": recipe.setting,
        "trends": [trend.as_dict() for trend in result.trends],
        "numbers": catalog.numbers(result.dataset),
        "pictures": [str(path) for path in pictures],
        "result": str(stored) if stored else None,
        "seconds": result.dataset.attrs["seconds"],
    }
