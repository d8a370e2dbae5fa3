"""What a search for shortcuts found, in sentences, for the terminal and the page."""

from __future__ import annotations

import unicodedata

from scansnap.shortcuts.attention import Outcome
from scansnap.shortcuts.result import Finding, Shortcuts

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


def counted(number: int, kind: str) -> str:
    """So many of a kind: 1 row, 2 rows."""
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
    """What to know of rows and labels before one believes anything."""
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
            f"{counted(len(rare), 'label')} of fewer than {result.options.least} rows, too few for a word to tell: "
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


def words_of_outcomes(result: Shortcuts) -> list[str]:
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
    """With its standard error."""
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
