"""One self-contained page: every figure, what the paper says about it, and the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import xarray as xr

from scansnap import theory
from scansnap.base.errors import StoreError
from scansnap.base.needs_torch import has_torch
from scansnap.claims import Verdict, verify
from scansnap.data.synthetic import syn_medium, syn_small
from scansnap.dynamics.published import PUBLISHED, SYN_MEDIUM, SYN_SMALL
from scansnap.explorer.page import address_of, page_of
from scansnap.figures import catalog, syn_medium_runs
from scansnap.figures.recipe import FigureRecipe
from scansnap.figures.style import readable
from scansnap.figures.trend import Trend
from scansnap.report import html
from scansnap.report.kept_figures import KeptFigures
from scansnap.results.provenance import provenance
from scansnap.text.corpus.corpus import read_corpus

NUM_SEEDS = 40
"""Seeds in each cell of Syn-Medium: four times the published number, so that trends stand out from noise."""

ASSUMED_OF = ("lr_y", "lr_z", "seq_len", "steps", "momentum", "optimizer", "init")
"""The options that the paper assumes something of."""


@dataclass(frozen=True)
class Section:
    """A figure on the page."""

    recipe: FigureRecipe
    picture: str  # PNG in base64
    trends: list[Trend]
    seconds: float

    @property
    def heading(self) -> str:
        """What precedes the title."""
        return catalog.heading(self.recipe.name)

    @property
    def label(self) -> str:
        """The text of links to the figure."""
        name = self.recipe.name
        return f"Figure {name}" if name.isdigit() else name.replace("_", " ").capitalize()


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
    layers is left out.  `num_seeds` is for each cell of Figures
    6, 11 and 12, which share their runs.  With a `text`, the figures that train on it are made too, on `device`.
    `on_step` is called with the current task and the share of the work that is done.  If it is interrupted, the same
    call goes on with the figures that are missing.
    """
    recipes = [catalog.recipe(figure) for figure in (_possible(text is not None) if figures is None else figures)]
    folder = Path(folder)
    _check_folder(folder)
    began = time.perf_counter()
    kept = KeptFigures(folder)
    try:
        kept.begin()
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror or error}.") from None
    tell = on_step or (lambda what, share: None)
    work = len(recipes) + 2
    sections: list[Section] = []
    shared = cache(lambda: syn_medium_runs.make(num_seeds=num_seeds))  # the runs of several figures
    corpus = None if text is None else read_corpus(text)

    def section(recipe: FigureRecipe) -> Section:
        taken = {name: value for name, value in {"text": corpus, "device": device}.items() if recipe.takes(name)}
        described = {"num_seeds": num_seeds, "text": corpus.fingerprint if corpus else None, "device": device}

        def make() -> xr.Dataset:
            return recipe.make(**taken, **({"runs": shared()} if recipe.takes("runs") else {}))

        return _section(recipe, folder, kept.made(recipe, described, make))

    try:
        for i, recipe in enumerate(recipes):
            tell(f"figure {recipe.name}", i / work)
            sections.append(section(recipe))
        tell("claims", len(recipes) / work)
        verdicts = verify(*claims, progress=False)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{folder} holds {len(sections)} of {len(recipes)} figures: start the same again to go on from there."
        )
        raise
    tell("the page", (work - 1) / work)
    text = render(sections, verdicts, time.perf_counter() - began)
    page = folder / "index.html"
    html.write_page(page, text)
    kept.clear()
    tell("done", 1.0)
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


def _section(recipe: FigureRecipe, folder: Path, dataset: xr.Dataset) -> Section:
    figure = recipe.draw(dataset)
    picture = html.png(figure)
    catalog.save(figure, folder / f"figure_{recipe.name}")
    return Section(recipe, picture, recipe.trends(dataset), dataset.attrs["seconds"])


def _claim(verdict: Verdict) -> dict[str, Any]:
    values = verdict.as_dict()
    return {**values, **{name: readable(values[name] or "") for name in ("statement", "correction")}}


def render(sections: list[Section], verdicts: list[Verdict], seconds: float) -> str:
    """The page as text."""
    return html.render(
        "page.html.jinja",
        sections=sections,
        claims=[_claim(verdict) for verdict in verdicts],
        counts=html.counted(verdicts),
        assumptions=_assumptions(),
        environment=provenance(),
        explorer=page_of(address_of("syn-small", SYN_SMALL), "embedded"),
        seconds=seconds,
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
