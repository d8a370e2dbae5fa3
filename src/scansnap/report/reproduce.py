"""One self-contained page: how the reproduction ended, every figure and every claim with what was found."""

from __future__ import annotations

import hashlib
import inspect
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import xarray as xr

from scansnap import theory
from scansnap.claims.check import ROLES
from scansnap.claims.claim import Verdict
from scansnap.claims.verify import select, verify
from scansnap.data.synthetic import syn_medium, syn_small
from scansnap.dynamics.published import PUBLISHED, SYN_MEDIUM, SYN_SMALL
from scansnap.explorer.page import address_of, page_of
from scansnap.figures import catalog
from scansnap.figures import claim as claim_picture
from scansnap.figures import syn_medium as syn_medium_figures
from scansnap.figures.recipe import FigureRecipe
from scansnap.report import html
from scansnap.report.claims_page import MARKS, Citations, count_verdict, short_name
from scansnap.report.reproduction import PageFigure, Reproduction, headline
from scansnap.results.store import load, save
from scansnap.runtime.errors import StoreError
from scansnap.runtime.progress import progress_bar
from scansnap.storage.files import check_replaceable
from scansnap.storage.provenance import store_name
from scansnap.text.corpus import read_corpus
from scansnap.validation.user_code import is_own
from scansnap.validation.validate import validated

NUM_SEEDS = 40
"""Seeds in each cell of Syn-Medium: four times the published number, so that trends stand out from noise."""

CLAIM_WORK = 0.2
"""The time of a claim on average, in units of the time of a figure."""

ASSUMED_OF = ("lr_y", "lr_z", "seq_len", "steps", "momentum", "optimizer", "init")
"""The options about which the paper makes assumptions."""


@dataclass(frozen=True)
class Link:
    """Where a reader finds more about a claim."""

    text: str
    address: str


@validated
def reproduce(
    folder: str | Path = "reproduction",
    *,
    figures: Iterable[str | FigureRecipe] | None = None,
    claims: Iterable[str] = (),
    num_seeds: int = NUM_SEEDS,
    text: str | Path | None = None,
    device: str = "cpu",
    progress: bool | None = None,
) -> Path:
    """Make the paper's figures from new runs, check its claims, and write one page with all of it.

    If the call is interrupted, the same call continues with the figures that are missing.

    Parameters
    ----------
    folder : str or Path
        Where to write `index.html` and the pictures.
    figures : iterable of str or FigureRecipe, optional
        Figures to make, by name or as recipes of your own.  By default all figures of the paper that need no text.
    claims : iterable of str
        Ids of the claims to check; by default all.
    num_seeds : int
        Seeds in each cell of Figures 6, 11 and 12, which share their runs.
    text : str or Path, optional
        A text: the figures that train on it are made too.
    device : str
        Where to train on the text.
    progress : bool, optional
        Whether to show progress; by default on a terminal only.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> page = ss.reproduce("some", figures=["8"], claims=["lemma_6"])
    >>> page.name
    'index.html'
    """
    if figures is None:
        figures = catalog.SYNTHETIC if text is None else (*catalog.SYNTHETIC, *catalog.TEXT)
    recipes = [catalog.recipe(figure) for figure in figures]
    selected = [claim.id for claim in select(*claims)]
    folder = Path(folder)
    unfinished = UnfinishedFigures(folder)
    unfinished.begin()
    began = time.perf_counter()
    shared = cache(lambda: syn_medium_figures.make_runs(num_seeds=num_seeds))  # the runs of several figures
    corpus = None if text is None else read_corpus(text)
    results: list[PageFigure] = []
    verdicts: list[Verdict] = []
    pictures: dict[str, str] = {}

    def add_figure(recipe: FigureRecipe) -> None:
        taken = {name: value for name, value in {"text": corpus, "device": device}.items() if recipe.takes(name)}
        options = {"num_seeds": num_seeds, "text": corpus.fingerprint if corpus else None, "device": device}

        def make() -> xr.Dataset:
            return recipe.make(**taken, **({"runs": shared()} if recipe.takes("runs") else {}))

        dataset = unfinished.load_or_make(recipe, options, make)
        result = PageFigure(recipe, recipe.trends(dataset), dataset.attrs["seconds"])
        drawn = recipe.draw(dataset)
        pictures[result.anchor] = html.png(drawn)
        for ending in catalog.ENDINGS:
            catalog.save_picture(drawn, folder / f"figure_{recipe.name}{ending}")
        results.append(result)

    def add_verdict(verdict: Verdict) -> None:
        verdicts.append(verdict)
        pictures[verdict.id] = html.png(claim_picture.draw(verdict))
        show_claim()

    with progress_bar("reproducing the paper", len(recipes) + CLAIM_WORK * len(selected), progress) as show:

        def show_claim() -> None:
            show(len(results) + CLAIM_WORK * len(verdicts), f"({len(verdicts)} of {len(selected)} claims checked)")

        try:
            for i, recipe in enumerate(recipes):
                show(i, f"(figure {recipe.name}, {i + 1} of {len(recipes)})")
                add_figure(recipe)
            show_claim()
            verify(*selected, progress=False, on_verdict=add_verdict)
        except KeyboardInterrupt as stop:
            stop.add_note(
                f"{folder} holds {len(results)} of {len(recipes)} figures: start the same again to go on from there."
            )
            raise
    reproduction = Reproduction(results, verdicts, time.perf_counter() - began, "scansnap reproduce")
    page = folder / "index.html"
    html.write_page(page, render(reproduction, pictures))
    unfinished.clear()
    return page


class UnfinishedFigures:
    """The numbers of finished figures, stored beside the page until it is written; an interrupted page continues."""

    def __init__(self, page_folder: Path) -> None:
        self._page_folder = page_folder
        self._folder = page_folder / "unfinished"

    def begin(self) -> None:
        """Make the folder; refuse one with files that scansnap did not write and would overwrite."""
        for path in (self._page_folder / "index.html", *self._page_folder.glob("figure_*.*")):
            check_replaceable(path)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write to {self._page_folder}: {error.strerror or error}.") from None

    def load_or_make(
        self, recipe: FigureRecipe, options: Mapping[str, Any], make: Callable[[], xr.Dataset]
    ) -> xr.Dataset:
        """The dataset of a figure: stored for the same options by the same code, or a new one."""
        if is_own(recipe.prepare):
            return make()  # a user's own code can change without notice
        code = hashlib.sha256(inspect.getsource(inspect.getmodule(recipe.prepare) or recipe.prepare).encode())
        path = self._folder / store_name(recipe.name, {**options, "code": code.hexdigest()})
        if path.exists():
            try:
                return load(path)
            except StoreError:
                shutil.rmtree(path)
        dataset = make()
        save(dataset, path)
        return dataset

    def clear(self) -> None:
        """Remove the folder; the page has been written."""
        shutil.rmtree(self._folder, ignore_errors=True)


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
        marks=MARKS,
        count_verdict=count_verdict,
        short_name=short_name,
        cite=citations.link,
        roles=ROLES,
        numbered=catalog.NUMBERED,
        assumptions=_assumptions(),
        explorer=page_of(address_of("syn-small", vars(SYN_SMALL)), "embedded"),
    )


def _assumptions() -> dict[str, list[theory.Assumption]]:
    """The paper's assumptions, checked in the settings of its own experiments."""
    settings = {
        "Syn-Small, η_Y = η_Z = 1 (Figure 4)": (syn_small(), SYN_SMALL),
        "Syn-Small, η_Y = 10, η_Z = 1 (Figure 4)": (syn_small(), PUBLISHED["syn-small-fast-decoder"].options),
    }
    for queries in syn_medium_figures.QUERIES:
        name = f"Syn-Medium, {queries} queries, η_Y = 10, η_Z = 1 (Figures 6, 11, 12)"
        settings[name] = (syn_medium(num_query=queries), replace(SYN_MEDIUM, lr_y=10.0))
    return {
        name: list(theory.assumptions(classes, **{option: getattr(options, option) for option in ASSUMED_OF}))
        for name, (classes, options) in settings.items()
    }
