"""One self-contained page: every figure, what the paper says of it, what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scansnap import theory
from scansnap.base.errors import StoreError
from scansnap.claims import Verdict, verify
from scansnap.data.synthetic import syn_medium, syn_small
from scansnap.figures import catalogue, syn_medium_runs
from scansnap.figures.style import readable
from scansnap.figures.trend import Trend
from scansnap.report import html
from scansnap.report.scrubber import scrubber_data
from scansnap.results.provenance import provenance
from scansnap.text.corpus.corpus import read_corpus

SEEDS = 40
"""Seeds in each cell of Syn-Medium: four times the published number, so that trends can be told from noise."""


@dataclass(frozen=True)
class Section:
    """A figure on the page."""

    name: str
    heading: str
    title: str
    statement: str
    setting: str
    picture: str  # PNG in base64
    trends: list[dict[str, Any]]
    seconds: float

    @property
    def label(self) -> str:
        """Its name among links."""
        return self.heading if self.name.isdigit() else self.name.replace("_", " ").capitalize()


def reproduce(
    folder: str | Path,
    *,
    figures: Iterable[str] | None = None,
    claims: Iterable[str] = (),
    seeds: int = SEEDS,
    text: str | Path | None = None,
    device: str = "cpu",
    on_step: Callable[[str, float], None] | None = None,
) -> Path:
    """Make every figure and check every claim, and write `index.html` and the pictures to `folder`.

    `figures` and `claims` choose some of them; `seeds` is for each cell of Figures 6, 11 and 12, which share their
    runs; with a `text`, those figures are made too that train on it, on `device`; `on_step` is called with what is
    being done and the share done.
    """
    at_hand = catalogue.SYNTHETIC if text is None else catalogue.NAMES
    chosen = list(at_hand if figures is None else figures)
    for number in chosen:
        catalogue.module(number)  # refuses unknown figures before anything is made
    folder = Path(folder)
    _check_folder(folder)
    began = time.perf_counter()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror or error}.") from None
    tell = on_step or (lambda what, share: None)
    work = len(chosen) + 2
    sections: list[Section] = []
    runs = None
    corpus = None if text is None else read_corpus(text)
    for i, number in enumerate(chosen):
        tell(f"figure {number}", i / work)
        if runs is None and catalogue.takes(number, "runs"):
            runs = syn_medium_runs.make(seeds=seeds)
        given = {"runs": runs, "text": corpus, "device": device}
        sections.append(_section(number, folder, {k: v for k, v in given.items() if catalogue.takes(number, k)}))
    tell("claims", len(chosen) / work)
    verdicts = verify(*claims, progress=False)
    tell("the page", (work - 1) / work)
    text = render(sections, verdicts, time.perf_counter() - began)
    page = folder / "index.html"
    html.write_page(page, text)
    tell("done", 1.0)
    return page


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which something would be overwritten that is no page of ours."""
    page = folder / "index.html"
    if not html.is_ours(page) and (page.exists() or any(folder.glob("figure_*.*"))):
        raise StoreError(f"{folder} holds files that scansnap did not write there: give another folder.")


def _section(number: str, folder: Path, options: dict[str, Any]) -> Section:
    module = catalogue.module(number)
    dataset = module.prepare(**options)
    figure = module.draw(dataset)
    picture = html.png(figure)
    catalogue.save(figure, folder / f"figure_{number}")
    return Section(
        name=number,
        heading=catalogue.heading(number),
        title=module.TITLE,
        statement=module.STATEMENT,
        setting=module.SETTING,
        picture=picture,
        trends=[_trend(one) for one in module.trends(dataset)],
        seconds=dataset.attrs["seconds"],
    )


def _claim(verdict: Verdict) -> dict[str, Any]:
    found = verdict.as_dict()
    return {**found, **{name: readable(found[name] or "") for name in ("statement", "correction")}}


def _trend(trend: Trend) -> dict[str, Any]:
    """A trend as the words of a table row."""
    error = f" ± {trend.standard_error:.2g}" if trend.standard_error is not None else ""
    p_value = "" if trend.p_value is None else f"{trend.p_value:.2g}"
    return {**trend.as_dict(), "measured": f"{trend.measured:.4g}{error}", "p_value": p_value}


def render(sections: list[Section], verdicts: list[Verdict], seconds: float) -> str:
    """The page as text."""
    return html.render(
        "page.html.jinja",
        sections=sections,
        claims=[_claim(one) for one in verdicts],
        counts=html.counted(verdicts),
        assumptions=_assumptions(),
        environment=provenance(),
        scrubber=scrubber_data(),
        seconds=seconds,
    )


def _assumptions() -> dict[str, list[theory.Assumption]]:
    """The paper's assumptions against the settings of its experiments."""
    published: dict[str, Any] = {"seq_len": 128, "steps": 100, "momentum": 0.9}
    found = {
        "Syn-Small, η_Y = η_Z = 1 (Figure 4)": theory.assumptions(syn_small(), lr_y=1.0, lr_z=1.0, **published),
        "Syn-Small, η_Y = 10, η_Z = 1 (Figure 4)": theory.assumptions(syn_small(), lr_y=10.0, lr_z=1.0, **published),
    }
    for queries in (1, 3, 5, 10):
        found[f"Syn-Medium, {queries} queries, η_Y = 10, η_Z = 1 (Figures 6, 11, 12)"] = theory.assumptions(
            syn_medium(num_query=queries), lr_y=10.0, lr_z=1.0, init="uniform", **published
        )
    return {name: list(one) for name, one in found.items()}
