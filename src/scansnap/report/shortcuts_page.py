"""What a search for shortcuts found: in sentences, for the terminal, and on one self-contained page.

The page shows findings with example rows, what a second source shares, attention if it was trained, and rows left out.
It has no script.  Words come from the user's data and are escaped like everything else that the template shows.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
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

SHOWN_FINDINGS = 200
"""Rows of a table; the rest are in the file that --table writes."""

SHOWN_POINTS = 2000
NAMED_POINTS = 8
COLORED_LINES = 6
LETTER = 6
"""The approximate width of a letter."""

LONGEST = 40
"""Characters of a word or label that are shown."""


def visible(text: str, longest: int = LONGEST) -> str:
    """A word as a reader can see it: signs that are invisible, or that would move others, become �."""
    shown = "".join("�" if unicodedata.category(sign) in ("Cc", "Cf", "Cn", "Co", "Cs") else sign for sign in text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def count_items(number: int, kind: str) -> str:
    """A number with its noun: 1 row, 2 rows."""
    return f"{number:,} {kind}{'s' * (number != 1)}"


def summary(result: Shortcuts) -> list[str]:
    """What was read, what looks distinct, and what attention makes of it."""
    shown = sorted(result.labels.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{visible(label)} ({count:,})" for label, count in shown[:6]) + (
        ", ..." if len(shown) > 6 else ""
    )
    control, files = result.control, "" if result.files is None else f"{result.files}; "
    tested = ", ".join(f"{number:,} {kind}" for kind, number in result.num_features.items())
    sentences = [
        f"{result.source}: {files}{result.num_rows:,} rows used, {result.report.num_left_out:,} left out; "
        f"{len(result.labels)} labels: {listed}.",
        *_doubts(result),
        f"Features in at least {result.options.least} rows: {tested}.",
        f"Beyond chance (level {result.options.level:g} for all features together): {control.beyond_chance:,}, and "
        f"{control.beyond_chance_shuffled:,} if the labels are shuffled.",
    ]
    if (second := result.second) is not None:
        held = Counter(finding.test for finding in result.shortcuts)
        sentences.append(
            f"{second.source}: {second.rows:,} rows; {second.copied_texts:,} of its {second.texts:,} different texts "
            f"are copies or near copies of texts of {result.source}. Without them, {held['holds']:,} shortcuts hold "
            f"there, {held['not confirmed']:,} are not confirmed and {held['not seen']:,} are not seen."
        )
    if result.outcomes:
        read = [finding for finding in result.shortcuts if finding.gain is not None]
        picked = sum(finding.picked_at is not None for finding in read)
        sentences.append(
            f"Attention was trained on {result.outcomes[0].texts:,} texts for {result.options.updates:,} updates. It "
            f"picks {picked:,} of the {len(read):,} shortcuts that it reads."
        )
    return sentences


def _doubts(result: Shortcuts) -> list[str]:
    """What you should know about rows and labels before you believe the result."""
    doubts = []
    if result.drawn_share < 1:
        doubts.append(
            f"{result.num_texts:,} different texts, {result.drawn_share:.2%} of them all, were drawn at random; "
            "--texts sets their number."
        )
    if result.num_tested_texts < result.num_rows * result.drawn_share:
        several = f"; {result.num_ambiguous:,} have several labels" if result.num_ambiguous else ""
        doubts.append(
            f"{result.num_texts:,} texts are different, and {result.num_tested_texts:,} are left if near copies with "
            f"the same label count once{several}."
        )
    if result.num_pairs > (tested := result.num_features.get("pair", 0)):
        doubts.append(f"{tested:,} of {result.num_pairs:,} pairs of words are tested; --pairs sets their number.")
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


def outcomes_in_words(result: Shortcuts) -> list[str]:
    """What a prior or other amounts of data would change."""
    if not result.outcomes:
        return []
    width = max(len(outcome.name) for outcome in result.outcomes)
    return [
        "\nWhat would change, on held-out texts (accuracy ± its standard error):",
        f"  {'':{width}}  {'loss':>6}  {'accuracy':>14}  {'attention on shortcuts':>22}",
        *(
            f"  {outcome.name:{width}}  {outcome.loss:6.3f}  {accuracy(outcome):>14}  {outcome.on_shortcuts:22.1%}"
            for outcome in result.outcomes
        ),
    ]


def accuracy(outcome: Outcome) -> str:
    """The accuracy with its standard error."""
    return f"{outcome.accuracy:.1%} ± {outcome.accuracy_error:.1%}"


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
        tables=[
            ("shortcuts", "Shortcuts", "What tells a label beyond chance, with example rows.", result.shortcuts),
            (
                "unproven",
                "Unproven",
                "What looks distinct for a label, and may be so by chance, by copies or through another feature.",
                result.unproven,
            ),
        ],
        shown_findings=SHOWN_FINDINGS,
        reasons=REASONS,
        visible=visible,
        excerpt=lambda text: visible(text, 120),
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
    """z of features against the texts that they are in; those drawn last are on top."""
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
        points.setdefault((across(finding.texts), up(finding.z)), []).append(visible(finding.feature)[:16])
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
        f"{visible(finding.name)}: {finding.verdict}; {finding.texts_with_label:,} of {finding.texts:,} texts are "
        f"{visible(finding.label)}, z {finding.z:.1f}"
    )


def _lines(result: Shortcuts) -> dict[str, object] | None:
    """Gains of words over updates."""
    curves = result.curves
    known = [] if curves is None else [gain for row in curves.gains for gain in row if gain is not None]
    if curves is None or not known:
        return None
    verdicts = {finding.feature: finding.verdict for finding in result.findings if finding.kind == "word"}
    begin = next(time for time in curves.updates if time > 0)
    across = Scale(begin, max(2 * begin, *curves.updates), LEFT, WIDTH - RIGHT)
    up = Scale(min(0.8, *known) * 0.9, max(3.0, *known) * 1.1, HEIGHT - BOTTOM, TOP)
    curves_of: dict[tuple[str, str], list[str]] = {}  # words in the same texts share a curve
    for word, row in zip(curves.words, curves.gains, strict=True):
        points = [f"{across(t)},{up(g)}" for t, g in zip(curves.updates, row, strict=True) if g is not None and t > 0]
        if points:
            curves_of.setdefault((" ".join(points), verdicts[word]), []).append(visible(word))
    drawn = []
    for i, ((path, verdict), words) in enumerate(curves_of.items()):
        kind = f"line-{i}" if verdict == "shortcut" and i < COLORED_LINES else verdict
        drawn.append((path, kind, ", ".join(words)))
    kinds = {kind for _, kind, _ in drawn}
    others = (("shortcut", "other shortcuts"), ("unproven", "unproven words"))
    return {
        "drawn": drawn[::-1],
        "legend": [(kind, words) for _, kind, words in drawn if kind.startswith("line-")]
        + [(kind, words) for kind, words in others if kind in kinds],
        "across": across.ticks(TENS if across.high > 100 * across.low else ROUND),
        "up": up.ticks(ROUND),
        "picked": up(PICKED),
    }
