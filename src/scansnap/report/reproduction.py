"""What a reproduction found: the tests of every figure, the verdict on every claim, and both in short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scansnap.claims.catalog import paper_claims
from scansnap.claims.claim import CATEGORIES, FAILS, Verdict
from scansnap.figures import catalog, fig_2
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.report.claims_page import MARKS
from scansnap.runtime.formulas import readable
from scansnap.storage.provenance import provenance

MAIN_POINTS = (
    (
        "Scan",
        "2",
        {
            "theorem_2": "Distinct tokens gain attention at all times, and a single common token loses it.",
            "corollary_2": "With symmetric classes of one query all common tokens lose attention.",
        },
    ),
    (
        "Snap",
        "3",
        {
            "theorem_4": r"Attention moves like $\ln t$ up to a time $t'_0$ and like $\ln \ln t$ from $t_0$ on, and "
            "gets as far as the formula says.",
            "winner_takes_all": "In one symmetric setting, attention does not become winner-takes-all though its "
            "logits grow without bound.",
        },
    ),
    (
        "The rates",
        "6",
        {
            "section_6_a": r"A larger rate $\eta_Y$ of the decoder leads to an earlier $t_0$.",
            "section_6_c": r"At the same rate $\eta_Z$ of attention a smaller $\eta_Y$ leads to sparser attention.",
        },
    ),
)
"""The paper's main points: each with the figure that shows it and the claims that state it, in plain words."""

ANSWERS = (
    (
        "Does attention scan?",
        (fig_2.SUPPRESSED, fig_2.AHEAD),
        "Yes: common tokens lose, and the distinct token that was ahead takes over.",
        "Not as stated: see Figure 2.",
    ),
    (
        "Does it slow down?",
        (fig_2.SLOWER,),
        "Yes: past the phase transition each update moves less of it.",
        "No: past the phase transition it moves as fast.",
    ),
    (
        "Does it freeze?",
        (fig_2.FREEZE_STATEMENT,),
        "Yes: past the phase transition less of it moves than before.",
        "That depends on how much loss is left, since only errors move attention. Under plain SGD the loss fades "
        "slowly, and from the transition at t₀ to 10 t₀ more of attention moves than before; where momentum or large "
        "rates take the loss away at once, it stays, or slides back later.",
    ),
    (
        "Does it get as far as the paper says?",
        ("theorem_4",),
        "Yes.",
        "No: the constants of Theorem 4 are wrong as printed, and under SGD attention gets less far than the right "
        "ones say.",
    ),
)
"""Questions of a reader who has not read the paper: each with the tests of Figure 2, or the claim, that answer it, and
the answers if they hold and if they do not."""


THEOREMS = ("theorem", "corollary")
"""How the ids of the main results begin."""


@dataclass(frozen=True)
class PageFigure:
    """A figure on the page."""

    recipe: FigureRecipe
    trends: Sequence[Trend]
    seconds: float

    @property
    def anchor(self) -> str:
        """The anchor of the figure on a page."""
        return f"figure-{self.recipe.name}"

    @property
    def label(self) -> str:
        """The name of the figure in a list."""
        name = self.recipe.name
        return f"Figure {name}" if name.isdigit() else name.replace("_", " ").capitalize()

    @property
    def holding(self) -> int:
        """The number of its tests that hold."""
        return sum(trend.holds for trend in self.trends)


@dataclass(frozen=True)
class Reproduction:
    """Figures and claims, and where they come from."""

    figures: Sequence[PageFigure]
    verdicts: Sequence[Verdict]
    seconds: float
    command: str
    environment: dict[str, str] = field(default_factory=provenance)


@dataclass(frozen=True)
class Highlight:
    """A picture that matters, with what was found about it."""

    title: str
    picture: str  # its name among the page's pictures
    figure: PageFigure | None
    said: Sequence[tuple[Verdict, str]]  # verdicts, each with what it is about in plain words

    @property
    def alt_text(self) -> str:
        """The picture in words, for readers who do not see it: what the paper says of it, and what of that fails."""
        if self.figure is None:
            return f"{self.title}: {readable(self.said[0][1])}"
        fails = " ".join(trend.statement for trend in self.figure.trends if trend.verdict == FAILS)
        return f"{self.title}. The paper: {self.figure.recipe.statement}" + (
            f" Does not hold here: {fails}" if fails else ""
        )


@dataclass(frozen=True)
class Headline:
    """What was reproduced, what holds and what does not."""

    reproduced: str
    answers: Sequence[tuple[str, str]]  # questions and answers
    claims: Mapping[str, int]  # verdicts on the paper's statements and how often they were given
    trends: Mapping[str, int]  # the same for the tests of the paper's figures
    theorems: Mapping[str, Sequence[Verdict]]  # by verdict
    failing: Mapping[str, Sequence[Verdict]]
    mended: int  # failing claims whose correction holds
    doubtful: Sequence[PageFigure]  # the paper's figures of which some test fails
    highlights: Sequence[Highlight]


def headline(reproduction: Reproduction) -> Headline:
    """The opening of the page."""
    verdicts = [verdict for verdict in reproduction.verdicts if verdict.claim.category != "added"]
    figures = [figure for figure in reproduction.figures if figure.recipe.name in catalog.NUMBERED]
    failing = [verdict for verdict in verdicts if verdict.verdict == FAILS]
    return Headline(
        reproduced=_reproduced(reproduction),
        answers=list(_answers(reproduction)),
        claims=Counter(verdict.verdict for verdict in verdicts),
        trends=Counter(trend.verdict for figure in figures for trend in figure.trends),
        theorems={
            word: group
            for word in MARKS
            if (group := [each for each in verdicts if each.verdict == word and each.id.startswith(THEOREMS)])
        },
        failing={
            category: [verdict for verdict in failing if verdict.claim.category == category]
            for category in CATEGORIES
            if any(verdict.claim.category == category for verdict in failing)
        },
        mended=sum(_is_corrected(verdict) for verdict in failing),
        doubtful=[figure for figure in figures if any(trend.verdict == FAILS for trend in figure.trends)],
        highlights=list(_highlights(reproduction)),
    )


def _is_corrected(verdict: Verdict) -> bool:
    corrected = [measurement.holds for measurement in verdict.measurements if measurement.role == "corrected"]
    return bool(corrected) and all(corrected)


def _reproduced(reproduction: Reproduction) -> str:
    """How many of the paper's figures and statements were made; those beyond the paper are counted separately."""
    names = [figure.recipe.name for figure in reproduction.figures]
    synthetic, text = (sum(name in modules for name in names) for modules in (catalog.SYNTHETIC, catalog.TEXT))
    said = sum(verdict.claim.category != "added" for verdict in reproduction.verdicts)
    all_said = sum(claim.category != "added" for claim in paper_claims())
    parts = [
        _share(synthetic, len(catalog.SYNTHETIC), "synthetic figures"),
        _share(text, len(catalog.TEXT), "figures on text"),
        _share(said, all_said, "statements that scansnap checks"),
    ]
    beyond = [
        f"{count} {word}{'s' * (count != 1)}"
        for count, word in ((len(names) - synthetic - text, "figure"), (len(reproduction.verdicts) - said, "statement"))
        if count
    ]
    made = " and ".join(filter(None, parts)) or "nothing"
    return made + (f"; beyond the paper, {' and '.join(beyond)}" if beyond else "")


def _share(made: int, total: int, words: str) -> str:
    """What was made of something in words, or nothing."""
    if not made:
        return ""
    return f"all {total} {words}" if made == total else f"{made} of {total} {words}"


def _answers(reproduction: Reproduction) -> Iterable[tuple[str, str]]:
    """The questions that the figures and claims of this page can answer, with their answers."""
    holds = {verdict.id: verdict.verdict != FAILS for verdict in reproduction.verdicts if not verdict.reason}
    for figure in reproduction.figures:
        if figure.recipe.name == "2":
            holds |= {trend.statement: trend.holds for trend in figure.trends}
    for question, evidence, yes, no in ANSWERS:
        if all(each in holds for each in evidence):
            yield question, yes if all(holds[each] for each in evidence) else no


def _highlights(reproduction: Reproduction) -> Iterable[Highlight]:
    """The main points of which there is a picture: the figure's, or that of a claim."""
    figures = {figure.recipe.name: figure for figure in reproduction.figures}
    verdicts = {verdict.id: verdict for verdict in reproduction.verdicts}
    for title, name, words in MAIN_POINTS:
        said = [(verdicts[claim], plain) for claim, plain in words.items() if claim in verdicts]
        drawn = [verdict for verdict, _ in said if not verdict.reason]
        if name in figures:
            yield Highlight(title, figures[name].anchor, figures[name], said)
        elif drawn:
            yield Highlight(title, drawn[0].id, None, said)
