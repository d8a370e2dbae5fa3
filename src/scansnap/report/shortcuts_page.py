"""What a search for shortcuts found: in sentences, for the terminal, and on one self-contained page.

The page shows findings with example rows, what a second source shares, attention if it was trained, and rows left out.
It has no script.  Words come from the user's data and are escaped like everything else that the template shows.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy import special

from scansnap.corpus.tokenizers import NOTABLE_SHARE
from scansnap.figures.style import COLORS, label, legend, plain
from scansnap.report import html
from scansnap.runtime.errors import count_items
from scansnap.shortcuts.attention import PICKED
from scansnap.shortcuts.judging import LEAST_Z
from scansnap.shortcuts.result import REASONS, Shortcuts
from scansnap.storage.provenance import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_FINDINGS = 200
"""Rows of a table; the rest are in the file that --table writes."""

SHOWN_POINTS = 2000
NAMED_POINTS = 8

LONGEST = 40
"""Characters of a word or label that are shown."""


def visible(text: str, longest: int = LONGEST) -> str:
    """A word as a reader can see it: signs that are invisible, or that would move others, become �."""
    shown = "".join("�" if unicodedata.category(sign) in ("Cc", "Cf", "Cn", "Co", "Cs") else sign for sign in text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def summary(result: Shortcuts) -> list[str]:
    """What was read, what looks distinct, and what attention makes of it."""
    shown = sorted(result.labels.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{visible(label)} ({count:,})" for label, count in shown[:6]) + (
        ", ..." if len(shown) > 6 else ""
    )
    control, files = result.control, "" if result.files is None else f"{result.files}; "
    explained = control.beyond_chance - len(result.shortcuts)
    tested = ", ".join(f"{kind} {number:,}" for kind, number in result.num_features.items())
    sentences = [
        f"{result.source}: {files}{result.num_rows:,} rows used, {result.report.num_left_out:,} left out; "
        f"{len(result.labels)} labels: {listed}.",
        *_doubts(result),
        f"Features in at least {result.options.least} rows, by kind: {tested}.",
        f"{count_items(control.beyond_chance, 'feature')} beyond chance, at level {result.options.level:g} for all "
        f"together ({control.beyond_chance_shuffled:,} if the labels are shuffled): "
        f"{count_items(len(result.shortcuts), 'shortcut')}, and {explained:,} that another feature explains.",
    ]
    if (second := result.second) is not None:
        held = Counter(finding.test for finding in result.shortcuts)
        sentences.append(
            f"{second.source}: {second.rows:,} rows; {second.copied_texts:,} of its {second.texts:,} different texts "
            f"are copies or near copies of texts of {result.source}. Without them, {held['holds']:,} shortcuts hold "
            f"there, {held['not confirmed']:,} are not confirmed and {held['not seen']:,} are not seen."
        )
    if result.options.attention:
        read = [finding for finding in result.shortcuts if finding.gain is not None]
        picked = sum(finding.picked_at is not None for finding in read)
        sentences.append(
            f"Attention was trained for {result.options.updates:,} updates. It picks {picked:,} of the {len(read):,} "
            "shortcuts that it reads."
        )
    return sentences


def _doubts(result: Shortcuts) -> list[str]:
    """What you should know about rows and labels before you believe the result."""
    doubts = []
    if result.drawn_share < 1:
        doubts.append(
            f"{result.num_texts:,} different texts, of {result.drawn_share:.2%} of the rows, were drawn at random; "
            "--texts sets their number."
        )
    if result.num_tested_texts < round(result.num_rows * result.drawn_share):
        several = f"; {result.num_ambiguous:,} have several labels" if result.num_ambiguous else ""
        left = f", and {result.num_tested_texts:,} are left if near copies with the same label count once"
        is_same = result.num_texts == result.num_tested_texts
        doubts.append(f"{result.num_texts:,} texts are different{'' if is_same else left}{several}.")
    if result.num_pairs > (tested := result.num_features.get("pair", 0)):
        doubts.append(f"{tested:,} of {result.num_pairs:,} pairs of words are tested; --pairs sets their number.")
    if result.unspaced_share > NOTABLE_SHARE:
        doubts.append(
            "Chinese, Japanese, Thai and other scripts without spaces are not split into words: each character is a "
            "word, and two are a pair."
        )
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


def write_shortcuts_page(page: Path, result: Shortcuts) -> None:
    """Write a page about shortcuts."""
    html.check_page(page)
    html.write_page(page, render_shortcuts(result))


def render_shortcuts(result: Shortcuts) -> str:
    """The page as text."""
    features = draw_features(result)
    return html.render(
        "shortcuts_page.html.jinja",
        result=result,
        sentences=summary(result),
        tables=[
            ("shortcuts", "Shortcuts", "What predicts a label beyond chance, with example rows.", result.shortcuts),
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
        features=features and html.svg(features),
        picked=PICKED,
        environment=provenance(),
    )


def draw_features(result: Shortcuts) -> Figure | None:
    """z of features against the texts that they are in, with the names of the most distinct shortcuts."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    shown = result.findings[:SHOWN_POINTS]
    if not shown:
        return None
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(LogFormatter())
    looks: dict[str, dict[str, Any]] = {
        "unproven": {"color": "0.5", "markersize": 4, "fillstyle": "none", "alpha": 0.7},
        "shortcut": {"color": COLORS[0], "markersize": 5},
    }
    for verdict, look in looks.items():
        chosen = [finding for finding in shown if finding.verdict == verdict]
        axes.plot([f.texts for f in chosen], [max(f.z, LEAST_Z) for f in chosen], "o", label=verdict, **look)
    needed = float(-special.ndtri(result.options.level / result.num_tests))
    axes.axhline(needed, color="black", linestyle="--", linewidth=1, label="beyond chance")
    words_at: dict[tuple[int, float], list[str]] = {}  # words that are one point share a name
    for finding in result.shortcuts:
        words_at.setdefault((finding.texts, finding.z), []).append(plain(visible(finding.feature), 16))
    named: list[tuple[int, float]] = []
    for (texts, z), words in words_at.items():
        covers = any(1 / 4 < texts / x < 4 and 1 / 1.09 < z / y < 1.09 for x, y in named)  # another name
        if not covers and len(named) < NAMED_POINTS:
            name = ", ".join(words) if len(words) < 3 else f"{words[0]}, +{len(words) - 1}"
            axes.annotate(name, (texts, z), xytext=(5, 2), textcoords="offset points", fontsize=8)
            named.append((texts, z))
    label(axes, "texts with the feature", "z", "How distinct features are, and in how many texts")
    legend(axes)
    return figure
