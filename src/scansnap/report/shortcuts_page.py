"""One self-contained page of a search for shortcuts: words, attention over time, what would change, rows left out.

The page has no script.  Words come from the user's data and are escaped like everything else that the template shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from scipy import special

from scansnap.report import html
from scansnap.report.claims_page import check_page
from scansnap.report.shortcuts_words import accuracy, more_data, summary, visible
from scansnap.results.provenance import provenance
from scansnap.shortcuts.attention import PICKED
from scansnap.shortcuts.distinct import LEAST_Z
from scansnap.shortcuts.judge import LOOKS
from scansnap.shortcuts.result import REASONS, Finding, Shortcuts

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 240, 34, 8, 8, 28
"""Sizes of a chart and of its margins, in points of a phone's width."""

SHOWN_WORDS = 200
"""Rows of a table; the rest are in the file that --table writes."""

SHOWN_POINTS = 2000
NAMED_POINTS = 8
COLORED_LINES = 6
LETTER = 6
"""How wide a letter is, about."""


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


def _axis(values: Sequence[float], start: float, end: float, least: float, room: float = 1.15) -> Scale:
    """An axis from `least`, or the smallest value, to a little above the largest."""
    low = min([least, *values])
    return Scale(low, max([low * 4, *values]) * room, start, end)


def _short(value: float) -> str:
    if value >= 1000:
        power = int(math.log10(value) // 3)
        return f"{value / 1000**power:g}{' kMG'[power]}" if power < 4 else f"{value:.0e}"
    return f"{value:g}"


ROUND = [base * 10.0**power for power in range(-3, 10) for base in (1, 2, 5)]
TENS = [10.0**power for power in range(-3, 10)]


def write_shortcuts_page(page: Path, result: Shortcuts) -> None:
    """Write a page about shortcuts."""
    check_page(page)
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
    up = _axis([max(finding.z, LEAST_Z) for finding in shown], HEIGHT - BOTTOM, TOP, LOOKS)
    needed = float(-special.ndtri(result.options.level / result.num_tests))
    return {
        "points": [
            (across(finding.texts), up(max(finding.z, LEAST_Z)), finding.verdict, _described(finding))
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


def _described(finding: Finding) -> str:
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
