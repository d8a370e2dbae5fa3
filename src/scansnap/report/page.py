"""One self-contained page: how the reproduction ended, every figure and every claim with what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import xarray as xr

from scansnap import theory
from scansnap.claims.check import ROLES
from scansnap.claims.claim import Verdict
from scansnap.claims.verify import select, verify
from scansnap.corpus.corpus import read_corpus
from scansnap.data.synthetic import syn_medium, syn_small
from scansnap.dynamics.published import PUBLISHED, SYN_MEDIUM, SYN_SMALL
from scansnap.explorer.page import address_of, page_of
from scansnap.figures import catalog, syn_medium_runs
from scansnap.figures import claim as claim_picture
from scansnap.figures.recipe import FigureRecipe
from scansnap.report import html
from scansnap.report.citations import Citations
from scansnap.report.headline import headline
from scansnap.report.kept_figures import KeptFigures
from scansnap.report.reproduction import FigureResult, Reproduction
from scansnap.runtime.errors import StoreError
from scansnap.runtime.machine import has_torch

NUM_SEEDS = 40
"""Seeds in each cell of Syn-Medium: four times the published number, so that trends stand out from noise."""

CLAIM_WORK = 0.2
"""What a claim takes on average, in figures."""

ASSUMED_OF = ("lr_y", "lr_z", "seq_len", "steps", "momentum", "optimizer", "init")
"""The options that the paper assumes something of."""


@dataclass(frozen=True)
class Link:
    """Where a reader finds more about a claim."""

    text: str
    address: str


def reproduce(
    folder: str | Path,
    *,
    figures: Iterable[str | FigureRecipe] | None = None,
    claims: Iterable[str] = (),
    num_seeds: int = NUM_SEEDS,
    text: str | Path | None = None,
    device: str = "cpu",
    on_step: Callable[[str, float], None] | None = None,
) -> Path:
    """Make every figure and check every claim, and write `index.html` and the pictures to `folder`.

    `figures` (names, or recipes of your own) and `claims` select some of them; without PyTorch the figure of several
    layers is left out.  `num_seeds` is for each cell of Figures 6, 11 and 12, which share their runs.  With a `text`,
    the figures that train on it are made too, on `device`.  `on_step` is called with the current task and the share of
    the work that is done.  If it is interrupted, the same call goes on with the figures that are missing.
    """
    recipes = [catalog.recipe(figure) for figure in (_possible(text is not None) if figures is None else figures)]
    selected = [claim.id for claim in select(*claims)]
    folder = Path(folder)
    _check_folder(folder)
    began = time.perf_counter()
    unfinished = KeptFigures(folder)
    try:
        unfinished.begin()
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror or error}.") from None
    tell = on_step or (lambda what, share: None)
    shared = cache(lambda: syn_medium_runs.make(num_seeds=num_seeds))  # the runs of several figures
    corpus = None if text is None else read_corpus(text)
    results: list[FigureResult] = []
    verdicts: list[Verdict] = []
    pictures: dict[str, str] = {}

    def figure_of(recipe: FigureRecipe) -> FigureResult:
        taken = {name: value for name, value in {"text": corpus, "device": device}.items() if recipe.takes(name)}
        described = {"num_seeds": num_seeds, "text": corpus.fingerprint if corpus else None, "device": device}

        def make() -> xr.Dataset:
            return recipe.make(**taken, **({"runs": shared()} if recipe.takes("runs") else {}))

        dataset = unfinished.made(recipe, described, make)
        result = FigureResult(recipe, recipe.trends(dataset), dataset.attrs["seconds"])
        drawn = recipe.draw(dataset)
        pictures[result.anchor] = html.png(drawn)
        catalog.save(drawn, folder / f"figure_{recipe.name}")
        return result

    def checked(verdict: Verdict) -> None:
        verdicts.append(verdict)
        pictures[verdict.id] = html.png(claim_picture.draw(claim_picture.prepare(verdict)))
        if len(verdicts) < len(selected):
            tell(f"claim {len(verdicts) + 1} of {len(selected)}", share_done())

    def share_done() -> float:
        return (len(results) + CLAIM_WORK * len(verdicts)) / (len(recipes) + CLAIM_WORK * len(selected))

    try:
        for i, recipe in enumerate(recipes):
            tell(f"figure {recipe.name}, {i + 1} of {len(recipes)}", share_done())
            results.append(figure_of(recipe))
        tell(f"claim 1 of {len(selected)}", share_done())
        verify(*selected, progress=False, on_verdict=checked)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{folder} holds {len(results)} of {len(recipes)} figures: start the same again to go on from there."
        )
        raise
    tell("the page", 1.0)
    reproduction = Reproduction(results, verdicts, time.perf_counter() - began, "scansnap reproduce")
    page = folder / "index.html"
    html.write_page(page, render(reproduction, pictures))
    unfinished.clear()
    return page


def _possible(has_text: bool) -> list[str]:
    """The figures to make: all, or those that need no PyTorch where it is not installed and no text is given."""
    return [
        name
        for name in (catalog.MODULES if has_text else catalog.SYNTHETIC)
        if has_text or has_torch() or name not in catalog.ON_TENSORS
    ]


def _check_folder(folder: Path) -> None:
    """Refuse a folder with files that are not ours and would be overwritten."""
    page = folder / "index.html"
    is_unfinished = KeptFigures(folder).folder.is_dir() and not page.exists()
    if not html.is_ours(page) and not is_unfinished and (page.exists() or any(folder.glob("figure_*.*"))):
        raise StoreError(f"{folder} holds files that scansnap did not write there: give another folder.")


def render(
    reproduction: Reproduction, pictures: Mapping[str, str], links: Mapping[str, Sequence[Link]] | None = None
) -> str:
    """The page as text: `pictures` as PNG in base64, by the anchors of figures and the ids of claims."""
    citations = Citations(
        [verdict.claim for verdict in reproduction.verdicts], [figure.recipe.name for figure in reproduction.figures]
    )
    return html.render(
        "page.html.jinja",
        reproduction=reproduction,
        headline=headline(reproduction),
        pictures=pictures,
        links=links or {},
        cite=citations.link,
        roles=ROLES,
        beyond=catalog.BEYOND,
        assumptions=_assumptions(),
        explorer=page_of(address_of("syn-small", SYN_SMALL), "embedded"),
    )


def _assumptions() -> dict[str, list[theory.Assumption]]:
    """The paper's assumptions, checked in the settings of its own experiments."""
    settings = {
        "Syn-Small, η_Y = η_Z = 1 (Figure 4)": (syn_small(), SYN_SMALL),
        "Syn-Small, η_Y = 10, η_Z = 1 (Figure 4)": (syn_small(), PUBLISHED["syn-small-fast-decoder"].options),
    }
    for queries in syn_medium_runs.QUERIES:
        name = f"Syn-Medium, {queries} queries, η_Y = 10, η_Z = 1 (Figures 6, 11, 12)"
        settings[name] = (syn_medium(num_query=queries), replace(SYN_MEDIUM, lr_y=10.0))
    return {
        name: list(theory.assumptions(classes, **{option: getattr(options, option) for option in ASSUMED_OF}))
        for name, (classes, options) in settings.items()
    }
