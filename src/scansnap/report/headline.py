"""How a reproduction ended, in ten lines and three pictures: every count comes from what was made and found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scansnap.claims import Verdict, claims
from scansnap.claims.claim import CATEGORIES, FAILS, Category
from scansnap.figures import catalog
from scansnap.report import html
from scansnap.report.reproduction import FigureResult, Reproduction

MATTERS = (
    ("Scan", "2", ("theorem_2", "corollary_2")),
    ("Snap", "3", ("theorem_4", "winner_takes_all")),
    ("The rates", "6", ("section_6_a", "section_6_c")),
)
"""What the paper is about: each with the figure that shows it and the claims that say it."""


THEOREMS = ("theorem", "corollary")
"""How the ids of the main results begin."""


@dataclass(frozen=True)
class Highlight:
    """A picture that matters, with what was found about it."""

    title: str
    picture: str  # its name among the page's pictures
    figure: FigureResult | None
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Headline:
    """What was reproduced, what holds and what does not."""

    reproduced: str
    claims: Mapping[str, int]  # verdicts and how often they were given
    trends: Mapping[str, int]  # the same for the tests of figures
    theorems: Mapping[str, Sequence[Verdict]]  # by verdict
    failing: Mapping[Category, Sequence[Verdict]]
    mended: int  # failing claims whose correction holds
    doubtful: Sequence[FigureResult]  # figures of which some test does not hold
    highlights: Sequence[Highlight]


def headline(reproduction: Reproduction) -> Headline:
    """The opening of the page."""
    verdicts, figures = reproduction.verdicts, reproduction.figures
    failing = [verdict for verdict in verdicts if verdict.verdict == FAILS]
    return Headline(
        reproduced=_reproduced(reproduction),
        claims=Counter(verdict.verdict for verdict in verdicts),
        trends=Counter(trend.verdict for figure in figures for trend in figure.trends),
        theorems={
            word: group
            for word in html.MARKS
            if (group := [each for each in verdicts if each.verdict == word and each.id.startswith(THEOREMS)])
        },
        failing={
            category: [verdict for verdict in failing if verdict.claim.category == category]
            for category in CATEGORIES
            if any(verdict.claim.category == category for verdict in failing)
        },
        mended=sum(_mended(verdict) for verdict in failing),
        doubtful=[figure for figure in figures if figure.holding < len(figure.trends)],
        highlights=list(_highlights(reproduction)),
    )


def _mended(verdict: Verdict) -> bool:
    corrected = [measurement.holds for measurement in verdict.measurements if measurement.role == "corrected"]
    return bool(corrected) and all(corrected)


def _reproduced(reproduction: Reproduction) -> str:
    """Figures and statements, and of how many; what is not said by the paper is counted apart."""
    names = [figure.recipe.name for figure in reproduction.figures]
    paper = [name for name in names if name in catalog.NUMBERED]
    synthetic = [name for name in catalog.NUMBERED if name in catalog.SYNTHETIC]
    said = [verdict.claim for verdict in reproduction.verdicts if verdict.claim.category != "added"]
    all_said = [claim for claim in claims() if claim.category != "added"]
    parts = []
    if paper:
        missing = set(synthetic) - set(paper)
        more = [name for name in paper if name not in synthetic]
        parts.append(
            f"{_listed('Figure', paper)} of its {len(synthetic)} synthetic figures" if missing
            else f"all {len(synthetic)} synthetic figures" + (f" and {_listed('Figure', more)}" if more else "")
        )  # fmt: skip
    if said:
        count = "all" if len(said) == len(all_said) else f"{len(said)} of"
        parts.append(f"{count} {len(all_said)} statements that scansnap checks")
    beyond = []
    if len(names) > len(paper):
        beyond.append(_counted(len(names) - len(paper), "figure"))
    if len(said) < len(reproduction.verdicts):
        beyond.append(_counted(len(reproduction.verdicts) - len(said), "statement"))
    text = " and ".join(parts) or "nothing"
    return text + (f"; beyond the paper, {' and '.join(beyond)}" if beyond else "")


def _listed(word: str, names: Sequence[str]) -> str:
    *first, last = names
    return f"{word}s {', '.join(first)} and {last}" if first else f"{word} {last}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _highlights(reproduction: Reproduction) -> Iterable[Highlight]:
    """Those of which there is a picture: the figure's, or that of a claim."""
    figures = {figure.recipe.name: figure for figure in reproduction.figures}
    verdicts = {verdict.id: verdict for verdict in reproduction.verdicts}
    for title, name, ids in MATTERS:
        said = [verdicts[claim] for claim in ids if claim in verdicts]
        drawn = [verdict for verdict in said if not verdict.reason]
        if name in figures:
            yield Highlight(title, figures[name].anchor, figures[name], said)
        elif drawn:
            yield Highlight(title, drawn[0].id, None, said)
