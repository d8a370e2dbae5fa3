"""What a search for shortcuts found: in sentences, for the terminal, and on one self-contained page.

The page shows words, attention over time, what would change, and rows left out.

The page has no script.  Words come from the user's data and are escaped like everything else that the template shows.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from scipy import special

from scansnap.report import html
from scansnap.results.provenance import provenance
from scansnap.shortcuts.attention import PICKED
from scansnap.shortcuts.judging import DISTINCT_Z, LEAST_Z
from scansnap.shortcuts.result import REASONS, Finding, Outcome, Shortcuts

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 240, 34, 8, 8, 28
"""Sizes of a chart and of its margins, in points of a phone's width."""

SHOWN_WORDS = 200
"""Rows of a table; the rest are in the file that --table writes."""

SHOWN_POINTS = 2000
NAMED_POINTS = 8
COLORED_LINES = 6
LETTER = 6
"""The approximate width of a letter."""

ABOUT_SHORTCUTS = "Shortcuts: words that tell a label beyond chance"
ABOUT_UNPROVEN = (
    "Unproven: words that look distinct (z at least 2 without the held-out rows), and may be so by chance or by copies"
)

LONGEST = 40
"""Characters of a word or label that are shown."""


def visible(text: str) -> str:
    """A word as a reader can see it: signs that are invisible, or that would move others, become �."""
    shown = "".join("�" if unicodedata.category(sign) in ("Cc", "Cf", "Cn", "Co", "Cs") else sign for sign in text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def count_items(number: int, kind: str) -> str:
    """A number with its noun: 1 row, 2 rows."""
    return f"{number:,} {kind}{'s' * (number != 1)}"


def summary(result: Shortcuts) -> list[str]:
    """What was read, what looks distinct, and what attention makes of it."""
    shown = sorted(result.labels.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{visible(label)} ({count:,})" for label, count in shown[:6]) + (
        ", ..." if len(shown) > 6 else ""
    )
    control = result.control
    sentences = [
        f"{result.source}: {result.num_rows:,} rows used, {result.remarks.num_left_out:,} left out; "
        f"{len(result.labels)} labels: {listed}.",
        *_doubts(result),
        f"{result.num_tested:,} of {result.num_words:,} words are in at least {result.options.least} texts. "
        f"Distinct for a label (z at least 2 in all rows): {control.looking:,}, and {control.looking_shuffled:,} if "
        "the labels are shuffled.",
        f"Beyond chance (level {result.options.level:g} for all words together): {control.beyond_chance:,}, and "
        f"{control.beyond_chance_shuffled:,} if the labels are shuffled.",
    ]
    if result.read_share is not None:
        sentences.append(
            f"Attention was trained on {result.outcomes[0].texts:,} of the texts, reading {result.read_share:.0%} of "
            f"their words, for {result.options.updates:,} updates. Of the words that it reads, it picks "
            f"{_picked(result.shortcuts, 'shortcuts')}, and {_picked(result.unproven, 'unproven words')}."
        )
    return sentences


def _doubts(result: Shortcuts) -> list[str]:
    """What you should know about rows and labels before you believe the result."""
    doubts = []
    if result.num_texts < result.num_rows:
        several = f", {result.num_ambiguous:,} of them with several labels" if result.num_ambiguous else ""
        doubts.append(f"{result.num_rows:,} rows, but only {result.num_texts:,} different texts{several}.")
    rare = [label for label, rows in result.labels.items() if rows < result.options.least]
    if rare:
        listed = ", ".join(f"{visible(label)} ({result.labels[label]:,})" for label in rare[:6]) + ", ..." * (
            len(rare) > 6
        )
        doubts.append(
            f"{count_items(len(rare), 'label')} of fewer than {result.options.least} rows, too few for a word to tell: "
            f"{listed}. Take such rows out if their label stands for none."
        )
    return doubts


def _picked(findings: tuple[Finding, ...], kind: str) -> str:
    """How many are picked in the texts, and when the middle one is."""
    times = sorted(finding.picked_at for finding in findings if finding.picked_at is not None)
    when = (
        f", {'half of them ' if len(times) > 1 else ''}by update {times[(len(times) - 1) // 2]:,.0f}" if times else ""
    )
    return f"{len(times):,} of {sum(finding.gain is not None for finding in findings):,} {kind}{when}"


def outcomes_in_words(result: Shortcuts) -> list[str]:
    """What a prior or other amounts of data would change."""
    if not result.outcomes:
        return []
    width = max(len(outcome.name) for outcome in result.outcomes)
    lines = [
        "\nWhat would change, on held-out texts (accuracy ± its standard error):",
        f"  {'':{width}}  {'loss':>6}  {'accuracy':>14}  {'attention on shortcuts':>22}  {'on unproven words':>17}",
    ]
    lines += [
        f"  {outcome.name:{width}}  {outcome.loss:6.3f}  {accuracy(outcome):>14}  {outcome.on_shortcuts:22.1%}  "
        f"{outcome.on_unproven:17.1%}"
        for outcome in result.outcomes
    ]
    return [*lines, *more_data(result)]


def accuracy(outcome: Outcome) -> str:
    """The accuracy with its standard error."""
    return f"{outcome.accuracy:.1%} ± {outcome.accuracy_error:.1%}"


def more_data(result: Shortcuts) -> list[str]:
    """What more rows would do to words that look distinct by chance."""
    sentences = []
    if result.chance_share:
        listed = ", ".join(f"{share:.1%} in {rows:,} rows" for rows, share in result.chance_share.items())
        sentences.append(
            "The expected share of a text's words that are in texts of its label only, by chance, though other labels "
            f"have them: {listed}."
        )
    waiting = [finding.rows_to_tell for finding in result.unproven if finding.rows_to_tell is not None]
    if waiting:
        sentences.append(
            f"If their shares stayed, half of the {len(waiting):,} words within chance would be beyond it in "
            f"{sorted(waiting)[(len(waiting) - 1) // 2]:,.0f} rows."
        )
    return sentences


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + (self.end - self.start) * min(1.0, max(0.0, share)), 1)

    def ticks(self, values: Sequence[float]) -> list[Tick]:
        """Marks at those of some values that the axis has."""
        return [Tick(self(value), _short(value)) for value in values if self.low <= value <= self.high]


def _axis(values: Sequence[float], start: float, end: float, least: float, margin: float = 1.15) -> Scale:
    """An axis from `least`, or the smallest value, to a little above the largest."""
    low = min([least, *values])
    return Scale(low, max([low * 4, *values]) * margin, start, end)


def _short(value: float) -> str:
    if value >= 1000:
        power = int(math.log10(value) // 3)
        return f"{value / 1000**power:g}{' kMG'[power]}" if power < 4 else f"{value:.0e}"
    return f"{value:g}"


ROUND = [base * 10.0**power for power in range(-3, 10) for base in (1, 2, 5)]
TENS = [10.0**power for power in range(-3, 10)]


def write_shortcuts_page(page: Path, result: Shortcuts) -> None:
    """Write a page about shortcuts."""
    html.check_page(page)
    html.write_page(page, render_shortcuts(result))


def render_shortcuts(result: Shortcuts) -> str:
    """The page as text."""
    return html.render(
        "shortcuts_page.html.jinja",
        result=result,
        sentences=summary(result),
        more_data=more_data(result),
        tables=[
            ("shortcuts", "Shortcuts", "Words that tell a label beyond chance.", result.shortcuts),
            (
                "unproven",
                "Unproven words",
                "Words that look distinct for a label (z at least 2 without the held-out "
                "rows), and may be so by chance or by copies.",
                result.unproven,
            ),
        ],
        shown_words=SHOWN_WORDS,
        reasons=REASONS,
        visible=visible,
        accuracy=accuracy,
        cloud=_cloud(result),
        lines=_lines(result),
        picked=PICKED,
        chart={
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "top": TOP,
            "bottom": HEIGHT - BOTTOM,
        },
        environment=provenance(),
    )


def _cloud(result: Shortcuts) -> dict[str, object] | None:
    """z of words against the texts that they are in; those drawn last are on top."""
    shown = result.findings[:SHOWN_POINTS]
    if not shown:
        return None
    across = _axis([finding.texts for finding in shown], LEFT, WIDTH - RIGHT, float(result.options.least), 1.4)
    up = _axis([max(finding.z, LEAST_Z) for finding in shown], HEIGHT - BOTTOM, TOP, DISTINCT_Z)
    needed = float(-special.ndtri(result.options.level / result.num_tests))
    return {
        "points": [
            (across(finding.texts), up(max(finding.z, LEAST_Z)), finding.verdict, _tooltip(finding))
            for finding in reversed(shown)
        ],
        "names": _names(result.shortcuts, shown, across, up),
        "across": across.ticks(TENS if across.high > 100 * across.low else ROUND),
        "up": up.ticks([2, 5, 10, 20, 50, 100, 200, 500, 1000]),
        "needed": up(needed) if up.low < needed < up.high else None,
    }


def _names(
    shortcuts: Sequence[Finding], shown: Sequence[Finding], across: Scale, up: Scale
) -> list[tuple[float, float, str, str]]:
    """Where the names of the most distinct shortcuts stand, and how they are anchored there.

    Words that are one point share a name.  It stands beside the point, or a line higher or lower, where it covers no
    point and no other name; where there is no such place, it is left out.
    """
    points: dict[tuple[float, float], list[str]] = {}
    for finding in shortcuts:
        points.setdefault((across(finding.texts), up(finding.z)), []).append(visible(finding.word)[:16])
    obstacles = [(x - 3, x + 3, y) for x, y in {(across(word.texts), up(max(word.z, LEAST_Z))) for word in shown}]
    names = []
    for (x, y), words in list(points.items())[:NAMED_POINTS]:
        name = ", ".join(words) if len(words) < 3 else f"{words[0]}, +{len(words) - 1}"
        width = LETTER * len(name)
        for higher, (anchor, left) in product((0, -9, 9), (("start", x + 6), ("end", x - 6 - width))):
            free = all(abs(y + higher - at) > 8 or left + width < begin or end < left for begin, end, at in obstacles)
            if free and left >= LEFT and left + width <= WIDTH and TOP <= y + higher <= HEIGHT - BOTTOM:
                names.append((x + (6 if anchor == "start" else -6), y + higher + 3, anchor, name))
                obstacles.append((left, left + width, y + higher))
                break
    return names


def _tooltip(finding: Finding) -> str:
    return (
        f"{visible(finding.word)}: {finding.verdict}; {finding.texts_with_label:,} of {finding.texts:,} texts are "
        f"{visible(finding.label)}, z {finding.z:.1f}"
    )


def _lines(result: Shortcuts) -> list[dict[str, object]]:
    """Gains of words over updates, in the texts and in the population."""
    curves = result.curves
    if curves is None or not curves.words:
        return []
    verdicts = {finding.word: finding.verdict for finding in result.findings}
    charts = []
    for title, times, gains in (
        ("Training on the texts", curves.updates, curves.gains),
        ("The population of the estimated classes", curves.times, curves.population_gains),
    ):
        known = [gain for row in gains for gain in row if gain is not None]
        if not known:
            continue
        begin = next(time for time in times if time > 0)
        across = Scale(begin, max(2 * begin, *times), LEFT, WIDTH - RIGHT)
        up = Scale(min(0.8, *known) * 0.9, max(3.0, *known) * 1.1, HEIGHT - BOTTOM, TOP)
        curves_of: dict[tuple[str, str], list[str]] = {}  # words in the same texts share a curve
        for word, row in zip(curves.words, gains, strict=True):
            points = [f"{across(t)},{up(g)}" for t, g in zip(times, row, strict=True) if g is not None and t > 0]
            if points:
                curves_of.setdefault((" ".join(points), verdicts[word]), []).append(visible(word))
        drawn = []
        for i, ((path, verdict), words) in enumerate(curves_of.items()):
            kind = f"line-{i}" if verdict == "shortcut" and i < COLORED_LINES else verdict
            drawn.append((path, kind, ", ".join(words)))
        kinds = {kind for _, kind, _ in drawn}
        others = (("shortcut", "other shortcuts"), ("unproven", "unproven words"))
        charts.append(
            {
                "title": title,
                "drawn": drawn[::-1],
                "legend": [(kind, words) for _, kind, words in drawn if kind.startswith("line-")]
                + [(kind, words) for kind, words in others if kind in kinds],
                "across": across.ticks(TENS if across.high > 100 * across.low else ROUND),
                "up": up.ticks(ROUND),
                "picked": up(PICKED),
            }
        )
    return charts
