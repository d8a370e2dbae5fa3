"""`scansnap figure` and `scansnap reproduce`: one figure, or all figures and claims on a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Argument, Flag, command
from scansnap.cli.text import TEXT_HELP
from scansnap.figures import catalog
from scansnap.runtime.errors import InputError
from scansnap.runtime.progress import progress_bar

FOR_TEXT = f"For {', '.join(catalog.TEXT)}"


@command(common.OVERWRITE_FLAG)
def figure(
    name: Annotated[
        str,
        Argument(
            f"The figure's number in the paper: {', '.join(catalog.NUMBERED)}; or the name of another paper's figure "
            "(an unknown name lists all); or, with --from, the name of a figure in that file."
        ),
    ],
    file: Annotated[
        Path | None,
        Flag("Your own Python file that holds the figure, as a scansnap.figures.recipe.FigureRecipe.", name="--from"),
    ] = None,
    num_seeds: Annotated[int | None, Flag("How many seeds; each figure has its own default.")] = None,
    text: Annotated[str | None, Flag(f"{FOR_TEXT}: {TEXT_HELP}")] = None,
    steps: Annotated[int | None, Flag(f"{FOR_TEXT}: updates of each run.")] = None,
    device: Annotated[str | None, Flag(f"{FOR_TEXT}: cpu or cuda.")] = None,
    precision: Annotated[str | None, Flag(f"{FOR_TEXT}: float32, bf16-decoder or bf16.")] = None,
    picture: Annotated[
        Path | None, Flag("Where to draw it (.png, .pdf, .svg); by default .png and .pdf in results/.")
    ] = None,
    store: Annotated[Path | None, Flag("Where to write the numbers (zarr).")] = None,
    details: Annotated[bool, Flag("Print the setting, and the numbers and the test behind each statement.")] = False,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """Make a figure of the paper, of another paper or your own from new runs, and test what it should show.

    Figures that are made from a text train transformers on it, which can take hours on a CPU. Their runs are stored in
    results/text, so that an interrupted figure can continue.
    """
    from scansnap.results.store import save

    recipe = catalog.recipe(name) if file is None else catalog.recipe_from(file, name)
    values = {"num_seeds": num_seeds, "text": text, "steps": steps, "device": device, "precision": precision}
    options = {option: value for option, value in values.items() if value is not None}
    recipe.check_options(*options)
    targets = [picture] if picture else [Path("results") / f"figure_{name}{ending}" for ending in catalog.ENDINGS]
    _check_outputs(targets, store)
    is_silent = json or recipe.takes("progress")  # figures from texts show the progress of each run
    with progress_bar(f"making figure {name}", None, False if is_silent else None):
        result = catalog.figure(recipe, **options)
    pictures = [str(common.save_picture(result.picture, target)) for target in targets]
    stored = None if store is None else save(result.dataset, store)
    if json:
        outputs = {"pictures": pictures, "result": None if stored is None else str(stored)}
        common.echo_json({**result.as_dict(), **outputs})
        return
    echo(result.details if details else str(result))
    if result.trends and not details:
        echo("for the numbers and tests behind each line: --details")
    echo(f"picture: {', '.join(pictures)}")
    if stored is not None:
        common.echo_result(stored)


def _check_outputs(pictures: list[Path], store: Path | None) -> None:
    """Refuse outputs that cannot be written, before the work starts."""
    for picture in pictures:
        common.check_picture(picture)
    if store is not None and store.exists():
        raise InputError(f"--store is '{store}', which exists already: give another name.")


@command(common.OVERWRITE_FLAG)
def reproduce(
    output: Annotated[Path, Flag("The folder for the page and the pictures.")] = Path("reproduction"),
    figures: Annotated[str | None, Flag(f"Some figures, as 3,6,8; by default {', '.join(catalog.SYNTHETIC)}.")] = None,
    claims: Annotated[str | None, Flag("Some claims, as lemma_1,theorem_3; by default all.")] = None,
    num_seeds: Annotated[int | None, Flag("Seeds in each cell of Figures 6, 11 and 12; by default 40.")] = None,
    text: Annotated[
        str | None, Flag(f"Also train on this text and make {', '.join(catalog.TEXT)}; hours on a CPU.")
    ] = None,
    device: Annotated[str, Flag("Where to train on the text: cpu or cuda.")] = "cpu",
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """Make every synthetic figure of the paper from new runs, check every claim, and put it all on one page.

    The page is one file: open it in a browser, without a network.
    """
    from scansnap.claims.verify import select
    from scansnap.report.reproduce import NUM_SEEDS
    from scansnap.report.reproduce import reproduce as make_page

    claim_ids = _parts(claims) or []
    select(*claim_ids)  # an unknown one is refused before the work
    began = time.perf_counter()
    page = make_page(
        output,
        figures=_parts(figures),
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


def _parts(text: str | None) -> list[str] | None:
    """The names that a flag lists; None if it is not given."""
    return [part.strip() for part in text.split(",")] if text else None
